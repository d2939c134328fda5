"""How many records a second become columns? (What the client, Spark and the tools stand on.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.record import batches


@pytest.mark.parametrize("count", [50, 5000])
def test_decode_batch_to_columns(
    benchmark: Callable[..., object], make_batch: Callable[..., bytearray], count: int
) -> None:
    data = bytes(make_batch(count, 200))
    assert len(benchmark(batches.decode, data).offsets) == count
