"""What Apache Kafka 4.1 answers to Produce and Fetch, kafkalite answers: codes, offsets, and the bytes of the records.

A story is played on both, in every version both serve: batches that are right, and every way a batch, a sequence or a
fetch can be wrong. What differs on purpose is listed in DIFFERENT with the reason. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.checkers.side_by_side import Make, Side, Step, differences, two_brokers, versions
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NOW = int(time.time() * 1000)
HOUR_MS = 3_600_000
GZIP, ZSTD = 1, 4
UNKNOWN_ID = bytes(range(16))
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
TOPICS = {
    "plain": {},
    "small": {"max.message.bytes": "300"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "strict": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
    "strict-compacted": {
        "cleanup.policy": "compact",
        "message.timestamp.before.max.ms": "3600000",
        "message.timestamp.after.max.ms": "3600000",
    },
    "sequences": {},
    "apart": {},
    "empty": {},
}
DIFFERENT = {
    "produce null": "Kafka fails inside and never answers",
    "produce garbage": "Kafka answers UNKNOWN_SERVER_ERROR",
    "produce not gzip": "Kafka answers UNKNOWN_SERVER_ERROR",
    "produce not zstd": "Kafka answers UNKNOWN_SERVER_ERROR",
    "produce codec 5": "Kafka answers UNKNOWN_SERVER_ERROR",
    "produce cut": "CORRUPT_MESSAGE is retried, and a batch cut on the way is worth a retry; Kafka: INVALID_RECORD",
    "produce cut header": "the same",
    "produce longer": "Kafka drops bytes behind the batch; here they are INVALID_RECORD",
    "produce magic 3": "INVALID_RECORD as for 0 and 1; Kafka: CORRUPT_MESSAGE",
    "produce stamped by the client": "INVALID_TIMESTAMP, as Kafka before 4.1 and its current source; 4.1 takes it",
    "produce negative time": "Kafka stores -1 as the batch's largest time; here the bytes stay as they came",
    "produce id without epoch": "Kafka takes a producer id without an epoch",
    "produce count above": "the first record in doubt is named, which Kafka leaves out",
    "produce count below": "the same",
    "produce gzip count": "the same",
}
"""Step → the reason for an intended difference. Kafka appends in some of these: they use separate topics."""


def records(*values: bytes, key: bytes | None = None) -> list[wire.Record]:
    return [wire.Record(key=key, value=value) for value in values]


def batch(*values: bytes, key: bytes | None = None, **fields: Any) -> bytes:
    return wire.batch_of(records(*(values or (b"v",)), key=key), **{"base_timestamp": NOW, **fields})


def packed(codec: int, payload: bytes, count: int = 1) -> bytes:
    return wire.seal_batch(payload, count, attributes=codec, base_timestamp=NOW)


def mixed(keys: Sequence[bytes | None] = (), hours: Sequence[int] = (), codec: int = 0) -> bytes:
    """Return a batch of records with these keys, and timestamps that many hours from now."""
    count = max(len(keys), len(hours))
    rows = [
        wire.Record(
            key=keys[index] if keys else b"k",
            value=b"v",
            timestamp_delta=hours[index] * HOUR_MS if hours else 0,
        )
        for index in range(count)
    ]
    payload = wire.encode_records(rows)
    times = {"base_timestamp": NOW, "max_timestamp": NOW + max(hours, default=0) * HOUR_MS}
    packed = gzip.compress(payload, mtime=0) if codec else payload
    return wire.seal_batch(packed, count, attributes=codec, **times)


def produce(data: bytes | None, topic: str = "plain", partition: int = 0, **fields: Any) -> Make:
    item = PartitionProduceData(index=partition, records=data)
    parts = fields.pop("parts", [item])

    def make(version: int, side: Side) -> ProduceRequest:
        named = {"topic_id": side.ids.get(topic, UNKNOWN_ID)} if version >= 13 else {"name": topic}
        data = [TopicProduceData(**named, partition_data=parts)]
        return ProduceRequest(**{"acks": -1, "timeout_ms": 10_000, "topic_data": data, **fields})

    return make


def produce_steps() -> Iterator[Step]:
    key = api.PRODUCE
    one, two = batch(b"one"), batch(b"one", b"two")
    compressed = gzip.compress(wire.encode_records(records(b"a", b"b")), mtime=0)
    for label, make in {
        "plain": produce(one),
        "two records": produce(two),
        "acks 1": produce(one, acks=1),
        "acks 2": produce(one, acks=2),
        "acks -2": produce(one, acks=-2),
        "unknown topic": produce(one, "missing"),
        "unknown partition": produce(one, partition=9),
        "negative partition": produce(one, partition=-1),
        "bad name": produce(one, "a b"),
        "empty": produce(b""),
        "cut header": produce(one[:40]),
        "cut": produce(one[:-1]),
        "longer": produce(one + b"\0", "apart"),
        "two batches": produce(one + one),
        "magic 0": produce(batch(magic=0)),
        "magic 1": produce(batch(magic=1)),
        "magic 3": produce(batch(magic=3)),
        "bad checksum": produce(batch(crc=1)),
        "base offset": produce(batch(base_offset=7)),
        "leader epoch": produce(batch(leader_epoch=9)),
        "no records": produce(wire.seal_batch(b"", 0, base_timestamp=NOW)),
        "count above": produce(wire.seal_batch(wire.encode_records(records(b"a")), 2, base_timestamp=NOW)),
        "count below": produce(wire.seal_batch(wire.encode_records(records(b"a", b"b")), 1, base_timestamp=NOW)),
        "last delta": produce(batch(b"a", b"b", last_offset_delta=5)),
        "garbage": produce(wire.seal_batch(b"\xff" * 20, 1, base_timestamp=NOW)),
        "control": produce(batch(attributes=CONTROL)),
        "stamped by the client": produce(batch(attributes=LOG_APPEND_TIME), "apart"),
        "codec 5": produce(packed(5, b"xxxx")),
        "not gzip": produce(packed(GZIP, b"xxxx")),
        "gzip": produce(packed(GZIP, compressed, 2)),
        "gzip count": produce(packed(GZIP, compressed, 3)),
        "too large": produce(batch(b"x" * 400), "small"),
        "just fits": produce(batch(b"x" * 200), "small"),
        "compacted without key": produce(one, "compacted"),
        "compacted": produce(batch(key=b"k"), "compacted"),
        "compacted some without key": produce(mixed(keys=(b"k", None, b"k", None, None)), "compacted"),
        "compacted some without key in gzip": produce(mixed(keys=(b"k", None, None), codec=GZIP), "compacted"),
        "some too old and too new": produce(mixed(hours=(0, -2, 2, 0, -3)), "strict"),
        "some too old in gzip": produce(mixed(hours=(0, -2, 0, -3), codec=GZIP), "strict"),
        "no key and too old": produce(mixed(keys=(None, b"k", b"k"), hours=(0, 0, -2)), "strict-compacted"),
        "no key that is too old": produce(mixed(keys=(None, b"k"), hours=(-2, 0)), "strict-compacted"),
        "stamped": produce(one, "stamped"),
        "negative time": produce(batch(base_timestamp=-5, max_timestamp=-5), "apart"),
        "no time": produce(batch(base_timestamp=-1, max_timestamp=-1)),
        "far ahead": produce(batch(base_timestamp=NOW + 2 * HOUR_MS)),
        "a day old": produce(batch(base_timestamp=NOW - 24 * HOUR_MS)),
        "too old": produce(batch(base_timestamp=NOW - 24 * HOUR_MS), "strict"),
        "too new": produce(batch(base_timestamp=NOW + 2 * HOUR_MS), "strict"),
        "transactional alone": produce(
            batch(attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
        ),
        "id without sequence": produce(batch(producer_id=5, producer_epoch=0, base_sequence=-1)),
        "id without epoch": produce(batch(producer_id=5, producer_epoch=-1, base_sequence=0), "apart"),
    }.items():
        yield f"produce {label}", key, versions(key), make
    yield "produce null", key, versions(key, 11), produce(None)
    yield "produce zstd early", key, versions(key, 3, 6), produce(packed(ZSTD, b"xxxx"))
    yield "produce not zstd", key, versions(key, 7), produce(packed(ZSTD, b"xxxx"))
    parts = [PartitionProduceData(index=0, records=one), PartitionProduceData(index=9, records=one)]
    yield "produce mixed", key, versions(key), produce(None, parts=parts)


def sequence_steps() -> Iterator[Step]:
    """One producer after another on topic `sequences`, a fresh id per version."""

    def step(label: str, epoch: int, sequence: int, count: int = 1) -> Step:
        def make(version: int, side: Side) -> Any:
            data = batch(*[b"v"] * count, producer_id=9000 + version, producer_epoch=epoch, base_sequence=sequence)
            return produce(data, "sequences")(version, side)

        return f"sequence {label}", api.PRODUCE, versions(api.PRODUCE, 11), make

    yield step("begins at 5", 1, 5)
    yield step("goes on", 1, 6, 2)
    yield step("again", 1, 6, 2)
    yield step("again from the first", 1, 5)
    yield step("overlaps", 1, 7)
    yield step("gap", 1, 9)
    yield step("next", 1, 8)
    for number in range(9, 14):
        yield step(f"window {number}", 1, number)
    yield step("older than five", 1, 5)
    yield step("last of five", 1, 9)
    yield step("older epoch", 0, 14)
    yield step("older epoch at 0", 0, 0)
    yield step("newer epoch in the middle", 2, 14)
    yield step("newer epoch", 2, 0)
    yield step("elder epoch again", 1, 14)
    yield step("near the end", 3, 0)
    yield step("far ahead", 3, 2**31 - 1)


def fetch(topic: str = "plain", offset: int = 0, partition: int = 0, **fields: Any) -> Make:
    def make(version: int, side: Side) -> FetchRequest:
        own = {name: fields[name] for name in ("current_leader_epoch", "partition_max_bytes") if name in fields}
        item = FetchPartition(partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **own})
        top: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 25}
        if version >= 7:
            top |= {"session_id": 0, "session_epoch": -1}
        top |= {name: value for name, value in fields.items() if name not in own}
        named = {"topic_id": side.ids.get(topic, UNKNOWN_ID)} if version >= 13 else {"topic": topic}
        if version >= 15:
            top.pop("replica_id")
        return FetchRequest(topics=[FetchTopic(**named, partitions=[item])], **top)

    return make


def fetch_steps() -> Iterator[Step]:
    key = api.FETCH
    for label, make in {
        "all": fetch(),
        "inside a batch": fetch(offset=2),
        "committed": fetch(isolation_level=1),
        "of empty": fetch("empty"),
        "beyond the end": fetch("empty", 1),
        "far beyond": fetch(offset=10**9),
        "negative": fetch(offset=-1),
        "unknown topic": fetch("missing"),
        "unknown partition": fetch(partition=9),
        "negative partition": fetch(partition=-1),
        "one byte": fetch(partition_max_bytes=1),
        "no bytes": fetch(partition_max_bytes=0),
        "one byte altogether": fetch(max_bytes=1),
        "no bytes altogether": fetch(max_bytes=0),
        "stamped": fetch("small"),
        "sequences": fetch("sequences"),
    }.items():
        yield f"fetch {label}", key, versions(key), make
    for epoch in (50, 2**31 - 1):
        yield f"fetch epoch {epoch}", key, versions(key, 9), fetch(current_leader_epoch=epoch)
    yield "fetch session unknown", key, versions(key, 7), fetch(session_id=77, session_epoch=1)
    yield "fetch session closed", key, versions(key, 7), fetch(session_id=77, session_epoch=-1)
    yield "fetch session epoch alone", key, versions(key, 7), fetch(session_id=0, session_epoch=5)

    def offsets(topic: str) -> Make:
        parts = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in (-1,)]
        return lambda version, side: ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)]
        )

    for topic in TOPICS.keys() - {"apart"}:
        yield f"end of {topic}", api.LIST_OFFSETS, versions(api.LIST_OFFSETS, 5, 5), offsets(topic)


def are_led(side: Side) -> bool:
    for topic in TOPICS:
        parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
        if side.ask(api.LIST_OFFSETS, 5, request).topics[0].partitions[0].error_code:
            return False
    return True


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_brokers(tmp_path_factory.mktemp("kafka")) as both:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
            )
            for name, settings in TOPICS.items()
        ]
        for side in both:
            created = side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            assert {topic.error_code for topic in created.topics} == {0}
            side.ids = {topic.name: topic.topic_id for topic in created.topics}
            wait_until(partial(are_led, side), 30, "the topics' leaders")  # Kafka answers before they lead
        yield both


def test_answers_to_produce_are_kafkas(sides: tuple[Side, Side]) -> None:
    found = differences(sides, [*produce_steps(), *sequence_steps()], DIFFERENT)
    assert not found, "\n".join(found)


def test_answers_to_fetch_are_kafkas(sides: tuple[Side, Side]) -> None:
    found = differences(sides, fetch_steps(), DIFFERENT)
    assert not found, "\n".join(found)
