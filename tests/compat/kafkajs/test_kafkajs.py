"""KafkaJS 2.2.4: produce, groups (it can only consume in one), admin. Fetched with npm into build/compat."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.compat.records import CODECS, Row, read_back, stored_codecs
from tests.compat.transactions import check_committed
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY

HERE = Path(__file__).parent
BUILD = REPOSITORY / "build" / "compat" / "kafkajs"
TIMEOUT_S = 60


@alone()
def build() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.js"):
        shutil.copy(HERE / name, BUILD / name)
    if not (BUILD / "node_modules" / "kafkajs").exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=BUILD, check=True, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def node(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., None]:
    """`node(check, topic, argument)` runs one check of client.js."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            not_run("KafkaJS 2.2.4", f"{tool} is not on the PATH (apt-get install nodejs npm)")
    try:
        build()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        not_run("KafkaJS 2.2.4", f"npm could not fetch it: {error} {getattr(error, 'stderr', '')}")

    def call(check: str, topic: str, argument: str = "") -> None:
        command = ["node", str(BUILD / "client.js"), bootstrap, check, topic, argument]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{check}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    return call


def numbered(count: int) -> list[Row]:
    return [Row(f"key-{number}".encode(), f"{number};".encode() * 20) for number in range(count)]


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(("codec", "acks"), [("none", "1"), ("none", "0"), ("gzip", "-1"), ("gzip", "0")])
def test_produce_reads_back_with_its_codec(
    node: Callable[..., None], bootstrap: str, port: int, topic: str, codec: str, acks: str
) -> None:
    """KafkaJS has gzip built in; its other codecs are plug-ins of third parties."""
    node("codec", topic, f"{codec}/{acks}")
    assert read_back(bootstrap, topic, 200) == numbered(200)
    assert stored_codecs(port, topic) == {CODECS[codec]}


@pytest.mark.capability("produce, consume")
def test_edge_records_arrive_unharmed(node: Callable[..., None], bootstrap: str, topic: str) -> None:
    node("edges", topic)
    assert read_back(bootstrap, topic, 6) == [
        Row(b"key", b"value"),
        Row(None, b"no key"),
        Row(b"no value", None),
        Row(b"", b""),
        Row(b"headers", b"v", (("same", b"1"), ("same", b"2"), ("one", b"x"))),
        Row(b"large", b"l" * (1 << 20)),
    ]


@pytest.mark.capability("idempotent")
def test_idempotent_producer(node: Callable[..., None], bootstrap: str, topic: str) -> None:
    node("idempotent", topic)
    assert read_back(bootstrap, topic, 500) == numbered(500)


@pytest.mark.capability("groups")
def test_group(node: Callable[..., None], topic: str) -> None:
    node("group", topic)


@pytest.mark.capability("seek by time")
def test_times(node: Callable[..., None], topic: str) -> None:
    node("times", topic)


@pytest.mark.capability("transactions")
def test_transaction(node: Callable[..., None], bootstrap: str, topic: str) -> None:
    node("transaction", topic)
    check_committed(bootstrap, topic)


@pytest.mark.capability("admin")
def test_admin(node: Callable[..., None], topic: str) -> None:
    node("admin", topic)
