"""Three brokers with three replicas each: one replica is damaged, cut, or on a full disk. Whole ones lead, nothing that
is damaged is served or spread, and the damaged one is copied again.

The controller is Apache Kafka's, the clients are librdkafka's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.cluster import replicas
from tests.kit.harness.load import quiet
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.kit.processes.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.slow

WAIT_S = 120
ASK_S = 5
COUNT = 600
DISK_SIZE = 160 << 20
BATCH_FRAME = 61


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    disk = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "none", disk], check=False)
    yield disk
    if mounted.returncode == 0:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory, small_disk: Path) -> Iterator[KafkaCluster]:
    """Broker 3 has a separate small disk, where this user may mount one."""
    assert kafka_jars
    made = KafkaCluster(
        tmp_path_factory.mktemp("cluster"),
        settings={"replica.lag.time.max.ms": "3000", "log.retention.check.interval.ms": "500"},
        controller_settings={"auto.leader.rebalance.enable": "false"},
    )
    made.processes[2].directory = small_disk / "broker-3"
    with made as running:
        yield running


class Topic:
    """One partition with three replicas, which broker 3 prefers to lead, and two of which have to be in sync."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.name = f"t-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet)
        config = {"min.insync.replicas": "2", "segment.bytes": "2000000", "file.delete.delay.ms": "0"}
        wanted = NewTopic(self.name, replica_assignment=[[3, 1, 2]], num_partitions=1, config=config)
        self.admin.create_topics([wanted])[self.name].result(WAIT_S)
        self.sent = 0
        self.wait_led_by(3)

    def state(self) -> tuple[int, list[int]]:
        """(leader, those in sync)"""

        def told() -> ClusterMetadata | None:
            with contextlib.suppress(KafkaException):  # librdkafka asks a broker that has gone until the time is over
                return self.admin.list_topics(self.name, timeout=ASK_S)
            return None

        found = wait_until(told, WAIT_S, "metadata").topics[self.name].partitions
        return (found[0].leader, sorted(found[0].isrs)) if 0 in found else (-1, [])

    def wait_led_by(self, leader: int) -> None:
        wait_until(lambda: self.state()[0] == leader, WAIT_S, f"broker {leader} leads")

    def wait_whole(self) -> None:
        wait_until(lambda: self.state()[1] == [1, 2, 3], WAIT_S, "all are in sync")

    def elect_preferred(self) -> None:
        """Broker 3 leads."""
        partition = TopicPartition(self.name, 0)

        def elected() -> bool:
            try:
                self.admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
            except KafkaException:
                return False
            return self.state()[0] == 3

        wait_until(elected, WAIT_S, "broker 3 leads again")

    def send(self, count: int = COUNT, size: int = 100) -> None:
        """Records that say which they are, a batch each."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "message.timeout.ms": WAIT_S * 1000,
                "topic.metadata.refresh.interval.ms": 1000,
            },
            logger=quiet,
        )
        failed: list[object] = []
        for number in range(self.sent, self.sent + count):
            producer.produce(
                self.name,
                partition=0,
                value=b"%d " % number + bytes(size),
                on_delivery=lambda error, _message: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert failed == []
        self.sent += count

    def read(self) -> list[int]:
        """Return the numbers of all records, in order, across leader changes."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "none",
                "check.crcs": True,
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
            },
            logger=quiet,
        )
        consumer.assign([TopicPartition(self.name, 0, 0)])
        found: list[int] = []

        def more() -> bool:
            given = [message.value() or b"" for message in consumer.consume(500, 0.5) if message.error() is None]
            found.extend(int(value.split(b" ")[0]) for value in given)
            return len(found) >= self.sent

        wait_until(more, WAIT_S, f"{self.sent} records")
        consumer.close()
        return found

    def directory(self, process: BrokerProcess) -> Path:
        return process.data_dir / f"{self.name}-0"

    def agree(self) -> bool:
        """Whether all replicas have the same bytes."""
        found = [replicas.read(self.directory(process)).data for process in self.cluster.processes]
        return bool(found[0]) and found[0] == found[1] == found[2]

    def wait_agreed(self) -> None:
        wait_until(self.agree, WAIT_S, "all replicas have the same bytes")


