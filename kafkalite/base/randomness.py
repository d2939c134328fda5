"""Generate random bytes, ids and numbers, from the system's source or, in a simulation, from a seed.

Their uses are ids and names that must be unique, and jitter.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_bytes = os.urandom


def random_bytes(size: int) -> bytes:
    """Return `size` unpredictable bytes."""
    return _bytes(size)


def uuid4() -> str:
    """Return a random UUID (version 4, RFC 9562) in its usual form."""
    raw = bytearray(_bytes(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def below(limit: int) -> int:
    """Return a number from 0 to limit - 1, nearly uniformly distributed."""
    return int.from_bytes(_bytes(8)) % limit


@contextlib.contextmanager
def drawn_from(source: Callable[[int], bytes]) -> Iterator[None]:
    """Return a context in which the whole process takes random bytes from `source(size)`."""
    global _bytes
    _bytes = source
    try:
        yield
    finally:
        _bytes = os.urandom
