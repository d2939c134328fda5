"""Keep threads alive when memory runs out, until other work has freed some memory.

Python reports a shortage of memory with different errors. Usually it is MemoryError. It is RuntimeError if a lock or a
thread cannot be created, and OSError if a system call fails.
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
"""Arguments of the RuntimeErrors that CPython's `_thread` raises for a shortage."""


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means that memory ran out. Allocates no memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and error.args in _OF_THREADS)


def run_to_end(loop: Callable[[], object]) -> None:
    """Run a thread's loop until it returns, and restart it after each memory shortage.

    A restart waits for REST_S. The loop must be safe to restart at any point. Other errors are raised.
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
