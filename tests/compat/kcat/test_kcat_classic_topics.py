"""kcat on a topic of Kafka 0.7's messages: it stops, commits and resumes at every one, wrappers too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compat.classic_topics import OFFSETS, PAYLOADS, classic_broker, plant

if TYPE_CHECKING:
    from kafkalite.broker import Broker

TIMEOUT_S = 180
ROWS = [f"{offset} {payload.decode()}" for offset, payload in zip(OFFSETS, PAYLOADS, strict=True)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with classic_broker() as running:
        yield running


@pytest.fixture
def kcat(broker: Broker, topic: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., list[str]]:
    """`kcat(*arguments)`: offset and payload of each message of partition 0 that it printed."""
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        not_run("kcat", "kcat is not installed (apt-get install kcat)")
    plant(broker, topic)

    def call(*arguments: str) -> list[str]:
        settings = ["-X", "check.crcs=true", "-X", "fetch.wait.max.ms=50", "-q", "-f", "%o %s\n"]
        command = [
            path,
            "-m",
            "60",
            "-b",
            broker.bootstrap_servers,
            "-C",
            "-t",
            topic,
            "-p",
            "0",
            *settings,
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return call


def test_all_of_it(kcat: Callable[..., list[str]]) -> None:
    assert kcat("-o", "beginning", "-e") == ROWS


def test_resumed_at_every_message_by_its_offset(kcat: Callable[..., list[str]]) -> None:
    found: list[str] = []
    while len(found) < len(ROWS):
        at = int(found[-1].split()[0]) + 1 if found else 0
        found += kcat("-o", str(at), "-c", "1")
    assert found == ROWS


def test_resumed_at_every_message_where_it_committed(
    kcat: Callable[..., list[str]], broker: Broker, topic: str
) -> None:
    def read(first: int) -> list[str]:
        """Read ten messages in a separate group, one a run: a run takes half a second, so groups run in parallel."""
        group = f"readers-{first}"
        starter = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
        starter.commit(offsets=[TopicPartition(topic, 0, OFFSETS[first])], asynchronous=False)
        starter.close()
        return [row for _ in range(10) for row in kcat("-X", f"group.id={group}", "-o", "stored", "-c", "1")]

    with ThreadPoolExecutor(6) as threads:
        found = [row for rows in threads.map(read, range(0, len(ROWS), 10)) for row in rows]
    assert found == ROWS
