"""Compare CRC-32C at the sizes of batches with the crc32c package on the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import crc32c as package
import pytest

from kafkalite._native.base import crc32c

SIZES = [pytest.param(size, id=f"{size}B") for size in (200, 4096, 65_536, 1_048_576)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", [crc32c.crc32c, package.crc32c], ids=["kafkalite", "crc32c-package"])
def test_crc32c(benchmark: Callable[..., int], function: Callable[[bytes], int], size: int) -> None:
    data = random.Random(size).randbytes(size)
    result = benchmark(function, data)
    assert result == package.crc32c(data)
