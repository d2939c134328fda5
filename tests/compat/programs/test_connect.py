"""Apache Kafka's Connect, distributed and exactly once at its source, and MirrorMaker 2 between two brokers."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.client import READ_COMMITTED, Client
from kafkalite.wire.record.columns import Record
from tests.compat.toolchains import BUILD, NotAvailable, run
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until

pytestmark = pytest.mark.slow

POM = Path(__file__).with_name("pom.xml")
TIMEOUT_S = 180.0
LINES = [f"line {number}" for number in range(50)]


@alone()
def connect_jars() -> Path:
    """The folder with the jars, fetched when it is not there yet or the pom changed."""
    folder = BUILD / "connect"
    complete = folder / "complete"
    if not complete.exists() or complete.stat().st_mtime < POM.stat().st_mtime:
        for tool in ("java", "mvn"):
            if shutil.which(tool) is None:
                raise NotAvailable(f"{tool} is not on the PATH")
        folder.mkdir(parents=True, exist_ok=True)
        run("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")
        complete.touch()
    return folder


@pytest.fixture
def jars(not_run: Callable[[str, str], NoReturn]) -> Path:
    try:
        return connect_jars()
    except NotAvailable as missing:
        not_run("Kafka Connect and MirrorMaker 2", str(missing))


@contextmanager
def running(jars: Path, directory: Path, main_class: str, settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Connect's with a properties file; its log is in `directory`."""
    (directory / "properties").write_text(settings)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", f"{jars}/*", main_class, str(directory / "properties")],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def values(client: Client, topic: str) -> list[bytes]:
    """What readers of committed data see in partition 0; nothing where there is no topic."""
    if topic not in client.topics():
        return []
    return [bytes(value) for chunk in client.read(topic, 0, isolation=READ_COMMITTED) for value in chunk.columns.values]


class Connect:
    """The REST interface of a worker."""

    def __init__(self, port: int) -> None:
        self._port = port

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = answer.read()
        assert answer.status < 400, found
        return json.loads(found)

    def serves(self) -> bool:
        try:
            return "version" in self.call("GET", "/")
        except (OSError, http.client.HTTPException, AssertionError):
            return False


def test_connect_copies_a_file_through_a_topic_exactly_once(
    jars: Path, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    source, target, port = tmp_path / "in.txt", tmp_path / "out.txt", free_port()
    source.write_text("".join(f"{line}\n" for line in LINES))
    kept = "".join(
        f"{kind}.storage.topic={topic}-{kind}\n{kind}.storage.replication.factor=1\n"
        for kind in ("config", "offset", "status")
    )
    settings = (
        f"bootstrap.servers={bootstrap}\ngroup.id={topic}\nlisteners=http://127.0.0.1:{port}\n{kept}"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "exactly.once.source.support=enabled\noffset.flush.interval.ms=500\noffset.storage.partitions=3\n"
    )
    package = "org.apache.kafka.connect.file.FileStream"
    connectors = {
        f"{topic}-source": {"connector.class": f"{package}SourceConnector", "file": str(source), "topic": topic},
        f"{topic}-sink": {"connector.class": f"{package}SinkConnector", "file": str(target), "topics": topic},
    }
    with running(jars, tmp_path, "org.apache.kafka.connect.cli.ConnectDistributed", settings) as process:
        connect = Connect(port)
        wait_until(lambda: connect.serves() or process.poll() is not None, TIMEOUT_S, "Connect serves")
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        for name, config in connectors.items():
            connect.call("POST", "/connectors", {"name": name, "config": {"tasks.max": "1", **config}})
        wait_until(
            lambda: target.exists() and len(target.read_text().splitlines()) >= len(LINES), TIMEOUT_S, "all lines"
        )
    assert target.read_text().splitlines() == LINES
    with Client(bootstrap) as client:
        assert [value.decode() for value in values(client, topic)] == LINES
        kinds = {row.group_id: row.protocol_type for row in client.groups.list()}
        assert (kinds[topic], kinds[f"connect-{topic}-sink"]) == ("connect", "consumer")


def test_mirror_maker_copies_topics_and_their_groups_offsets(jars: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "live", {}) as live, BrokerProcess(tmp_path / "copy", {}) as copy:
        with Client(live.bootstrap) as client:
            client.admin.create_topic("orders", 2, configs={"retention.ms": "86400000"})
            client.produce("orders", 0, [Record(-1, 1000 + i, b"k", line.encode()) for i, line in enumerate(LINES)])
            with client.group_reader("readers", "orders", reset="earliest") as reader:
                while not reader.poll(timeout_s=1.0):
                    pass
                reader.commit()
        settings = (
            f"clusters=live,copy\nlive.bootstrap.servers={live.bootstrap}\ncopy.bootstrap.servers={copy.bootstrap}\n"
            "live->copy.enabled=true\nlive->copy.topics=orders\nlive->copy.groups=readers\n"
            "copy->live.enabled=false\nreplication.factor=1\nsync.group.offsets.enabled=true\n"
            "emit.checkpoints.interval.seconds=1\nsync.group.offsets.interval.seconds=1\n"
            "refresh.topics.interval.seconds=2\nrefresh.groups.interval.seconds=2\n"
            "offset-syncs.topic.replication.factor=1\nheartbeats.topic.replication.factor=1\n"
            "checkpoints.topic.replication.factor=1\nconfig.storage.replication.factor=1\n"
            "offset.storage.replication.factor=1\nstatus.storage.replication.factor=1\n"
        )
        main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
        with running(jars, tmp_path, main_class, settings) as process, Client(copy.bootstrap) as client:

            def all_there() -> bool:
                assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
                known = "readers" in {row.group_id for row in client.groups.list()}
                return len(values(client, "live.orders")) >= len(LINES) and known

            wait_until(all_there, TIMEOUT_S, "records and the group's offsets")
            assert [value.decode() for value in values(client, "live.orders")] == LINES
            assert len(client.topic("live.orders").partitions) == 2
            (entry,) = client.admin.describe_topic_configs("live.orders", ["retention.ms"])
            assert entry.value == "86400000"
