"""Compute charts as plain data, which a template turns into SVG, a title and a table.

    values of a ring's slots ─▶ at most POINTS_MAX points ─▶ SVG paths in WIDTH × HEIGHT, the scale, rows of a table

A line is interrupted where samples are missing. The page stretches the SVG to the page's width. Texts are outside the
SVG, so they keep their size. Functions are pure.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.console.texts import compact_text, duration_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.console.rings import Span

WIDTH: Final = 720
HEIGHT: Final = 180
POINTS_MAX: Final = 720
LINES_MAX: Final = 5
"""Maximum lines of a chart; the rest is summed into one line."""
INTERVALS: Final = 4
SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
TICKS: Final = {
    "hour": ("−60 min", "−45 min", "−30 min", "−15 min", "now"),
    "day": ("−24 h", "−18 h", "−12 h", "−6 h", "now"),
    "fortnight": ("−14 d", "−12 d", "−10 d", "−8 d", "−6 d", "−4 d", "−2 d", "now"),
}
ROWS: Final = {"hour": 12, "day": 12, "fortnight": 14}
SPAN_TEXTS: Final = {"hour": "the last hour", "day": "the last day", "fortnight": "the last two weeks"}


class Unit(NamedTuple):
    """A unit of values: it formats them, and chooses the steps of a chart's scale."""

    text: Callable[[float], str]
    step: Callable[[float], float]


class Line(NamedTuple):
    """A line of a chart: the values of all slots, oldest first, with NaN where none is known.

    `to` is the address of the page with details.
    """

    name: str
    values: Sequence[float]
    to: str = ""


