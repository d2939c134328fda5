"""Stop handling records if failures suggest that a system is down, and probe it with single records (circuit breaker).

    CLOSED ─▶ OPEN    an outage, or too many failures
    OPEN ─▶ CLOSED    a probe succeeds
    OPEN ─▶ OPEN      a probe fails: the next probe follows after twice the delay, at most PROBE_MS_MAX

There is one breaker per member, which counts the outcomes of all partitions but those with dead letters.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.failures.times import milliseconds
from kafkalite.failures.windows import Window

if TYPE_CHECKING:
    from kafkalite.failures.retry_strategies import Limit

PROBE_MS_MIN: Final = 100.0
PROBE_MS_MAX: Final = 2000.0


class Breaker:
    """The circuit breaker of a member; see the module. Without a limit, only an outage opens the breaker."""

    def __init__(self, limit: Limit | None) -> None:
        self._window = None if limit is None else Window(limit.ratio, milliseconds(limit.over), limit.least)
        self._consecutive_max = None if limit is None else limit.consecutive
        self._consecutive = 0
        self._pause_ms = PROBE_MS_MIN
        self.is_open = False
        self.probe_at = 0.0
        self.probing = False
        """Whether a probe is under way."""

    def note(self, ms: float, *, failed: bool) -> bool:
        """Count an outcome while the breaker is closed. Return whether the limit is now exceeded."""
        self._consecutive = self._consecutive + 1 if failed else 0
        if self._window is not None:
            self._window.note(ms, failed=failed)
        over = self._consecutive_max is not None and self._consecutive >= self._consecutive_max
        return failed and (over or (self._window is not None and self._window.exceeded))

    def open(self, ms: float) -> None:
        """Open the breaker at time `ms`, and schedule the first probe."""
        self.is_open = True
        self._pause_ms = PROBE_MS_MIN
        self.probe_at = ms + self._pause_ms

    def probe_failed(self, ms: float) -> None:
        """Schedule the next probe, after a longer delay, because the probe failed at time `ms`."""
        self.probing = False
        self._pause_ms = min(2 * self._pause_ms, PROBE_MS_MAX)
        self.probe_at = ms + self._pause_ms

    def close(self) -> None:
        """Close the breaker, and forget earlier outcomes."""
        self.is_open = self.probing = False
        self._consecutive = 0
        if self._window is not None:
            self._window.forget()
