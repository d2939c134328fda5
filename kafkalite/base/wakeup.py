"""Wake a thread that waits for sockets in a selector.

    any thread ─ring()─▶ bytes in a socket pair ─▶ select, poll, wait() ─hush()─▶ the bytes are discarded

If `ring` is called before the wait, the next wait returns at once.

Thread rule: any thread may call `ring` at any time, even after `close`. Only the waiting thread may call the rest.
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
    """A wake-up for one thread. A selector can register it like a socket, because it has a `fileno`."""

    __slots__ = ("__weakref__", "_hammer", "_shell")

    def __init__(self) -> None:
        self._shell, self._hammer = socket.socketpair()
        self._shell.setblocking(False)
        self._hammer.setblocking(False)
        forks.register(self)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable after `ring`."""
        return self._shell.fileno()

    def leave(self) -> None:
        """Give up the sockets in a forked child, where `ring` would otherwise wake the parent."""
        forks.abandon([self._shell.fileno(), self._hammer.fileno()])

    def ring(self) -> None:
        """Wake the waiting thread. If it does not wait now, its next wait returns at once."""
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: no thread waits
            self._hammer.send(b"x")

    def hush(self) -> None:
        """Discard the calls of `ring` so far."""
        with contextlib.suppress(BlockingIOError):
            self._shell.recv(HUSH_SIZE)

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a call of `ring`, at most `timeout_s` seconds (None: no limit), and discard it."""
        if select([self], [], [], timeout_s)[0]:
            self.hush()

    def close(self) -> None:
        """Close the sockets. Later calls of `ring` have no effect. Idempotent."""
        self._shell.close()
        self._hammer.close()
