"""Measure the broker's cost of a fetch, from bytes in to bytes out, by number of partitions, with and without a
session.

One connection on a socket pair is driven directly. `idle`: nothing is new, and the response comes at once. `tail`: the
fetch waits, one batch is appended to one of its partitions, and the response is read; the client then fetches from
there. The clock is stopped while requests are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite._native.log.log_append import append_batch
from tests.kit.harness.fetch_harness import Client, FetchHarness, Wanted, fetch_frame

COUNTS = [1, 1000]
VERSION = 11
TOPIC = "bench"
FULL = (0, -1)
ROUNDS = {"rounds": 500, "warmup_rounds": 5}


@pytest.fixture(params=COUNTS)
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def harness(tmp_path: Path, count: int) -> Iterator[FetchHarness]:
    harness = FetchHarness(tmp_path / "data", partitions_max=10_000)
    harness.logs.create_topic(TOPIC, count, {"retention.ms": "-1"})
    yield harness
    harness.close()


def everything(count: int, first_offset: int = 0) -> list[Wanted]:
    return [Wanted((TOPIC, index), first_offset if index == 0 else 0) for index in range(count)]


def open_session(client: Client, count: int) -> int:
    return int(client.fetch(VERSION, (0, 0), *everything(count)).session_id)


def test_idle_full(benchmark: Callable[..., object], harness: FetchHarness, count: int) -> None:
    client, frame = harness.client(), fetch_frame(VERSION, FULL, everything(count))
    client.fetch(VERSION, FULL, *everything(count))

    def fetch() -> int:
        client.send(frame)
        return len(client.receive_bytes())

    assert benchmark(fetch) > 30 * count


def test_idle_incremental(benchmark: Any, harness: FetchHarness, count: int) -> None:
    client = harness.client()
    session, epochs = open_session(client, count), iter(range(1, 1 << 30))

    def fetch(frame: bytes) -> None:
        client.send(frame)
        assert len(client.receive_bytes()) < 30

    benchmark.pedantic(
        fetch, setup=lambda: ((fetch_frame(VERSION, (session, next(epochs))),), {}), iterations=1, **ROUNDS
    )


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_tail(
    benchmark: Any, make_batch: Callable[..., bytearray], harness: FetchHarness, count: int, incremental: bool
) -> None:
    data, client = make_batch(1, 200), harness.client()
    log: Any = harness.logs.topics[TOPIC].partitions[0]
    append_batch(log.core, data)  # the first append of a log makes its file
    session, epochs = open_session(client, count), iter(range(1, 1 << 30))

    def setup() -> tuple[tuple[bytes], dict[str, Any]]:
        data[:8] = bytes(8)
        end = log.log_end_offset
        if incremental:
            return (fetch_frame(VERSION, (session, next(epochs)), everything(1, end), wait_ms=60_000),), {}
        return (fetch_frame(VERSION, FULL, everything(count, end), wait_ms=60_000),), {}

    def tail(frame: bytes) -> None:
        client.send(frame)
        append_batch(log.core, data)
        harness.settle()
        assert len(client.receive_bytes()) > len(data)

    benchmark.pedantic(tail, setup=setup, iterations=1, **ROUNDS)
