"""Inputs shared by the micro benchmarks: batches from the tests' own encoder, with the same bytes in each run."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.kit.harness import wire

TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., bytearray]:
    """Return `make_batch(count, size, codec)`, which returns a batch of `count` records of `size` text-like bytes."""

    def make(count: int, size: int, codec: int = 0) -> bytearray:
        from kafkalite.wire.record.compression import compress

        chance = random.Random(count * 31 + size)
        words = [chance.randbytes(3).hex().encode() for _ in range(50)]
        rows = [wire.Record(None, b" ".join(chance.choices(words, k=size // 7 + 1))[:size]) for _ in range(count)]
        payload = wire.encode_records(rows)
        data = compress(codec, payload) if codec else payload
        return bytearray(wire.seal_batch(data, count, attributes=codec, base_timestamp=TIMESTAMP_MS))

    return make
