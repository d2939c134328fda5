"""Wake a thread that waits for sockets. A call of `ring` before the wait is not lost: the next wait returns at once.

    any thread ─ring()─▶ bytes in a socket pair ─▶ select, poll, wait() ─hush()─▶ silence

Thread rule: call `ring` from any thread at any time, even after `close`; all else belongs to the waiting thread.
"""

from __future__ import annotations

import contextlib
import socket
from select import select
from typing import Final

from kafkalite.base import forks

HUSH_SIZE: Final = 4096
"""Rings that one hush takes; if there are more, the thread only wakes once too often."""


class Wakeup:
    """Wakes a selector. It can be registered like a socket, by its `fileno`."""

    __slots__ = ("__weakref__", "_hammer", "_shell")

    def __init__(self) -> None:
        self._shell, self._hammer = socket.socketpair()
        self._shell.setblocking(False)
        self._hammer.setblocking(False)
        forks.register(self)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when rung."""
        return self._shell.fileno()

    def leave(self) -> None:
        """In a forked child, give up the sockets: ringing would wake the parent."""
        forks.abandon([self._shell.fileno(), self._hammer.fileno()])

    def ring(self) -> None:
        """Wake the thread that waits, or its next wait."""
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: no thread waits
            self._hammer.send(b"x")

    def hush(self) -> None:
        """Discard all rings so far."""
        with contextlib.suppress(BlockingIOError):
            self._shell.recv(HUSH_SIZE)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until rung or `timeout_s` has passed (None: no limit), then hush."""
        if select([self], [], [], timeout_s)[0]:
            self.hush()

    def close(self) -> None:
        """Close the sockets; rings have no effect after that. Idempotent."""
        self._shell.close()
        self._hammer.close()
