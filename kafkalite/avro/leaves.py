"""Render Avro dates, times and floats for JSON.

Dates and times become ISO 8601 text, and NaN and infinities become text. A date or time that Python cannot represent is
returned as its number.

Pure functions.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Final

DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}
EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None)


def number_text(value: float | None) -> object:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def date_text(days: int) -> str | int:
    try:
        return (EPOCH + dt.timedelta(days=days)).date().isoformat()
    except OverflowError:
        return days


def time_text(number: int, digits: int) -> str | int:
    if not 0 <= number < 86_400 * 10**digits:
        return number
    return str(stamp_text(number, digits, "")).partition("T")[2]


def stamp_text(number: int, digits: int, zone: str) -> str | int:
    second, rest = divmod(number, 10**digits)
    try:
        moment = EPOCH + dt.timedelta(seconds=second)
    except OverflowError:
        return number
    return f"{moment.isoformat()}.{rest:0{digits}d}{zone}"
