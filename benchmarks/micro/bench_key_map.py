"""Measure the cost of a key in compaction's key map. (benchmarks/path/compaction.py measures a whole compaction.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite._native.log.key_map import KeyMap


@pytest.mark.parametrize("fill_share", [0.5, 0.9])
def test_key_map_put(benchmark: Callable[..., object], fill_share: float) -> None:
    """Look up and replace a key in a map of 100,000 slots, partly filled. It is called from Python, which takes most of
    the time."""
    keys = KeyMap(24 * 100_000, 0.95)
    count = int(100_000 * fill_share)
    for number in range(count):
        assert keys.put(b"%016d" % number, number)
    assert len(keys) == count
    benchmark(keys.put, b"%016d" % (count // 2), count)
