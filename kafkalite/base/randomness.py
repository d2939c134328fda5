"""Generate random bytes, ids and numbers: from the operating system, or from a seed in a simulation.

The broker uses them for unique ids and names, for jitter, and to choose a broker at random.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_bytes = os.urandom


def random_bytes(size: int) -> bytes:
    """Return `size` random bytes, unpredictable outside a simulation."""
    return _bytes(size)


def uuid4() -> str:
    """Return a random UUID (version 4 of RFC 9562) as text with hyphens."""
    raw = bytearray(_bytes(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def below(limit: int) -> int:
    """Return a random number from 0 to limit - 1, almost uniformly distributed."""
    return int.from_bytes(_bytes(8)) % limit


@contextlib.contextmanager
def drawn_from(source: Callable[[int], bytes]) -> Iterator[None]:
    """Return a context in which the random bytes of this module's functions come from `source(size)`."""
    global _bytes
    _bytes = source
    try:
        yield
    finally:
        _bytes = os.urandom
