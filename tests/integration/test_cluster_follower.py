"""A broker that follows one of Apache Kafka's: the same bytes, for any leader's log and any earlier log here."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.broker import Broker
from kafkalite.broker.log import checkpoints
from kafkalite.broker.log.replica_log import ReplicaLog
from tests.kit.harness.clustered import cluster_settings
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController, run_tool
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 120
JAVA = 1


@dataclass
class Cluster:
    """A controller and a broker of Apache Kafka's; brokers of this project are started beside them."""

    controller: KafkaController
    java: KafkaBroker
    directory: Path

    def admin(self) -> AdminClient:
        """One that knows who is there now."""
        return AdminClient({"bootstrap.servers": self.java.bootstrap})

    def create(self, name: str, replicas: list[int], **config: object) -> None:
        topic = NewTopic(
            name,
            1,
            replica_assignment=[replicas],
            config={key.replace("_", "."): str(value) for key, value in config.items()},
        )
        admin = self.admin()
        admin.create_topics([topic])[name].result(WAIT_S)

    @contextmanager
    def broker(self, number: int) -> Iterator[Broker]:
        """One of this project."""
        given = cluster_settings(self.controller.address, self.directory / f"broker-{number}", node_id=number)
        with Broker(given) as broker:
            yield broker

    def java_bytes(self, name: str) -> bytes:
        """Return the partition's bytes in Kafka's files."""
        return b"".join(path.read_bytes() for path in sorted((self.java.data_dir / f"{name}-0").glob("*.log")))

    def java_aborted(self, name: str) -> list[tuple[int, ...]]:
        """(producer id, first offset, offset of the marker) of what Kafka has written down."""
        data = b"".join(path.read_bytes() for path in sorted((self.java.data_dir / f"{name}-0").glob("*.txnindex")))
        return [struct.unpack_from(">qqq", data, at + 2) for at in range(0, len(data), 34)]

    def write(self, name: str, values: list[str], *, step_ms: int = 1, **config: object) -> None:
        """Write one record each, acknowledged by all in sync; timestamps are `step_ms` apart, as if time
        passed fast.
        """
        producer = Producer({"bootstrap.servers": self.java.bootstrap, "linger.ms": 0, "acks": "all", **config})
        failed: list[KafkaError] = []
        begin_ms = int(time.time() * 1000) - step_ms * len(values)
        for i, value in enumerate(values):
            producer.produce(
                name,
                value.encode(),
                key=value[:1],
                timestamp=begin_ms + i * step_ms,
                on_delivery=lambda error, _message: error and failed.append(error),
            )
            producer.flush() if step_ms > 1 else producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert failed == []

    def delete(self, name: str, offset: int) -> None:
        """Records below; returns when all replicas that are there start at it."""
        admin, start = self.admin(), TopicPartition(name, 0, offset)
        admin.delete_records([start])[start].result(WAIT_S)

    def elect(self, name: str, how: str) -> None:
        run_tool(
            "org.apache.kafka.tools.LeaderElectionCommand",
            *("--bootstrap-server", self.java.bootstrap),
            *("--election-type", how, "--topic", name, "--partition", "0"),
        )


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assert kafka_jars
    directory = tmp_path_factory.mktemp("cluster")
    settings = {"unclean.leader.election.enable": "true"}
    with KafkaController(directory / "controller", settings=settings) as controller:
        java = KafkaBroker(
            directory / "java",
            controller_port=controller.controller_port,
            cluster_id=controller.cluster_id,
            settings={"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500"},
            java_options=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        )
        try:
            java.start()
            yield Cluster(controller, java, directory)
        finally:
            java.close()


def log_of(broker: Broker, name: str) -> ReplicaLog:
    wait_until(lambda: name in broker.logs.topics, WAIT_S, "the topic is known")
    log = broker.logs.topics[name].partitions[0]
    assert isinstance(log, ReplicaLog)
    return log


def bytes_of(log: ReplicaLog) -> bytes:
    return b"".join(segment.read_bytes(0, segment.size) for segment in log.segments if segment.size)


def wait_same(cluster: Cluster, log: ReplicaLog, name: str) -> None:
    wait_until(lambda: bytes_of(log) == cluster.java_bytes(name), WAIT_S, "it has what its leader has")
    wait_until(lambda: log.high_watermark == log.log_end_offset, WAIT_S, "and knows that")
    java = checkpoints.read_epochs(str(cluster.java.data_dir / f"{name}-0" / "leader-epoch-checkpoint"))
    assert list(log.epochs.entries) == [entry for entry in java if entry[1] < log.log_end_offset or len(java) == 1]


def test_records_and_transactions_of_a_leader_are_the_same_here(cluster: Cluster) -> None:
    name = "orders"
    cluster.create("first", [JAVA])
    transactional = {"bootstrap.servers": cluster.java.bootstrap, "transactional.id": "t", "linger.ms": 5}
    warm = Producer(transactional)
    warm.init_transactions(WAIT_S)  # its coordinator is Kafka's
    with cluster.broker(7) as broker:
        cluster.create(name, [JAVA, 7], min_insync_replicas=2, segment_bytes=1 << 20)
        log = log_of(broker, name)
        cluster.write(name, [f"{i} {'x' * (i * 40)}" for i in range(300)])
        cluster.write(name, [f"{i} {'y' * 500}" for i in range(200)], **{"compression.type": "lz4"})
        producer = Producer(transactional)
        producer.init_transactions(WAIT_S)
        for number in range(6):
            producer.begin_transaction()
            for i in range(20):
                producer.produce(name, f"{number}-{i}".encode())
            assert producer.flush(WAIT_S) == 0
            if number % 2:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
        wait_same(cluster, log, name)
        assert len(log.segments) > 1
        assert log.last_stable_offset == log.high_watermark
        assert log.ensure_producers().open_transactions() == []
        aborted = log.ensure_producers().aborted.rows()
        assert len(aborted) == 3
        assert [row[:3] for row in aborted] == cluster.java_aborted(name)
    with cluster.broker(7) as broker:  # a clean stop: what it had it has
        log = log_of(broker, name)
        cluster.write(name, ["again"])
        wait_same(cluster, log, name)
        assert log.ensure_producers().aborted.rows() == aborted


