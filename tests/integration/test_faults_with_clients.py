"""The test kit with other people's clients: what each does about faults, restarts and crashes of the broker."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite.testing import KafkaBroker, TopicFactory

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own use of deprecated standard library calls
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as KafkaPythonPartition

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TIMEOUT_S = 120
Produce = Callable[[str, str, list[bytes]], list[int]]
Read = Callable[[str, str, int], list[bytes]]


def confluent_produce(bootstrap: str, topic: str, values: list[bytes]) -> list[int]:
    """Sends values, and returns their offsets in the order of their acknowledgement."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "retry.backoff.ms": 10, "log_level": 0})
    offsets: list[int] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return offsets


def confluent_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def kafka_python_produce(bootstrap: str, topic: str, values: list[bytes]) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=10)
    futures = [producer.send(topic, value, partition=0) for value in values]
    offsets = [future.get(TIMEOUT_S).offset for future in futures]
    producer.close()
    return offsets


def kafka_python_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None, retry_backoff_ms=10)
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for messages in consumer.poll(timeout_ms=100).values():
            found += [message.value for message in messages]
    consumer.close()
    return found


def aiokafka_produce(bootstrap: str, topic: str, values: list[bytes]) -> list[int]:
    async def work() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=10) as producer:
            sent = [await producer.send(topic, value, partition=0) for value in values]
            return [done.offset for done in await asyncio.gather(*sent)]

    return asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


def aiokafka_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def work() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, retry_backoff_ms=10)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


CLIENTS = [
    pytest.param(confluent_produce, confluent_read, id="confluent-kafka"),
    pytest.param(kafka_python_produce, kafka_python_read, id="kafka-python"),
    pytest.param(aiokafka_produce, aiokafka_read, id="aiokafka"),
]
with_each_client = pytest.mark.parametrize(("produce", "read"), CLIENTS)


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """The session's broker; after the test it runs without faults."""
    yield kafka_broker
    kafka_broker.heal()


@with_each_client
def test_failed_produce_is_retried_and_written_once(
    broker: KafkaBroker, kafka_topic: str, produce: Produce, read: Read
) -> None:
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert produce(broker.bootstrap_servers, kafka_topic, [b"x"]) == [0]
    assert fault.count == 2
    assert broker.logs.topics[kafka_topic].partitions[0].log_end_offset == 1


@with_each_client
def test_failed_fetch_is_retried_and_loses_nothing(
    broker: KafkaBroker, kafka_topic: str, produce: Produce, read: Read
) -> None:
    produce(broker.bootstrap_servers, kafka_topic, [b"a", b"b"])
    fault = broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    assert read(broker.bootstrap_servers, kafka_topic, 2) == [b"a", b"b"]
    assert fault.count == 2


