"""A cluster on loopback whose brokers are Apache Kafka's or this project's, of any kind at any place."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from confluent_kafka.admin import AdminClient

from tests.kit.harness.clustered import membership
from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import KAFKA_VERSION, SMALL_HEAP, KafkaBroker, KafkaController
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.kafka_cluster import coordinators_with

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

JAVA, OURS = "java", "kafkalite"
ALL_JAVA, MIXED, ALL_OURS = (JAVA,) * 3, (OURS, JAVA, OURS), (OURS,) * 3
START_S = 120.0


class Server(Protocol):
    """A broker's or a controller's process, of either kind."""

    process: subprocess.Popen[bytes] | None

    @property
    def data_dir(self) -> Path: ...
    @property
    def alive(self) -> bool: ...
    def launch(self) -> None: ...
    def stop(self) -> object: ...
    def close(self) -> None: ...
    def wait_ready(self, timeout_s: float) -> None: ...
    def log(self) -> str: ...


@dataclass
class MixedCluster:
    """`with MixedCluster(directory, kinds) as cluster:` all of it serves. Brokers have the ids 1, 2, 3, …"""

    directory: Path
    kinds: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of each broker."""
    own_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Of one broker besides, by its number."""
    format_options: Sequence[str] = ()
    """Of the controller's storage."""
    version: str = KAFKA_VERSION
    """Of what is Apache Kafka's."""
    warns: bool = False
    """Whether the logs of Java brokers have their warnings."""
    brokers: dict[int, Server] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = KafkaController(
            self.directory / "controller",
            {"leader.imbalance.check.interval.seconds": "3600", "broker.session.timeout.ms": "9000"},
            format_options=self.format_options,
            version=self.version,
        )
        self.ports = {number: free_port() for number, _ in enumerate(self.kinds, 1)}
        for number, kind in enumerate(self.kinds, 1):
            self.brokers[number] = self._broker(number, kind)

    def _broker(self, number: int, kind: str) -> Server:
        port, directory = self.ports[number], self.directory / f"broker-{number}"
        settings = {
            **membership(self.controller.address, number, port),
            **coordinators_with(min(3, len(self.kinds))),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            **self.settings,
            **self.own_settings.get(number, {}),
        }
        if kind == OURS:
            return BrokerProcess(directory, settings, port)
        return KafkaBroker(
            directory,
            settings,
            port=port,
            controller_port=self.controller.controller_port,
            cluster_id=self.controller.cluster_id,
            node_id=number,
            java_options=SMALL_HEAP,
            version=self.version,
            warns=self.warns,
        )

    @property
    def bootstrap(self) -> str:
        """host:port of every broker."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def admin(self) -> AdminClient:
        """A new one, which knows nothing yet."""
        return AdminClient({"bootstrap.servers": self.bootstrap}, logger=quiet)

    def start(self, number: int) -> None:
        """A broker that was stopped; returns when it serves."""
        self.brokers[number].launch()
        self.brokers[number].wait_ready(START_S)

    def restart_as(self, number: int, kind: str) -> None:
        """Stops a broker and starts one of a kind in its directory; returns when it serves."""
        self.brokers[number].stop()
        self.brokers[number] = self._broker(number, kind)
        self.start(number)

    def isr(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """Of each partition who leads, the replicas, and who is in sync."""
        found = self.admin().list_topics(topic, timeout=START_S).topics[topic].partitions
        return {number: (each.leader, each.replicas, sorted(each.isrs)) for number, each in found.items()}

    def wait_in_sync(self, topic: str) -> None:
        """Returns when all replicas of a topic are in sync."""
        wait_until(
            lambda: all(sorted(replicas) == isr for _, replicas, isr in self.isr(topic).values()),
            *(START_S, f"all replicas of {topic} are in sync", 0.2),
        )

    def __enter__(self) -> Self:
        try:
            self.controller.start()
            for broker in self.brokers.values():
                broker.launch()
            for broker in self.brokers.values():
                broker.wait_ready(START_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all servers in any state."""
        for server in (*self.brokers.values(), self.controller):
            with contextlib.suppress(OSError):
                server.close()
