"""Measure how fast Kafka 0.7's message sets of 200-byte payloads are built, checked and read.

A set has 500 messages, which fit into a cache. The other input fits into no cache: 500,000 payloads, in sets of 50 or
500, or in one set of 105 MB. `messages_per_second` is printed next to each time.

The checksum alone is compared with zlib's on the same payloads, with a Python call for each. The same calls with no
bytes show the cost of a call.
"""

from __future__ import annotations

import functools
import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite._native.base import crc32
from kafkalite._native.classic import message_set
from kafkalite.classic.messages import MessageIterator

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 500
LARGE_COUNT = 500_000
PAYLOAD_SIZE = 200
ENTRY_SIZE = PAYLOAD_SIZE + 10
PAYLOADS = [random.Random(i).randbytes(PAYLOAD_SIZE) for i in range(COUNT)]
CRC32 = pytest.mark.parametrize(
    "function", [crc32.native_crc32, zlib.crc32], ids=[f"kafkalite-{crc32.backend}", "zlib"]
)


def rate(benchmark: Any, count: int = COUNT) -> None:
    if benchmark.stats is not None:
        benchmark.extra_info["messages_per_second"] = round(count / benchmark.stats.stats.median)


@functools.cache
def many_payloads(count: int) -> list[bytes]:
    """Return different payloads, each in its own memory."""
    return [PAYLOADS[i % COUNT][:-8] + i.to_bytes(8, "big") for i in range(count)]


def large_count(benchmark: Any) -> int:
    """Return the number of large inputs, or a few if the benchmark is only tried."""
    return LARGE_COUNT if benchmark.enabled else COUNT


def test_encode(benchmark: Any) -> None:
    data = benchmark(message_set.encode, PAYLOADS)
    assert len(data) == COUNT * ENTRY_SIZE
    rate(benchmark)


@pytest.mark.parametrize("set_count", [50, 500])
def test_encode_sets_of_payloads_in_no_cache(benchmark: Any, set_count: int) -> None:
    payloads = many_payloads(large_count(benchmark))
    sets = [payloads[start : start + set_count] for start in range(0, len(payloads), set_count)]
    assert benchmark(lambda: sum(len(message_set.encode(some)) for some in sets)) == len(payloads) * ENTRY_SIZE
    rate(benchmark, len(payloads))


def test_encode_one_large_set(benchmark: Any) -> None:
    payloads = many_payloads(large_count(benchmark))
    assert len(benchmark(message_set.encode, payloads)) == len(payloads) * ENTRY_SIZE
    rate(benchmark, len(payloads))


def test_validate(benchmark: Any) -> None:
    result = benchmark(message_set.check, message_set.encode(PAYLOADS))
    assert result == (COUNT * ENTRY_SIZE, COUNT, PAYLOAD_SIZE, 0, 0)
    rate(benchmark)


def test_validate_one_large_set(benchmark: Any) -> None:
    count = large_count(benchmark)
    result = benchmark(message_set.check, message_set.encode(many_payloads(count)))
    assert result == (count * ENTRY_SIZE, count, PAYLOAD_SIZE, 0, 0)
    rate(benchmark, count)


def test_iterate(benchmark: Any) -> None:
    data = message_set.encode(PAYLOADS)
    assert benchmark(lambda: sum(1 for _ in MessageIterator(data))) == COUNT
    rate(benchmark)


@CRC32
def test_crc32_of_each_payload(benchmark: Any, function: Callable[[bytes], int]) -> None:
    assert benchmark(lambda: [function(payload) for payload in PAYLOADS])[0] == zlib.crc32(PAYLOADS[0])
    rate(benchmark)


@CRC32
def test_crc32_of_nothing(benchmark: Any, function: Callable[[bytes], int]) -> None:
    nothing = [b""] * COUNT
    assert benchmark(lambda: [function(payload) for payload in nothing])[0] == 0
    rate(benchmark)
