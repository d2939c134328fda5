"""The grammar of times: what each form means in ms since 1970, and what is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.base.times import INT64_MAX, time_ms

NOW = 1_763_748_000_000  # 2025-11-21T18:00:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-11-21T18:00", NOW),
        ("2025-11-21 18:00:00", NOW),
        ("2025-11-21T18:00:00.250", NOW + 250),
        ("2025-11-21T18:00:00,2509", NOW + 250),
        ("2025-11-21T18:00Z", NOW),
        ("2025-11-21T20:00+02:00", NOW),
        ("20251121T180000Z", NOW),
        ("2025-11-21", NOW - 18 * HOUR),
        ("20251121", NOW - 18 * HOUR),
        ("now", NOW),
        ("-1h", NOW - HOUR),
        ("-90m", NOW - 90 * 60_000),
        ("-1h30m", NOW - 90 * 60_000),
        ("-45s", NOW - 45_000),
        ("-7d", NOW - 168 * HOUR),
        ("-2w", NOW - 336 * HOUR),
        ("-250ms", NOW - 250),
        ("+5m", NOW + 300_000),
        ("0", 0),
        ("1763748000000", NOW),
        ("1763748000", NOW),
        ("253402300799999", 253_402_300_799_999),
        ("1970-01-01", 0),
    ],
)
def test_what_a_time_means(text: str, expected: int) -> None:
    assert time_ms(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a time"),
        ("yesterday", "'yesterday' is not a time; expected 2026-11-21T18:00, -1h, or milliseconds since 1970"),
        ("-1", "is not a time"),
        ("1763748000000000", "is after the year 9999: give milliseconds since 1970, not microseconds or nanoseconds"),
        (str(INT64_MAX), "is after the year 9999"),
        ("1h", "is not a time"),
        ("-1H", "is not a time"),
        ("-1y", "is not a time"),
        ("-h", "is not a time"),
        ("- 1h", "is not a time"),
        ("-1.5h", "is not a time"),
        ("2026-13-01", "is not a time"),
        ("20261301", "is not a time"),
        ("2026-11-21T25:00", "is not a time"),
        ("\N{ARABIC-INDIC DIGIT ONE}00", "is not a time"),
        ("@1", "is not a time"),
        ("1969-12-31T23:59:59.999", "is before 1970"),
        ("-9999999999999999w", "is before 1970"),
        ("+9999999999999999999d", "is out of range"),
        ("9223372036854775808", "is out of range"),
        ("9" * 5000, "9…' is not a time"),
    ],
)
def test_what_is_no_time(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"time|1970|range") as caught:
        time_ms(text, NOW)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 130, "however long the text was"


@given(st.text(max_size=30))
def test_any_text_is_a_time_in_range_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= time_ms(text, NOW) <= INT64_MAX
