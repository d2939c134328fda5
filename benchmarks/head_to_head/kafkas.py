"""Start the systems with Kafka's protocol: kafkalite, Apache Kafka in KRaft mode, and the null broker as the ceiling.

Apache Kafka runs from its published jars, with the JVM options of its start script, as one node with its defaults. The
null broker does only what a broker cannot omit (`benchmarks/null_broker/`). So its rate is the most that a client can
reach.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Sequence

import kafkalite
from benchmarks.head_to_head.system import PROBE_INTERVAL_S, START_TIMEOUT_S, DidNotStart, System, ask, java_version
from benchmarks.path.harness import Kafkalite as HarnessKafkalite
from benchmarks.path.harness import NullBroker as HarnessNullBroker
from tests.kit.processes.apache_kafka import KAFKA_VERSION, ApacheKafka, NotAvailable, jars
from tests.kit.processes.broker import BrokerDidNotStart, free_port, wait_until

METADATA_REQUEST = struct.pack(">hhih", 3, 4, 1, 5) + b"bench" + struct.pack(">i?", 0, False)
"""Metadata version 4 for no topic, correlation 1: who are the brokers?"""
BROKER_COUNT = struct.Struct(">i")
BROKER_COUNT_AT = 4 + 4 + 4
"""Behind size, correlation id and throttle time."""
MESSAGE_MAX_BYTES = 4_194_304


def knows_a_broker(port: int) -> bool:
    """Return whether a Metadata response names a broker. A KRaft node accepts connections before it can serve them."""
    answer = ask(port, struct.pack(">i", len(METADATA_REQUEST)) + METADATA_REQUEST)
    if len(answer) < BROKER_COUNT_AT + BROKER_COUNT.size:
        return False
    return bool(BROKER_COUNT.unpack_from(answer, BROKER_COUNT_AT)[0] > 0)


class Kafkalite(System):
    """This repository's broker, with the current protocol and that of Kafka 0.7."""

    name = "kafkalite"
    title = "kafkalite"
    remote_port = 9092

    @classmethod
    def version(cls) -> str:
        return str(kafkalite.__version__)

    @property
    def settings(self) -> str:
        return "acks=all: fdatasync first" if self.synchronous else "acks=1: page cache, flushed by the system"

    @property
    def pids(self) -> Sequence[int]:
        return [self._broker.pid]

    def port_for(self, driver: str) -> int:
        return self._classic_port if driver.startswith("classic") else self.port

    def start(self) -> None:
        self._classic_port = free_port()
        port = free_port()
        listeners = f"kafka://127.0.0.1:{port},kafka07://127.0.0.1:{self._classic_port}"
        settings = {"num.partitions": "1", "message.max.bytes": str(MESSAGE_MAX_BYTES), "listeners": listeners}
        self._broker = HarnessKafkalite(self.name, self.folder, settings=settings)
        began = time.monotonic()
        try:
            self._broker.start()
        except BrokerDidNotStart as error:
            raise DidNotStart(str(error)) from error
        self.port = port
        wait_until(self.answers, START_TIMEOUT_S, "an answer to Metadata", PROBE_INTERVAL_S)
        self.start_s = time.monotonic() - began

    def answers(self) -> bool:
        return knows_a_broker(self.port)

    def stop(self) -> None:
        self._broker.stop()


class NullBroker(System):
    """A broker that checks the CRC, patches the offset and appends with pwrite; acks=all adds an fdatasync per
    batch."""

    name = "null-broker"
    title = "null broker (C)"
    remote_port = 9092

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("gcc") else "gcc is not installed"

    @classmethod
    def version(cls) -> str:
        return "benchmarks/null_broker"

    @property
    def settings(self) -> str:
        return "acks=all: fdatasync a batch" if self.synchronous else "acks=1: page cache"

    @property
    def pids(self) -> Sequence[int]:
        return [self._broker.pid]

    def start(self) -> None:
        self._broker = HarnessNullBroker(self.name, self.folder)
        self._broker.start()
        self.port = self._broker.port

    def stop(self) -> None:
        self._broker.stop()


class Kafka(System):
    """Apache Kafka with one node, which is controller and broker."""

    name = "apache-kafka"
    title = "Apache Kafka"
    remote_port = 9092
    HEAP = ("-Xms1g", "-Xmx1g")
    OPTIONS = (
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
    )
    """As bin/kafka-server-start.sh and bin/kafka-run-class.sh set them."""

    @classmethod
    def missing(cls) -> str:
        try:
            jars()
        except NotAvailable as error:
            return str(error)
        return ""

    @classmethod
    def version(cls) -> str:
        return f"{KAFKA_VERSION} (KRaft), {java_version()}"

    @property
    def settings(self) -> str:
        return "acks=all, log.flush.interval.messages=1" if self.synchronous else "acks=1: page cache, default flush"

    def prepare(self) -> None:
        settings = {"num.partitions": "1", "message.max.bytes": str(MESSAGE_MAX_BYTES)}
        if self.synchronous:
            settings["log.flush.interval.messages"] = "1"
        self._kafka = ApacheKafka(self.folder, settings, port=self.port)
        self._kafka.prepare()

    def launch(self) -> None:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}"
        command = ["java", *self.HEAP, *self.OPTIONS, logging, "-cp", f"{jars()}/*", "kafka.Kafka"]
        self.run_program(*command, self.folder / "server.properties")

    def answers(self) -> bool:
        return knows_a_broker(self.port)
