"""What does a key cost in compaction's key map? (A whole compaction: benchmarks/path/compaction.py.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite._native.log.key_map import KeyMap


@pytest.mark.parametrize("fill_share", [0.5, 0.9])
def test_key_map_put(benchmark: Callable[..., object], fill_share: float) -> None:
    """One look-up and replacement in a map of 100,000 slots filled to a share, from Python (so mostly the call)."""
    keys = KeyMap(24 * 100_000, 0.95)
    count = int(100_000 * fill_share)
    for number in range(count):
        assert keys.put(b"%016d" % number, number)
    assert len(keys) == count
    benchmark(keys.put, b"%016d" % (count // 2), count)
