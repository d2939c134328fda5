"""Start a cluster to measure: a controller of Apache Kafka, and kafkalite or Java brokers, on 127.0.0.1."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.path.harness import cpu_seconds
from tests.kit.harness.clustered import membership
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController
from tests.kit.processes.broker import BrokerProcess, free_port, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.kit.processes.mixed_cluster import Server

KINDS: Final = ("kafkalite", "java")
WAIT_S: Final = 300.0
LOOK_S: Final = 0.02
"""Between two looks at what is waited for: an error of this size is in each time that is told."""
JAVA_OPTIONS: Final = ("-Xmx1g", "-XX:+UseG1GC")
"""Kafka's own of a broker."""

GONE_AT_ONCE: Final = {"log.segment.delete.delay.ms": "0"}
"""For clusters whose topics are deleted between two measurements: pages of memory that it has not used yet cost a
virtual machine more than all else that a broker does."""


@dataclass
class Counted:
    """CPU seconds and bytes of memory at one time."""

    brokers_cpu_s: float
    controller_cpu_s: float
    broker_rss_bytes: list[int]


class Cluster:
    """A cluster whose brokers all serve inside its `with` block. Their ids count from 1."""

    def __init__(
        self,
        kind: str,
        directory: Path,
        brokers: int = 3,
        replicas: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.controller = KafkaController(directory / "controller", settings={"broker.session.timeout.ms": "9000"})
        shared = {
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            **(settings or {}),
        }
        make = self._ours if kind == "kafkalite" else self._java
        self._directory = directory
        self.ports = [free_port() for _ in range(brokers)]
        self.brokers = [make(directory / f"broker-{n}", n, port, shared) for n, port in enumerate(self.ports, 1)]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def _ours(self, directory: Path, number: int, port: int, settings: dict[str, str]) -> Server:
        return BrokerProcess(directory, {**membership(self.controller.address, number, port), **settings}, port)

    def _java(self, directory: Path, number: int, port: int, settings: dict[str, str]) -> Server:
        return KafkaBroker(
            directory,
            settings,
            port=port,
            controller_port=self.controller.controller_port,
            cluster_id=self.controller.cluster_id,
            node_id=number,
            java_options=JAVA_OPTIONS,
        )

    def __enter__(self) -> Self:
        try:
            self.controller.start(WAIT_S)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_ready(WAIT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop brokers and controller in any state."""
        for broker in self.brokers:
            broker.close()
        self.controller.close()

    def pid(self, index: int) -> int:
        process = self.brokers[index].process
        assert process is not None
        return process.pid

    def counted(self) -> Counted:
        """Return CPU seconds of all brokers together and of the controller, and the memory of each broker."""
        assert self.controller.process is not None
        pids = [self.pid(index) for index in range(len(self.brokers))]
        return Counted(
            sum(cpu_seconds(pid) for pid in pids),
            cpu_seconds(self.controller.process.pid),
            [usage_of(pid).rss_bytes for pid in pids],
        )

    def create(self, names: Iterable[str], partitions: int, replicas: int) -> None:
        """Create topics, and wait until all their replicas are in sync."""
        names = list(names)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for name in names:
            made = admin.create_topics([NewTopic(name, partitions, replicas)], request_timeout=WAIT_S)
            for future in made.values():
                future.result(WAIT_S)
        self.wait_in_sync(0, len(names) * partitions, replicas)

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until its files are gone from all brokers, so that its memory is free."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_topics([name]).values():
            future.result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while any(self._directory.rglob(f"{name}-*")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"files of topic {name} still exist")
            time.sleep(LOOK_S)

    def wait_in_sync(self, index: int, partitions: int, replicas: int) -> None:
        """Wait until a broker reports that this many partitions have this many replicas in sync."""
        self._wait(index, lambda leader, in_sync: leader >= 0 and len(in_sync) == replicas, partitions)

    def wait_led(self, index: int, partitions: int, gone: int) -> None:
        """Wait until a broker reports that this many partitions are led by another broker than `gone`."""
        self._wait(index, lambda leader, _in_sync: leader not in (-1, gone), partitions)

    def _wait(self, index: int, good: Callable[[int, list[int]], bool], count: int) -> None:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports[index]}", "log_level": 0})
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                topics = admin.list_topics(timeout=10).topics.values()
                told = [each for topic in topics for each in topic.partitions.values() if topic.topic[0] != "_"]
                if sum(good(each.leader, each.isrs) for each in told) == count:
                    return
            time.sleep(LOOK_S)
        raise TimeoutError("the cluster did not reach the expected state in time")
