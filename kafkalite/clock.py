"""Time as a parameter: whoever needs to know the time is handed a Clock, so that a test can hand over its own.

Two clocks, never mixed: wall-clock time for what is stored or sent (record timestamps, retention), monotonic time for
measuring how long something took or has to wait. A jump of the wall clock must not expire a session or a timer.
"""

import time
from typing import Protocol


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
