"""Notify systemd through `NOTIFY_SOCKET` that the service is ready, reloading, stopping or alive (sd_notify(3)).

    starting, stopping    every INTERVAL_S: EXTEND_TIMEOUT_USEC=… and STATUS=…, if there was progress
    begins to stop        STOPPING=1
    ready                 READY=1
    serving               every WatchdogSec / 4: WATCHDOG=1, once each event loop has completed an iteration
    SIGHUP                RELOADING=1, then READY=1 after reloading

So systemd kills a starting broker only if it makes no progress. It restarts a broker whose event loop is blocked.

Thread rule: the public methods belong to the main thread. One more thread, "kafkalite-notify", sends the periodic
messages and changes no state of the server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INTERVAL_S: Final = 5.0
"""Seconds between two checks of the progress of a start or a stop."""
EXTENSION_S: Final = 120.0
"""The extension of the timeout if there was progress: one fsync may take long, and uses no CPU time."""
CPU_S_MIN: Final = 0.01
"""CPU seconds in an interval that count as progress: checking one long log completes no partition."""
FEEDS_PER_TIMEOUT: Final = 4
"""Notifications in the time after which systemd would restart the service."""


class ServiceManager:
    """Sends notifications to the service manager that started this process.

    Usable as a context manager, which sends nothing after its end.
    """

    def __init__(
        self,
        address: str,
        *,
        watchdog_s: float | None = None,
        progress: Callable[[], str] | None = None,
        turned: Callable[[], threading.Event] | None = None,
    ) -> None:
        """`progress` returns a description of the start's progress.

        `turned` returns an event that is set once all event loops have made a turn.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._watchdog_s = watchdog_s
        self._progress = progress
        self._turned = turned
        self._serving = False
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="kafkalite-notify", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended = True
        self._wake.set()
        self._thread.join()
        self._socket.close()

    def ready(self, status: str) -> None:
        """Report that the service is ready."""
        self._serving = True
        self._tell("READY=1", f"STATUS={status}")
        self._wake.set()

    def reloading(self) -> None:
        """Report that the service is reloading files. Call `ready` afterwards."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._serving = False
        self._tell("STOPPING=1", "STATUS=stopping")
        self._wake.set()

    def _tell(self, *lines: str) -> None:
        """Send a notification. Errors are ignored, as in sd_notify."""
        text = "\n".join(" ".join(line.split("\n")) for line in lines)
        with contextlib.suppress(OSError):
            self._socket.sendto(text.encode(), self._address)

    def _run(self) -> None:
        before = ("", 0.0)
        while not self._ended:
            if self._serving:
                self._feed()
            else:
                before = self._extend(before)

    def _extend(self, before: tuple[str, float]) -> tuple[str, float]:
        """Request more time if there was progress since `before`. Return the current progress."""
        status = self._progress() if self._progress is not None else ""
        now = (status, time.process_time())
        if now[0] != before[0] or now[1] - before[1] >= CPU_S_MIN:
            said = [f"STATUS={status}"] if status else []
            self._tell(f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1e6)}", *said)
        self._sleep(INTERVAL_S)
        return now

    def _feed(self) -> None:
        if self._watchdog_s is None or self._turned is None:
            self._sleep(None)
            return
        every_s = self._watchdog_s / FEEDS_PER_TIMEOUT
        turned = self._turned()
        while not turned.wait(every_s):
            if self._ended or not self._serving:
                return
        self._tell("WATCHDOG=1")
        self._sleep(every_s)

    def _sleep(self, seconds: float | None) -> None:
        self._wake.wait(seconds)
        self._wake.clear()


def watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return WatchdogSec in seconds. None if it is not set, or if it is meant for another process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() and int(text) > 0 else None
