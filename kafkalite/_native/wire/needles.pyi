from collections.abc import Iterable

from typing_extensions import Buffer

IN_KEY: int
IN_VALUE: int
IN_HEADERS: int
IS: int
BEGINS: int
HOLDS: int
HOLDS_WORD: int
NEEDLES_MAX: int

class Needles:
    count: int
    def __init__(self, rows: Iterable[tuple[Buffer, int, int]] = ...) -> None: ...
