"""`kafkalite start --mirror-from`: a replica that pulls from a live cluster inside the broker's own process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client, Security
from kafkalite.mirror import embedded
from kafkalite.mirror.embedded import EmbeddedMirror, EmbeddedOptions
from kafkalite.model import TopicPartition
from tests.kit.harness.scrape import Scrape, ask
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, free_port, wait_until

if TYPE_CHECKING:
    from tests.kit.processes.apache_kafka import ApacheKafka


pytestmark = pytest.mark.integration

TIMEOUT_S = 60
FAST = {"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2}


def replica(directory: Path, source: str, topics: str = "logs[.].*", file: Path | None = None) -> Broker:
    """Not started yet."""
    mirror = EmbeddedMirror(EmbeddedOptions.load(source, topics, file))
    settings = {**FAST, "log.dirs": str(directory), "metrics.listeners": "http://127.0.0.1:0"}
    return Broker(settings, companions=[mirror])


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker(FAST) as running:
        yield running


@pytest.fixture
def live(source: Broker) -> Iterator[Client]:
    with Client(source.bootstrap_servers) as client:
        yield client


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Committed, in order."""
    with Client(bootstrap) as client:
        if not client.partition_counts([topic]):
            return []
        chunks = client.read(topic, 0, end=client.end_offset(topic, 0), isolation=1)
        return [record.value for chunk in chunks for record in chunk.records()]


def wait_for(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, TIMEOUT_S, what, 0.05)


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_a_replica_follows_and_continues_after_a_restart(tmp_path: Path, source: Broker, live: Client) -> None:
    live.admin.create_topic("logs.a", 1, configs={"retention.ms": "-1"})
    live.admin.create_topic("other", 1)
    live.produce("logs.a", 0, numbers(0, 100))
    with replica(tmp_path, source.bootstrap_servers) as broker:
        wait_for(lambda: len(values(broker.bootstrap_servers, "logs.a")) == 100, "the first records")
        live.produce("logs.a", 0, numbers(100, 150))
        wait_for(lambda: len(values(broker.bootstrap_servers, "logs.a")) == 150, "the next ones")
        url = broker.metrics_urls[0]
        wait_for(lambda: ask(url, "/health/ready").json == {"status": "up"}, "nothing to say")
        seen = Scrape.of(url)
        assert seen("kafkalite_mirror_records_total", mirror="embedded", topic="logs.a") == 150
        assert seen("kafkalite_mirror_up", mirror="embedded") == 1
        assert seen("kafkalite_mirror_lag", mirror="embedded", topic="logs.a") == 0
        with Client(broker.bootstrap_servers) as client:
            assert "other" not in client.topics()
            entries = {row.name: row.value for row in client.admin.describe_topic_configs("logs.a")}
            assert entries["retention.ms"] == "-1"
    live.produce("logs.a", 0, numbers(150, 180))
    with replica(tmp_path, source.bootstrap_servers) as broker:
        wait_for(lambda: len(values(broker.bootstrap_servers, "logs.a")) >= 180, "what came meanwhile")
        assert values(broker.bootstrap_servers, "logs.a") == numbers(0, 180)


@pytest.mark.slow
def test_a_source_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "source", port=free_port()) as live:
        with Client(live.bootstrap) as client:
            client.admin.create_topic("logs.b", 1)
            client.produce("logs.b", 0, numbers(0, 10))
        live.stop()
        with replica(tmp_path / "replica", live.bootstrap) as broker:
            url = broker.metrics_urls[0]
            wait_for(lambda: "cannot connect" in str(ask(url, "/health/ready").json.get("notes")), "the reason")
            told = ask(url, "/health/ready")
            assert (told.status, told.json["status"]) == (200, "up")
            assert told.json["notes"][0].startswith(f"mirror embedded of {live.bootstrap} does not copy: ")
            seen = Scrape.of(url)
            assert seen("kafkalite_mirror_up", mirror="embedded") == 0
            assert any("cannot connect" in dict(labels).get("error", "") for _, labels in seen.samples)
            with Client(broker.bootstrap_servers) as client:
                client.admin.create_topic("own", 1)
                client.produce("own", 0, [b"served all the same"])
            live.start()
            wait_for(lambda: values(broker.bootstrap_servers, "logs.b") == numbers(0, 10), "records")
            live.kill()
            live.start()
            with Client(live.bootstrap, retry_timeout_s=60) as client:
                client.produce("logs.b", 0, numbers(10, 20))
            wait_for(lambda: values(broker.bootstrap_servers, "logs.b") == numbers(0, 20), "what came afterwards")
            wait_for(lambda: ask(url, "/health/ready").json == {"status": "up"}, "nothing to say")


