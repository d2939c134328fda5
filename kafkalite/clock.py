"""Time as a parameter: whoever needs to know the time is handed a Clock, so that a test can hand over its own.

Two clocks, never mixed: wall-clock time for what is stored or sent (record timestamps, retention), monotonic time for
measuring how long something took or has to wait. A jump of the wall clock must not expire a session or a timer, nor,
before somebody could set it right, what is kept for a certain time: see ExpiryTime.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, Protocol

logger = logging.getLogger(__name__)

JUMP_MS_MIN: Final = 60_000
"""How far the wall clock may get ahead of the monotonic one between two looks before that counts as a jump."""


class Clock(Protocol):
    """What the broker asks of a clock. Any thread may call it."""

    def time_ms(self) -> int:
        """Wall-clock time: milliseconds since 1970-01-01 UTC. It may jump either way."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment of this process's life. It never goes back."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on the clock that `selectors` and `threading` time-outs run on."""
        return time.monotonic()


class ExpiryTime:
    """Wall-clock time for deciding what is too old to be kept: a jump ahead counts only once it has lasted.

    Retention compares times of records with the present. A clock that is suddenly years ahead would make it delete all
    there is, and nobody could take that back; so after a jump time goes on here at the pace of the monotonic clock for
    `hold_ms`, and only then follows. A clock set back is followed at once: that only keeps things longer. Thread-safe.
    """

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        self._hold_s = hold_ms / 1000
        self._lock = threading.Lock()
        self._trusted_ms = clock.time_ms()
        self._trusted_at = clock.monotonic()
        self._jumped_at: float | None = None

    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as far as they are believed."""
        with self._lock:
            now_ms, now = self._clock.time_ms(), self._clock.monotonic()
            expected_ms = self._trusted_ms + round((now - self._trusted_at) * 1000)
            ahead_ms = now_ms - expected_ms
            if ahead_ms > JUMP_MS_MIN:
                if self._jumped_at is None:
                    self._jumped_at = now
                    logger.warning(
                        "the wall clock jumped %d s ahead: for a while nothing expires by it", ahead_ms // 1000
                    )
                if now - self._jumped_at < self._hold_s:
                    return expected_ms
            self._jumped_at = None
            self._trusted_ms, self._trusted_at = now_ms, now
            return now_ms