class Chart(NamedTuple):
    """A chart to draw. With `peak`, merged slots and merged lines have their maximum; otherwise slots have the mean and
    lines the sum."""

    name: str
    title: str
    unit: Unit
    lines: Sequence[Line]
    peak: bool = False
    reach: int = 2
    """Slots that a line may bridge; more is a gap."""

    def drawn(self, span: Span, now_ms: int) -> dict[str, Any]:
        """Return the chart as plain data for the template and for JSON."""
        fold = -(-span.slots // POINTS_MAX)
        lines = [
            line._replace(values=folded(line.values, fold, peak=self.peak))
            for line in gathered(self.lines, peak=self.peak)
        ]
        known = [value for line in lines for value in line.values if value == value]
        steps, top = scale(self.unit, max(known, default=0.0))
        start = now_ms // span.step_ms * span.step_ms - (span.slots - 1) * span.step_ms
        return {
            "name": self.name,
            "title": self.title,
            "span": span.name,
            "summary": summary(self.title, self.unit, lines, span, peak=self.peak),
            "empty": not known,
            "start": start,
            "step_ms": span.step_ms * fold,
            "scale": [self.unit.text(top * place / steps) for place in range(steps, -1, -1)],
            "grid": "".join(f"M0 {HEIGHT * place / steps:g}H{WIDTH}" for place in range(steps)),
            "ticks": list(TICKS[span.name]),
            "lines": [
                {
                    "name": line.name,
                    "to": line.to,
                    "values": [round(value, 6) if value == value else None for value in line.values],
                    "path": path_of(line.values, top, max(self.reach // fold, 2)),
                    "area": area_of(line.values, top, max(self.reach // fold, 2)) if len(lines) == 1 else "",
                    "now": now_text(self.unit, line.values, max(self.reach // fold, 2)),
                }
                for line in lines
            ],
            "rows": rows_of(self.unit, lines, span, start, peak=self.peak),
        }


def gathered(lines: Sequence[Line], *, peak: bool) -> list[Line]:
    """Return the first lines unchanged, and the others merged into one line."""
    if len(lines) <= LINES_MAX + 1:
        return list(lines)
    rest = lines[LINES_MAX:]
    columns = zip(*(line.values for line in rest), strict=True)
    values = [joined([value for value in column if value == value], peak=peak, add=True) for column in columns]
    return [*lines[:LINES_MAX], Line(f"{len(rest)} others", values)]


def greatest(values: Sequence[float]) -> float:
    """Return the maximum; -1 without values."""
    return max((value for value in values if value == value), default=-1.0)


def joined(values: Sequence[float], *, peak: bool, add: bool = False) -> float:
    """Merge values into their maximum with `peak`, or else into their sum with `add` or their mean. NaN without
    values."""
    if not values:
        return math.nan
    if peak:
        return max(values)
    return math.fsum(values) if add else math.fsum(values) / len(values)


def folded(values: Sequence[float], fold: int, *, peak: bool) -> list[float]:
    """Merge every `fold` adjacent slots into one, counted from the end."""
    if fold == 1:
        return list(values)
    begin = len(values) % fold
    starts = range(begin, len(values), fold)
    return [joined([each for each in values[at : at + fold] if each == each], peak=peak) for at in starts]


def scale(unit: Unit, greatest_value: float) -> tuple[int, float]:
    """Return (number of steps, value at the top) of a scale that includes the greatest value."""
    step = unit.step(max(greatest_value, 0.0) / INTERVALS)
    steps = max(1, math.ceil(round(greatest_value / step, 9)))
    return steps, steps * step


def pieces(values: Sequence[float], reach: int) -> list[list[tuple[int, float]]]:
    """Split the known values into connected pieces of points (slot, value). A distance above `reach` slots is a gap."""
    found: list[list[tuple[int, float]]] = []
    for slot, value in enumerate(values):
        if value != value:
            continue
        if found and slot - found[-1][-1][0] <= reach:
            found[-1].append((slot, value))
        else:
            found.append([(slot, value)])
    return found


def places(piece: Sequence[tuple[int, float]], count: int, top: float) -> list[str]:
    """Return the coordinates of points. Of a run of equal values, keep only the first and last point."""
    kept = [
        (slot, value)
        for place, (slot, value) in enumerate(piece)
        if place in {0, len(piece) - 1} or not piece[place - 1][1] == value == piece[place + 1][1]
    ]
    wide = WIDTH / max(count - 1, 1)
    return [f"{slot * wide:.1f} {HEIGHT - HEIGHT * max(value, 0) / top:.1f}" for slot, value in kept]


def path_of(values: Sequence[float], top: float, reach: int) -> str:
    """Return the SVG path of a line. A single point is drawn as a dot, by the round line cap."""
    parts = []
    for piece in pieces(values, reach):
        points = places(piece, len(values), top)
        parts.append(f"M{points[0]}" + (f"L{'L'.join(points[1:])}" if len(points) > 1 else "h0.1"))
    return "".join(parts)


def area_of(values: Sequence[float], top: float, reach: int) -> str:
    """Return the SVG path of the area below a line."""
    parts = []
    for piece in pieces(values, reach):
        points = places(piece, len(values), top)
        if len(points) > 1:
            first, last = points[0].split()[0], points[-1].split()[0]
            parts.append(f"M{first} {HEIGHT}L{'L'.join(points)}L{last} {HEIGHT}Z")
    return "".join(parts)


def now_text(unit: Unit, values: Sequence[float], reach: int) -> str:
    """Format the last value, or "–" if it is not recent."""
    recent = [value for value in values[-reach - 1 :] if value == value]
    return unit.text(recent[-1]) if recent else "–"


def summary(title: str, unit: Unit, lines: Sequence[Line], span: Span, *, peak: bool) -> str:
    """Describe a chart in words."""
    known = [line for line in lines if greatest(line.values) >= 0]
    if not known:
        return f"{title}: no data for {SPAN_TEXTS[span.name]}"
    told = []
    for line in known:
        values = [value for value in line.values if value == value]
        told.append(
            f"{line.name} {unit.text(values[-1])} last, {unit.text(min(values))} to {unit.text(max(values))}"
            + ("" if peak else f", {unit.text(joined(values, peak=False))} on average")
        )
    return f"{title} in {SPAN_TEXTS[span.name]}: {'; '.join(told)}"


def rows_of(unit: Unit, lines: Sequence[Line], span: Span, start: int, *, peak: bool) -> list[dict[str, Any]]:
    """Return the rows of the chart's table, newest first."""
    count = ROWS[span.name]
    found = []
    for row in range(count - 1, -1, -1):
        cells = []
        for line in lines:
            length = len(line.values)
            part = [
                value for value in line.values[row * length // count : (row + 1) * length // count] if value == value
            ]
            cells.append(unit.text(joined(part, peak=peak)) if part else "–")
        stamp = dt.datetime.fromtimestamp((start + row * span.length_ms // count) / 1000, dt.UTC)
        found.append({"time": f"{stamp:%Y-%m-%d %H:%M} UTC", "cells": cells})
    return found


def decimal_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `least`. It is at least 1, since messages are whole."""
    if least <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def rate_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `least` and at least 0.1."""
    return decimal_step(least * 10) / 10


def second_step(least: float) -> float:
    """Return a round number of seconds, minutes, hours or days, at least `least`."""
    return next((step for step in SECONDS if step >= least), math.ceil(least / SECONDS[-1]) * SECONDS[-1])


def byte_step(least: float) -> float:
    """Return a power of two, at least `least`."""
    return 2.0 ** max(math.ceil(math.log2(max(least, 1)) - 1e-9), 0)


def latency_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten in seconds, at least `least` and at least a microsecond."""
    return decimal_step(least * 1e6) / 1e6


def latency_text(seconds: float) -> str:
    """Format a latency: 850 µs, 2.5 ms, 1.2 s."""
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length * 0.9995:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0"


COUNT: Final = Unit(compact_text, decimal_step)
RATE: Final = Unit(lambda value: f"{compact_text(value)}/s", rate_step)
AGE: Final = Unit(duration_text, second_step)
LATENCY: Final = Unit(latency_text, latency_step)
BYTES: Final = Unit(lambda value: size_text(int(value)), byte_step)
