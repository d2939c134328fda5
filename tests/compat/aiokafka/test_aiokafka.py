"""aiokafka: producer, consumer by assignment, admin. Speaks ApiVersions 0 and checks every CRC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.compat.aiokafka.reach import aiokafka_at
from tests.compat.records import CODECS, EDGES, Row, plain, read_back, stored_codecs
from tests.kit.harness.samples import sample

TIMEOUT_S = 30


def run(work: Awaitable[Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


async def produce(bootstrap: str, topic: str, rows: list[Row], **settings: object) -> list[int]:
    producer = AIOKafkaProducer(**aiokafka_at(bootstrap), max_request_size=4_000_000, **settings)
    await producer.start()
    try:
        sent = []
        for row in rows:
            headers = [(name, value) for name, value in row.headers]
            sent.append(await producer.send(topic, row.value, row.key, partition=0, headers=headers))
        done = await asyncio.gather(*sent)
        return [metadata.offset if metadata is not None else -1 for metadata in done]
    finally:
        await producer.stop()


async def create(bootstrap: str, topic: str, partition_count: int = 1) -> None:
    admin = AIOKafkaAdminClient(**aiokafka_at(bootstrap))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partition_count, 1)])
    finally:
        await admin.close()


async def read(bootstrap: str, topic: str, offset: int, count: int) -> list[object]:
    consumer = AIOKafkaConsumer(**aiokafka_at(bootstrap), enable_auto_commit=False)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("acks", sample(["all", 0, 1], 1))
@pytest.mark.parametrize("codec", CODECS)
def test_produce_reads_back_with_its_codec(bootstrap: str, topic: str, codec: str, acks: object) -> None:
    rows = plain(200)
    run(create(bootstrap, topic))
    settings = {"compression_type": None if codec == "none" else codec, "acks": acks, "linger_ms": 50}
    run(produce(bootstrap, topic, rows, **settings))
    assert read_back(bootstrap, topic, len(rows)) == rows
    assert stored_codecs(bootstrap, topic) == {CODECS[codec]}


EDGES_OF_AIOKAFKA = [row for row in EDGES if row.key is not None or row.value is not None]


@pytest.mark.capability("produce, consume")
def test_edge_records_arrive_unharmed(bootstrap: str, topic: str) -> None:
    """aiokafka itself refuses a record with neither key nor value."""
    rows = EDGES_OF_AIOKAFKA
    assert run(produce(bootstrap, topic, rows)) == list(range(len(rows)))
    assert read_back(bootstrap, topic, len(rows)) == rows
    found = [Row(row.key, row.value, tuple(row.headers)) for row in run(read(bootstrap, topic, 0, len(rows)))]
    assert found == rows


@pytest.mark.capability("idempotent")
def test_idempotent_producer_counts_offsets_without_gap(bootstrap: str, topic: str) -> None:
    rows = plain(1000, 40)
    assert run(produce(bootstrap, topic, rows, enable_idempotence=True)) == list(range(len(rows)))
    assert read_back(bootstrap, topic, len(rows)) == rows


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("offset", [0, 1, 137, 299])
def test_consume_from_any_offset(bootstrap: str, topic: str, offset: int) -> None:
    rows = plain(300)
    run(produce(bootstrap, topic, rows, compression_type="snappy", linger_ms=20))
    found = run(read(bootstrap, topic, offset, 300 - offset))
    assert [message.offset for message in found] == list(range(offset, 300))
    assert [message.value for message in found] == [row.value for row in rows[offset:]]


@pytest.mark.capability("seek by time")
def test_offsets_by_time_name_the_record(bootstrap: str, topic: str) -> None:
    base = int(time.time() * 1000) - 100_000

    async def check() -> None:
        producer = AIOKafkaProducer(**aiokafka_at(bootstrap), linger_ms=200)
        await producer.start()
        sent = [
            await producer.send(topic, str(number).encode(), partition=0, timestamp_ms=base + number * 10)
            for number in range(100)
        ]
        await asyncio.gather(*sent)
        await producer.stop()
        consumer = AIOKafkaConsumer(**aiokafka_at(bootstrap))
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        for timestamp, expected in [(base, 0), (base + 1, 1), (base + 505, 51), (base + 990, 99)]:
            found = (await consumer.offsets_for_times({partition: timestamp}))[partition]
            assert (found.offset, found.timestamp) == (expected, base + expected * 10)
        assert (await consumer.offsets_for_times({partition: base + 991}))[partition] is None
        assert await consumer.end_offsets([partition]) == {partition: 100}
        consumer.seek(partition, (await consumer.offsets_for_times({partition: base + 505}))[partition].offset)
        assert (await consumer.getone()).value == b"51"
        await consumer.stop()

    run(check())


@pytest.mark.capability("admin")
def test_admin_creates_describes_and_deletes(bootstrap: str, topic: str) -> None:
    async def check() -> None:
        admin = AIOKafkaAdminClient(**aiokafka_at(bootstrap))
        await admin.start()
        created = await admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "1234567"})])
        assert created.topic_errors[0][1] == 0
        assert topic in await admin.list_topics()
        assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 3
        deleted = await admin.delete_topics([topic])
        assert deleted.topic_error_codes[0][1] == 0
        while topic in await admin.list_topics():  # noqa: ASYNC110 - no event tells it; the caller has a deadline
            await asyncio.sleep(0.05)
        assert (await admin.describe_cluster())["cluster_id"]
        await admin.close()

    run(check())