@pytest.fixture
def topic(cluster: KafkaCluster) -> Iterator[Topic]:
    found = Topic(cluster)
    yield found
    for process in cluster.processes:
        if not process.alive:
            process.start(timeout_s=WAIT_S)
    found.admin.delete_topics([found.name])[found.name].result(WAIT_S)


def spoil(directory: Path, place: float) -> None:
    """Flip a bit in a batch at about that place."""
    segment = min(directory.glob("*.log"))
    pieces = replicas.split(segment.read_bytes())
    at = int(len(pieces) * place)
    with segment.open("r+b") as file:
        file.seek(sum(map(len, pieces[:at])) + BATCH_FRAME + 20)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_a_leader_whose_log_is_damaged_gives_up_and_is_copied_again(cluster: KafkaCluster, topic: Topic) -> None:
    damaged = cluster.processes[2]
    topic.send()
    topic.wait_whole()
    damaged.stop()
    spoil(topic.directory(damaged), 0.5)
    damaged.start(timeout_s=WAIT_S)
    topic.wait_whole()  # its log ends where the others' do
    topic.elect_preferred()
    assert topic.read() == list(range(COUNT))
    topic.send(50)
    topic.wait_whole()
    topic.wait_agreed()
    assert "a replica is damaged" in damaged.log()
    topic.elect_preferred()
    assert topic.read() == list(range(COUNT + 50))


def test_a_leader_whose_file_is_cut_gives_up_and_is_copied_again_by_the_next_start(
    cluster: KafkaCluster, topic: Topic
) -> None:
    cut = cluster.processes[2]
    topic.send()
    topic.wait_whole()
    segment = min(topic.directory(cut).glob("*.log"))
    os.truncate(segment, 1000)
    assert topic.read() == list(range(COUNT))
    assert topic.state()[0] != 3
    topic.send(50)
    assert topic.state()[1] == [1, 2]
    cut.kill()
    cut.start(timeout_s=WAIT_S)
    topic.wait_whole()
    topic.wait_agreed()
    topic.elect_preferred()
    assert topic.read() == list(range(COUNT + 50))


def test_a_leader_whose_disk_is_full_gives_up_and_comes_back_when_there_is_room(
    cluster: KafkaCluster, topic: Topic, small_disk: Path
) -> None:
    if not os.path.ismount(small_disk):
        pytest.skip("cannot mount a file system")
    topic.send()
    topic.wait_whole()
    filler = small_disk / "filler"
    space = os.statvfs(small_disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize)
    topic.send(300, size=20_000)
    assert topic.state()[0] != 3
    filler.unlink()
    topic.wait_whole()
    topic.wait_agreed()
    assert cluster.processes[2].alive
    topic.elect_preferred()
    assert topic.read() == list(range(COUNT + 300))


def test_who_alone_is_in_sync_keeps_what_is_behind_the_damage(cluster: KafkaCluster, topic: Topic) -> None:
    """It has the only copy: truncated there, it would give acknowledged records' offsets to new ones."""
    one, two, three = cluster.processes
    topic.admin.incremental_alter_configs([_min_one(topic.name)])
    topic.send(100)
    topic.wait_whole()
    one.kill()
    two.kill()
    wait_until(lambda: topic.state() == (3, [3]), WAIT_S, "broker 3 is the only one in sync")
    topic.send(400)
    three.stop()
    spoil(topic.directory(three), 0.6)
    (three.data_dir / ".kafka_cleanshutdown").unlink()
    segment = min(topic.directory(three).glob("*.log"))
    size = len(b"".join(replicas.split(segment.read_bytes())))
    three.start(timeout_s=WAIT_S)
    topic.wait_led_by(3)
    consumer = Consumer({"bootstrap.servers": three.bootstrap, "group.id": "none"}, logger=quiet)
    assert consumer.get_watermark_offsets(TopicPartition(topic.name, 0), WAIT_S) == (0, 500)
    consumer.close()
    assert len(segment.read_bytes()) >= size
    for process in (one, two):
        process.start(timeout_s=WAIT_S)
    topic.admin.delete_topics([topic.name])[topic.name].result(WAIT_S)
    topic.admin.create_topics([NewTopic(topic.name, 1, 3)])[topic.name].result(WAIT_S)


def _min_one(name: str) -> ConfigResource:
    entry = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
