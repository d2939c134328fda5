"""Transactions: committed ones are seen whole, aborted ones never, and none hangs; their offsets hold with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.harness import wire
from tests.power.look import LATEST, READ_COMMITTED
from tests.power.promises.base import Past, Promise, TopicPlan
from tests.power.promises.offsets import fetch_offsets
from tests.power.promises.records import send
from tests.power.world import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Key, Look
    from tests.power.world import Actor, World

TOPIC, PARTITIONS = "transactional", 3
BUSY = {14, 15, 16, 51}
"""Codes that ask to come again: the coordinator is loading, absent or elsewhere, or a transaction is just ending."""
SETTLE_S = 30.0
FLAG = 0x10


class Transactions(Promise):
    """Two producers that ask for their partitions, and one whose writing adds them (KIP-890)."""

    name = "transactions"

    def topics(self, world: World) -> dict[str, TopicPlan]:
        return {TOPIC: (PARTITIONS, {"segment.bytes": str(world.history.settings["segment.bytes"])})}

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        for name, newer in (("tx-a", False), ("tx-b", False), ("tx-c", True)):
            yield name, lambda actor, newer=newer: Producer(actor, newer=newer).run()

    def check_after(self, past: Past, look: Look) -> Iterator[str]:
        """An id that is taken over ends its transaction: then nothing may be open any more."""
        for name in sorted({op.what["id"] for op in past.ops("transaction begins")}):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            answer = look.patiently(api.INIT_PRODUCER_ID, 4, request, lambda found: int(found.error_code), BUSY)
            if answer.error_code:
                yield f"transactional id {name} cannot be taken over: error {answer.error_code}"
        hanging = _wait_for_ends(look)
        for key, (stable, end) in hanging.items():
            yield f"{key[0]}-{key[1]}: a transaction hangs, the last stable offset is {stable}, the end {end}"
        yield from _check_records(past, look)
        yield from _check_offsets(past, look)


def _wait_for_ends(look: Look) -> dict[Key, tuple[int, int]]:
    """The partitions whose last stable offset does not reach the end."""
    keys = [
        (topic.name, partition)
        for topic in look.topics.values()
        if topic.name in {TOPIC, "__consumer_offsets"}
        for partition in range(topic.partition_count)
    ]
    deadline = time.monotonic() + SETTLE_S
    while True:
        ends = look.offsets(keys, LATEST)
        stable = look.offsets(keys, LATEST, READ_COMMITTED)
        behind = {key: (stable[key], ends[key]) for key in keys if stable[key] != ends[key]}
        if not behind or time.monotonic() > deadline:
            return behind
        time.sleep(0.005)


def _endings(past: Past) -> dict[int, tuple[bool, bool]]:
    """Serial → (whether it commits, whether that was answered) of every transaction whose end may have been asked."""
    found: dict[int, tuple[bool, bool]] = {}
    for op in past.ops("transactions"):
        promised = past.promised(op) or found.get(op.what["serial"], (False, False))[1]
        found[op.what["serial"]] = (op.what["commit"], promised)
    return found


def _check_records(past: Past, look: Look) -> Iterator[str]:
    if TOPIC not in look.topics:
        return
    logs = look.read([(TOPIC, partition) for partition in range(PARTITIONS)], isolation=READ_COMMITTED)
    seen: set[int] = set()
    for log in logs.values():
        yield from log.faults
        seen |= log.visible
    endings = _endings(past)
    sure: dict[int, set[int]] = {}
    possible: dict[int, set[int]] = {}
    for op in past.ops("records"):
        if op.what["topic"] == TOPIC:
            own = set(range(op.what["first"], op.what["first"] + op.what["count"]))
            possible.setdefault(op.what["txn"], set()).update(own)
            if past.promised(op):
                sure.setdefault(op.what["txn"], set()).update(own)
    for serial, tokens in possible.items():
        commit, promised = endings.get(serial, (False, False))
        visible, whole = tokens & seen, sure.get(serial, set())
        if commit and promised and not whole <= seen:
            yield f"transaction {serial} was committed, and records {sorted(whole - seen)} of it are not seen"
        elif not commit and visible:
            yield f"transaction {serial} was not committed, and records {sorted(visible)} of it are seen"
        elif visible and not whole <= seen:
            yield f"transaction {serial} is seen in part: {sorted(visible)}, not {sorted(whole - seen)}"


def _check_offsets(past: Past, look: Look) -> Iterator[str]:
    """A group's offset is that of the last transaction that was committed, or of one whose end is not known."""
    endings = _endings(past)
    by_group: dict[str, list[Op]] = {}
    for op in past.ops("transaction offsets"):
        by_group.setdefault(op.what["group"], []).append(op)
    if not by_group:
        return
    found = fetch_offsets(look, by_group, stable=True)
    for group, own in by_group.items():
        counted = [op for op in own if endings.get(op.what["serial"], (False, False))[0]]
        sure = max(
            (i for i, op in enumerate(counted) if endings[op.what["serial"]][1] and past.promised(op)), default=-1
        )
        allowed = {op.what["offset"] for op in counted[max(sure, 0) :]} | ({-1} if sure < 0 else set())
        offset, error = found[group].get(("plain", 0), (-1, found[group].get(("", 0), (0, 0))[1]))
        if error:
            yield f"group {group}: error {error}"
        elif offset not in allowed:
            yield f"group {group}: its offset is {offset}, transactions allow {sorted(allowed)}"