def test_a_source_that_hangs_does_not_hold_up_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded, "STOP_S", 1.0)
    monkeypatch.setattr(embedded, "INTERRUPTED_S", TIMEOUT_S)
    with BrokerProcess(tmp_path / "source") as live:
        with Client(live.bootstrap) as client:
            client.admin.create_topic("logs.c", 1)
            client.produce("logs.c", 0, numbers(0, 10))
        broker = replica(tmp_path / "replica", live.bootstrap).start()
        wait_for(lambda: len(values(broker.bootstrap_servers, "logs.c")) == 10, "records")
        os.kill(live.pid, signal.SIGSTOP)
        try:
            with_request_under_way = time.monotonic() + 2 * embedded.BROKEN_STOP_S
            wait_for(lambda: time.monotonic() > with_request_under_way, "a fetch that is not answered")
            broker.stop()
            assert "still waiting" not in caplog.text
            (mirror,) = broker._companions
            assert not mirror._thread.is_alive()
        finally:
            os.kill(live.pid, signal.SIGCONT)


def test_positions_of_groups_arrive_and_the_file_says_what(tmp_path: Path, source: Broker, live: Client) -> None:
    file = tmp_path / "mirror.properties"
    file.write_text(
        "name=replica\ntopics=logs[.]d, logs[.]e\nsync.group.offsets.enabled=true\nsync.topic.configs.enabled=true\n"
        "sync.group.offsets.interval.seconds=0.05\nrefresh.topics.interval.seconds=0.05\ngroups=mine.*\n"
    )
    live.admin.create_topic("logs.d", 1)
    live.produce("logs.d", 0, numbers(0, 20))
    live.groups.commit("mine", {TopicPartition("logs.d", 0): 7})
    live.groups.commit("theirs", {TopicPartition("logs.d", 0): 7})
    mirror = EmbeddedMirror(EmbeddedOptions.load(source.bootstrap_servers, None, file))
    with (
        Broker({**FAST, "log.dirs": str(tmp_path / "data")}, companions=[mirror]) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        key = TopicPartition("logs.d", 0)
        wait_for(lambda: key in client.groups.committed("mine"), "the position")
        wait_for(lambda: client.groups.committed("mine")[key].offset == 7, "the position")
        assert client.groups.committed("theirs") == {}
        live.admin.alter_topic_configs("logs.d", {"retention.ms": "77777"})
        wait_for(lambda: own_retention(client, "logs.d") == "77777", "the setting")
        assert "kafkalite.mirror.replica" in client.topics()


def own_retention(client: Client, topic: str) -> str | None:
    return next(row.value for row in client.admin.describe_topic_configs(topic, ["retention.ms"]))


def test_a_listener_that_wants_to_know_who_comes(
    tmp_path: Path, source: Broker, live: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror signs in as any client; it waits until it can."""
    file = tmp_path / "mirror.properties"
    own = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "mirror",
        "sasl.password": "open sesame",
    }
    file.write_text("".join(f"target.{key}={text}\n" for key, text in own.items()))
    live.admin.create_topic("logs.sasl", 1)
    live.produce("logs.sasl", 0, numbers(0, 10))
    listener = "SASL_PLAINTEXT://127.0.0.1:0"
    settings = {**FAST, "log.dirs": str(tmp_path / "data"), "listeners": listener}
    mirror = EmbeddedMirror(EmbeddedOptions.load(source.bootstrap_servers, "logs[.]sasl", file))
    with Broker({**settings, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, companions=[mirror]) as broker:
        wait_for(lambda: "authentication with" in mirror.status.error, "the refusal")
        broker.add_user("mirror", "open sesame")
        with Client(broker.bootstrap_servers, security=Security(own)) as client:
            wait_for(lambda: client.partition_counts(["logs.sasl"]), "the topic")
            wait_for(lambda: client.end_offset("logs.sasl", 0, isolation=1) >= 10, "records")
    flags = ["--set", "sasl.enabled.mechanisms=SCRAM-SHA-256", "--mirror-from", source.bootstrap_servers]
    assert main(["start", "--data-dir", str(tmp_path / "none"), "--listeners", listener, *flags]) == 2
    assert "every listener requires TLS or SASL" in capsys.readouterr().err


def test_a_second_mirror_of_the_name_ends_the_first(tmp_path: Path, source: Broker, live: Client) -> None:
    live.admin.create_topic("logs.f", 1)
    with replica(tmp_path, source.bootstrap_servers, "logs[.]f") as broker:
        live.produce("logs.f", 0, numbers(0, 5))
        wait_for(lambda: len(values(broker.bootstrap_servers, "logs.f")) == 5, "records")
        both = ["--from", source.bootstrap_servers, "--to", broker.bootstrap_servers]
        assert main(["mirror", *both, "--name", "embedded", "--topics", "logs[.]f", "-e", "-q"]) == 0
        live.produce("logs.f", 0, numbers(5, 9))
        url = broker.metrics_urls[0]
        wait_for(lambda: "has stopped: another mirror" in str(ask(url, "/health/ready").json.get("notes")), "its end")
        assert values(broker.bootstrap_servers, "logs.f") == numbers(0, 5)


def test_itself_is_no_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    mirror = EmbeddedMirror(EmbeddedOptions.load(f"127.0.0.1:{port}", None, None))
    settings = {**FAST, "log.dirs": str(tmp_path), "listeners": f"kafka://127.0.0.1:{port}"}
    with Broker(settings, companions=[mirror]):
        wait_for(lambda: mirror.status.ended, "its end")
    assert "source and target are the same cluster" in mirror.status.ended
    assert "has stopped: source and target are the same cluster" in caplog.text


@pytest.mark.slow
def test_kill_minus_nine_while_it_pulls(tmp_path: Path, source: Broker, live: Client) -> None:
    count, topic = 60_000, "logs.killed"
    live.admin.create_topic(topic, 1)
    with live.producer(batch_size=4000) as producer:
        producer.send(topic, 0, numbers(0, count))
    dice = random.Random(3)
    command = (sys.executable, "-m", "kafkalite", "start", "--mirror-from", source.bootstrap_servers)
    with BrokerProcess(tmp_path, command=(*command, "--mirror-topics", "logs[.]killed")) as broker:
        for kill in range(3):
            wanted = count * kill // 4 + dice.randrange(count // 8)
            wait_for(lambda wanted=wanted: end_of(broker.bootstrap, topic) > wanted, "progress")  # type: ignore[misc]
            broker.kill()
            broker.start()
        wait_for(lambda: len(values(broker.bootstrap, topic)) >= count, "everything")
        assert values(broker.bootstrap, topic) == numbers(0, count)


def end_of(bootstrap: str, topic: str) -> int:
    with Client(bootstrap, retry_timeout_s=60) as client:
        return client.end_offset(topic, 0) if client.partition_counts([topic]) else 0


@pytest.mark.slow
@pytest.mark.compat
def test_apache_kafka_is_a_source(tmp_path: Path, apache_kafka: ApacheKafka) -> None:
    with Client(apache_kafka.bootstrap, retry_timeout_s=60) as client:
        client.admin.create_topic("logs.kafka", 1)
        client.produce("logs.kafka", 0, numbers(0, 500))
    with replica(tmp_path, apache_kafka.bootstrap) as broker:
        wait_for(lambda: values(broker.bootstrap_servers, "logs.kafka") == numbers(0, 500), "records")


@pytest.mark.parametrize(
    ("flags", "text", "why"),
    [
        (["--mirror-topics", "x"], None, "--mirror-topics requires --mirror-from"),
        (["--mirror-from", "host:99999"], None, "is not host:port"),
        (["--mirror-from", "a:1", "--mirror-topics", "("], None, "not a regular expression"),
        ([], "topics=a", "a mirror needs a source"),
        ([], "bootstrap.servers=a:1\ntopic=a", "did you mean topics?"),
        ([], "bootstrap.servers=a:1\nname=a/b", "is not a valid mirror name"),
        ([], "bootstrap.servers=a:1\nsync.group.offsets.enabled=yes", "must be true or false"),
        ([], "bootstrap.servers=a:1\nrefresh.topics.interval.seconds=0", "number of seconds"),
        ([], "bootstrap.servers=a:1\ngroups=a,[", "not a regular expression"),
        ([], "bootstrap.servers=a:1\nsecurity.protocol=NONE", "security.protocol"),
        (["--mirror-config", "/no/such"], None, "cannot read"),
    ],
)
def test_what_cannot_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], text: str | None, why: str
) -> None:
    if text is not None:
        (tmp_path / "file").write_text(text)
        flags = [*flags, "--mirror-config", str(tmp_path / "file")]
    assert main(["start", "--data-dir", str(tmp_path / "data"), "--listeners", "kafka://127.0.0.1:0", *flags]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_start_without_it_imports_nothing_of_it() -> None:
    program = (
        "import sys, kafkalite.cli.start as start\nfrom kafkalite.broker import Broker\n"
        "with Broker(): pass\n"
        "sys.exit(any(name.startswith(('kafkalite.mirror', 'kafkalite.client.cluster')) for name in sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=TIMEOUT_S).returncode == 0
