"""How fast are 0.7's message sets of 200-byte payloads made, checked and read, 500 messages a set?

`messages_per_second` stands beside each time. The checksum alone is compared with zlib's on the same payloads.
"""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite._native import crc32, message_set
from kafkalite.classic.messages import MessageIterator

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 500
PAYLOAD_SIZE = 200
PAYLOADS = [random.Random(i).randbytes(PAYLOAD_SIZE) for i in range(COUNT)]


def rate(benchmark: Any) -> None:
    if benchmark.stats is not None:
        benchmark.extra_info["messages_per_second"] = round(COUNT / benchmark.stats.stats.median)


def test_encode(benchmark: Any) -> None:
    data = benchmark(message_set.encode, PAYLOADS)
    assert len(data) == COUNT * (PAYLOAD_SIZE + 10)
    rate(benchmark)


def test_validate(benchmark: Any) -> None:
    result = benchmark(message_set.check, message_set.encode(PAYLOADS))
    assert result == (COUNT * (PAYLOAD_SIZE + 10), COUNT, PAYLOAD_SIZE, 0, 0)
    rate(benchmark)


def test_iterate(benchmark: Any) -> None:
    data = message_set.encode(PAYLOADS)
    assert benchmark(lambda: sum(1 for _ in MessageIterator(data))) == COUNT
    rate(benchmark)


@pytest.mark.parametrize("function", [crc32.native_crc32, zlib.crc32], ids=[f"kafkalite-{crc32.backend}", "zlib"])
def test_crc32_of_each_payload(benchmark: Any, function: Callable[[bytes], int]) -> None:
    assert benchmark(lambda: [function(payload) for payload in PAYLOADS])[0] == zlib.crc32(PAYLOADS[0])
    rate(benchmark)
