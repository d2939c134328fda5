"""Charts: lines, gaps, scale labels, and the text alternative for screen readers."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.console.charts import (
    AGE,
    BYTES,
    COUNT,
    HEIGHT,
    LINES_MAX,
    RATE,
    WIDTH,
    Chart,
    Line,
    Unit,
    path_of,
    scale,
)
from kafkalite.console.rings import DAY, FORTNIGHT, HOUR, Span
from kafkalite.console.texts import compact_text, duration_text, rate_text, size_text

NOW = 1_700_000_000_000
NAN = math.nan


def numbers(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[0-9.]+) (-?[0-9.]+)", path)]


values_of = st.lists(st.one_of(st.just(NAN), st.floats(0, 1e12)), min_size=HOUR.slots, max_size=HOUR.slots)


@given(values_of, st.sampled_from([COUNT, RATE, AGE, BYTES]))
def test_all_of_a_chart_is_inside_its_field_and_its_scale_is_round(values: list[float], unit: Unit) -> None:
    drawn = Chart("lag", "Lag", unit, [Line("orders", values)], peak=True).drawn(HOUR, NOW)
    (line,) = drawn["lines"]
    for x, y in numbers(line["path"]) + numbers(line["area"]):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert 2 <= len(drawn["scale"]) <= 5
    assert len(set(drawn["scale"])) == len(drawn["scale"])
    known = [value for value in values if value == value]
    assert drawn["empty"] == (not known)
    if known:
        assert scale(unit, max(known))[1] >= max(known) * (1 - 1e-9)


def test_a_line_is_never_drawn_over_a_gap() -> None:
    values = [0.0, 0.0, 4.0, NAN, 4.0, NAN, NAN, 2.0, NAN, NAN, NAN]
    path = path_of(values, top=4.0, reach=2)
    first, second = [piece for piece in path.split("M") if piece]
    assert numbers(first)[-1] == (pytest.approx(4 * 72), 0.0)
    assert second.endswith("h0.1")
    assert numbers(second) == [(pytest.approx(7 * 72), HEIGHT / 2)]


def test_a_line_that_stays_has_its_ends_alone() -> None:
    assert len(numbers(path_of([5.0] * 700, top=5.0, reach=2))) == 2


@pytest.mark.parametrize("span", [HOUR, DAY, FORTNIGHT])
def test_a_span_has_a_title_a_table_and_at_most_720_points(span: Span) -> None:
    values = [NAN] * (span.slots - 4) + [1.0, 2.0, 9.0, 3.0]
    drawn = Chart("lag", "Lag", COUNT, [Line("orders", values), Line("idle", [NAN] * span.slots)], peak=True).drawn(
        span, NOW
    )
    orders, idle = drawn["lines"]
    assert len(orders["values"]) <= 720
    assert max(value for value in orders["values"] if value is not None) == 9.0
    assert (orders["now"], idle["now"], idle["path"]) == ("3" if span is HOUR else "9", "–", "")
    assert drawn["summary"].startswith("Lag in the last ")
    assert re.search(r"orders [39] last, [123] to 9$", drawn["summary"])
    assert [row["cells"] for row in drawn["rows"][:2]] == [["9", "–"], ["–", "–"]]
    assert drawn["start"] + span.length_ms > NOW


def test_of_many_lines_the_rest_is_one() -> None:
    lines = [Line(f"t{n}", [float(n)] * HOUR.slots) for n in range(9)]
    peaks = Chart("age", "Age", AGE, lines, peak=True).drawn(HOUR, NOW)["lines"]
    assert [line["name"] for line in peaks] == [*(f"t{n}" for n in range(LINES_MAX)), "4 others"]
    assert peaks[-1]["now"] == "8 s"
    sums = Chart("out", "Read", RATE, lines).drawn(HOUR, NOW)["lines"]
    assert sums[-1]["now"] == "26/s"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (compact_text(0), "0"),
        (compact_text(999), "999"),
        (compact_text(1_234_567), "1.23 M"),
        (compact_text(999_900), "1 M"),
        (compact_text(0.25), "0.25"),
        (rate_text(None), "–"),
        (rate_text(12_345), "12.3 k/s"),
        (size_text(1536), "1.5 KiB"),
        (size_text(1023 * 1024**2), "1023 MiB"),
        (duration_text(0), "0 s"),
        (duration_text(2.5), "2.5 s"),
        (duration_text(90), "1.5 min"),
        (duration_text(3 * 3600), "3 h"),
        (duration_text(20 * 86_400), "20 d"),
        (duration_text(math.nan), "–"),
    ],
)
def test_numbers_have_units(text: str, told: str) -> None:
    assert text == told
