"""A part of a test in a child of its process, in which none of the process's other threads is.

A broker that other tests share runs in the same process: it would write to whatever disk stands in the machine's place.
"""

import os
import traceback
from collections.abc import Callable

TOLD_MAX = 50_000  # bytes: a pipe takes that much at once


def in_child(run: Callable[[], object]) -> None:
    """Runs it there; AssertionError with what it raised. The child is this process's, with all that it knows."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it was, the parent tells it
            os.write(writing, traceback.format_exc().encode(errors="replace")[-TOLD_MAX:])
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as pipe:
        told = pipe.read()
    _, ended = os.waitpid(child, 0)
    assert ended == 0, f"wait status {ended}: {told}"
