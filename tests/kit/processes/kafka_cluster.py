"""A cluster on loopback: one controller of Apache Kafka's, from Maven's jars, and kafkalite brokers as processes.

`python -m tests.kit.processes.kafka_cluster` starts one of three brokers in a temporary directory, tells when it is up,
and ends with Ctrl-C or SIGTERM (`make cluster`); its partitions have three replicas. Those of a `KafkaCluster` have
one, those of coordinators too, unless it is given other settings.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.kit.harness.clustered import membership
from tests.kit.processes.apache_kafka import KafkaController, NotAvailable
from tests.kit.processes.broker import BrokerDidNotStart, BrokerProcess, free_port

BROKERS = 3


def coordinators_with(replicas: int) -> dict[str, str]:
    """Return broker settings with this replication factor for the coordinators' topics; of two or three replicas one
    may be down.
    """
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
    }


ONE_REPLICA = coordinators_with(1)


@dataclass
class KafkaCluster:
    """`with KafkaCluster(directory) as cluster:` all of it serves. Brokers have the ids 1, 2, 3."""

    directory: Path
    brokers: int = BROKERS
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of each broker."""
    controller_settings: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.controller = KafkaController(self.directory / "controller", settings=dict(self.controller_settings))
        ports = self.ports or tuple(free_port() for _ in range(self.brokers))
        self.processes = [
            BrokerProcess(self.directory / f"broker-{number}", self._settings_of(number, port), port)
            for number, port in enumerate(ports, 1)
        ]

    def _settings_of(self, number: int, port: int) -> dict[str, str]:
        return {
            **membership(self.controller.address, number, port),
            **ONE_REPLICA,
            **self.settings,
        }

    @property
    def bootstrap(self) -> str:
        """host:port of every broker."""
        return ",".join(process.bootstrap for process in self.processes)

    def __enter__(self) -> Self:
        try:
            self.controller.start()
            for process in self.processes:
                process.launch()
            for process in self.processes:
                process.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The brokers hand over and stop, then the controller does."""
        try:
            for process in self.processes:
                if process.alive:
                    process.stop()
            self.controller.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Close all processes in any state."""
        for process in self.processes:
            process.close()
        self.controller.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="A controller of Apache Kafka's and kafkalite brokers, on 127.0.0.1.")
    parser.add_argument("--brokers", type=int, default=BROKERS, help="how many brokers (3)")
    parser.add_argument("--ports", default="", help="their ports, with commas; otherwise any that are free")
    parser.add_argument("--replicas", type=int, help="of a partition of which nobody says how many (3, or all brokers)")
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ports = tuple(int(port) for port in arguments.ports.split(",") if port)
    with tempfile.TemporaryDirectory(prefix="kafkalite-cluster-") as directory, contextlib.ExitStack() as stack:
        brokers = len(ports) or arguments.brokers
        replicas = arguments.replicas or min(BROKERS, brokers)
        cluster = KafkaCluster(
            Path(directory),
            brokers,
            settings=coordinators_with(replicas),
            controller_settings={"default.replication.factor": str(replicas)},
            ports=ports,
        )
        try:
            stack.enter_context(cluster)
        except (NotAvailable, BrokerDidNotStart) as error:
            print(error, file=sys.stderr)
            return 1
        print(f"a cluster of {brokers} kafkalite brokers is ready: {cluster.bootstrap}", flush=True)
        print(f"its data are in {directory} until it ends; Ctrl-C ends it", flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