def test_a_follower_that_was_away_takes_up_where_it_was(cluster: Cluster) -> None:
    name = "away"
    with cluster.broker(8) as broker:
        cluster.create(name, [JAVA, 8])
        log = log_of(broker, name)
        cluster.write(name, [str(i) for i in range(50)])
        wait_same(cluster, log, name)
        broker._stop_parts(crash=True)
    cluster.write(name, [str(i) for i in range(50, 100)])
    with cluster.broker(8) as broker:
        wait_same(cluster, log_of(broker, name), name)


def test_a_leader_that_was_compacted_is_followed_over_its_gaps(cluster: Cluster) -> None:
    name = "compacted"
    with cluster.broker(9) as broker:
        cluster.create(
            name,
            [JAVA, 9],
            cleanup_policy="compact",
            segment_ms=1000,
            min_cleanable_dirty_ratio=0.01,
            min_compaction_lag_ms=0,
        )
        log_of(broker, name)
    full = 200
    cluster.write(name, [f"{i % 3} {i}" for i in range(full)], step_ms=200)
    wait_until(lambda: len(offsets_in(cluster.java_bytes(name))) < full // 2, WAIT_S, "Kafka has compacted")
    with cluster.broker(9) as broker:
        log = log_of(broker, name)
        wait_until(lambda: log.high_watermark == full, WAIT_S, "it has followed")
        bases = offsets_in(bytes_of(log))
        assert len(bases) < full // 2
        assert bases == sorted(set(bases))


def offsets_in(data: bytes) -> list[int]:
    found = []
    while len(data) >= 12:
        found.append(int.from_bytes(data[:8], "big"))
        data = data[int.from_bytes(data[8:12], "big") + 12 :]
    return found


def test_a_follower_below_its_leaders_start_begins_there(cluster: Cluster) -> None:
    name = "deleted"
    with cluster.broker(10) as broker:
        cluster.create(name, [JAVA, 10], segment_ms=1000)
        log = log_of(broker, name)
        cluster.write(name, [str(i) for i in range(20)], step_ms=200)
        wait_same(cluster, log, name)
        cluster.delete(name, 7)
        assert log.log_start_offset == 7
    cluster.write(name, [str(i) for i in range(20, 60)], step_ms=200)
    cluster.delete(name, 50)
    with cluster.broker(10) as broker:
        log = log_of(broker, name)
        wait_until(lambda: (log.log_start_offset, log.high_watermark) == (50, 60), WAIT_S, "it has begun anew")
        cluster.write(name, ["more"])
        wait_until(lambda: log.high_watermark == 61, WAIT_S, "it follows")


def test_records_that_the_new_leader_never_had_are_cut(cluster: Cluster) -> None:
    name = "parted"
    with cluster.broker(11) as broker:
        cluster.create(name, [JAVA, 11])
        log = log_of(broker, name)
        cluster.write(name, [f"both {i}" for i in range(10)])
        wait_same(cluster, log, name)
        cluster.java.stop()
        wait_until(lambda: log.led, WAIT_S, "it is the leader")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": 1})
        for i in range(5):
            producer.produce(name, f"lost {i}".encode())
        assert producer.flush(WAIT_S) == 0
        assert log.log_end_offset == 15
    cluster.java.start()
    cluster.elect(name, "unclean")
    cluster.write(name, [f"new {i}" for i in range(3)])
    with cluster.broker(11) as broker:
        log = log_of(broker, name)
        wait_same(cluster, log, name)
        assert log.log_end_offset == 13


def test_leadership_goes_to_and_fro(cluster: Cluster) -> None:
    name = "moved"

    def synced(broker: Broker) -> bool:
        isr = log_of(broker, name).assignment.isr
        return sorted(isr) == [JAVA, 12]

    with cluster.broker(12) as broker:
        cluster.create(name, [12, JAVA], min_insync_replicas=2)
        log = log_of(broker, name)
        assert log.led
        cluster.write(name, [f"first {i}" for i in range(50)])
        wait_same(cluster, log, name)
    admin = cluster.admin()  # it has handed over
    assert admin.list_topics(name, WAIT_S).topics[name].partitions[0].leader == JAVA
    for crash in (True, False):
        with cluster.broker(12) as broker:
            wait_until(lambda: synced(broker), WAIT_S, "it is in sync again")
            log = log_of(broker, name)
            assert not log.led
            cluster.write(name, [f"second {i}" for i in range(50)])
            cluster.elect(name, "preferred")
            wait_until(lambda: log.led, WAIT_S, "it is the leader")  # noqa: B023
            cluster.write(name, [f"third {i}" for i in range(50)])
            wait_same(cluster, log, name)
            if crash:
                broker._stop_parts(crash=True)
