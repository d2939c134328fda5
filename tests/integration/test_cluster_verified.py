"""Apache Kafka's own programs for system tests, against three brokers that are killed one after the other.

VerifiableProducer reports the acknowledged records (it never retries), VerifiableConsumer those it got;
TransactionalMessageCopier copies a partition exactly once; `kafka-transactions.sh find-hanging` finds no hanging
transaction.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import SMALL_HEAP, jars, run_tool
from tests.kit.processes.broker import wait_until
from tests.kit.processes.kafka_cluster import KafkaCluster, coordinators_with

pytestmark = pytest.mark.slow

WAIT_S = 180
TOOLS = "org.apache.kafka.tools"
SENT = 4000
COPIED = 3000
AWAY_S = 4.0
"""How long a killed broker is away: its session of 3 s is over by then."""


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    assert kafka_jars
    settings = {
        **coordinators_with(3),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), settings=settings) as running:
        yield running


@pytest.fixture
def topics(cluster: KafkaCluster) -> tuple[str, str]:
    """Two, with three replicas, of which two have to be in sync."""
    names = (f"in-{uuid.uuid4().hex[:8]}", f"out-{uuid.uuid4().hex[:8]}")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet)
    config = {"min.insync.replicas": "2"}
    for made in admin.create_topics([NewTopic(name, 3, 3, config=config) for name in names]).values():
        made.result(WAIT_S)
    return names


class Program:
    """One of Kafka's programs, which reports its actions as lines of JSON."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self.path = directory / f"{name}-{uuid.uuid4().hex[:6]}.jsonl"
        command = ["java", *SMALL_HEAP, "-cp", f"{jars()}/*", f"{TOOLS}.{name}", *arguments]
        self.errors = self.path.with_suffix(".err")
        with self.path.open("wb") as out, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors)

    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self.path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # one that is being written
                found.append(json.loads(line))
        return found

    def ended(self) -> None:
        assert self.process.wait(WAIT_S) == 0, self.errors.read_text()[-3000:] + self.path.read_text()[-1000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def bounce(cluster: KafkaCluster, during: Program) -> int:
    """Kills brokers in turn, and starts each again, until the program has ended; how many."""
    count = 0
    deadline = time.monotonic() + WAIT_S
    while during.process.poll() is None and time.monotonic() < deadline:
        process = cluster.processes[count % 3]
        process.kill()
        count += 1
        time.sleep(AWAY_S)
        process.start(timeout_s=WAIT_S)
        wait_until(lambda: whole(cluster), WAIT_S, "all are in sync")
    return count


def whole(cluster: KafkaCluster) -> bool:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet).list_topics(timeout=WAIT_S).topics
    return all(len(part.isrs) == 3 for topic in found.values() for part in topic.partitions.values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_kafkas_producer_was_told_its_consumer_gets(
    cluster: KafkaCluster, topics: tuple[str, str], tmp_path: Path, protocol: str
) -> None:
    topic, _ = topics
    asked = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    rate = ("--max-messages", str(SENT), "--throughput", "150", "--acks", "-1")
    group = ("--group-id", f"g-{topic}", "--group-protocol", protocol, "--verbose")
    with (
        Program(tmp_path, "VerifiableProducer", *asked, *rate) as producer,
        Program(tmp_path, "VerifiableConsumer", *asked, *group) as consumer,
    ):
        wait_until(lambda: len(producer.events()) > 100, WAIT_S, "records are written")
        assert bounce(cluster, producer) > 0
        producer.ended()
        acknowledged = {each["value"] for each in producer.events() if each["name"] == "producer_send_success"}
        assert len(acknowledged) > SENT // 2

        def missing() -> set[str]:
            return acknowledged - {each["value"] for each in consumer.events() if each["name"] == "record_data"}

        wait_until(lambda: not missing(), WAIT_S, "all that was acknowledged was read", 0.5)


def test_kafkas_copier_copies_once_while_brokers_are_killed(
    cluster: KafkaCluster, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    values = [f"{number:06d}" for number in range(COPIED)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}, logger=quiet)
    for value in values:
        producer.produce(source, partition=0, value=value)
    assert producer.flush(WAIT_S) == 0
    arguments = {
        "input-topic": source,
        "input-partition": "0",
        "output-topic": target,
        "broker-list": cluster.bootstrap,
        "transactional-id": f"copier-{target}",
        "consumer-group": f"copier-{target}",
        "transaction-size": "10",
        "transaction-timeout": "30000",
        "max-messages": str(COPIED),
    }
    given = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    rounds = 0
    for _ in range(10):  # it ends at the first unknown error, and resumes at its committed offsets
        with Program(tmp_path, "TransactionalMessageCopier", *given, "--enable-random-aborts") as copier:
            rounds += bounce(cluster, copier)
            status = copier.process.wait(WAIT_S)
        if status == 0:
            break
    assert status == 0, copier.errors.read_text()[-3000:]
    assert rounds > 0
    assert committed(cluster, target) == values
    for number in (1, 2, 3):
        found = run_tool(
            f"{TOOLS}.TransactionsCommand",
            *("--bootstrap-server", cluster.bootstrap, "find-hanging", "--broker-id", str(number)),
            *("--max-transaction-timeout", "1"),
        )
        rows = [line for line in found.splitlines() if line.strip()]
        assert rows == [] or rows[0].startswith("Topic"), found
        assert len(rows) <= 1, found


def committed(cluster: KafkaCluster, topic: str) -> list[str]:
    """Return the values that a read_committed consumer gets of all partitions, sorted."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": "read_committed"},
        logger=quiet,
    )
    places = [TopicPartition(topic, number, 0) for number in range(3)]
    ends = {each.partition: consumer.get_watermark_offsets(each, WAIT_S)[1] for each in places}
    consumer.assign(places)
    found: list[str] = []

    def more() -> bool:
        given = consumer.consume(200, 0.5)
        found.extend((message.value() or b"").decode() for message in given if message.error() is None)
        at = {each.partition: each.offset for each in consumer.position(places)}
        return all(at[number] >= end for number, end in ends.items() if end)

    wait_until(more, WAIT_S, f"{topic} up to {ends}")
    consumer.close()
    return sorted(found)
