"""confluent-kafka (librdkafka, current) in transactions: AddPartitionsToTxn 0, EndTxn 1, TxnOffsetCommit 3."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.addresses import librdkafka_at
from tests.compat.confluent.test_confluent import produce, take
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

TIMEOUT_S = 30


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """The topic, and its source with ten records."""
    admin = AdminClient(librdkafka_at(bootstrap))
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in (topic, source_of(topic))]).values():
        future.result(TIMEOUT_S)
    produce(bootstrap, source_of(topic), plain(COUNT))
    return topic


def transactional(bootstrap: str, topic: str) -> Producer:
    producer = Producer({**librdkafka_at(bootstrap), "transactional.id": f"id-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, values: list[str]) -> None:
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.capability("transactions")
def test_commit_and_abort_with_offsets(bootstrap: str, filled: str) -> None:
    source = source_of(filled)
    settings = {**librdkafka_at(bootstrap), "group.id": group_of(filled), "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([source])
    assert len(take(consumer, COUNT)) == COUNT
    producer = transactional(bootstrap, filled)
    for values, offset, end in ((ABORTED, 5, "abort"), (COMMITTED, COUNT, "commit")):
        producer.begin_transaction()
        write(producer, filled, values)
        positions = [TopicPartition(source, 0, offset)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        if end == "abort":
            check_open(bootstrap, filled)
            producer.abort_transaction(TIMEOUT_S)
            check_aborted(bootstrap, filled)
        else:
            producer.commit_transaction(TIMEOUT_S)
    check_committed(bootstrap, filled)
    consumer.close()


@pytest.mark.capability("transactions")
def test_a_second_producer_of_the_id_fences_the_first(bootstrap: str, filled: str) -> None:
    first = transactional(bootstrap, filled)
    first.begin_transaction()
    write(first, filled, ABORTED)
    second = transactional(bootstrap, filled)  # aborts what the first left open
    check_aborted(bootstrap, filled)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    write(second, filled, COMMITTED)
    second.commit_transaction(TIMEOUT_S)
