from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

FAILURES: tuple[str, ...]

class ColumnDecoder:
    def __init__(self, columns: Sequence[tuple[int, int, Sequence[int]]]) -> None: ...
    def add(self, ops: Sequence[tuple[int, int, Sequence[int], int, bytes]]) -> int: ...
    def decode(
        self, data: Buffer, starts: NDArray[np.int64], ends: NDArray[np.int64], roots: NDArray[np.int32]
    ) -> NDArray[np.int32]: ...
    def column(self, index: int) -> tuple[int, int, bytes | None, bytes | None, bytes | None]: ...

def check_op(code: int, column: int, operands: Sequence[int], argument: int, total: int, columns: int) -> None: ...
