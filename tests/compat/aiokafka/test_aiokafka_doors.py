"""aiokafka through every door: Python's own TLS, and its own SCRAM."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.compat.aiokafka.reach import settings_of
from tests.compat.aiokafka.test_aiokafka import run
from tests.compat.doors import Door, House, each_door
from tests.compat.records import committed_offset, values_to_end

COUNT = 20


@each_door
def test_writes_once_in_transactions_and_reads_in_a_group(house: House, door: Door, topic: str) -> None:
    run(work(settings_of(door), topic))
    assert committed_offset(house.plain, f"group-{topic}", topic) == 7
    assert values_to_end(house.plain, topic, "read_committed") == [f"committed-{number}" for number in range(COUNT)]


async def work(settings: dict[str, Any], topic: str) -> None:
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(**settings, transactional_id=f"id-{topic}")
    await producer.start()
    for word, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        await producer.begin_transaction()
        for number in range(COUNT):
            await producer.send_and_wait(topic, f"{word}-{number}".encode(), partition=0)
        await end()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic,
        **settings,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    found = [(await consumer.getone()).value.decode() for _ in range(COUNT)]
    assert found == [f"committed-{number}" for number in range(COUNT)]
    await consumer.commit({TopicPartition(topic, 0): 7})
    await consumer.stop()
