"""The sparse index of a segment: what it answers equals a search of NumPy's, and a mapped one is copied to grow."""

import random

import numpy as np
import pytest

from kafkalite._native.log.index import SegmentIndex


def test_index_answers_equal_numpys() -> None:
    rng = random.Random(3)
    index = SegmentIndex()
    offset = position = timestamp = 0
    rows = []
    for _ in range(300):
        offset += rng.randint(1, 9)
        position += rng.randint(61, 9000)
        timestamp += rng.choice([0, 0, 5])
        index.add(offset, position, timestamp)
        rows.append((offset, position, timestamp))
    columns = np.array(rows).T
    assert (index.columns() == columns).all()
    for _ in range(500):
        wanted = rng.randrange(offset + 20)
        at = int(np.searchsorted(columns[0], wanted, side="right")) - 1
        assert index.position_of_offset(wanted) == (columns[1][at] if at >= 0 else 0)
        at = int(np.searchsorted(columns[2], wanted, side="left")) - 1
        assert index.position_of_time(wanted) == (columns[1][at] if at >= 0 else 0)
    index.truncate(int(columns[1][100]))
    assert (index.columns() == columns[:, :100]).all()
    with pytest.raises(ValueError, match="not above"):
        index.add(1, 1 << 40, 0)


def test_mapped_index_is_copied_before_it_grows() -> None:
    columns = np.array([[5, 9], [100, 200], [1, 2]], dtype=np.int64)
    columns.flags.writeable = False
    index = SegmentIndex.from_columns(columns, writable=False)
    index.add(12, 300, 3)
    assert columns.shape == (3, 2)
    assert index.columns().tolist() == [[5, 9, 12], [100, 200, 300], [1, 2, 3]]


def test_fresh_index_takes_no_memory() -> None:
    index = SegmentIndex()
    assert (len(index), index.size_bytes, index.position_of_offset(5), index.position_of_time(5)) == (0, 0, 0, 0)
