"""Memory of columns that are gone serves the next ones, and never those that are still there."""

import random

import numpy as np

from kafkalite.wire.record.batches import BatchReader, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns


def batch_of(number: int, count: int, size: int) -> bytes:
    records = [Record(i, i, b"%d" % number, bytes([number]) * size) for i in range(count)]
    return bytes(encode_batch(RecordColumns.from_records(records), size_max=1 << 28)[0])


def address(columns: RecordColumns) -> int:
    return np.frombuffer(columns.values.data, np.uint8).ctypes.data


def test_memory_that_came_back_is_used_again() -> None:
    raw = batch_of(1, 1000, 500)
    seen = set()
    with BatchReader() as reader:
        for _ in range(20):
            reader.read(raw, 0)
            seen.add(address(reader.take()))
    assert len(seen) <= 3


def test_columns_that_are_held_keep_their_bytes() -> None:
    """Random sizes, some held and some let go, through two readers."""
    dice = random.Random(3)
    held: list[tuple[int, int, int, RecordColumns]] = []
    with BatchReader() as one, BatchReader() as two:
        for number in range(150):
            count, size = dice.randint(1, 800), dice.choice([0, 10, 700])
            reader = dice.choice([one, two])
            reader.read(batch_of(number, count, size), 0)
            held.append((number, count, size, reader.take()))
            if len(held) > 8:
                held.pop(dice.randrange(len(held)))
            for kept, rows, width, columns in held:
                assert len(columns) == rows
                assert columns.offsets[-1] == rows - 1
                assert bytes(columns.values.data) == bytes([kept]) * width * rows
