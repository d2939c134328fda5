"""Choose the charts of each page from the time series of the sampler.

Thread rule: any thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from kafkalite.console.charts import AGE, BYTES, COUNT, LATENCY, LINES_MAX, RATE, Chart, Line
from kafkalite.console.rings import SPANS, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.console.sampler import Sampler

T = TypeVar("T")

SIZES_REACH: Final = 15
"""Gap tolerance in slots of 5 s: disks are sampled once a minute."""
LATENCIES: Final = {
    "produce": "Produce latency",
    "fetch": "Fetch latency, including the wait for records",
    "flush": "Group commit latency (fdatasync)",
}
WINDOWS: Final = tuple(span.name for span in SPANS)


class ChartSet:
    """Draws charts of the stored time series for one span of time, up to one moment."""

    def __init__(self, sampler: Sampler, span: Span, now_ms: int) -> None:
        self._sampler = sampler
        self._span = span
        self._now_ms = now_ms

    @classmethod
    def of(cls, sampler: Sampler, window: str) -> ChartSet:
        """Return the charts for a window of time up to now. `window` is one of WINDOWS."""
        span = next(span for span in SPANS if span.name == window)
        return cls(sampler, span, int(time.time() * 1000))

    def line(self, name: str, *key: str, to: str = "") -> Line | None:
        """Return a line of one series; None if the series is not stored."""
        series = self._sampler.rings.get(*key)
        return None if series is None else Line(name, series.window(self._span, self._now_ms), to)

    def draw(self, chart: Chart) -> dict[str, Any]:
        """Return a chart. If a large cluster is sampled less often, the lines bridge the longer distances."""
        reach = max(chart.reach, -(-3 * self._sampler.interval_ms // (2 * SPANS[0].step_ms)))
        factor = self._span.step_ms // SPANS[0].step_ms
        return chart._replace(reach=max(-(-reach // factor), 2)).drawn(self._span, self._now_ms)

    def group(self, group: str) -> list[dict[str, Any]]:
        """Return a group's charts: lag in messages, lag in time, and consumption, by topic."""
        sample = self._sampler.latest
        known = sample.groups.get(group) if sample is not None else None
        if known is None or sample is None:
            return []
        rows = first_ones(known.readings, lambda row: (-row.lag, row.topic), lambda row: row.topic)
        topics = [(row.topic, sample.topics[row.topic].id) for row in rows if row.topic in sample.topics]

        def lines(kind: str) -> list[Line]:
            found = (
                self.line(name, kind, group, name, number, to=f"topics/{quote(name, '')}") for name, number in topics
            )
            return [line for line in found if line is not None]

        return [
            self.draw(Chart("lag", "Lag", COUNT, lines("lag"), peak=True)),
            self.draw(Chart("age", "Age of the oldest unread message", AGE, lines("lag-seconds"), peak=True)),
            self.draw(Chart("read", "Messages consumed", RATE, lines("out"))),
        ]

    def topic(self, topic: str) -> list[dict[str, Any]]:
        """Return a topic's charts: messages produced, lag of its groups, bytes on disk."""
        sample = self._sampler.latest
        known = sample.topics.get(topic) if sample is not None else None
        if known is None or sample is None:
            return []
        pairs = first_ones(
            sample.groups_of(topic), lambda pair: (-pair[1].lag, pair[0].group), lambda pair: pair[0].group
        )
        groups = [group.group for group, _ in pairs]

        def of_groups(kind: str) -> list[Line]:
            found = (self.line(name, kind, name, topic, known.id, to=f"groups/{quote(name, '')}") for name in groups)
            return [line for line in found if line is not None]

        written = self.line("produced", "in", topic, known.id)
        disk = self.line("on disk", "disk", topic, known.id)
        charts = [
            Chart("in", "Messages produced", RATE, [] if written is None else [written]),
            Chart("disk", "Bytes on disk", BYTES, [] if disk is None else [disk], reach=SIZES_REACH),
        ]
        if groups:
            charts.insert(1, Chart("lag", "Lag of its consumer groups", COUNT, of_groups("lag"), peak=True))
        return [self.draw(chart) for chart in charts]

    def cluster(self) -> list[dict[str, Any]]:
        """Return the cluster's charts: produced and consumed messages."""
        found = (self.line("produced", "total-in"), self.line("consumed by groups", "total-out"))
        return [self.draw(Chart("throughput", "Messages", RATE, [line for line in found if line is not None]))]

    def latencies(self) -> list[dict[str, Any]]:
        """Return the charts of latencies: of produce requests, fetches and group commits, from brokers that report
        them."""
        charts = []
        for name, title in LATENCIES.items():
            found = (self.line(what, f"latency-{what}", name) for what in ("p50", "p99"))
            lines = [line for line in found if line is not None]
            if lines:
                charts.append(self.draw(Chart(name, title, LATENCY, lines, peak=True)))
        return charts

    def left_out(self) -> int:
        """Return the number of time series that are not stored because there are too many."""
        return self._sampler.rings.left_out


def first_ones(rows: Iterable[T], worst: Callable[[T], Any], name: Callable[[T], str]) -> list[T]:
    """Sort the lines of a chart: first the LINES_MAX worst lines by name, for stable colours, then the other lines."""
    listed = sorted(rows, key=worst)
    return [*sorted(listed[:LINES_MAX], key=name), *listed[LINES_MAX:]]
