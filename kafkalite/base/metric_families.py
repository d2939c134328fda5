"""Define the interface through which parts of a broker provide metrics.

A part provides a `Source`: a function that yields `Family` objects with the current values. At each scrape, a thread of
the HTTP server (setting `metrics.listeners`) calls all sources.

    def families(self) -> Iterator[Family]:
        yield Family("kafkalite_queue_jobs", "gauge", "Jobs that …", [(labels(queue=name), 12), …])

    services.metric_sources.append(queues.families)

Rules for sources: never wait for a disk. Acquire only leaf locks, under which no other lock is acquired. Names follow
Prometheus's conventions, but a counter's name does not end with `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Final, Literal, NamedTuple

from kafkalite.base.logging import escaped

LABELLED_MAX: Final = 100
"""How many values of a label that clients choose are exported; the rest are summed as OTHERS."""
OTHERS: Final = "(others)"
VALUE_SIZE_MAX: Final = 256
"""Characters of a label's value; longer ones are cut."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})

Kind = Literal["counter", "gauge", "histogram", "summary"]


class Family(NamedTuple):
    """One metric with all its samples."""

    name: str
    kind: Kind
    help: str
    """One sentence for # HELP."""
    rows: Iterable[tuple[str, float]]
    """(suffix, value). The suffix follows the name: `labels(…)` or "", in a histogram or summary preceded by `_bucket`,
    `_count` or `_sum`."""


Source = Callable[[], Iterable[Family]]


def labels(**values: object) -> str:
    """Format labels for Prometheus's text format: `{topic="a",partition="0"}`, in the given order; "" without labels.

    Unprintable characters, which only clients can cause, are escaped to protect terminals and web pages.
    """
    if not values:
        return ""
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in values.items()) + "}"


def most(counts: Iterable[tuple[str, float]], limit: int = LABELLED_MAX) -> list[tuple[str, float]]:
    """Return the `limit` largest counts as (name, count). All other counts are summed under the name OTHERS.

    For labels whose values clients choose, such as client ids.
    """
    rows = list(counts)
    if len(rows) <= limit:
        return rows
    kept = nlargest(limit, rows, key=lambda row: row[1])
    return [*kept, (OTHERS, sum(count for _, count in rows) - sum(count for _, count in kept))]


def _value(value: object) -> str:
    return escaped(str(value), VALUE_SIZE_MAX).translate(_ESCAPES)
