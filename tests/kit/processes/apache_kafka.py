"""Runs Apache Kafka itself (KRaft, one node) from its published jars: the judge in interchange tests.

Maven fetches the jars once into build/kafka; the broker's folders are temporary. Needs java 17 or newer and mvn. What
is missing is said in `NotAvailable`, for tests to report.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY, free_port
from tests.kit.processes.maven import NotAvailable, fetch_once

KAFKA_VERSION = "4.1.0"
"""Of controllers and brokers that are started unless a test names another."""
NEWEST_VERSION = "4.4.0"
"""What this broker's answers are compared with."""
JARS = REPOSITORY / "build" / "kafka"
HEAP = "-Xmx512m"
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options that leave out work from which a short-lived JVM does not gain."""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.kafkalite.tests</groupId><artifactId>interchange</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
LOGGER_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.kafkalite.tests</groupId><artifactId>logger</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
WARNINGS_ONLY = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
LOG4J = """Configuration:
  status: error
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
"""


@alone()
def jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with the jars of a release, fetched when it is not there yet."""
    return fetch_once(JARS / version, POM.format(version=version), f"Kafka {version}")


@alone()
def logger_jars() -> Path:
    """Return the folder of Kafka's logging backend: none of Kafka's own jars depends on one."""
    return fetch_once(JARS / "logger", LOGGER_POM, "slf4j-simple")


def run_tool(
    main_class: str, *arguments: str, timeout_s: float = 120, text: str = "", version: str = KAFKA_VERSION
) -> str:
    """Runs one of Kafka's command line tools with this standard input; its output."""
    command = ["java", HEAP, *SHORT_LIVED, "-cp", f"{jars(version)}/*", main_class, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{main_class} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def dump_log(*segments: Path, print_data: bool = False) -> str:
    """kafka-dump-log with deep iteration: each record's offsets, sizes and checks."""
    arguments = ["--deep-iteration", "--files", ",".join(str(path) for path in segments)]
    return run_tool("kafka.tools.DumpLogSegments", *arguments, *(["--print-data-log"] if print_data else []))


def topic_id_text(topic_id: bytes) -> str:
    """Kafka's spelling of a topic id: 22 characters of URL-safe base 64."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


@dataclass
class ApacheKafka:
    """One node, controller and broker in one process."""

    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    cluster_id: str = field(default_factory=lambda: topic_id_text(uuid.uuid4().bytes))
    process: subprocess.Popen[bytes] | None = None
    java_options: Sequence[str] = (HEAP, "-XX:TieredStopAtLevel=1")
    """For a quick start, unless it is to be measured."""
    format_options: Sequence[str] = ()
    version: str = KAFKA_VERSION
    host: str = "127.0.0.1"
    prefix: Sequence[str] = ()
    """Of the command that runs it."""
    warns: bool = False
    """Whether `log` has its warnings and errors, too."""

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        path = self.directory / "kafka.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def prepare(self) -> None:
        """Writes the configuration and formats the data directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {**self.defaults(), **self.settings}
        self.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.directory / "log4j2.yaml").write_text(LOG4J)
        # An id may begin with "-", which would be taken for an option.
        run_tool(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={self.cluster_id}",
            "-c",
            str(self.config),
            *self.format_options,
            version=self.version,
        )

    def defaults(self) -> dict[str, str]:
        """Return the configuration that `settings` override."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def start(self, timeout_s: float = 90) -> Self:
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def launch(self) -> None:
        """Starts the process without waiting for it."""
        if not self.config.exists():
            self.prepare()
        options = [*self.java_options, f"-Dlog4j2.configurationFile={self.directory / 'log4j2.yaml'}", WARNINGS_ONLY]
        class_path = f"{jars(self.version)}/*" + (f":{logger_jars()}/*" if self.warns else "")
        with (self.directory / "kafka.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, "java", *options, "-cp", class_path, "kafka.Kafka", str(self.config)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self, timeout_s: float = 60) -> None:
        """SIGTERM: Kafka flushes and writes its clean-shutdown marker."""
        if self.process is not None and self.alive:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process is not None and self.alive:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def config(self) -> Path:
        """The file with its settings, once it was prepared."""
        return self.directory / "server.properties"

    def wait_ready(self, timeout_s: float) -> None:
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + timeout_s
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": _silent_logger()})
        while time.monotonic() < deadline:
            if not self.alive:
                raise NotAvailable(f"Kafka ended at start:\n{self.log()[-3000:]}")
            with contextlib.suppress(Exception):
                if admin.list_topics(timeout=2).brokers:
                    return
        raise NotAvailable(f"Kafka was not ready within {timeout_s} s:\n{self.log()[-3000:]}")


SMALL_HEAP = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass
class KafkaController(ApacheKafka):
    """A controller on `controller_port`: alone, its quorum dynamic unless `voters` is set, or one of several."""

    java_options: Sequence[str] = SMALL_HEAP
    voters: bool = False
    node_id: int = 3000
    quorum: Sequence[str] = ()
    """Of several: all of them, as `quorum_of` gives it."""

    @property
    def address(self) -> str:
        """host:port of the controller."""
        return f"{self.host}:{self.controller_port}"

    def defaults(self) -> dict[str, str]:
        servers = ",".join(each.partition("@")[2].rpartition(":")[0] for each in self.quorum) or self.address
        quorum = (
            {"controller.quorum.voters": f"{self.node_id}@{self.address}"}
            if self.voters
            else {"controller.quorum.bootstrap.servers": servers}
        )
        return {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            **quorum,
            "listeners": f"CONTROLLER://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "broker.session.timeout.ms": "3000",
        }

    def prepare(self) -> None:
        if self.quorum:
            self.format_options = (*self.format_options, "--initial-controllers", ",".join(self.quorum))
        elif not self.voters:
            self.format_options = (*self.format_options, "--standalone")
        super().prepare()

    def wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.alive:
                raise NotAvailable(f"the controller ended at start:\n{self.log()[-3000:]}")
            with contextlib.suppress(OSError):
                socket.create_connection((self.host, self.controller_port), timeout=2).close()
                return
            time.sleep(0.1)
        raise NotAvailable(f"the controller was not ready within {timeout_s} s:\n{self.log()[-3000:]}")


def quorum_of(addresses: Mapping[int, str]) -> tuple[str, ...]:
    """Return a quorum's controllers by node id and address; each one is formatted with the same list."""
    return tuple(f"{number}@{address}:{topic_id_text(uuid.uuid4().bytes)}" for number, address in addresses.items())


@dataclass
class KafkaBroker(ApacheKafka):
    """A broker alone, of a controller's cluster: give it the controller's `controller_port` and `cluster_id`."""

    node_id: int = 1

    def defaults(self) -> dict[str, str]:
        alone = super().defaults()
        del alone["controller.quorum.voters"]
        return {
            **alone,
            "process.roles": "broker",
            "node.id": str(self.node_id),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }


def _silent_logger():
    import logging

    logger = logging.getLogger("tests.apache_kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def replace_partition(source: Path, target: Path, names: Sequence[str] = ()) -> None:
    """Puts one partition directory in place of another one (both brokers stopped)."""
    shutil.rmtree(target)
    shutil.copytree(source, target)
    for name in names:
        (target / name).unlink(missing_ok=True)
