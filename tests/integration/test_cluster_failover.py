"""Three brokers, three replicas of everything: a coordinator is killed, and its clients continue.

The controller is Apache Kafka's, the clients are librdkafka's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.client.connection import Connection
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.kit.processes.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.slow

WAIT_S = 120
PARTITIONS = 3
GROUP, TRANSACTION = 0, 1
REPLICATED = {
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    assert kafka_jars
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), settings=REPLICATED) as running:
        yield running


@pytest.fixture
def topic(cluster: KafkaCluster) -> Iterator[str]:
    """With three replicas, two of which have to be in sync; all brokers run before and after."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    wanted = NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient(given(cluster))  # it has to live as long as its futures
    admin.create_topics([wanted])[name].result(WAIT_S)
    yield name
    for process in cluster.processes:
        if not process.alive:
            process.start(timeout_s=WAIT_S)
    wait_until(lambda: least_in_sync(cluster, name) == 3, WAIT_S, "all are in sync again")


def given(cluster: KafkaCluster, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap, "topic.metadata.refresh.interval.ms": 1000, **more}


def least_in_sync(cluster: KafkaCluster, name: str) -> int:
    admin = AdminClient(given(cluster))
    described = admin.list_topics(name, timeout=WAIT_S).topics[name]
    return min(len(each.isrs) for each in described.partitions.values())


def coordinator_of(cluster: KafkaCluster, key: str, kind: int) -> BrokerProcess:
    """Who coordinates it, once somebody does, as a broker that runs says."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    asked = next(process for process in cluster.processes if process.alive)
    connection = Connection.connect("127.0.0.1", asked.port, client_id="test")

    def ask() -> int:
        (found,) = connection.request(api.FIND_COORDINATOR, request).coordinators
        return int(found.port) if found.error_code == 0 else 0

    port = wait_until(ask, WAIT_S, f"{key} has a coordinator")
    connection.close()
    return next(process for process in cluster.processes if process.port == port)


def send(cluster: KafkaCluster, name: str, values: list[str]) -> None:
    producer = Producer(given(cluster, **{"enable.idempotence": True, "message.timeout.ms": WAIT_S * 1000}))
    failed: list[object] = []
    for at, value in enumerate(values):
        producer.produce(
            name,
            value=value,
            partition=at % PARTITIONS,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failed == []


def commit(consumer: Consumer) -> bool:
    """Return whether the positions are committed; they are not without a coordinator or during a rebalance."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        return error.args[0].code() == KafkaError._NO_OFFSET
    return True


def take(consumer: Consumer, seen: set[str], count: int) -> None:
    """Read until `count` values were seen, and commit."""

    def read() -> bool:
        for message in consumer.consume(50, 0.5):
            if message.error() is None:
                seen.add(text_of(message))
        return len(seen) >= count

    wait_until(read, WAIT_S, f"{count} values")
    wait_until(lambda: commit(consumer), WAIT_S, "the positions are committed")


def text_of(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_continues_after_its_coordinator_is_killed(cluster: KafkaCluster, topic: str, protocol: str) -> None:
    group = f"g-{topic}-{protocol}"
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    if protocol == "classic":
        settings |= {"session.timeout.ms": "10000"}
    consumer = Consumer(given(cluster, **settings, **{"enable.auto.commit": False}))
    consumer.subscribe([topic])
    first, second = [f"a{number}" for number in range(300)], [f"b{number}" for number in range(300)]
    seen: set[str] = set()
    send(cluster, topic, first)
    take(consumer, seen, len(first))
    killed = coordinator_of(cluster, group, GROUP)
    killed.kill()
    send(cluster, topic, second)
    take(consumer, seen, len(first) + len(second))
    assert seen == {*first, *second}
    assert coordinator_of(cluster, group, GROUP) is not killed
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    assert sum(each.offset for each in consumer.committed(partitions, WAIT_S)) == len(first) + len(second)
    consumer.close()


def end(producer: Producer) -> bool:
    """Commit with any coordinator; return False where the transaction had to be aborted."""
    while True:
        try:
            producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            if error.args[0].retriable():
                continue
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)
            return False
        else:
            return True


def committed(cluster: KafkaCluster, name: str, count: int) -> list[str]:
    """Return the committed values, once there are `count`."""
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer(given(cluster, **settings))
    consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
    found: list[str] = []

    def read() -> bool:
        found.extend(text_of(each) for each in consumer.consume(50, 0.5) if each.error() is None)
        return len(found) >= count

    wait_until(read, WAIT_S, f"{count} committed messages")
    found.extend(text_of(each) for each in consumer.consume(50, 2) if each.error() is None)
    consumer.close()
    return sorted(found)


def test_a_transaction_is_whole_when_its_coordinator_is_killed(cluster: KafkaCluster, topic: str) -> None:
    name = f"x-{topic}"
    producer = Producer(given(cluster, **{"transactional.id": name, "transaction.timeout.ms": WAIT_S * 1000}))
    producer.init_transactions(WAIT_S)
    expected: list[str] = []
    for round_number in range(10):
        values = [f"{round_number}-{number}" for number in range(PARTITIONS)]
        whole = False
        while not whole:
            producer.begin_transaction()
            for at, value in enumerate(values):
                producer.produce(topic, value=value, partition=at)
            producer.flush(WAIT_S)
            if round_number == 5 and all(process.alive for process in cluster.processes):
                coordinator_of(cluster, name, TRANSACTION).kill()
            whole = end(producer)
        expected += values
    assert committed(cluster, topic, len(expected)) == sorted(expected)
