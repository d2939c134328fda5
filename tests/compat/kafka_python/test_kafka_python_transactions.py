"""kafka-python 3 in transactions: AddPartitionsToTxn 3, EndTxn 3, TxnOffsetCommit 3."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.compat.kafka_python.reach import kafka_python_at
from tests.compat.kafka_python.test_kafka_python import admin, produce
from tests.compat.kafka_python.test_kafka_python_groups import offsets
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

__all__ = ["admin"]


@pytest.mark.capability("transactions")
def test_commit_and_abort_with_offsets(bootstrap: str, topic: str, admin: KafkaAdminClient) -> None:
    source = source_of(topic)
    admin.create_topics([NewTopic(topic, 1, 1), NewTopic(source, 1, 1)])
    produce(bootstrap, source, plain(COUNT))
    settings = {**kafka_python_at(bootstrap), "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(source, group_id=group_of(topic), **settings)
    assert consumer.partitions_for_topic(source) == {0}
    assert offsets(consumer, COUNT) == list(range(COUNT))
    producer = KafkaProducer(**kafka_python_at(bootstrap), transactional_id=f"id-{topic}")
    producer.init_transactions()
    for values, offset, end in ((ABORTED, 5, "abort"), (COMMITTED, COUNT, "commit")):
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value.encode(), partition=0)
        producer.flush(30)
        position = {TopicPartition(source, 0): OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(position, consumer.group_metadata())
        if end == "abort":
            check_open(bootstrap, topic)
            producer.abort_transaction()
            check_aborted(bootstrap, topic)
        else:
            producer.commit_transaction()
    check_committed(bootstrap, topic)
    reader = KafkaConsumer(topic, isolation_level="read_committed", **settings)
    assert offsets(reader, COUNT) == list(range(COUNT + 1, 2 * COUNT + 1))
    for each in (reader, consumer, producer):
        each.close()
