"""Consumers with `client.rack` (KIP-392), Apache Kafka's and librdkafka's, read from kafkalite's broker in their rack.

Three racks, a broker in each, one partition with three replicas that broker 1 leads. The brokers' own metrics show
which one sent the records: a follower sends records to consumers only.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.settings.areas.replication import RACK_AWARE_SELECTOR
from tests.kit.harness.load import quiet
from tests.kit.harness.scrape import Scrape
from tests.kit.processes.apache_kafka import SMALL_HEAP, jars
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.kafka_cluster import KafkaCluster, coordinators_with

pytestmark = pytest.mark.slow

WAIT_S = 180
TOPIC = "orders"
VALUE = b"v" * 200
LEADER, NEAR_JAVA, NEAR_RDKAFKA = 1, 2, 3
"""Who leads, and who is in the rack of which client."""
RACKS = {LEADER: "a", NEAR_JAVA: "b", NEAR_RDKAFKA: "c"}


@pytest.fixture
def cluster(kafka_jars: Path, tmp_path: Path) -> Iterator[KafkaCluster]:
    assert kafka_jars
    settings = {"replica.selector.class": RACK_AWARE_SELECTOR, **coordinators_with(3)}
    cluster = KafkaCluster(tmp_path, settings=settings)
    for number, process in enumerate(cluster.processes, 1):
        own = {"broker.rack": RACKS[number], "metrics.listeners": f"http://127.0.0.1:{free_port()}"}
        process.settings = {**process.settings, **own}
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet)
        wanted = NewTopic(TOPIC, 1, replica_assignment=[[LEADER, NEAR_JAVA, NEAR_RDKAFKA]])
        admin.create_topics([wanted])[TOPIC].result(WAIT_S)
        wait_in_sync(cluster, 3)
        yield cluster


def broker(cluster: KafkaCluster, number: int) -> BrokerProcess:
    return cluster.processes[number - 1]


def sent(cluster: KafkaCluster, number: int) -> float:
    """Bytes of the topic's records that a broker has sent since its start."""
    scrape = Scrape.of(broker(cluster, number).settings["metrics.listeners"])
    return scrape("kafka_server_brokertopicmetrics_bytesout_total", topic=TOPIC)


def wait_in_sync(cluster: KafkaCluster, count: int) -> None:
    def in_sync() -> bool:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet)
        found = admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions
        return bool(found) and len(found[0].isrs) == count and found[0].leader > 0

    wait_until(in_sync, WAIT_S, f"{count} replicas in sync", 0.2)


def produce(cluster: KafkaCluster, first: int, count: int) -> int:
    """Records that bear their offsets, acknowledged by all replicas in sync; the next one's offset."""
    failures: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}, logger=quiet)
    for offset in range(first, first + count):
        producer.produce(
            TOPIC,
            b"%d " % offset + VALUE,
            partition=0,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert not failures
    return first + count


class JavaReader:
    """kafka-console-consumer of one partition from its beginning, in a rack; `given` has the numbers of its records."""

    def __init__(self, cluster: KafkaCluster, rack: str, log: Path) -> None:
        self.given: list[int] = []
        command = ["java", *SMALL_HEAP, "-cp", f"{jars()}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
        command += ["--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--partition", "0"]
        command += ["--offset", "earliest", "--consumer-property", f"client.rack={rack}"]
        command += ["--consumer-property", "metadata.max.age.ms=2000", "--consumer-property", "check.crcs=true"]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.given.append(int(line.split(b" ", 1)[0]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class RdkafkaReader:
    """The same by librdkafka, in a thread."""

    def __init__(self, cluster: KafkaCluster, rack: str) -> None:
        self.given: list[int] = []
        self._ending = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "nobody",
                "client.rack": rack,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 2000,
                "check.crcs": True,
            },
            logger=quiet,
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                self.given.append(int(value.split(b" ", 1)[0]))

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()


@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_a_consumer_reads_in_its_rack_and_continues_when_brokers_die(
    cluster: KafkaCluster, tmp_path: Path, kind: str
) -> None:
    near = NEAR_JAVA if kind == "java" else NEAR_RDKAFKA
    far = NEAR_RDKAFKA + NEAR_JAVA - near
    end = produce(cluster, 0, 2000)
    assert sent(cluster, near) == sent(cluster, far) == 0
    before = sent(cluster, LEADER)
    reader = (
        JavaReader(cluster, RACKS[near], tmp_path / "java.log")
        if kind == "java"
        else RdkafkaReader(cluster, RACKS[near])
    )
    try:
        wait_until(given_all(reader, end), WAIT_S, "all records in the rack")
        assert sent(cluster, near) >= 2000 * len(VALUE)
        assert sent(cluster, far) == 0
        assert sent(cluster, LEADER) == before
        broker(cluster, near).kill()
        end = produce(cluster, end, 1000)
        wait_until(given_all(reader, end), WAIT_S, "all records without the broker in the rack")
        broker(cluster, near).start(timeout_s=WAIT_S)
        wait_in_sync(cluster, 3)

        def back() -> bool:
            nonlocal end
            end = produce(cluster, end, 10)
            return sent(cluster, near) > 0

        wait_until(back, WAIT_S, "reading in the rack again", 0.5)
        broker(cluster, LEADER).kill()
        end = produce(cluster, end, 1000)
        wait_until(given_all(reader, end), WAIT_S, "all records without their leader")
    finally:
        reader.close()
    assert reader.given == list(range(end))


def given_all(reader: JavaReader | RdkafkaReader, end: int) -> Callable[[], bool]:
    return lambda: len(reader.given) >= end
