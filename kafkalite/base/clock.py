"""Time as a parameter: whoever needs to know the time is handed a Clock, so that a test can hand over its own.

Two clocks, never mixed: wall-clock time for what is stored or sent (record timestamps, retention), monotonic time for
measuring how long something took or has to wait. A jump of the wall clock must not expire a session or a timer, nor,
before an operator could set it right, what is kept for a certain time: see ExpiryTime.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple, Protocol

from kafkalite._native.base import native_time as time

logger = logging.getLogger(__name__)

JUMP_MS_MIN: Final = 60_000
"""How far the wall clock may get ahead of the trusted time before that counts as a jump. A restart takes less."""


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


class StoredTime(NamedTuple):
    """What a data directory keeps of the trusted time between two runs. All in ms."""

    time_ms: int
    """The trusted time when it was stored, since 1970-01-01 UTC."""
    ahead_ms: int = 0
    """By how much the wall clock was ahead; 0: it was followed."""
    held_ms: int = 0
    """Running time for which it had been ahead by that."""


class Ahead(NamedTuple):
    """A wall clock that is not followed yet. All in ms."""

    ahead_ms: int
    """By how much it is ahead of the trusted time."""
    left_ms: int
    """Running time after which it is followed, if it stays ahead by the same amount."""


class _Jump(NamedTuple):
    ahead_ms: int  # of the wall clock, since this process saw the jump
    accepted_ms: int  # what of it is accepted after the hold: less where downtime came on top
    held_before_ms: int  # running time in earlier processes
    since: float  # monotonic

    def held_ms(self, now: float) -> int:
        return self.held_before_ms + round((now - self.since) * 1000)


class ExpiryTime:
    """The trusted time: wall-clock time for deciding what is too old to be kept.

    Retention compares times of records with the present. A clock that is years ahead would make it delete everything,
    and nothing brings that back. So while the wall clock is ahead, trusted time advances with the monotonic clock, and
    follows once the wall clock has been ahead by the same amount for `hold_ms` of running time. It is never ahead of
    the wall clock: a clock set back is followed at once, which only keeps things longer.

    A start begins with the earlier of the wall clock and the stored time (`resume`). To it, downtime is a jump like any
    other. It does not restart the hold of an earlier jump: a broker that never runs for `hold_ms` at a stretch would
    otherwise keep everything forever. That hold then accepts the amount that it was for, and the downtime is held next.

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
        """Begins with what an earlier process has stored."""
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
        """Milliseconds since 1970-01-01 UTC, as far as they are trusted."""
        with self._lock:
            return self._look_locked()

    def ahead(self) -> Ahead | None:
        """The wall clock where it is ahead and not followed; None where it is followed."""
        with self._lock:
            time_ms = self._look_locked()
            if self._jump is None:
                return None
            held_ms = self._jump.held_ms(self._clock.monotonic())
            return Ahead(self._clock.time_ms() - time_ms, max(self._hold_ms - held_ms, 0))

    def to_store(self) -> StoredTime:
        """What the next start resumes with."""
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
        self._jump = _Jump(left_ms, left_ms, 0, jump.since)  # it has been ahead by this for as long
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
