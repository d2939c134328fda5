"""Draw the report of a pipeline run as one HTML page with charts.

The page shows whether the run was correct, charts of the measured values over time, and tables. A chart has one line
per stage; the latency chart shows mean and 99th percentile. The page has no scripts and loads no other files.

Thread rule: functions are pure, except that `page` reads the template file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kafkalite.examples.pipeline.stages import FIRST, STAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafkalite.examples.pipeline.stages import Kill, Samples

WIDTH: Final = 1000
HEIGHT: Final = 200
TICKS: Final = 5
GAP_S: Final = 5.0
"""A line is interrupted where samples are further apart."""
STEPS: Final = (1, 2, 5, 10)


class Line(NamedTuple):
    """The values of one line of a chart over time (s since 1970). `colour` is 0 to 3."""

    name: str
    colour: int
    times: NDArray[np.float64]
    values: NDArray[np.float64]


def page(document: dict[str, Any], samples: Samples, kills: Sequence[Kill], latency: Sequence[Line]) -> str:
    """Return the page as HTML. `document` is the report as JSON, and `latency` has the lines of the latency chart.

    Charts mark `kills`, the moments at which parts of the pipeline were killed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    series = {stage: samples.series(stage) for stage in STAGES}
    every = [row.times for row in series.values()] + [line.times for line in latency]
    known = np.concatenate(every) if every else np.empty(0)
    start, end = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)

    def lines(field: str, stages: Sequence[str]) -> list[Line]:
        return [
            Line(STAGES[name], colour, series[name].times, getattr(series[name], field))
            for colour, name in enumerate(STAGES)
            if name in stages
        ]

    later = [name for name in STAGES if name != FIRST]
    charts = [
        chart("Throughput", "visits/s", lines("throughput", list(STAGES)), start, end),
        chart("Lag behind the live broker", "visits", lines("lag", later), start, end),
        chart("Freshness: age of the oldest missing visit", "s", lines("freshness", later), start, end),
        chart("Latency until loaded, by time of sending", "s", latency, start, end),
    ]
    span = max(end - start, 1e-9)
    marks = [
        {
            "part": kill.part,
            "left": round(min(max((kill.killed_s - start) / span, 0), 1) * 100, 2),
            "at": round(kill.killed_s - start, 1),
            "away": "–" if kill.back_s is None else f"{kill.back_s - kill.killed_s:.1f} s",
        }
        for kill in kills
    ]
    environment = Environment(
        loader=PackageLoader("kafkalite.examples.pipeline", ""), autoescape=True, undefined=StrictUndefined
    )
    template = environment.get_template("report.html")
    return template.render(report=document, charts=charts, kills=marks, width=WIDTH, height=HEIGHT) + "\n"


def chart(title: str, unit: str, lines: Sequence[Line], start: float, end: float) -> dict[str, Any]:
    """Return a chart as data for the template: the lines as SVG paths in an area of WIDTH × HEIGHT, scales and
    a table.
    """
    values = np.concatenate([line.values for line in lines] or [np.empty(0)])
    top = round_up(float(values.max()) if len(values) else 0.0)
    span = max(end - start, 1e-9)
    return {
        "title": title,
        "unit": unit,
        "scale": [f"{top * at / TICKS:,g}" for at in range(TICKS, -1, -1)],
        "ticks": [f"{span * at / TICKS:.0f} s" for at in range(TICKS + 1)],
        "lines": [
            {
                "name": line.name,
                "colour": line.colour,
                "path": path_of(line, start, span, top),
                "mean": figure(line.values.mean()) if len(line.values) else "–",
                "most": figure(line.values.max()) if len(line.values) else "–",
                "last": figure(line.values[-1]) if len(line.values) else "–",
            }
            for line in lines
        ],
    }


def path_of(line: Line, start: float, span: float, top: float) -> str:
    """Return the SVG path of a line."""
    parts = []
    before = -np.inf
    for at, value in zip(line.times, line.values, strict=True):
        command = "L" if at - before <= GAP_S else "M"
        parts.append(f"{command}{(at - start) / span * WIDTH:.1f} {HEIGHT - value / top * HEIGHT:.1f}")
        before = at
    return "".join(parts)


def figure(value: float) -> str:
    """Format a value with three significant digits, or as an integer if it is large: 0.218, 21.7, 1,770."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def round_up(value: float) -> float:
    """Return the smallest number of the form 1, 2, 5 or 10 times a power of ten that is at least `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * step for step in STEPS if power * step >= value * (1 - 1e-9)))
