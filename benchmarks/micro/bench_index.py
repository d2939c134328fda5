"""Compare a look-up in a segment's index with numpy's searchsorted on the same column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kafkalite._native.log.index import SegmentIndex

ENTRY_COUNTS = [100, 16_384, 262_144]


def filled(entry_count: int) -> SegmentIndex:
    index = SegmentIndex()
    for number in range(entry_count):
        index.add(number * 20, number * 4096, 1_700_000_000_000 + number)
    return index


@pytest.mark.parametrize("entry_count", ENTRY_COUNTS)
def test_position_of_offset(benchmark: Callable[..., int], entry_count: int) -> None:
    index, offset = filled(entry_count), entry_count * 20 // 3
    assert benchmark(index.position_of_offset, offset) == offset // 20 * 4096


@pytest.mark.parametrize("entry_count", ENTRY_COUNTS)
def test_searchsorted(benchmark: Callable[..., int], entry_count: int) -> None:
    column, offset = np.arange(entry_count, dtype=np.int64) * 20, entry_count * 20 // 3
    assert benchmark(column.searchsorted, offset, side="right") == offset // 20 + 1


def test_add(benchmark: Callable[..., None]) -> None:
    """Amortised over growing."""

    def fill() -> SegmentIndex:
        return filled(1000)

    assert len(benchmark(fill)) == 1000
