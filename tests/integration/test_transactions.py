"""Transactions through librdkafka: committed records are read, aborted ones are not, also over a restart."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkalite.broker import Broker
from kafkalite.errors import ErrorCode
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration
TIMEOUT_S = 60


def producer_of(broker: Broker, transactional_id: str = "tx", **settings: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


@contextmanager
def consumer_of(broker: Broker, group: str, **settings: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read(broker: Broker, topic: str, count: int, **settings: object) -> list[bytes]:
    """Return `count` values in order, and check that the end was reached."""
    values: list[bytes] = []
    ended = False
    with consumer_of(broker, "reader", **{"enable.partition.eof": True, **settings}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def done() -> bool:
            nonlocal ended
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
                ended = False
            elif message is not None:
                ended = True
            return ended and len(values) >= count

        wait_until(done, TIMEOUT_S, f"{count} values")
    return values


def test_committed_is_read_and_aborted_is_not() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        producer = producer_of(broker)
        for number in range(20):
            producer.begin_transaction()
            for part in range(3):
                producer.produce("t", f"{number}-{part}")
            (producer.abort_transaction if number % 4 == 3 else producer.commit_transaction)(TIMEOUT_S)
        wanted = [f"{number}-{part}".encode() for number in range(20) if number % 4 != 3 for part in range(3)]
        assert read(broker, "t", len(wanted)) == wanted
        assert len(read(broker, "t", len(wanted), **{"isolation.level": "read_uncommitted"})) >= len(wanted)


def test_offsets_and_records_are_committed_together() -> None:
    with Broker() as broker:
        broker.create_topic("in")
        broker.create_topic("out")
        plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(10):
            plain.produce("in", str(number))
        plain.flush(TIMEOUT_S)
        producer = producer_of(broker)
        where = TopicPartition("in", 0)
        with consumer_of(broker, "copier") as consumer:
            consumer.subscribe(["in"])
            for number, commit in ((3, True), (7, False)):
                producer.begin_transaction()
                taken: list[bytes] = []

                def take(taken: list[bytes] = taken, number: int = number) -> bool:
                    message = consumer.poll(0.2)
                    if message is not None and message.error() is None:
                        taken.append(message.value())
                    return len(taken) == number

                wait_until(take, TIMEOUT_S, "records to copy")
                for value in taken:
                    producer.produce("out", value)
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
                )
                (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
            wait_until(lambda: consumer.committed([where], TIMEOUT_S)[0].offset == 3, TIMEOUT_S, "the first offset")
        assert read(broker, "out", 3) == [b"0", b"1", b"2"]


def test_second_producer_fences_the_first_and_aborts_what_it_had_open() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        first = producer_of(broker)
        first.begin_transaction()
        first.produce("t", "lost")
        first.flush(TIMEOUT_S)
        second = producer_of(broker)
        second.begin_transaction()
        second.produce("t", "kept")
        second.commit_transaction(TIMEOUT_S)
        with pytest.raises(KafkaException) as caught:
            first.commit_transaction(TIMEOUT_S)
        assert caught.value.args[0].fatal()
        assert read(broker, "t", 1) == [b"kept"]


def test_transaction_that_is_never_ended_is_aborted_in_time() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        sleepy = producer_of(broker, **{"transaction.timeout.ms": 1000})
        sleepy.begin_transaction()
        sleepy.produce("t", "lost")
        sleepy.flush(TIMEOUT_S)
        other = producer_of(broker, "other")
        other.begin_transaction()
        other.produce("t", "kept")
        other.commit_transaction(TIMEOUT_S)
        assert read(broker, "t", 1) == [b"kept"]  # which waits for the end of the first one
        log = broker.logs.topics["t"].partitions[0]
        assert log.last_stable_offset == log.high_watermark


def test_open_transaction_outlives_a_restart(tmp_path) -> None:
    with Broker(log_dirs=str(tmp_path), transaction_state_log_num_partitions=3) as broker:
        broker.create_topic("t")
        port = broker.port
        producer = producer_of(broker)
        producer.begin_transaction()
        producer.produce("t", "a")
        producer.flush(TIMEOUT_S)
    with Broker(
        log_dirs=str(tmp_path), listeners=f"kafka://127.0.0.1:{port}", transaction_state_log_num_partitions=3
    ) as broker:
        producer.produce("t", "b")
        producer.commit_transaction(TIMEOUT_S)
        assert read(broker, "t", 2) == [b"a", b"b"]


def test_timeout_beyond_the_maximum_is_refused() -> None:
    with Broker(transaction_max_timeout_ms=10_000) as broker, pytest.raises(KafkaException) as caught:
        producer_of(broker, **{"transaction.timeout.ms": 20_000})
    assert caught.value.args[0].code() == ErrorCode.INVALID_TRANSACTION_TIMEOUT
