"""Records: acks=all ones are there, at their offsets, once; acks=1 ones may be missing at the end of a log alone.

`append` is for every promise whose actors write records: it puts down what was sent where, and this file's check goes
over all of them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.power.promises.base import Past, Promise, TopicPlan
from tests.power.world import single_error, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Key, Log, Look
    from tests.power.world import Actor, World

PARTITIONS = 4
WIDE_PARTITIONS = 36
"""Enough that a checkpoint syncs the whole file system instead of each log."""


def append(
    actor: Actor,
    topic: str,
    partition: int,
    *,
    acks: int = -1,
    count: int | None = None,
    keys: list[bytes] | None = None,
    batch: dict[str, int] | None = None,
    transactional_id: str | None = None,
    version: int = 9,
    **what: Any,
) -> int | None:
    """Appends a few new records; their base offset, None for a refusal."""
    count = (len(keys) if keys else actor.draw.choice((1, 1, 1, 2, 5))) if count is None else count
    first = actor.world.tokens(count)
    size_max = actor.draw.choice((20, 400, 400, 1500))
    records = [wire.Record(keys[i] if keys else None, value(first + i, actor.draw, size_max)) for i in range(count)]
    return send(
        actor,
        topic,
        partition,
        wire.batch_of(records, **(batch or {})),
        acks=acks,
        version=version,
        transactional_id=transactional_id,
        what={"first": first, "count": count, **what},
    )


def send(
    actor: Actor,
    topic: str,
    partition: int,
    batch: bytes,
    *,
    acks: int,
    what: dict[str, Any],
    version: int = 9,
    transactional_id: str | None = None,
) -> int | None:
    """Sends a batch and writes down that it may be there."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=data)
    full = {"topic": topic, "partition": partition, "acks": acks, **what}

    def succeeded(answer: Any) -> dict[str, Any] | None:
        if single_error(answer):
            return None
        return {"base": answer.responses[0].partition_responses[0].base_offset}

    found = actor.attempt(
        "records",
        full,
        api.PRODUCE,
        version,
        request,
        succeeded=succeeded,
        token=what["first"] if acks == -1 and "tombstone" not in what else -1,
        place=f"{topic}-{partition}/",
    )
    return None if found is None else int(found["base"])


class Records(Promise):
    """Plain and idempotent producers; and the check of every record of any promise."""

    name = "records"

    def topics(self, world: World) -> dict[str, TopicPlan]:
        size = str(world.history.settings["segment.bytes"])
        return {
            "plain": (PARTITIONS, {"segment.bytes": size}),
            "idempotent": (PARTITIONS, {"segment.bytes": size}),
            "wide": (WIDE_PARTITIONS, {"segment.bytes": size}),
        }

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield from ((f"plain {i}", _plain) for i in range(4 + world.history.settings["crowd"]))
        yield from ((f"idempotent {i}", _idempotent) for i in range(2))
        yield from ((f"wide {i}", _wide) for i in range(2))

    def check(self, past: Past, look: Look) -> Iterator[str]:
        by_log: dict[Key, list[Op]] = {}
        for op in past.ops("records"):
            by_log.setdefault((op.what["topic"], op.what["partition"]), []).append(op)
        seen: dict[int, Key] = {}
        for key, log in look.logs.items():
            yield from log.faults
            if not log.faults:
                yield from check_log(past, look, key, log, by_log.get(key, ()))
                yield from _check_tokens(past, look, key, log, seen)
        draw = random.Random(past.moment)
        readable = [key for key, log in look.logs.items() if not log.faults and log.start < log.end]
        yield from look.check_positions(readable, lambda _, log: log.end - 1)
        yield from look.check_positions(readable, lambda _, log: draw.randrange(log.start, log.end))

    def check_after(self, past: Past, look: Look) -> Iterator[str]:
        """Check that resent batches are deduplicated, and that appends continue at the log end and can be read."""
        yield from _check_repeats(past, look)
        keys = [key for key, log in look.logs.items() if not log.faults]
        answers = look.produce({key: wire.batch_of([wire.Record(b"after", b"after")]) for key in keys})
        ends = look.offsets(keys, -1)
        for key in keys:
            error, base = answers[key]
            log = look.logs[key]
            if error:
                yield f"{key[0]}-{key[1]}: an append is refused with error {error}"
            elif base < log.end or ends[key] != base + 1:
                yield f"{key[0]}-{key[1]} ended at {log.end}, an append went to {base}, the end is {ends[key]}"


def check_log(past: Past, look: Look, key: Key, log: Log, ops: Iterable[Op]) -> Iterator[str]:
    """The log of one partition beside what was promised of it."""
    name = f"{key[0]}-{key[1]}"
    topic_id = look.topics[key[0]].id
    settings = past.history.settings["topics"].get(key[0], {})
    compacted = "compact" in settings.get("cleanup.policy", "")
    if not compacted:
        expected = log.start
        for first, behind, _ in log.spans:
            if first > expected or behind <= first:
                yield f"{name}: a hole, offsets {expected} to {first - 1} are not there (the log ends at {log.end})"
            expected = behind
        if expected < log.end:
            yield f"{name}: a hole at the end, from {expected} to {log.end}"
    for op in ops:
        if op.what.get("id", topic_id) != topic_id or not past.promised(op):
            continue
        base = op.result["base"] if op.result else 0
        if op.what["acks"] == 1 and base >= log.end:
            continue
        yield from _check_op(name, log, op, base, compacted=compacted, trimmed=bool(settings.get("trimmed")))


