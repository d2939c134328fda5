"""Moves of kafkalite.failures: letter, ledger row and the group's offset appear together or not at all.

A member moves one record after the other: its letter, its row and the next offset, in one transaction. It continues at
the group's offset, as a member does. So in the end the readable letters are those of all records below the group's
offset, each once, and the ledger names the same ones.

As after an unclean end, every second move is noted first: a transaction writes that these records are in hand, then
marks, with acks=1 and outside of any transaction, name the record the handler has, or the number of records it has. The
last marks may be lost. A readable mark names records whose notes or outcomes are readable too. The transaction of the
move removes the mark with a tombstone: where that is readable, so are the rows of the move. Once it is committed, no
earlier mark is the newest row of its key; an aborted tombstone removes no mark.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkalite.failures.events import Failure, FailureKind, Goal, Letter, Message, Put
from kafkalite.failures.headers import rendered
from kafkalite.failures.names import Layout, origin_text
from kafkalite.failures.rows import Row, State, encode_row, hand_key
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.harness import wire
from tests.power.look import READ_COMMITTED
from tests.power.promises.base import Past, Promise, TopicPlan
from tests.power.promises.offsets import fetch_offsets
from tests.power.promises.records import send
from tests.power.promises.transactions import FLAG, Producer
from tests.power.world import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.look import Log, Look
    from tests.power.world import Actor, World

GROUP = "movers"
SOURCE = TopicPartition("orders", 0)
LAYOUT = Layout(GROUP, [SOURCE.topic], [], by_key=False)
DEAD, LEDGER = LAYOUT.dead(SOURCE.topic), LAYOUT.ledger


class Letters(Promise):
    """One member of a group whose records all fail."""

    name = "letters"

    def topics(self, world: World) -> dict[str, TopicPlan]:
        size = str(world.history.settings["segment.bytes"])
        return {
            SOURCE.topic: (1, {}),  # a commit of offsets for a topic that does not exist is refused
            DEAD: (1, {"segment.bytes": size, "retention.ms": "-1"}),
            LEDGER: (1, {"segment.bytes": size, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
        }

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        del world
        yield "mover", lambda actor: Mover(actor).run()

    def check_after(self, past: Past, look: Look) -> Iterator[str]:
        """Behind Transactions, which has brought what was open to its end."""
        if not {DEAD, LEDGER} <= look.topics.keys():
            return
        logs = look.read([(DEAD, 0), (LEDGER, 0)], isolation=READ_COMMITTED)
        for log in logs.values():
            yield from log.faults
        places = dict(numbered(past, "moves"))
        found = {
            topic: Counter(places[token] for token in logs[topic, 0].visible if token in places)
            for topic in (DEAD, LEDGER)
        }
        yield from check_marks(past, logs[LEDGER, 0], found[LEDGER])
        yield from check_newest_mark(past, logs[LEDGER, 0])
        offset, error = fetch_offsets(look, [GROUP], stable=True)[GROUP].get((SOURCE.topic, 0), (-1, 0))
        if error:
            yield f"group {GROUP}: error {error}"
            return
        offset = max(offset, 0)
        wanted = Counter(range(offset))
        for topic, numbers in found.items():
            for number in sorted((numbers - wanted) | (wanted - numbers)):
                yield f"{topic} speaks {numbers[number]} times of record {number}, and the group stands at {offset}"
        committed = {serial for serial, promised in commits(past).items() if promised}
        stands = [op for op in past.ops("moved offsets") if op.what["serial"] in committed and past.promised(op)]
        sure = max((op.what["offset"] for op in stands), default=0)
        if offset < sure:
            yield f"group {GROUP} stands at {offset}, and records below {sure} were moved"


def commits(past: Past) -> dict[int, bool]:
    """Return the transactions whose commit was asked for, and whether it was answered."""
    found: dict[int, bool] = {}
    for op in past.ops("transactions"):
        if op.what["commit"]:
            found[op.what["serial"]] = past.promised(op) or found.get(op.what["serial"], False)
    return found


def check_marks(past: Past, ledger: Log, moved: Counter[int]) -> Iterator[str]:
    """Each mark, and each tombstone of one, speaks of records that the ledger knows."""
    visible = ledger.visible
    noted = {number for token, number in numbered(past, "notes") if token in visible}
    for token, (position, until) in numbered(past, "marks"):
        for number in range(position, until) if token in visible else ():
            if number not in noted and not moved[number]:
                yield f"{LEDGER} marks record {number} as in hand, and has no row of it"
    for token, (position, until) in numbered(past, "tombstones"):
        for number in range(position, until) if token in visible else ():
            if not moved[number]:
                yield f"{LEDGER} takes the mark of record {number} away, and does not say what became of it"


def check_newest_mark(past: Past, ledger: Log) -> Iterator[str]:
    """The newest row of the key is no mark that was taken away, and no mark went without that.

    A mark may be lost with the end of the log, behind which the started broker may have written markers since.
    """
    ops = [op for op in past.ops("records") if "marks" in op.what or "tombstones" in op.what]
    tokens = {op.what["first"] for op in ops} & ledger.visible
    newest = max((offset for offset, token in ledger.tokens.items() if token in tokens), default=-1)
    last = max((offset for offset, token in ledger.tokens.items() if token >= 0), default=-1)
    asked = commits(past)
    sure = [place for place, op in enumerate(ops) if asked.get(op.what.get("txn")) and past.promised(op)]
    before = {op.what["first"] for op in ops[: max(sure, default=0)] if "marks" in op.what}
    if ledger.tokens.get(newest) in before:
        yield f"{LEDGER} has a mark at {newest}, which a committed tombstone took away"
    for op in reversed(ops):
        if op.what.get("txn") in asked:
            return
        base = op.result["base"] if "marks" in op.what and past.promised(op) and op.result else last
        if newest < base < last:
            yield f"{LEDGER} has a record at {last}, and no mark at {base}, which no committed tombstone took away"


def numbered(past: Past, kind: str) -> Iterator[tuple[int, Any]]:
    """Yield the token of each record of the ledger, or letter, and what it is of: the number in its topic of a record
    that was moved or noted, the first number and the one behind the last of a mark or its tombstone."""
    for op in past.ops("records"):
        for at, number in enumerate(op.what.get(kind, ())):
            yield op.what["first"] + at, number


class Mover(Producer):
    """See the module."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor, newer=True)
        self.group = GROUP
        self.finished_count = 0

    def _take_over(self) -> None:
        """Fetch the group's offset after any open transaction has ended."""
        super()._take_over()
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
        while True:
            answer = self.actor.ask(api.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups, require_stable=True))
            (own,) = answer.groups
            parts = [part for topic in own.topics for part in topic.partitions]
            if not own.error_code and not any(part.error_code for part in parts):
                self.offset = max(0, *(part.committed_offset for part in parts), 0)
                return
            self.actor.come_again()

    def _step(self) -> None:
        """One whole transaction with what belongs to it: a busy machine may give this actor few turns."""
        finished = self.finished_count
        while self.finished_count == finished:
            super()._step()

    def _plan(self) -> None:
        serial = self.actor.world.tokens(1)
        numbers = list(range(self.offset, self.offset + self.actor.draw.randint(1, 4)))
        noted = self.finished_count % 2
        if noted:
            self._note(numbers)
        self.waiting.append(self._move(serial, DEAD, numbers, self._letter))
        self.waiting.append(self._move(serial, LEDGER, numbers, self._row))
        if noted:
            span = (numbers[0], numbers[-1] + 1)
            self.waiting.append(self._move(serial, LEDGER, [span], self._tombstone, "tombstones"))
        self.waiting.append(self._stand(serial, numbers[-1] + 1))
        commit = self.finished_count < 2 or self.actor.draw.random() < 0.8  # one of each kind, in short runs too
        self.waiting.append(lambda: self._finish(serial, numbers[-1] + 1, commit=commit))

    def _note(self, numbers: list[int]) -> None:
        """Notes the records in one transaction, then marks them as in the handler's hand, one or two at a time."""
        serial = self.actor.world.tokens(1)

        def note(number: int, token: int) -> wire.Record:
            row = Row(State.TRYING, reason=f"q{token:08d}q", last=serial, member=GROUP, among=len(numbers))
            return wire.Record(origin_text(SOURCE, number).encode(), encode_row(row))

        self.waiting.append(self._move(serial, LEDGER, numbers, note, "notes"))
        self.waiting.append(lambda: self._end(serial, commit=True))
        size = self.actor.draw.randint(1, 2)
        self.waiting += [self._mark(serial, numbers[at : at + size]) for at in range(0, len(numbers), size)]

    def _mark(self, serial: int, numbers: list[int]) -> Callable[[], int]:
        one, until = len(numbers) == 1, numbers[-1] + 1
        row = Row(State.OPEN, last=serial, member=GROUP, tries=int(one), position=numbers[0])
        row = row if one else row._replace(until=until)

        def write() -> int:
            token = self.actor.world.tokens(1)  # a mark that is sent again may be there twice, as two records
            marked = row._replace(reason=f"q{token:08d}q")
            batch = wire.batch_of([wire.Record(hand_key(SOURCE).encode(), encode_row(marked))])
            what = {"first": token, "count": 1, "marks": [(numbers[0], until)]}
            return 0 if send(self.actor, LEDGER, 0, batch, acks=1, what=what) is not None else self._refused()

        return write

    def _letter(self, number: int, token: int) -> wire.Record:
        message = Message(*SOURCE, number, 1, b"k%d" % number, value(token, self.actor.draw), (("h", b"x"),))
        letter = Letter(f"{origin_text(SOURCE, number)}/0.1", GROUP, SOURCE, number, 1, first=1)
        failure = Failure(FailureKind.FATAL, "ValueError", text="no such customer")
        put = Put(Goal.DEAD, DEAD, 0, message, letter, failure, 1)
        written = rendered(put, 1 << 20, ("spring",), None)
        headers = [(name.encode(), data) for name, data in written.headers]
        return wire.Record(written.key, written.value, headers)

    def _row(self, number: int, token: int) -> wire.Record:
        origin = origin_text(SOURCE, number)
        row = Row(State.DEAD, f"{origin}/0.1", DEAD, 0, 1, "ValueError", reason=f"q{token:08d}q")
        return wire.Record(origin.encode(), encode_row(row))

    def _tombstone(self, span: tuple[int, int], token: int) -> wire.Record:
        """Its token is in a header, as it has no value."""
        del span
        return wire.Record(hand_key(SOURCE).encode(), None, [(b"token", f"q{token:08d}q".encode())])

    def _move(
        self, serial: int, topic: str, numbers: list[Any], made: Callable[[Any, int], wire.Record], kind: str = "moves"
    ) -> Callable[[], int]:
        first = self.actor.world.tokens(len(numbers))
        records = [made(number, first + at) for at, number in enumerate(numbers)]
        what = {"first": first, "count": len(numbers), "txn": serial, kind: numbers}
        batches: list[bytes] = []

        def write() -> int:
            if not batches:
                place = (DEAD, LEDGER).index(topic)
                sequence = self.sequences.get(place, 0)
                self.sequences[place] = sequence + len(numbers)
                fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
                batches.append(wire.batch_of(records, attributes=FLAG, **fields))
            found = send(self.actor, topic, 0, batches[0], acks=-1, what=what, version=12, transactional_id=self.id)
            return 0 if found is not None else self._refused()

        return write

    def _stand(self, serial: int, offset: int) -> Callable[[], int]:
        token = self.actor.world.tokens(1)
        part = TxnOffsetCommitRequestPartition(
            partition_index=SOURCE.partition, committed_offset=offset, committed_metadata=f"q{token:08d}q"
        )

        def commit() -> int:
            request = TxnOffsetCommitRequest(
                transactional_id=self.id,
                group_id=GROUP,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[TxnOffsetCommitRequestTopic(name=SOURCE.topic, partitions=[part])],
            )
            code = [0]

            def succeeded(answer: Any) -> dict[str, Any] | None:
                code[0] = int(answer.topics[0].partitions[0].error_code)
                return None if code[0] else {}

            self.actor.attempt(
                "moved offsets",
                {"serial": serial, "offset": offset},
                api.TXN_OFFSET_COMMIT,
                5,
                request,
                succeeded=succeeded,
                token=token,
                place="__consumer_offsets-",
            )
            return code[0]

        return commit

    def _finish(self, serial: int, offset: int, *, commit: bool) -> int:
        code = self._end(serial, commit=commit)
        if code == 0:
            self.finished_count += 1
            self.offset = offset if commit else self.offset
        return code
