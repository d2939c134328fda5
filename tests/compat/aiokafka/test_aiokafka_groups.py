"""aiokafka in consumer groups: JoinGroup 5, OffsetCommit 3, FindCoordinator 1."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.compat.aiokafka.reach import aiokafka_at
from tests.compat.aiokafka.test_aiokafka import create, produce, run
from tests.compat.records import plain


async def member(bootstrap: str, topic: str) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        topic,
        **aiokafka_at(bootstrap),
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        rebalance_timeout_ms=10_000,
    )
    await consumer.start()
    return consumer


async def settled(*counts: tuple[AIOKafkaConsumer, int]) -> None:
    while [len(consumer.assignment()) for consumer, _ in counts] != [count for _, count in counts]:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.05)


@pytest.mark.capability("groups")
def test_members_join_leave_and_commit(bootstrap: str, topic: str) -> None:
    async def work() -> None:
        await create(bootstrap, topic, 2)
        await produce(bootstrap, topic, plain(20))
        first = await member(bootstrap, topic)
        assert [(await first.getone()).offset for _ in range(20)] == list(range(20))
        await first.commit()
        second = await member(bootstrap, topic)
        await settled((first, 1), (second, 1))
        await first.stop()
        await settled((second, 2))
        assert await second.committed(TopicPartition(topic, 0)) == 20
        second.seek(TopicPartition(topic, 0), 7)
        assert (await second.getone()).offset == 7
        admin = AIOKafkaAdminClient(**aiokafka_at(bootstrap))
        await admin.start()
        assert (f"group-{topic}", "consumer") in await admin.list_consumer_groups()
        offsets = await admin.list_consumer_group_offsets(f"group-{topic}")
        assert offsets[TopicPartition(topic, 0)].offset == 20
        await admin.close()
        await second.stop()

    run(work())
