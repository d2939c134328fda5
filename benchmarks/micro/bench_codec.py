"""Measure each codec with a batch of 5,000 text-like records of 200 bytes, in both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.wire.record.compression import compress, decompress
from tests.kit.harness.wire import BATCH_HEADER_SIZE

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("codec", CODECS)
def test_decompress(benchmark: Callable[..., bytes], make_batch: Callable[..., bytearray], codec: str) -> None:
    plain = bytes(make_batch(5000, 200)[BATCH_HEADER_SIZE:])
    packed = compress(CODECS[codec], plain)
    assert benchmark(decompress, CODECS[codec], packed) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_compress(benchmark: Callable[..., bytes], make_batch: Callable[..., bytearray], codec: str) -> None:
    plain = bytes(make_batch(5000, 200)[BATCH_HEADER_SIZE:])
    assert len(benchmark(compress, CODECS[codec], plain)) < len(plain)
