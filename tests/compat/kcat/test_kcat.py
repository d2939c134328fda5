"""kcat as Debian ships it: librdkafka 2.0.2, which skips tagged fields wrongly and gates features by exact ranges."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat.addresses import librdkafka_at, plain_of
from tests.compat.records import CODECS, leader_port, read_back, stored_codecs
from tests.kit.harness import wire
from tests.kit.harness.samples import sample

TIMEOUT_S = 180
LINES = [f"line {number} {'x' * (number % 50)}" for number in range(400)]


@pytest.fixture
def kcat(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., str]:
    """`kcat(*arguments, input=text)` returns its output; an error is the test's."""
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        not_run("kcat", "kcat is not installed (apt-get install kcat)")

    def call(*arguments: str, text: str = "") -> str:
        command = [path, "-m", "60", *reach(bootstrap), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def reach(bootstrap: str) -> list[str]:
    """Flags with which kcat reaches an address."""
    return [word for key, value in librdkafka_at(bootstrap).items() for word in ("-X", f"{key}={value}")]


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def create(bootstrap: str, topic: str, partition_count: int = 1) -> None:
    """A topic that every broker knows of, and whose leaders do."""
    brokers = plain_of(bootstrap).split(",")
    with wire.Connection(port_of(brokers[0])) as connection:
        assert connection.create_topic(topic, partition_count) == 0
    for each in brokers:
        leader_port(each, topic)


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize("acks", sample(["all", "0", "1"], 1))
@pytest.mark.parametrize("codec", CODECS)
def test_produce_reads_back_with_its_codec(
    kcat: Callable[..., str], bootstrap: str, topic: str, codec: str, acks: str
) -> None:
    create(bootstrap, topic)
    settings = ["-z", codec, "-X", f"acks={acks}", "-X", "linger.ms=100"]
    kcat("-P", "-t", topic, "-p", "0", *settings, text="\n".join(LINES) + "\n")
    assert [row.value.decode() for row in read_back(bootstrap, topic, len(LINES)) if row.value] == LINES
    found = stored_codecs(bootstrap, topic)
    assert CODECS[codec] in found
    assert found <= {CODECS[codec], 0}  # librdkafka leaves a batch alone that would not become smaller
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").splitlines() == LINES


@pytest.mark.capability("produce, consume")
def test_keys_headers_nulls_and_formats(kcat: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    kcat("-P", "-t", topic, "-K", ":", "-Z", "-H", "h=1", "-H", "h=2", text="a:1\nb:\n:3\n")
    found = [json.loads(line) for line in kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J").splitlines()]
    assert [(row["key"], row["payload"]) for row in found] == [("a", "1"), ("b", None), (None, "3")]
    assert all(row["headers"] == ["h", "1", "h", "2"] for row in found)


@pytest.mark.capability("idempotent")
def test_idempotent_producer(kcat: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", text="\n".join(LINES) + "\n")
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").splitlines() == LINES


@pytest.mark.capability("produce, consume")
def test_auto_created_topic(kcat: Callable[..., str], topic: str) -> None:
    kcat("-P", "-t", topic, text="first\n")
    assert kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q") == "first\n"


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(("start", "first"), [("0", 0), ("137", 137), ("-10", 390), ("399", 399)])
def test_consume_from_any_offset(kcat: Callable[..., str], bootstrap: str, topic: str, start: str, first: int) -> None:
    create(bootstrap, topic)
    kcat("-P", "-t", topic, "-p", "0", text="\n".join(LINES) + "\n")
    assert kcat("-C", "-t", topic, "-p", "0", "-o", start, "-e", "-q").splitlines() == LINES[first:]


@pytest.mark.capability("seek by time")
def test_consume_from_a_time(kcat: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with wire.Connection(leader_port(bootstrap, topic)) as connection:
        base = 1_700_000_000_000
        records = [wire.Record(None, str(number).encode(), (), number * 10) for number in range(100)]
        batch = wire.batch_of(records, base_timestamp=base, max_timestamp=base + 990)
        assert connection.produce(topic, 0, batch).error == 0
    found = kcat("-C", "-t", topic, "-p", "0", "-o", f"s@{base + 505}", "-o", f"e@{base + 601}", "-q")
    assert found.split() == [str(number) for number in range(51, 61)]
    assert kcat("-Q", "-t", f"{topic}:0:{base + 505}").split() == [topic, "[0]", "offset", "51"]


@pytest.mark.capability("produce, consume")
def test_metadata_lists_broker_and_topic(kcat: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    found = json.loads(kcat("-L", "-J", "-t", topic))
    assert sorted(map(port_of, (broker["name"] for broker in found["brokers"]))) == sorted(
        map(port_of, bootstrap.split(","))
    )
    assert len(found["topics"][0]["partitions"]) == 3
