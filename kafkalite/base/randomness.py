"""Where what is drawn by lot comes from: the system, or in a simulation a seed.

Ids and names that nobody may have twice are drawn here, and what keeps things from happening all at once.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_bytes = os.urandom


def random_bytes(size: int) -> bytes:
    """So many bytes that nobody can guess."""
    return _bytes(size)


def uuid4() -> str:
    """A UUID of version 4 (RFC 9562) in its usual form."""
    raw = bytearray(_bytes(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def below(limit: int) -> int:
    """A number from 0 to limit - 1, as good as equally likely each."""
    return int.from_bytes(_bytes(8)) % limit


@contextlib.contextmanager
def drawn_from(source: Callable[[int], bytes]) -> Iterator[None]:
    """Has `source(size)` give the bytes, for the whole process and as long as the block runs."""
    global _bytes
    _bytes = source
    try:
        yield
    finally:
        _bytes = os.urandom
