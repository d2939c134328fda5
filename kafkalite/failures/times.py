"""Parse durations such as "10 s" into milliseconds, and define Moment, a reading of wall clock and monotonic clock.

Thread rule: functions are pure.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    Duration = str | float

UNITS_MS: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SHORT: Final = {"d": "d", "h": "h", "min": "m", "s": "s"}
"""A unit's spelling in topic names."""
SPELLED: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|m|h|d)")
DURATION_MS_MAX: Final = 366 * UNITS_MS["d"]


class Moment(NamedTuple):
    """A moment: `wall_ms` is milliseconds since 1970 and may jump; `ms` is monotonic."""

    wall_ms: int
    ms: float


def milliseconds(duration: Duration | object) -> int:
    """Convert "10 s", "1.5 min", "250ms" or a number of seconds to ms. Raises ValueError."""
    if isinstance(duration, str):
        value = _spelled_ms(duration)
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        value = duration * 1000
    else:
        raise ValueError(  # noqa: TRY004  # a fault in a file, not in an argument
            f"{duration!r} is not a duration; write for example '250 ms' or a number of seconds"
        )
    if not 0 <= value <= DURATION_MS_MAX:
        raise ValueError(f"{duration!r} is not a duration from 0 to 366 days")
    return round(value)


@functools.lru_cache(256)
def _spelled_ms(duration: str) -> float:
    match = SPELLED.fullmatch(duration.strip())
    if match is None:
        raise ValueError(f"{duration!r} is not a duration; write for example '250 ms', '10 s', '5 min', '2 h' or '1 d'")
    return float(match[1]) * UNITS_MS["min" if match[2] == "m" else match[2]]


def short_name(duration_ms: int) -> str:
    """Format a delay for the name of a retry topic, in the largest unit that divides it: 10000 → "10s"."""
    for unit, letter in SHORT.items():
        if duration_ms and duration_ms % UNITS_MS[unit] == 0:
            return f"{duration_ms // UNITS_MS[unit]}{letter}"
    return f"{duration_ms}ms" if duration_ms else "0s"
