"""Make the rows for the benchmarks of the columnar client and of Spark: text-like bytes, the same in each run."""

from __future__ import annotations

from typing import Any

import numpy as np

KEY_SIZE, VALUE_SIZE = 16, 200


def portion(rows: int) -> Any:
    """Return a record batch with this many keys and values."""
    import pyarrow as pa

    letters = np.frombuffer(b"abcdefghijklmnop", np.uint8)
    chance = np.random.default_rng(1)

    def column(size: int) -> Any:
        data = letters[chance.integers(0, len(letters), rows * size)].tobytes()
        offsets = np.arange(0, (rows + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    return pa.record_batch({"key": column(KEY_SIZE), "value": column(VALUE_SIZE)})