class Producer:
    """One transactional id. A transaction is a list of requests; one that got no answer is sent again after a restart
    of the broker, or the id is taken over, which aborts what was open."""

    def __init__(self, actor: Actor, *, newer: bool) -> None:
        self.actor = actor
        self.newer = newer
        self.id, self.group = actor.name, f"group of {actor.name}"
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}
        self.waiting: list[Callable[[], int]] = []
        self.offset = 0

    def run(self) -> None:
        self.actor.rounds(self._step, start=self._begin)

    def _begin(self) -> None:
        if self.producer_id < 0 or self.actor.draw.random() < 0.3:
            self._take_over()

    def _take_over(self) -> None:
        self.waiting.clear()
        self.producer_id = -1
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)

        def succeeded(answer: Any) -> dict[str, Any] | None:
            return None if answer.error_code else {"id": answer.producer_id, "epoch": answer.producer_epoch}

        found = None
        while found is None:
            found = self.actor.attempt(
                "transaction begins",
                {"id": self.id},
                api.INIT_PRODUCER_ID,
                5 if self.newer else 4,
                request,
                succeeded=succeeded,
            )
            if found is None:
                self.actor.come_again()
        self.producer_id, self.epoch, self.sequences = found["id"], found["epoch"], {}

    def _step(self) -> None:
        if self.producer_id < 0:
            self._take_over()
        if not self.waiting:
            self._plan()
        code = self.waiting[0]()
        if code == 0:
            self.waiting.pop(0)
        elif code in BUSY:
            self.actor.come_again()
        else:
            self._take_over()

    def _plan(self) -> None:
        draw = self.actor.draw
        serial = self.actor.world.tokens(1)
        partitions = draw.sample(range(PARTITIONS), draw.randint(1, PARTITIONS))
        if not self.newer:
            self.waiting.append(lambda: self._add(partitions))
        for partition in partitions:
            self.waiting.append(self._write(serial, partition))
        if draw.random() < 0.5:
            if not self.newer:
                self.waiting.append(self._add_offsets)
            self.waiting.append(self._commit_offset(serial))
        commit = draw.random() < 0.7
        self.waiting.append(lambda: self._end(serial, commit=commit))

    def _add(self, partitions: list[int]) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)],
        )
        answer = self.actor.ask(api.ADD_PARTITIONS_TO_TXN, 3, request)
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return max(int(result.partition_error_code) for result in results)

    def _write(self, serial: int, partition: int) -> Callable[[], int]:
        count = self.actor.draw.choice((1, 2, 3))
        first = self.actor.world.tokens(count)
        records = [wire.Record(None, value(first + i, self.actor.draw)) for i in range(count)]
        what = {"first": first, "count": count, "txn": serial}
        batches: list[bytes] = []

        def write() -> int:
            if not batches:
                sequence = self.sequences.get(partition, 0)
                self.sequences[partition] = sequence + count
                fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
                batches.append(wire.batch_of(records, attributes=FLAG, **fields))
            found = send(
                self.actor,
                TOPIC,
                partition,
                batches[0],
                acks=-1,
                what=what,
                version=12 if self.newer else 9,
                transactional_id=self.id,
            )
            return 0 if found is not None else self._refused()

        return write

    def _refused(self) -> int:
        """Return a retriable error for a write: the partition is being added, or the previous marker is pending."""
        self.refusals = getattr(self, "refusals", 0) + 1
        return 51 if self.refusals % 20 else -1

    def _add_offsets(self) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=self.group
        )
        return int(self.actor.ask(api.ADD_OFFSETS_TO_TXN, 3, request).error_code)

    def _commit_offset(self, serial: int) -> Callable[[], int]:
        self.offset += 1
        offset = self.offset
        token = self.actor.world.tokens(1)
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=f"q{token:08d}q"
        )

        def commit() -> int:
            request = TxnOffsetCommitRequest(
                transactional_id=self.id,
                group_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[TxnOffsetCommitRequestTopic(name="plain", partitions=[part])],
            )
            code = [0]

            def succeeded(answer: Any) -> dict[str, Any] | None:
                code[0] = int(answer.topics[0].partitions[0].error_code)
                return None if code[0] else {}

            self.actor.attempt(
                "transaction offsets",
                {"group": self.group, "serial": serial, "offset": offset},
                api.TXN_OFFSET_COMMIT,
                5 if self.newer else 3,
                request,
                succeeded=succeeded,
                token=token,
                place="__consumer_offsets-",
            )
            return code[0]

        return commit

    def _end(self, serial: int, *, commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        code = [0]
        answers: list[Any] = []

        def succeeded(answer: Any) -> dict[str, Any] | None:
            code[0] = int(answer.error_code)
            answers.append(answer)
            return None if code[0] else {}

        what = {"id": self.id, "serial": serial, "commit": commit}
        self.actor.attempt("transactions", what, api.END_TXN, 5 if self.newer else 3, request, succeeded=succeeded)
        if self.newer and code[0] == 0 and answers[0].producer_epoch >= 0:
            if (answers[0].producer_id, answers[0].producer_epoch) != (self.producer_id, self.epoch):
                self.sequences = {}
            self.producer_id, self.epoch = answers[0].producer_id, answers[0].producer_epoch
        return code[0]
