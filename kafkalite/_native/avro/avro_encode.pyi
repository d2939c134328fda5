from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

FAILURES: tuple[str, ...]

NODE_NULL: int
NODE_BOOLEAN: int
NODE_INT: int
NODE_LONG: int
NODE_RAW: int
NODE_BYTES: int
NODE_DECIMAL: int
NODE_ENUM: int
NODE_RECORD: int
NODE_UNION: int
NODE_ARRAY: int

_Node: TypeAlias = tuple[
    int, int, int, int, Sequence[int], Sequence[bytes], int, int, Buffer | None, Buffer | None, Buffer | None
]

class ColumnEncoder:
    def __init__(self, nodes: Sequence[_Node]) -> None: ...
    def encode(self, prefix: bytes) -> tuple[bytes, NDArray[np.int32], NDArray[np.int32]]: ...