@with_each_client
def test_lost_connections_are_made_again(broker: KafkaBroker, kafka_topic: str, produce: Produce, read: Read) -> None:
    faults = [
        broker.disconnect("Produce"),
        broker.disconnect("Fetch"),
        broker.fail("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    assert produce(broker.bootstrap_servers, kafka_topic, [b"a"]) == [0]
    assert read(broker.bootstrap_servers, kafka_topic, 1) == [b"a"]
    assert [fault.count for fault in faults[:2]] == [1, 1]


@with_each_client
def test_metadata_without_a_leader_is_fetched_again(
    broker: KafkaBroker, kafka_topic: str, produce: Produce, read: Read
) -> None:
    fault = broker.fail("Metadata", "LEADER_NOT_AVAILABLE", times=2)
    assert produce(broker.bootstrap_servers, kafka_topic, [b"a"]) == [0]
    assert fault.count == 2


@with_each_client
def test_slow_answers_are_waited_for(broker: KafkaBroker, kafka_topic: str, produce: Produce, read: Read) -> None:
    delays = [broker.delay("Produce", 0.05), broker.delay("Fetch", 0.05)]
    assert produce(broker.bootstrap_servers, kafka_topic, [b"a"]) == [0]
    assert read(broker.bootstrap_servers, kafka_topic, 1) == [b"a"]
    assert all(delay.count for delay in delays)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@with_each_client
def test_restart_keeps_port_and_records(
    broker: KafkaBroker, kafka_topic: str, produce: Produce, read: Read, kill: bool
) -> None:
    servers = broker.bootstrap_servers
    produce(servers, kafka_topic, [b"before"])
    broker.restart(kill=kill)
    assert broker.bootstrap_servers == servers
    assert broker.logs.clean_start is not kill
    produce(servers, kafka_topic, [b"after"])
    assert read(servers, kafka_topic, 2) == [b"before", b"after"]


def test_producer_and_group_live_through_crashes(broker: KafkaBroker, kafka_topic_factory: TopicFactory) -> None:
    """An idempotent producer and a member of a group, made once; the broker dies under them three times."""
    topic = kafka_topic_factory(2)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "retry.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    seen: list[int] = []
    acknowledged: list[int] = []
    for turn in range(4):
        for number in range(turn * 100, turn * 100 + 100):
            producer.produce(topic, b"%d" % number, on_delivery=lambda error, m: acknowledged.append(int(m.value())))
            if number % 100 == 50 and turn < 3:
                producer.poll(0)
                broker.restart(kill=True)
        assert producer.flush(TIMEOUT_S) == 0
        deadline = time.monotonic() + TIMEOUT_S
        while len(set(seen)) < (turn + 1) * 100 and time.monotonic() < deadline:
            seen += [int(m.value()) for m in consumer.consume(100, 0.1) if m.error() is None]
        consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(acknowledged) == list(range(400))
    assert sorted(set(seen)) == list(range(400))
    ends = [log.log_end_offset for log in broker.logs.topics[topic].partitions]
    assert sum(ends) == 400, "an idempotent producer's retry was written twice"


def test_group_that_loses_its_coordinator_joins_again(broker: KafkaBroker, kafka_topic: str) -> None:
    faults = [
        broker.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        broker.fail("JoinGroup", "NOT_COORDINATOR"),
        broker.fail("SyncGroup", "REBALANCE_IN_PROGRESS"),
        broker.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ]
    confluent_produce(broker.bootstrap_servers, kafka_topic, [b"a"])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": kafka_topic,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([kafka_topic])
    found = None
    deadline = time.monotonic() + TIMEOUT_S
    while found is None and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        found = message if message is not None and message.error() is None else None
    consumer.close()
    assert found is not None
    assert found.value() == b"a"
    assert [fault.count for fault in faults] == [1, 1, 1, 1]


def test_error_that_no_retry_mends_reaches_the_program(broker: KafkaBroker, kafka_topic: str) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    errors: list[int] = []
    producer.produce(kafka_topic, b"x", on_delivery=lambda error, _message: errors.append(error.code()))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert broker.logs.topics[kafka_topic].partitions[0].log_end_offset == 0


def test_late_acknowledgement_doubles_a_record_unless_the_producer_is_idempotent(
    broker: KafkaBroker, kafka_topic_factory: TopicFactory
) -> None:
    """The request took effect and its answer is late: the client's own time limit passes, and it sends again."""
    ends = {}
    for idempotent in (False, True):
        topic = kafka_topic_factory()
        delay = broker.delay("Produce", 3600, times=1)
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "request.timeout.ms": 500,
                "socket.timeout.ms": 1000,
                "retry.backoff.ms": 10,
                "enable.idempotence": idempotent,
                "log_level": 0,
            }
        )
        producer.produce(topic, b"x")
        assert producer.flush(TIMEOUT_S) == 0
        assert delay.count == 1
        ends[idempotent] = broker.logs.topics[topic].partitions[0].log_end_offset
    assert ends[False] > 1
    assert ends[True] == 1
