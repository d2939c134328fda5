"""kafka-python through every door: Python's own TLS, and its own SCRAM."""

from __future__ import annotations

import warnings

from tests.compat.doors import Door, House, each_door
from tests.compat.kafka_python.reach import settings_of
from tests.compat.records import committed_offset, values_to_end
from tests.kit.processes.broker import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own use of deprecated standard library calls
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

COUNT = 20


def polled(consumer: KafkaConsumer) -> list[int]:
    """Offsets of one poll."""
    return [message.offset for messages in consumer.poll(timeout_ms=200).values() for message in messages]


@each_door
def test_writes_once_in_transactions_and_reads_in_a_group(house: House, door: Door, topic: str) -> None:
    settings = settings_of(door)
    admin = KafkaAdminClient(**settings)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    producer = KafkaProducer(**settings, transactional_id=f"id-{topic}")
    producer.init_transactions()
    for word, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        for number in range(COUNT):
            producer.send(topic, f"{word}-{number}".encode(), partition=0)
        producer.flush(60)
        end()
    producer.close()
    consumer = KafkaConsumer(
        topic,
        **settings,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    assert consumer.partitions_for_topic(topic) == {0}
    found: list[int] = []
    wait_until(lambda: bool(found.extend(polled(consumer))) or len(found) >= COUNT, 60, "what was committed")
    assert found == list(range(COUNT + 1, 2 * COUNT + 1))
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(7, "", -1)})
    consumer.close()
    assert committed_offset(house.plain, f"group-{topic}", topic) == 7
    assert values_to_end(house.plain, topic, "read_committed") == [f"committed-{number}" for number in range(COUNT)]
