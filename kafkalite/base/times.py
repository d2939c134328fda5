"""Parse the times that users type on the command line and in the console.

    2026-11-21T18:00    a date, or a date and time, in ISO 8601; in UTC unless it has a time zone such as +02:00
    20261121            eight digits: a date
    -1h                 a duration before now; the units are ms, s, m, h, d (24 h) and w; -1h30m is possible, too
    +5m                 a duration after now
    1763748000000       milliseconds since 1970, as in records
    1763748000          ten digits: seconds since 1970
    now                 the current time

The result is always in milliseconds since 1970. Durations are relative to the moment of parsing.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

INT64_MAX: Final = 2**63 - 1
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DIGITS_MAX: Final = 19
SHOWN_MAX: Final = 40
_PART: Final = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})(ms|[smhdw])")
_RELATIVE: Final = re.compile(rf"[+-](?:{_PART.pattern})+")
_NUMBER: Final = re.compile(rf"[0-9]{{1,{DIGITS_MAX}}}")
_BASIC_DATE_LENGTH: Final = len("20261121")
_SECONDS_LENGTH: Final = 10
"""Digits of seconds since 1970 from 2001 to 2286. As milliseconds, the same number would be a time in 1970."""
TIME_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999. Larger numbers were meant as microseconds or nanoseconds."""


def time_ms(text: str, now_ms: int) -> int:
    """Parse a time and return it in milliseconds since 1970. ValueError if it is not a time.

    `now_ms` is the current time. The error message is one sentence.
    """
    shown = repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…")
    if text == "now":
        found = now_ms
    elif _RELATIVE.fullmatch(text):
        length = sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))
        found = now_ms + (length if text[0] == "+" else -length)
    elif _NUMBER.fullmatch(text) and len(text) != _BASIC_DATE_LENGTH:
        found = int(text) * (1000 if len(text) == _SECONDS_LENGTH else 1)
        if TIME_MAX_MS < found <= INT64_MAX:
            raise ValueError(
                f"{shown} is after the year 9999: give milliseconds since 1970, not microseconds or nanoseconds"
            )
    else:
        found = _iso_ms(text, shown)
    if not 0 <= found <= INT64_MAX:
        raise ValueError(f"{shown} is {'before 1970' if found < 0 else 'out of range'}")
    return found


def _iso_ms(text: str, shown: str) -> int:
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shown} is not a time; expected 2026-11-21T18:00, -1h, or milliseconds since 1970") from None
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return (value - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
