"""What clients asked a recorded broker for, and when it answered, in moments of the trace.

An Op is known to have been possible from `begun` on (nothing of it was recorded before) and to be promised from
`answered` on: the moment at which the broker sent its answer, not the one at which the client read it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tests.power import trace
from tests.power.trace import Record, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

NEVER = 1 << 62


@dataclass(slots=True)
class Op:
    """One request about one thing."""

    promise: str
    what: dict[str, Any]
    begun: int
    connection: tuple[int, int]  # which process of the run, the client's port
    number: int  # correlation id; on a connection of 0.7 the answer's place among the answers
    result: dict[str, Any] | None = None  # the fields of the response; None: no response, or a refusal
    answered: int = NEVER
    token: int = -1  # a number that the broker writes to `place` before it answers, see the audit
    place: str = ""

    def promised(self, moment: int) -> bool:
        """Whether it was answered, with success, before a moment."""
        return self.result is not None and self.answered < moment

    def possible(self, moment: int) -> bool:
        """Whether anything of it can be there at a moment."""
        return self.begun <= moment


@dataclass
class History:
    """Every Op of a run by promise, in the order in which each client began them; and what else a check must know."""

    settings: dict[str, Any] = field(default_factory=dict)
    ops: dict[str, list[Op]] = field(default_factory=lambda: defaultdict(list))

    def save(self, path: Path) -> None:
        rows = {promise: [asdict(op) for op in ops] for promise, ops in self.ops.items()}
        path.write_text(json.dumps({"settings": self.settings, "ops": rows}))

    @classmethod
    def load(cls, path: Path) -> History:
        stored = json.loads(path.read_text())
        history = cls(stored["settings"])
        for promise, rows in stored["ops"].items():
            for row in rows:
                row["connection"] = tuple(row["connection"])
                history.ops[promise].append(Op(**row))
        return history

    def every_op(self) -> Iterable[Op]:
        for ops in self.ops.values():
            yield from ops


def resolve(history: History, records: Sequence[Record]) -> None:
    """Gives each answered Op the moment of the broker's send; TraceError when an answer was never seen being sent."""
    answers = sent_answers(records)
    for op in history.every_op():
        if op.result is None:
            continue
        places = answers.get((*op.connection, op.number), [])
        place = next((place for place in places if place >= op.begun), None)
        if place is None:
            raise TraceError(f"the recording does not hold the answer to {op}, but those at {places}")
        op.answered = place


def sent_answers(records: Sequence[Record]) -> dict[tuple[int, int, int], list[int]]:
    """(process, client's port, correlation id) → the moments at which an answer's first byte left.

    There are several where the port was used again, by a later connection. Where an answer is not Kafka's of today, the
    port is negative and the number that of the answer on its connection.
    """
    streams: dict[tuple[int, int, int], list[tuple[int, bytes, int]]] = defaultdict(list)
    processes: dict[int, int] = {}
    ports: dict[int, int] = {}
    for record in records:
        if record.kind == trace.PROCESS:
            processes[record.pid] = len(processes)
        elif record.kind == trace.SEND and record.flags & trace.FLAG_FAILED:
            if record.a in ports:  # else the client was gone before: nothing was noted
                _shorten(streams[processes[record.pid], ports[record.a], record.a], record.c)
        elif record.kind == trace.SEND:
            ports[record.a] = record.b
            streams[processes[record.pid], record.b, record.a].append((record.place, record.data, record.c))
    answers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for (process, port, _), sends in streams.items():
        for number, (place, correlation) in enumerate(_frames(sends)):
            answers[process, port, correlation].append(place)
            answers[process, -port, number].append(place)
    return answers


def _shorten(sends: list[tuple[int, bytes, int]], unsent: int) -> None:
    place, data, size = sends[-1]
    sends[-1] = (place, data[: size - unsent], size - unsent)


def _frames(sends: list[tuple[int, bytes, int]]) -> Iterable[tuple[int, int]]:
    """(moment, correlation id) of each frame in a stream of sends."""
    need = 0  # bytes of the current frame that are still to come
    head = b""
    began = 0
    for place, data, size in sends:
        at = 0
        while at < size:
            if need:
                taken = min(need, size - at)
                need -= taken
                at += taken
                continue
            if not head:
                began = place
            piece = data[at : at + 8 - len(head)]
            if not piece:
                return  # a frame begins in bytes that were not kept
            head += piece
            at += len(piece)
            if len(head) == 8:
                need = int.from_bytes(head[:4], "big") - 4
                yield began, int.from_bytes(head[4:], "big", signed=True)
                head = b""
