"""npm's `kafka` 0.2.3, a client of Kafka 0.7 that writes and reads magic 0. Fetched with npm into build/compat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from kafkalite.broker import Broker
from tests.compat import toolchains
from tests.compat.node_checks import installed

NAME = "node kafka 0.2.3"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    listeners = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"
    broker = Broker({"listeners": listeners, "log.flush.interval": 1, "num.partitions": 2}).start()
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: Broker, topic: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., object]:
    """`client(flow, argument)`: the flow's result in the test's own topic."""
    try:
        command = [toolchains.any_node(), str(installed("node_kafka", "kafka"))]
    except toolchains.NotAvailable as missing:
        not_run(NAME, str(missing))
    assert broker.classic_endpoint is not None
    port = broker.classic_endpoint.port

    def call(flow: str, *arguments: object) -> object:
        words = [str(port), topic, flow, *map(str, arguments)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return json.loads(done.stdout)

    return call


def test_it_reads_back_its_records_and_resumes_at_any_offset(client: Callable[..., object], topic: str) -> None:
    rows = [[topic, "one", 12], [topic, "two", 24], [topic, "three", 38]]
    assert client("echo") == rows
    for offset, row in zip((0, 12, 24), rows, strict=True):
        assert client("next", offset) == [row]
    assert client("next", 39) == [1, "OffsetOutOfRange"]
    assert client("offsets") == [topic, 38]


def test_a_partition_for_each_send(client: Callable[..., object], topic: str) -> None:
    assert client("partitions") == [[[topic, "zero", 13]], [[topic, "other", 14]]]
