"""Start RabbitMQ, ActiveMQ, NATS JetStream and Redis Streams from their Debian packages, persistent, in one folder.

None runs as a service or under its package's user: each program is started directly, with all paths, ports and node
names given. The meaning of `synchronous` differs, and is reported in `settings`:

    RabbitMQ    a confirm of a persistent message on a durable queue comes after an fsync, which several may share
    ActiveMQ    KahaDB's own default: an fsync before each answer, shared by those who wait; else once a second
    JetStream   no such setting before 2.10
    Redis       appendfsync always: an fsync before the answers of one turn of its loop; else once a second
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.head_to_head.system import System, ask, end, java_version, package_version, spawn, which
from tests.kit.processes.broker import free_port, wait_until

ACTIVEMQ_HOME = Path("/usr/share/activemq")
RABBITMQ_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
EPMD_START_S = 20.0


class RabbitMQ(System):
    """RabbitMQ as a separate node with its own port mapper, so that it finds no other Erlang on the machine."""

    name = "rabbitmq"
    title = "RabbitMQ"
    remote_port = 5672

    @classmethod
    def missing(cls) -> str:
        return "" if RABBITMQ_SERVER.exists() else "the package rabbitmq-server is not installed"

    @classmethod
    def version(cls) -> str:
        return package_version("rabbitmq-server")

    @property
    def settings(self) -> str:
        if self.synchronous:
            return "durable queue, persistent messages, confirms: after fsync"
        return "durable queue, persistent messages; a confirm, where asked for, comes after fsync"

    def prepare(self) -> None:
        (self.folder / "rabbitmq.conf").write_text(
            "log.file = false\nlog.console = true\nlog.console.level = warning\n"
        )
        (self.folder / "enabled_plugins").write_text("[].\n")
        (self.folder / "env.conf").write_text("")
        self._mapper_port = free_port()
        epmd = which("epmd") or "epmd"
        command = [epmd, "-port", str(self._mapper_port), "-address", "127.0.0.1"]
        self._mapper = spawn(command, self.folder, self.folder / "epmd.log", None)
        wait_until(self._mapper_listens, EPMD_START_S, "Erlang's port mapper")

    def launch(self) -> None:
        environment = {
            "HOME": str(self.folder),  # the cookie
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RUNNING_UNDER_SYSTEMD": "true",  # its script then becomes the node instead of standing before it
        }
        self.run_program(RABBITMQ_SERVER, environment=environment)

    def answers(self) -> bool:
        return bool(ask(self.port, b"AMQP\0\0\x09\x01"))

    def stop(self) -> None:
        super().stop()
        if mapper := getattr(self, "_mapper", None):
            end(mapper)

    def _mapper_listens(self) -> bool:
        with contextlib.suppress(OSError):
            ask(self._mapper_port, b"\0\1n")  # NAMES_REQ
            return True
        return False


ACTIVEMQ_XML = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="bench" dataDirectory="{data}"
    useShutdownHook="true">
    <persistenceAdapter>
      <kahaDB directory="{data}/kahadb" journalDiskSyncStrategy="{strategy}" journalDiskSyncInterval="1000"/>
    </persistenceAdapter>
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      <storeUsage><storeUsage limit="100 gb"/></storeUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{port}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp}"/>
    </transportConnectors>
  </broker>
</beans>
"""
ACTIVEMQ_LOG4J = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c %m%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
"""


class ActiveMQ(System):
    """ActiveMQ Classic with KahaDB, OpenWire and STOMP."""

    name = "activemq"
    title = "ActiveMQ"
    remote_port = 61616
    HEAP = ("-Xms512m", "-Xmx1g")
    """Debian's minimum; its maximum of 512 MB doubled, so that all JVMs have the same."""
    OPENED = (
        "java.base/java.security",
        "java.base/java.net",
        "java.base/java.lang",
        "java.base/java.util",
        "java.naming/javax.naming.spi",
        "java.rmi/sun.rmi.transport.tcp",
        "java.base/java.util.concurrent",
        "java.base/java.util.concurrent.atomic",
    )
    """What its start script opens to reflection."""

    @classmethod
    def missing(cls) -> str:
        if not (ACTIVEMQ_HOME / "bin" / "activemq.jar").exists():
            return "the package activemq is not installed"
        return "" if shutil.which("java") else "java is not installed"

    @classmethod
    def version(cls) -> str:
        return f"{package_version('activemq')}, {java_version()}"

    @property
    def settings(self) -> str:
        return "KahaDB, fsync before the answer" if self.synchronous else "KahaDB, fsync once a second"

    def port_for(self, driver: str) -> int:
        return self._stomp_port if driver == "activemq-stomp" else self.port

    def prepare(self) -> None:
        self._stomp_port = free_port()
        strategy = "always" if self.synchronous else "periodic"
        text = ACTIVEMQ_XML.format(data=self.folder / "data", port=self.port, stomp=self._stomp_port, strategy=strategy)
        (self.folder / "conf").mkdir()
        (self.folder / "conf" / "activemq.xml").write_text(text)
        (self.folder / "conf" / "log4j2.properties").write_text(ACTIVEMQ_LOG4J)
        (self.folder / "tmp").mkdir()

    def launch(self) -> None:
        opened = [part for package in self.OPENED for part in ("--add-opens", f"{package}=ALL-UNNAMED")]
        places = {
            "home": ACTIVEMQ_HOME,
            "base": self.folder,
            "conf": self.folder / "conf",
            "data": self.folder / "data",
        }
        places["classpath"] = self.folder / "conf"
        properties = [f"-Dactivemq.{name}={path}" for name, path in places.items()]
        properties += [f"-Djava.io.tmpdir={self.folder / 'tmp'}", "-Djava.awt.headless=true"]
        jar = str(ACTIVEMQ_HOME / "bin" / "activemq.jar")
        config = f"xbean:file:{self.folder / 'conf' / 'activemq.xml'}"
        self.run_program("java", *self.HEAP, *opened, *properties, "-jar", jar, "start", config)

    def answers(self) -> bool:
        return b"ActiveMQ" in ask(self.port, b"")  # it sends its WireFormatInfo unasked


