from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

FAILURES: tuple[str, ...]

COLUMN_NULL: int
COLUMN_BOOLEAN: int
COLUMN_FIXED: int
COLUMN_BYTES: int
COLUMN_LIST: int
COLUMN_STRUCT: int

OP_NULL: int
OP_BOOLEAN: int
OP_INT: int
OP_LONG: int
OP_TO_FLOAT: int
OP_TO_DOUBLE: int
OP_FLOAT: int
OP_FLOAT_TO_DOUBLE: int
OP_DOUBLE: int
OP_BYTES: int
OP_STRING: int
OP_FIXED: int
OP_DECIMAL: int
OP_ENUM: int
OP_SYMBOL: int
OP_RECORD: int
OP_UNION: int
OP_ARRAY: int
OP_MEMBER: int
OP_DEFAULT: int
OP_FAIL: int

class ColumnDecoder:
    def __init__(self, columns: Sequence[tuple[int, int, Sequence[int]]]) -> None: ...
    def add(self, ops: Sequence[tuple[int, int, Sequence[int], int, bytes]]) -> int: ...
    def decode(
        self, data: Buffer, starts: NDArray[np.int64], ends: NDArray[np.int64], roots: NDArray[np.int32]
    ) -> NDArray[np.int32]: ...
    def column(self, index: int) -> tuple[int, int, bytes | None, bytes | None, bytes | None]: ...

def check_op(code: int, column: int, operands: Sequence[int], argument: int, total: int, columns: int) -> None: ...
