"""Wait for the end of a long-running command: the first SIGTERM or Ctrl-C, or a failure of the command.

    signal ─▶ C handler ─▶ a byte into the socket pair ─▶ wait() returns its number
    failure ─▶ failed() ──▶ a byte 0 ───────────────────▶ wait() returns 0

The byte stays in the pair until wait() takes it, so a signal just before wait() is not lost. (A queue's get would lose
it: Python runs a handler between two instructions, and sleeps inside one. And the interrupted code may hold the lock of
an event that the handler would set.) A second signal ends the process at once. Main thread only, except failed().
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
    """A context: signals are caught inside it, and handled as before after it."""

    def __init__(self, *, told: Iterable[signal.Signals] = ()) -> None:
        """`told`: signals that wait() returns too, and that end nothing."""
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
        """The number of the signal that came, or 0 after failed()."""
        return self._bell.recv(1)[0]

    @contextlib.contextmanager
    def meanwhile(self, stop: Callable[[], object]) -> Iterator[None]:
        """A context inside a context: SIGTERM or Ctrl-C inside it calls `stop`, from another thread. wait() returns
        what came all the same, afterwards."""
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
        """Report that the command cannot continue. Any thread."""
        with contextlib.suppress(OSError):  # it ends already
            self._ring.send(b"\0")


@contextlib.contextmanager
def on_ending(stop: Callable[[], object]) -> Iterator[Ending]:
    """A context for a command that works by itself: the first signal inside it calls `stop`, from another thread."""
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
    """Send this process SIGTERM when standard input is closed, which means that its parent has ended or stops it."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    if wanted:
        threading.Thread(target=watch, name="stdin-watch", daemon=True).start()
    yield


@contextlib.contextmanager
def ended_at_once(last: Callable[[], object]) -> Iterator[None]:
    """A context for work that may be killed at any moment, and whose libraries make a traceback of KeyboardInterrupt:
    the first SIGTERM or Ctrl-C inside it calls `last` and ends the process, with the status that shells expect."""

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
    """The byte is in the socket already; without a handler there would be none."""


def _abandon(number: int, _frame: object) -> None:
    """Exit at once on a second signal. Acknowledged records are safe nevertheless."""
    os._exit(128 + number)
