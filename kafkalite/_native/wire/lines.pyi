import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalite._native.wire.columns import ColumnLike
from kafkalite.wire.record.columns import RecordColumns

OPERATIONS: dict[str, int]
STEPS_MAX: int

def split_lines(buffer: Buffer, separator: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], int]: ...
def split_keys(
    column: ColumnLike, separator: bytes
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]: ...
def equals(column: ColumnLike, text: bytes) -> NDArray[np.uint8]: ...
def partitions_of(keys: ColumnLike, partition_count: int) -> NDArray[np.int32]: ...
def render(columns: RecordColumns, steps: list[tuple[int, bytes]], null_text: bytes) -> memoryview: ...
