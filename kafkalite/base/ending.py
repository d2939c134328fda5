"""Let a long-running command wait for SIGTERM, Ctrl-C or a failure.

    signal ─▶ C handler ─▶ a byte into the socket pair ─▶ wait() returns the signal's number
    failure ─▶ failed() ──▶ a byte 0 ───────────────────▶ wait() returns 0

The byte stays in the socket pair until wait() reads it, so a signal just before wait() is not lost. A queue or a
threading.Event is not safe here: the interrupted main thread may hold the lock that the signal handler needs.

A second signal with the same number ends the process at once. Ctrl-C and SIGTERM together do not: at a terminal, Ctrl-C
reaches a process and its parent, and the parent often stops its children by SIGTERM.

Thread rule: contexts are entered and left on the main thread. Any thread may call failed().
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """A context manager that catches SIGTERM and Ctrl-C. On exit, it restores the earlier signal handlers."""

    def __init__(self, *, told: Iterable[signal.Signals] = ()) -> None:
        """Create the context. wait() also returns the signals in `told`, which may arrive more than once."""
        self._told = tuple(told)
        self._bell, self._ring = socket.socketpair()
        self._ring.setblocking(False)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._ring.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _on_signal) for number in SIGNALS}
        self._before |= {number: signal.signal(number, _on_told) for number in self._told}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._bell.close()
        self._ring.close()

    def wait(self) -> int:
        """Wait for a signal and return its number; return 0 after failed()."""
        return self._bell.recv(1)[0]

    @contextlib.contextmanager
    def meanwhile(self, stop: Callable[[], object]) -> Iterator[None]:
        """Return a context in which SIGTERM and Ctrl-C call `stop`, on another thread.

        Use it inside the context of this Ending. A later wait() still returns the signal.
        """
        over, ended = socket.socketpair()
        came = bytearray()

        def watch() -> None:
            while over not in select.select([self._bell, over], [], [])[0]:
                came.extend(self._bell.recv(1))
                if came[-1] in SIGNALS:
                    stop()
                    return

        thread = threading.Thread(target=watch, name="signal-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.close()
            thread.join()
            over.close()
            self._ring.send(came)

    def failed(self) -> None:
        """Make wait() return 0, because the command cannot continue. Any thread."""
        with contextlib.suppress(OSError):  # it ends already
            self._ring.send(b"\0")


@contextlib.contextmanager
def on_ending(stop: Callable[[], object]) -> Iterator[Ending]:
    """Return a context in which the first SIGTERM or Ctrl-C calls `stop`, on another thread.

    For commands that do not call wait().
    """
    with Ending() as ending:

        def watch() -> None:
            if ending.wait():
                stop()

        thread = threading.Thread(target=watch, name="signal-watch", daemon=True)
        thread.start()
        try:
            yield ending
        finally:
            ending.failed()
            thread.join()


@contextlib.contextmanager
def until_stdin_ends(*, wanted: bool) -> Iterator[None]:
    """Return a context that sends this process SIGTERM when its standard input is closed.

    A parent process closes this input to stop the process; the system closes it when the parent ends. A process that
    SIGTERM has already reached, as from systemd, gets no second one, which would end it at once. Without `wanted`,
    nothing happens.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        if signal.getsignal(signal.SIGTERM) is not _abandon:
            os.kill(os.getpid(), signal.SIGTERM)

    if wanted:
        threading.Thread(target=watch, name="stdin-watch", daemon=True).start()
    yield


@contextlib.contextmanager
def ended_at_once(last: Callable[[], object]) -> Iterator[None]:
    """Return a context in which SIGTERM or Ctrl-C calls `last` and ends the process at once.

    The exit status is 128 plus the signal's number, as shells expect. For work that can be interrupted safely, and
    whose libraries would otherwise print a KeyboardInterrupt.
    """

    def end(number: int, _frame: object) -> None:
        with contextlib.suppress(Exception):
            last()
        os._exit(128 + number)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(number: int, _frame: object) -> None:
    signal.signal(number, _abandon)


def _on_told(_number: int, _frame: object) -> None:
    """Do nothing, because the C handler has already written the byte.

    This handler is still needed: Python's C handler runs only if there is also a Python handler.
    """


def _abandon(number: int, _frame: object) -> None:
    """Exit at once on a second signal with the same number. Acknowledged records are not lost."""
    os._exit(128 + number)
