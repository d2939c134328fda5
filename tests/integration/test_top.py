"""`kafkalite top` on a broker that works: a screen, JSON, and one sentence for what it cannot do."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite import Broker
from kafkalite.version import VERSION
from kafkalite.web.users import Role, token_line
from tests.kit.fakes.raw_http import RawHttp, sent
from tests.kit.harness import wire
from tests.kit.processes.broker import free_port

TOP = [sys.executable, "-m", "kafkalite", "top", "--interval", "0.5"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With a topic, and a group that is two records behind."""
    with Broker(metrics_listeners=f"http://127.0.0.1:{free_port()}") as running:
        fill(running)
        yield running


def fill(broker: Broker) -> None:
    broker.create_topic("a")
    with wire.Connection(broker.port) as client:
        client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")] * 3))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("a", 0, 1)], asynchronous=False)
    consumer.close()


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TOP, *arguments], capture_output=True, text=True, timeout=120)


def test_it_finds_the_metrics_by_the_broker_and_tells_what_goes_on(broker: Broker) -> None:
    done = top("-b", broker.bootstrap_servers)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:2] == ["kafkalite", VERSION]
    assert ["API", "requests/s", "errors/s", "median", "ms", "p99", "ms"] in lines
    assert ["a", "0.0", "0", "B/s", "0", "B/s"] in lines
    assert ["readers", "a", "2", "0"] in lines
    assert "\x1b" not in done.stdout


def test_json_is_for_programs(broker: Broker) -> None:
    told = json.loads(top("--metrics", broker.metrics_urls[0], "--json").stdout)
    assert {"group": "readers", "topic": "a", "lag": 2, "members": 0} in told["groups"]
    assert {row["api"] for row in told["requests"]} >= {"Produce", "OffsetCommit"}
    assert told["broker"]["connections"] >= 0
    assert {row["topic"] for row in told["topics"]} >= {"a"}


def test_on_a_terminal_the_screen_is_drawn_until_it_is_interrupted(broker: Broker) -> None:
    drawn(["--metrics", broker.metrics_urls[0]])


def drawn(arguments: list[str]) -> None:
    """Three screens on a terminal, then Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*TOP, *arguments], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    seen = b""
    while seen.count(b"\x1b[H\x1b[2J") < 3:
        seen += os.read(ours, 65536)
    process.send_signal(2)
    _, complaint = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 130
    assert complaint == b""
    assert b"readers" in seen


@pytest.fixture
def silent() -> Iterator[Broker]:
    """Without metrics; a group is two records behind."""
    with Broker() as running:
        fill(running)
        yield running


def test_without_metrics_it_shows_what_offsets_tell(silent: Broker) -> None:
    done = top("-b", silent.bootstrap_servers)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The broker serves no metrics (metrics.listeners is not set)")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["TOPIC", "offsets/s"] in lines
    assert ["a", "0.0"] in lines
    assert ["readers", "a", "2", "Empty"] in lines
    assert not any("__consumer_offsets" in line for line in lines)


def test_without_metrics_rates_are_those_of_the_offsets(silent: Broker) -> None:
    process = subprocess.Popen([*TOP, "-b", silent.bootstrap_servers, "--json"], stdout=subprocess.PIPE)
    with wire.Connection(silent.port) as client:
        while process.poll() is None:
            client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")] * 3))
    told = json.loads(process.communicate(timeout=60)[0])
    (topic,) = told["topics"]
    assert topic["topic"] == "a"
    assert topic["offsets_per_s"] > 0
    (group,) = told["groups"]
    assert (group["group"], group["topic"], group["state"]) == ("readers", "a", "Empty")
    assert group["lag"] > 2
    assert (group["lag"] - 2) % 3 == 0


def test_without_metrics_a_terminal_is_drawn_until_it_is_interrupted(silent: Broker) -> None:
    drawn(["-b", silent.bootstrap_servers])


def test_what_it_cannot_do_is_one_sentence(broker: Broker, silent: Broker, tmp_path: Path) -> None:
    (tmp_path / "any").write_text("x")
    asked = top("-b", silent.bootstrap_servers, "--token-file", str(tmp_path / "any"))
    line, token = token_line("me", Role.VIEWER)
    users = tmp_path / "users"
    users.write_text(line)
    users.chmod(0o600)
    (tmp_path / "token").write_text(token)
    with Broker(metrics_listeners="http://127.0.0.1:0", metrics_users=str(users)) as locked:
        stranger = top("--metrics", locked.metrics_urls[0])
        known = top("--metrics", locked.metrics_urls[0], "--token-file", str(tmp_path / "token"))
    gone, wrong = top("--metrics", f"http://127.0.0.1:{free_port()}"), top("--metrics", "file:///etc/passwd")
    assert known.returncode == 0
    for done, sentence in (
        (asked, "--token-file: the broker serves no metrics, because its setting metrics.listeners is empty"),
        (stranger, "authentication is required; use --token-file"),
        (gone, "cannot read http://"),
        (wrong, "is not a URL of the form http://HOST:PORT"),
    ):
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
        assert sentence in done.stderr


def test_what_fails_once_it_has_begun_is_no_wrong_use() -> None:
    answers = [
        sent(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"),
        sent(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ]

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        answers.pop()(connection, ended)

    with RawHttp(answer) as server:
        done = top("--metrics", server.url, "--interval", "0.01")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "HTTP 500" in done.stderr
