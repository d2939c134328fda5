"""Parse and format the times of command lines, in ms since 1970 (kafkalite.base.times)."""

from __future__ import annotations

import argparse
import datetime as dt
import time

from kafkalite.base.times import time_ms


def now_ms() -> int:
    """Return the wall-clock time in ms since 1970."""
    return time.time_ns() // 1_000_000


def moment(text: str) -> int:
    """Parse a TIME into ms since 1970, for argparse."""
    try:
        return time_ms(text, now_ms())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def utc_text(ms: int) -> str:
    """Format a time in UTC, such as 2026-11-22T19:44:32Z."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
