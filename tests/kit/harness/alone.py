"""One test process at a time in what fetches or builds for all of them: a lock on a file in build/."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from tests.kit.processes.broker import REPOSITORY

LOCK_FILE = REPOSITORY / "build" / "tests.lock"
_depth = 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Waits until no other process is inside; may be entered again by who is. A decorator too. Test threads only."""
    global _depth
    if _depth:
        yield
        return
    LOCK_FILE.parent.mkdir(parents=True, exist_ok=True)
    with LOCK_FILE.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