def _check_repeats(past: Past, look: Look) -> Iterator[str]:
    """The last batch of an idempotent producer in a partition, where nothing it sent is unanswered."""
    last: dict[Key, Op] = {}
    for op in past.ops("records"):
        if "sequence" in op.what:
            last[op.what["topic"], op.what["partition"]] = op
    batches = {}
    for key, op in last.items():
        log = look.logs.get(key)
        if past.promised(op) and log is not None and not log.faults:
            records = [wire.Record(b"again", b"again")] * op.what["count"]
            producer = {"producer_id": op.what["producer"], "producer_epoch": op.what["epoch"]}
            batches[key] = wire.batch_of(records, base_sequence=op.what["sequence"], **producer)
    for key, (error, base) in (look.produce(batches) if batches else {}).items():
        expected = (last[key].result or {})["base"]
        if error or base != expected:
            yield f"{key[0]}-{key[1]}: a batch sent again is answered with error {error}, offset {base}, not {expected}"


def _check_op(name: str, log: Log, op: Op, base: int, *, compacted: bool, trimmed: bool) -> Iterator[str]:
    first = op.what["first"]
    for i in range(op.what["count"]):
        offset = base + i
        found = log.tokens.get(offset)
        if found == (-1 if op.what.get("tombstone") else first + i) or (
            compacted and found is None and offset < log.end
        ):
            continue
        if offset < log.start and trimmed:
            continue
        what = "nothing" if found is None else f"record {found}"
        yield (
            f"{name}: record {first + i} was acknowledged (acks={op.what['acks']}) at {offset}, where {what} is; "
            f"the log is {log.start} to {log.end}"
        )
        return


def _check_tokens(past: Past, look: Look, key: Key, log: Log, seen: dict[int, Key]) -> Iterator[str]:
    """Every record there was sent to this partition of this topic, and is there once."""
    topic_id = look.topics[key[0]].id
    name = f"{key[0]}-{key[1]}"
    for offset, token, _ in log.rows:
        if token < 0 and offset in log.keys:
            continue  # a tombstone
        op = past.senders.get(token)
        if op is None or (op.what["topic"], op.what["partition"]) != key or not op.possible(past.moment):
            yield f"{name}: record {token} at {offset} was never sent there"
        elif op.what.get("id", topic_id) != topic_id:
            yield f"{name}: record {token} at {offset} was sent to an earlier topic of that name"
        elif token in seen:
            yield f"{name}: record {token} at {offset} is there twice"
        seen[token] = key


# ---- actors ----------------------------------------------------------------------------------------------------------


def _plain(actor: Actor) -> None:
    def step() -> None:
        append(actor, "plain", actor.draw.randrange(PARTITIONS))

    actor.rounds(step)


def _wide(actor: Actor) -> None:
    """acks=1 for the most part, so that many logs are dirty when a checkpoint comes."""

    def step() -> None:
        acks = -1 if actor.draw.random() < 0.2 else 1
        append(actor, "wide", actor.draw.randrange(WIDE_PARTITIONS), acks=acks, count=1)

    actor.rounds(step)


def _idempotent(actor: Actor) -> None:
    """Sends the last batch of a partition again now and then, and after each loss of the broker."""
    producer: dict[str, int] = {}
    sequences: dict[int, int] = {}
    last: dict[int, tuple[bytes, dict[str, Any]]] = {}
    unsure: list[int] = []

    def begin() -> None:
        if not producer or actor.draw.random() < 0.3:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            found = actor.attempt("producer ids", {}, api.INIT_PRODUCER_ID, 4, request, succeeded=_producer_id)
            assert found is not None, "no producer id"
            producer.update(producer_id=found["id"], producer_epoch=found["epoch"])
            sequences.clear()
            last.clear()
            unsure.clear()
        while unsure:
            partition = unsure[-1]
            batch, what = last[partition]
            assert send(actor, "idempotent", partition, batch, acks=-1, what=what) is not None, "a retry was refused"
            unsure.pop()

    def step() -> None:
        partition = actor.draw.randrange(PARTITIONS)
        if partition in last and actor.draw.random() < 0.1:
            batch, what = last[partition]
        else:
            count = actor.draw.choice((1, 1, 3))
            first = actor.world.tokens(count)
            sequence = sequences.get(partition, 0)
            sequences[partition] = sequence + count
            records = [wire.Record(None, value(first + i, actor.draw)) for i in range(count)]
            batch = wire.batch_of(records, base_sequence=sequence, **producer)
            what = {
                "first": first,
                "count": count,
                "producer": producer["producer_id"],
                "epoch": producer["producer_epoch"],
                "sequence": sequence,
            }
            last[partition] = batch, what
        unsure.append(partition)
        found = send(actor, "idempotent", partition, batch, acks=-1, what=what)
        assert found is not None, "an idempotent batch was refused"
        unsure.pop()

    actor.rounds(step, start=begin)


def _producer_id(answer: Any) -> dict[str, Any] | None:
    return None if answer.error_code else {"id": answer.producer_id, "epoch": answer.producer_epoch}
