"""@platformatic/kafka 2: the youngest client, on a Node of its own where the machine's is too old for it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.compat import toolchains
from tests.compat.records import CODECS, Row, read_back, stored_codecs
from tests.compat.transactions import check_committed
from tests.kit.harness.alone import alone

HERE = Path(__file__).parent
BUILD = toolchains.BUILD / "platformatic"
PACKAGE = "@platformatic/kafka"
TIMEOUT_S = 90


@alone()
def build() -> None:
    """The package of package.json and the program beside it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.js"):
        shutil.copy(HERE / name, BUILD / name)
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"][PACKAGE]
    found = BUILD / "node_modules" / PACKAGE / "package.json"
    if not found.exists() or json.loads(found.read_text(encoding="utf-8"))["version"] != wanted:
        # The engine check asks the machine's Node, not the one that runs it.
        toolchains.run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=BUILD)


@pytest.fixture(scope="module")
def node(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., None]:
    """`node(check, topic, argument)` runs one check of client.js."""
    try:
        program = toolchains.node()
        build()
    except toolchains.NotAvailable as missing:
        not_run(PACKAGE, str(missing))

    def call(check: str, topic: str, argument: str = "") -> None:
        command = [program, str(BUILD / "client.js"), bootstrap, check, topic, argument]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{check}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    return call


def numbered(count: int) -> list[Row]:
    return [Row(f"key-{number}".encode(), f"{number};".encode() * 20) for number in range(count)]


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(
    ("codec", "acks"), [("none", "0"), ("none", "1"), ("gzip", "-1"), ("snappy", "1"), ("lz4", "-1"), ("zstd", "0")]
)
def test_produce_reads_back_with_its_codec(
    node: Callable[..., None], bootstrap: str, port: int, topic: str, codec: str, acks: str
) -> None:
    node("codec", topic, f"{codec}/{acks}")
    assert read_back(bootstrap, topic, 200) == numbered(200)
    assert stored_codecs(port, topic) == {CODECS[codec]}


@pytest.mark.capability("produce, consume")
def test_edge_records_arrive_unharmed(node: Callable[..., None], bootstrap: str, topic: str) -> None:
    node("edges", topic)
    assert read_back(bootstrap, topic, 5) == [
        Row(b"key", b"value"),
        Row(None, b"no key"),
        Row(b"no value", None),
        Row(b"headers", b"v", (("one", b"x"), ("empty", b""))),
        Row(b"large", b"l" * (1 << 20)),
    ]


@pytest.mark.capability("idempotent")
def test_idempotent_producer(node: Callable[..., None], bootstrap: str, topic: str) -> None:
    node("idempotent", topic)
    assert read_back(bootstrap, topic, 500) == numbered(500)


@pytest.mark.capability("transactions")
def test_transaction(node: Callable[..., None], bootstrap: str, topic: str) -> None:
    node("transaction", topic)
    check_committed(bootstrap, topic)


@pytest.mark.capability("groups")
def test_group(node: Callable[..., None], topic: str) -> None:
    node("group", topic)


@pytest.mark.capability("seek by time")
def test_times(node: Callable[..., None], topic: str) -> None:
    node("times", topic)


@pytest.mark.capability("admin")
def test_admin(node: Callable[..., None], topic: str) -> None:
    node("admin", topic)


@pytest.mark.capability("KIP-848")
def test_next_group(node: Callable[..., None], topic: str) -> None:
    node("group", topic, "next")
