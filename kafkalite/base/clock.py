"""Define the clocks of a broker as parameters, so that a test can pass its own.

Wall-clock time and monotonic time are never mixed. The wall clock is for what is stored or sent (record timestamps,
retention), the monotonic clock for durations and timeouts. A jump of the wall clock must not expire a session or a
timer. Nor must it expire stored data before an operator can correct the clock; see ExpiryTime.
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
        """Return the wall-clock time in milliseconds since 1970-01-01 UTC. It may jump either way."""

    def monotonic(self) -> float:
        """Return seconds since a fixed moment in this process. It never goes back."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds on the clock that `selectors` and `threading` use for timeouts."""
        return time.monotonic()


class StoredTime(NamedTuple):
    """The part of the trusted time (see ExpiryTime) that a data directory keeps between two runs. All in ms."""

    time_ms: int
    """The trusted time when it was stored, since 1970-01-01 UTC."""
    ahead_ms: int = 0
    """How far the wall clock was ahead of it; 0 while the trusted time followed."""
    held_ms: int = 0
    """Running time for which the wall clock had been ahead by that amount."""


class Ahead(NamedTuple):
    """How far the wall clock is ahead of the trusted time, and how much longer the trusted time ignores that. In ms."""

    ahead_ms: int
    """By how much it is ahead of the trusted time."""
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
    """The trusted time: the time by which the broker decides that something has expired.

    Retention compares the times of records with the present. If the wall clock jumped years ahead, retention would
    delete everything, irrevocably. So the trusted time ignores a jump at first: while the wall clock is ahead, the
    trusted time advances with the monotonic clock. It accepts the jump once the broker has run for `hold_ms` while the
    wall clock was ahead by the same amount. If the wall clock is set back, the trusted time follows at once, which only
    keeps data longer. So the trusted time is never ahead of the wall clock.

    At the start of a broker, the trusted time is the earlier of the wall clock and the stored time (`resume`), so
    downtime is treated like a jump. Downtime does not restart the wait for an earlier jump: otherwise a broker that
    never runs for `hold_ms` at a stretch would keep everything forever. The end of that wait accepts only the earlier
    jump; then the wait for the downtime begins.

    Thread-safe.
    """

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        self._hold_ms = hold_ms
        self._lock = threading.Lock()
        self._trusted_ms = clock.time_ms()
        self._trusted_at = clock.monotonic()
        self._jump: _Jump | None = None

    def resume(self, stored: StoredTime) -> None:
        """Continue from the time that an earlier process stored."""
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
        """Return how far the wall clock is ahead, or None while the trusted time follows it."""
        with self._lock:
            time_ms = self._look_locked()
            if self._jump is None:
                return None
            held_ms = self._jump.held_ms(self._clock.monotonic())
            return Ahead(self._clock.time_ms() - time_ms, max(self._hold_ms - held_ms, 0))

    def to_store(self) -> StoredTime:
        """Return the state for the next start's `resume`."""
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
