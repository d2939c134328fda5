"""Wakes a thread that waits for sockets: a ring is heard by whoever waits next, however long before it came.

    any thread ─ring()─▶ bytes in a socket pair ─▶ select, poll, wait() ─hush()─▶ silence

Thread rule: `ring` from any thread, and at any time, after `close` too; the rest belongs to the thread that waits.
"""

from __future__ import annotations

import contextlib
import socket
from select import select
from typing import Final

from kafkalite.base import forks

HUSH_SIZE: Final = 4096
"""Rings that one hush takes; more only wake once too often."""


class Wakeup:
    """See the module. What waits for sockets takes it as one, by its `fileno`."""

    __slots__ = ("__weakref__", "_hammer", "_shell")

    def __init__(self) -> None:
        self._shell, self._hammer = socket.socketpair()
        self._shell.setblocking(False)
        self._hammer.setblocking(False)
        forks.register(self)

    def fileno(self) -> int:
        """What is readable once it was rung."""
        return self._shell.fileno()

    def leave(self) -> None:
        """In a forked child: its rings would wake the parent."""
        forks.abandon([self._shell.fileno(), self._hammer.fileno()])

    def ring(self) -> None:
        """Wakes who waits, or who will."""
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: nobody is there
            self._hammer.send(b"x")

    def hush(self) -> None:
        """Forgets the rings so far."""
        with contextlib.suppress(BlockingIOError):
            self._shell.recv(HUSH_SIZE)

    def wait(self, timeout_s: float | None) -> None:
        """Until it is rung, or the time is over; None: for ever. Hushes it."""
        if select([self], [], [], timeout_s)[0]:
            self.hush()

    def close(self) -> None:
        """Rings lead nowhere from now on. Idempotent."""
        self._shell.close()
        self._hammer.close()
