"""Keep a thread alive when memory runs out: other work gives it back a moment later.

Python reports a shortage by more errors than MemoryError: a lock or a thread that cannot be allocated is a
RuntimeError, and a system call that finds no memory an OSError.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import native_time as time

if TYPE_CHECKING:
    from collections.abc import Callable

REST_S: Final = 0.05
"""How long a thread waits for memory before it continues."""
_OF_THREADS: Final = (("can't allocate lock",), ("can't start new thread",))
"""Arguments of the RuntimeErrors that CPython's `_thread` raises."""


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means that there was no memory. It allocates nothing."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and error.args in _OF_THREADS)


def run_to_end(loop: Callable[[], object]) -> None:
    """Run a thread's loop, which may be begun again at any time, until it returns.

    A loop that a shortage ends is begun again after a rest. Any other error passes through.
    """
    while True:
        try:
            loop()
        except Exception as error:
            if not is_shortage(error):
                raise
        else:
            return
        time.sleep(REST_S)
