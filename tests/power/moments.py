"""Which moments of a recording a power cut is tried at: all are possible, those just behind something likelier.

an answer left · a sync began or ended · a name changed · a broker started, recovers, or stops · any other
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.power import trace

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.power.trace import Record

_NAMES = {trace.RENAME, trace.UNLINK, trace.RMDIR, trace.MKDIR, trace.TRUNCATE, trace.ALLOCATE}
_WEIGHTS = {"answer": 30, "sync": 20, "name": 20, "start": 12, "stop": 5, "any": 13}
NEAR = 4
"""Up to how many records behind one that draws attention."""


class Moments:
    """Draws moments of one recording."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._places = [record.place for record in records]
        self._places.append(records[-1].place + 1)
        self._groups: dict[str, list[int]] = {name: [] for name in _WEIGHTS}
        self._groups["any"] = list(range(len(records)))
        phase = "start"
        for number, record in enumerate(records):
            if record.kind == trace.PROCESS:
                phase = "start"
            elif record.kind == trace.MARK and record.a == trace.MARK_READY:
                phase = "serve"
            elif record.kind == trace.MARK and record.a == trace.MARK_STOP:
                phase = "stop"
            if phase != "serve":
                self._groups[phase].append(number)
            if record.kind == trace.SEND:
                self._groups["answer"].append(number)
            elif record.kind in {trace.SYNC_BEGIN, trace.SYNC_END}:
                self._groups["sync"].append(number)
            elif record.kind in _NAMES or (record.kind == trace.OPEN and record.b & 0o100):
                self._groups["name"].append(number)

    def draw(self, draw: random.Random) -> int:
        """A moment: what was recorded before that place has happened."""
        names = [name for name in _WEIGHTS if self._groups[name]]
        name = draw.choices(names, [_WEIGHTS[name] for name in names])[0]
        number = draw.choice(self._groups[name]) + draw.choice((1, 1, draw.randint(1, NEAR)))
        return self._places[min(number, len(self._places) - 1)]
