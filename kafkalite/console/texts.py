"""Format numbers, sizes and times for pages. Functions are pure."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from kafkalite.console.rendering import visible

if TYPE_CHECKING:
    from collections.abc import Callable

NONE: Final = "–"


def count_text(value: int | None) -> str:
    """Format a number with commas: 1234567 as 1,234,567."""
    return NONE if value is None else f"{value:,}"


def at_most_text(value: int | None) -> str:
    """Format an upper bound: 1234567 as ≤ 1,234,567.

    A difference of offsets is an upper bound, since it includes transaction markers and removed records.
    """
    return f"≤ {value:,}" if value else count_text(value)


def compact_text(value: float | None) -> str:
    """Format 1234567 as 1.23 M. A whole number below a thousand is not shortened."""
    if value is None or value != value:
        return NONE
    for unit, length in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(value) >= length * 0.9995:
            return f"{value / length:.3g} {unit}"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2g}"


def rate_text(value: float | None) -> str:
    """Format messages per second."""
    return NONE if value is None or value != value else f"{compact_text(value)}/s"


def size_text(value: int | None) -> str:
    """Format bytes with a unit."""
    if value is None:
        return NONE
    for unit, length in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= length:
            return f"{value / length:.4g} {unit}" if value / length >= 1000 else f"{value / length:.3g} {unit}"
    return f"{value} B"


def time_text(ms: int) -> str:
    """Format a time as 2026-11-22 19:44:32.123 UTC. No time is "–"."""
    if ms <= 0:
        return NONE
    try:
        return f"{dt.datetime.fromtimestamp(ms // 1000, dt.UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"
    except (OverflowError, ValueError, OSError):
        return str(ms)


def after_text(ms: int) -> str:
    """Format a time difference in ms, such as +1.5 s."""
    sign, size = ("−", -ms) if ms < 0 else ("+", ms)
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if size >= length:
            return f"{sign}{size / length:.3g} {unit}"
    return f"{sign}{size} ms"


def duration_text(seconds: float | None) -> str:
    """Format a duration: 0 s, 2.5 s, 45 s, 12 min, 3.5 h, 20 d."""
    if seconds is None or seconds != seconds:
        return NONE
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit == "min" and seconds >= length):
            return f"{seconds / length:.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.2g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.2g} s"


FILTERS: Final[dict[str, Callable[..., str]]] = {
    "count": count_text,
    "at_most": at_most_text,
    "compact": compact_text,
    "rate": rate_text,
    "size": size_text,
    "time": time_text,
    "after": after_text,
    "duration": duration_text,
    "visible": visible,
}
