"""aiokafka in transactions: every API of theirs in version 0."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.compat.aiokafka.reach import aiokafka_at
from tests.compat.aiokafka.test_aiokafka import create, produce, run
from tests.compat.records import plain
from tests.compat.transactions import (
    ABORTED,
    COMMITTED,
    COUNT,
    check_aborted,
    check_committed,
    check_open,
    group_of,
    source_of,
)


@pytest.mark.capability("transactions")
def test_commit_and_abort_with_offsets(bootstrap: str, topic: str) -> None:
    source = source_of(topic)
    settings = {**aiokafka_at(bootstrap), "auto_offset_reset": "earliest", "enable_auto_commit": False}

    async def work() -> None:
        await create(bootstrap, topic)
        await create(bootstrap, source)
        await produce(bootstrap, source, plain(COUNT))
        consumer = AIOKafkaConsumer(source, group_id=group_of(topic), **settings)
        await consumer.start()
        assert [(await consumer.getone()).offset for _ in range(COUNT)] == list(range(COUNT))
        producer = AIOKafkaProducer(**aiokafka_at(bootstrap), transactional_id=f"id-{topic}")
        await producer.start()
        for values, offset, end in ((ABORTED, 5, "abort"), (COMMITTED, COUNT, "commit")):
            await producer.begin_transaction()
            for value in values:
                await producer.send(topic, value.encode(), partition=0)
            await producer.flush()
            await producer.send_offsets_to_transaction({TopicPartition(source, 0): offset}, group_of(topic))
            if end == "abort":
                await asyncio.to_thread(check_open, bootstrap, topic)
                await producer.abort_transaction()
                await asyncio.to_thread(check_aborted, bootstrap, topic)
            else:
                await producer.commit_transaction()
        await asyncio.to_thread(check_committed, bootstrap, topic)
        reader = AIOKafkaConsumer(topic, isolation_level="read_committed", **settings)
        await reader.start()
        assert [(await reader.getone()).value.decode() for _ in range(COUNT)] == COMMITTED
        for each in (reader, consumer, producer):
            await each.stop()

    run(work())
