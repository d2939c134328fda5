"""The breaker: when failures mean that a system is down, nothing is moved, and one record is tried now and then.

    CLOSED ──outage, or too many failures──▶ OPEN ──probe works──▶ CLOSED
                                              │ ▲
                                              └─┘ probe fails: the next one after twice the time, at most PROBE_MS_MAX

Counted over all partitions of a member: one bad partition may be right, and all bad at once is not.

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
    """See the module. Without a limit only an outage opens it."""

    def __init__(self, limit: Limit | None) -> None:
        self._window = None if limit is None else Window(limit.ratio, milliseconds(limit.over), limit.least)
        self._consecutive_max = None if limit is None else limit.consecutive
        self._consecutive = 0
        self._pause_ms = PROBE_MS_MIN
        self.is_open = False
        self.probe_at = 0.0
        self.probing = False
        """Whether a record is being tried."""

    def note(self, ms: float, *, failed: bool) -> bool:
        """An outcome while closed; whether it is one too many."""
        self._consecutive = self._consecutive + 1 if failed else 0
        if self._window is not None:
            self._window.note(ms, failed=failed)
        over = self._consecutive_max is not None and self._consecutive >= self._consecutive_max
        return failed and (over or (self._window is not None and self._window.exceeded))

    def open(self, ms: float) -> None:
        """From now on one record at a time."""
        self.is_open = True
        self._pause_ms = PROBE_MS_MIN
        self.probe_at = ms + self._pause_ms

    def probe_failed(self, ms: float) -> None:
        """Not yet."""
        self.probing = False
        self._pause_ms = min(2 * self._pause_ms, PROBE_MS_MAX)
        self.probe_at = ms + self._pause_ms

    def close(self) -> None:
        """All goes on, and what was is forgotten."""
        self.is_open = self.probing = False
        self._consecutive = 0
        if self._window is not None:
            self._window.forget()
