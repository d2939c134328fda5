"""Define the clocks of a broker. They are passed as parameters, so that a test can replace them.

Times that are stored or sent, such as record timestamps, come from the wall clock. Durations and timeouts use the
monotonic clock, so a jump of the wall clock does not expire sessions or timers.

Retention uses `ExpiryTime`. It follows a forward jump of the wall clock only after a delay, so that a wrong clock does
not delete data at once.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple, Protocol

from kafkalite._native.base import native_time as time

logger = logging.getLogger(__name__)

JUMP_MS_MIN: Final = 60_000
"""How far the wall clock may be ahead of the trusted time before that counts as a jump. A restart takes less."""


class Clock(Protocol):
    """The time source of a broker. Any thread may call it."""

    def time_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970-01-01 UTC. It may jump forward or back."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment in this process. The result never decreases."""


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of the monotonic clock that `selectors` and `threading` use for timeouts."""
        return time.monotonic()


class StoredTime(NamedTuple):
    """The state of an ExpiryTime that the data directory stores between two runs of a broker.

    Values are in milliseconds.
    """

    time_ms: int
    """The trusted time when it was stored, since 1970-01-01 UTC."""
    ahead_ms: int = 0
    """How far the wall clock was ahead of the trusted time; 0 while the trusted time followed."""
    held_ms: int = 0
    """Running time for which the wall clock had been ahead by that amount."""


class Ahead(NamedTuple):
    """The difference between the wall clock and the trusted time of an ExpiryTime. Values are in milliseconds."""

    ahead_ms: int
    """By how much the wall clock is ahead of the trusted time."""
    left_ms: int
    """Running time until the trusted time follows, if the wall clock stays ahead by the same amount."""


class _Jump(NamedTuple):
    ahead_ms: int  # of the wall clock, since this process saw the jump
    accepted_ms: int  # the part that is accepted after the hold: less if downtime was added to it
    held_before_ms: int  # running time in earlier processes
    since: float  # monotonic

    def held_ms(self, now: float) -> int:
        return self.held_before_ms + round((now - self.since) * 1000)


class ExpiryTime:
    """The trusted time, which decides whether records have expired.

    If the wall clock jumped years ahead, retention would delete all data. Therefore the trusted time ignores such a
    jump at first, and advances with the monotonic clock. So an operator can correct the wall clock. The trusted time
    accepts the jump after the broker has run for `hold_ms` with the wall clock ahead by the same amount. If the wall
    clock is set back, the trusted time follows at once, which only keeps data longer. So the trusted time is never
    ahead of the wall clock.

    Downtime looks like a jump: at start, the trusted time is the earlier of the wall clock and the stored time
    (`resume`). Downtime does not restart the wait for an earlier jump. Otherwise a broker that never runs for `hold_ms`
    without a restart would never delete data. After that wait, the trusted time accepts the earlier jump only. Then the
    wait for the downtime begins.

    Thread rule: any thread.
    """

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        self._hold_ms = hold_ms
        self._lock = threading.Lock()
        self._trusted_ms = clock.time_ms()
        self._trusted_at = clock.monotonic()
        self._jump: _Jump | None = None

    def resume(self, stored: StoredTime) -> None:
        """Continue from the state that `to_store` returned in an earlier process."""
        with self._lock:
            now_ms, now = self._clock.time_ms(), self._clock.monotonic()
            self._trusted_ms, self._trusted_at = min(now_ms, stored.time_ms), now
            self._jump = None
            ahead_ms = now_ms - self._trusted_ms
            if self._hold_ms and JUMP_MS_MIN < stored.ahead_ms <= ahead_ms + JUMP_MS_MIN:
                self._jump = _Jump(ahead_ms, min(ahead_ms, stored.ahead_ms), stored.held_ms, now)
                self._log_ahead(self._jump, now)
            self._look_locked()

    def time_ms(self) -> int:
        """Return the trusted time in milliseconds since 1970-01-01 UTC."""
        with self._lock:
            return self._look_locked()

    def ahead(self) -> Ahead | None:
        """Return how far the wall clock is ahead of the trusted time; None if it is not ahead."""
        with self._lock:
            time_ms = self._look_locked()
            if self._jump is None:
                return None
            held_ms = self._jump.held_ms(self._clock.monotonic())
            return Ahead(self._clock.time_ms() - time_ms, max(self._hold_ms - held_ms, 0))

    def to_store(self) -> StoredTime:
        """Return the state to store for `resume` at the next start."""
        with self._lock:
            time_ms = self._look_locked()
            if self._jump is None:
                return StoredTime(time_ms)
            return StoredTime(time_ms, self._jump.accepted_ms, self._jump.held_ms(self._clock.monotonic()))

    def _look_locked(self) -> int:
        now_ms, now = self._clock.time_ms(), self._clock.monotonic()
        expected_ms = self._trusted_ms + round((now - self._trusted_at) * 1000)
        ahead_ms = now_ms - expected_ms
        if ahead_ms <= JUMP_MS_MIN or not self._hold_ms:
            if self._jump is not None:
                logger.info(
                    "the wall clock is no longer ahead of the trusted time; expiry follows the wall clock again"
                )
            self._jump = None
            return self._set(now_ms, now)
        jump = self._jump
        if jump is None or abs(ahead_ms - jump.ahead_ms) > JUMP_MS_MIN:
            jump = self._jump = _Jump(ahead_ms, ahead_ms, 0, now)
            self._log_ahead(jump, now)
        if jump.held_ms(now) < self._hold_ms:
            return expected_ms
        logger.warning(
            "the wall clock has stayed ahead for clock.jump.hold.ms; expiry time advances by %d s",
            jump.accepted_ms // 1000,
        )
        left_ms = ahead_ms - jump.accepted_ms
        if left_ms <= JUMP_MS_MIN:
            self._jump = None
            return self._set(now_ms, now)
        self._jump = _Jump(left_ms, left_ms, 0, jump.since)  # it has been ahead by this for the same time
        self._log_ahead(self._jump, now)
        return self._set(now_ms - left_ms, now)

    def _set(self, time_ms: int, at: float) -> int:
        self._trusted_ms, self._trusted_at = time_ms, at
        return time_ms

    def _log_ahead(self, jump: _Jump, now: float) -> None:
        logger.warning(
            "the wall clock is %d s ahead of the trusted time (a clock jump, or downtime); expiry ignores the "
            "difference until it has lasted for %d s more of running time",
            jump.ahead_ms // 1000,
            max(self._hold_ms - jump.held_ms(now), 0) // 1000,
        )
