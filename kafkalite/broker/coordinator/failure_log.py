"""Limit the log lines for a repeated failure: one at first, more at growing intervals, and one when it ends.

Thread rule: any thread; the lock is a leaf.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kafkalite.base.clock import Clock

INTERVAL_S_MIN: Final = 10.0
INTERVAL_S_MAX: Final = 3600.0


class Trouble(NamedTuple):
    """What to log about a failure: how often it happened, and the seconds since it first did."""

    failures: int
    seconds: float


class _Row:
    """One failure: its count, its start, its next report and the interval after that (monotonic s)."""

    __slots__ = ("count", "interval", "next", "since")

    def __init__(self, now: float) -> None:
        self.count, self.since, self.next, self.interval = 0, now, now, INTERVAL_S_MIN


class Troubles:
    """The failures that have not ended, by key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[Hashable, _Row] = {}  # guarded by _lock

    def failed(self, key: Hashable) -> Trouble | None:
        """Count a failure; return what to log, or None if a failure with this key was logged recently."""
        now = self._clock.monotonic()
        with self._lock:
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = _Row(now)
            row.count += 1
            if now < row.next:
                return None
            row.next, row.interval = now + row.interval, min(2 * row.interval, INTERVAL_S_MAX)
            return Trouble(row.count, now - row.since)

    def over(self, key: Hashable) -> Trouble | None:
        """Note the end of a failure; return what to log, or None if there was no failure with this key."""
        with self._lock:
            row = self._rows.pop(key, None)
        return None if row is None else Trouble(row.count, self._clock.monotonic() - row.since)