class Nats(System):
    """NATS with JetStream, file storage."""

    name = "nats"
    title = "NATS JetStream"
    remote_port = 4222
    synchronous_missing = "nats-server before 2.10 has no setting that syncs before it acknowledges"

    @classmethod
    def missing(cls) -> str:
        return "" if which("nats-server") else "the package nats-server is not installed"

    @classmethod
    def version(cls) -> str:
        done = subprocess.run(
            [which("nats-server") or "nats-server", "--version"], capture_output=True, text=True, check=False
        )
        found = re.search(r"v?(\d+\.\d+\.\d+)", done.stdout + done.stderr)
        return found[1] if found else "unknown"

    @property
    def settings(self) -> str:
        return "file storage, synced every two minutes"

    def prepare(self) -> None:
        (self.folder / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: 1MB\nmax_pending: 256MB\n'
            f'jetstream {{ store_dir: "{self.folder / "data"}", max_file_store: 200GB }}\n'
        )

    def launch(self) -> None:
        self.run_program(which("nats-server") or "nats-server", "-c", self.folder / "nats.conf")

    def answers(self) -> bool:
        return b'"jetstream":true' in ask(self.port, b"")


class Redis(System):
    """Redis Streams with the append-only file."""

    name = "redis"
    title = "Redis Streams"
    remote_port = 6379

    @classmethod
    def missing(cls) -> str:
        return "" if which("redis-server") else "the package redis-server is not installed"

    @classmethod
    def version(cls) -> str:
        return package_version("redis-server")

    @property
    def settings(self) -> str:
        return "appendonly, appendfsync " + ("always" if self.synchronous else "everysec")

    def prepare(self) -> None:
        flush = "always" if self.synchronous else "everysec"
        lines = [f"port {self.port}", "bind 127.0.0.1", f'dir "{self.folder}"', "appendonly yes", 'save ""']
        lines += [f"appendfsync {flush}", "daemonize no", "loglevel warning"]
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")

    def launch(self) -> None:
        self.run_program(which("redis-server") or "redis-server", self.folder / "redis.conf")

    def answers(self) -> bool:
        return ask(self.port, b"PING\r\n").startswith(b"+PONG")
