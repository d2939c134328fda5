"""A storm over partitions with replicas on this project's broker and on Apache Kafka's: after any elections, stops and
crashes both have the same bytes and epochs. `KAFKALITE_SEED=5` selects another run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kafkalite.broker.log import checkpoints
from tests.kit.harness.clustered import cluster_settings
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.power.replicas.state import Batch, split

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("KAFKALITE_SEED", "1"))
WAIT_S = 240
OWN, JAVA = 7, 1
STEPS = 30
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMMON = {
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
"""Settings of both brokers."""
TOPICS = ("plain", "transactional")


class Storm:
    """The cluster, and what happens to it."""

    def __init__(self, directory: Path, controller: KafkaController, seed: int) -> None:
        self.draw = random.Random(seed)
        self.done: list[str] = []
        self.count = 0
        self.partitions = dict.fromkeys((*TOPICS, "compacted"), 2)
        self.java = KafkaBroker(
            directory / "java",
            controller_port=controller.controller_port,
            cluster_id=controller.cluster_id,
            settings=COMMON,
            java_options=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        )
        port = free_port()
        given = cluster_settings(
            controller.address,
            directory / "own",
            listeners=f"PLAINTEXT://127.0.0.1:{port}",
        )
        del given["log.dirs"]
        self.own = BrokerProcess(directory / "own", {key: str(each) for key, each in given.items()} | COMMON, port)

    @property
    def bootstrap(self) -> str:
        return f"{self.java.bootstrap},{self.own.bootstrap}"

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def places(self) -> Iterator[tuple[str, int]]:
        return ((name, number) for name, count in self.partitions.items() for number in range(count))

    def begin(self) -> None:
        self.java.start()
        self.own.start()
        own = [
            NewTopic(
                name,
                2,
                replica_assignment=[[OWN, JAVA], [JAVA, OWN]],
                config={
                    "segment.bytes": "1048576",
                    "cleanup.policy": "compact" if name == "compacted" else "delete",
                    "min.cleanable.dirty.ratio": "0.01",
                },
            )
            for name in self.partitions
        ]
        admin = self.admin()
        for made in admin.create_topics(own).values():
            made.result(WAIT_S)

    def in_sync(self) -> bool:
        with contextlib.suppress(KafkaException):
            topics = self.admin().list_topics(timeout=20).topics
            return all(
                sorted(part.isrs) == [JAVA, OWN] and part.leader >= 0
                for name in self.partitions
                for part in topics[name].partitions.values()
            ) and all(len(topics[name].partitions) == count for name, count in self.partitions.items())
        return False

    def step(self) -> None:
        kinds: list[tuple[int, Callable[[], object]]] = [
            (12, self.produce),
            (6, self.transact),
            (3, self.delete),
            (3, self.configure),
            (1, self.add_partition),
            (3, self.elect),
            (2, self.away_own),
            (1, self.away_java),
        ]
        chosen = self.draw.choices([each[1] for each in kinds], [each[0] for each in kinds])[0]
        chosen()
        self.done.append(chosen.__name__)

    def values(self, count: int) -> list[bytes]:
        self.count += count
        return [f"{self.count - i} {'x' * self.draw.randrange(600)}".encode() for i in range(count)]

    def produce(self) -> None:
        """In any codec; where a leader is away for long, some are given up."""
        options = {
            "bootstrap.servers": self.bootstrap,
            "compression.type": self.draw.choice(CODECS),
            "acks": self.draw.choice(("all", "1")),
            "linger.ms": self.draw.choice((0, 5, 50)),
            "message.timeout.ms": 60_000,
        }
        producer = Producer(options)
        name, number = self.draw.choice([key for key in self.places() if key[0] != "transactional"])
        for value in self.values(self.draw.randint(1, 80)):
            producer.produce(name, value, key=b"%d" % self.draw.randrange(9), partition=number)
            producer.poll(0)
        producer.flush(90)

    def transact(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": "storm", "transaction.timeout.ms": 60_000}
        )
        with contextlib.suppress(KafkaException):  # a coordinator that was away: the next one aborts it
            producer.init_transactions(60)
            for _ in range(self.draw.randint(1, 3)):
                producer.begin_transaction()
                for value in self.values(self.draw.randint(1, 20)):
                    number = self.draw.randrange(self.partitions["transactional"])
                    producer.produce("transactional", value, partition=number)
                producer.commit_transaction(60) if self.draw.random() < 0.6 else producer.abort_transaction(60)

    def delete(self) -> None:
        """Records at the front."""
        with contextlib.suppress(KafkaException):
            where = TopicPartition("plain", self.draw.randrange(self.partitions["plain"]), self.draw.randrange(400))
            admin = self.admin()
            admin.delete_records([where], request_timeout=20)[where].result(WAIT_S)

    def configure(self) -> None:
        entry = ConfigEntry(
            *self.draw.choice(
                (
                    ("segment.bytes", self.draw.choice(("1048576", "3000000"))),
                    ("max.message.bytes", self.draw.choice(("300000", "900000"))),
                    ("compression.type", self.draw.choice(("producer", "zstd", "uncompressed"))),
                    ("segment.ms", self.draw.choice(("500", "100000"))),
                )
            ),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, self.draw.choice(TOPICS), incremental_configs=[entry])
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def add_partition(self) -> None:
        name = self.draw.choice(TOPICS)
        replicas = self.draw.choice(([OWN, JAVA], [JAVA, OWN]))
        self.partitions[name] += 1
        wanted = NewPartitions(name, self.partitions[name], replica_assignment=[replicas])
        admin = self.admin()
        admin.create_partitions([wanted])[name].result(WAIT_S)

    def elect(self) -> None:
        """Who should lead does so again."""
        with contextlib.suppress(KafkaException):
            parts = [TopicPartition(*key) for key in self.places()]
            admin = self.admin()
            admin.elect_leaders(ElectionType.PREFERRED, parts).result(WAIT_S)

    def away_own(self) -> None:
        """This project's broker is killed or stopped, and comes back; the other one leads meanwhile."""
        self.own.kill() if self.draw.random() < 0.5 else self.own.stop(WAIT_S)
        self.produce()
        self.own.start(timeout_s=WAIT_S)
        wait_until(self.in_sync, WAIT_S, "both are in sync")

    def away_java(self) -> None:
        """So is Kafka's."""
        if self.draw.random() < 0.5:
            assert self.java.process is not None
            self.java.process.kill()
            self.java.process.wait()
        else:
            self.java.stop()
        self.produce()
        self.java.start()
        wait_until(self.in_sync, WAIT_S, "both are in sync")

    # --- what both have -----------------------------------------------------------------------------------------------

    def read(self, data_dir: Path, name: str, number: int) -> tuple[list[Batch], list[tuple[int, int]]]:
        """(batches, epochs) on the disk of one of them."""
        found: list[Batch] = []
        for path in sorted((data_dir / f"{name}-{number}").glob("*.log")):
            found += split(path.read_bytes())
        return found, checkpoints.read_epochs(str(data_dir / f"{name}-{number}" / "leader-epoch-checkpoint"))

    def differs(self, name: str, number: int) -> str:
        """Return the differences between the two; empty: none. Each deletes segments below the log start on its own
        schedule.
        """
        (ours, own_epochs), (theirs, java_epochs) = (
            self.read(each.data_dir, name, number) for each in (self.own, self.java)
        )
        start = max((log[0].base for log in (ours, theirs) if log), default=0)
        ours, theirs = ([each for each in log if each.base >= start] for log in (ours, theirs))
        if ours != theirs:
            at = next((a.base for a, b in zip(ours, theirs, strict=False) if a != b), -1)
            return f"{name}-{number}: {len(ours)} batches here, {len(theirs)} there, first different one {at}"
        end = ours[-1].behind if ours else 0
        first = max((entries[0][1] for entries in (own_epochs, java_epochs) if entries), default=0)
        own, java = ([each for each in entries if first < each[1] < end] for entries in (own_epochs, java_epochs))
        return "" if own == java else f"{name}-{number}: epochs {own_epochs} here, {java_epochs} there"


def test_both_have_the_same_after_a_storm(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with KafkaController(tmp_path / "controller") as controller:
        storm = Storm(tmp_path, controller, SEED)
        try:
            storm.begin()
            for _ in range(STEPS):
                storm.step()
            wait_until(storm.in_sync, WAIT_S, "both are in sync")
            for name, number in storm.places():
                if name != "compacted":
                    wait_until(
                        lambda: not storm.differs(name, number),  # noqa: B023
                        WAIT_S,
                        f"both have the same of {name}-{number}: {storm.done}",
                    )
            assert len({*storm.done}) >= 6, storm.done
        finally:
            storm.own.kill()
            storm.java.close()
            shutil.rmtree(storm.own.data_dir, ignore_errors=True)
