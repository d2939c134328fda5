"""Define the interface by which parts of a broker provide metrics: families of samples, collected at each scrape.

A part counts in plain variables and provides a `Source`, a function that yields `Family` objects. The broker collects
the sources in `BrokerServices.metric_sources`. Each scrape through `metrics.listeners` calls the sources, on a thread
of the HTTP server; without this setting nothing calls them.

    def families(self) -> Iterator[Family]:
        yield Family("kafkalite_queue_jobs", "gauge", "Jobs that …", [(labels(queue=name), 12), …])

    services.metric_sources.append(queues.families)

Rules: a source must not wait for a disk, and takes only leaf locks (under which no other lock is taken). Labels whose
values clients choose (client ids, users) are limited by `most`. Names follow Prometheus, but a counter's name has no
`_total` here.
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
    """All samples of one metric."""

    name: str
    kind: Kind
    help: str
    """One sentence for # HELP."""
    rows: Iterable[tuple[str, float]]
    """(suffix, value). The suffix follows the name: `labels(…)` or "", in a histogram or summary preceded by `_bucket`,
    `_count` or `_sum`."""


Source = Callable[[], Iterable[Family]]


def labels(**values: object) -> str:
    """Return `{topic="a",partition="0"}` in the given order, escaped for the text format; "" without labels.

    Unprintable characters, which can only come from clients, are escaped so that they harm no terminal or page.
    """
    if not values:
        return ""
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in values.items()) + "}"


def most(counts: Iterable[tuple[str, float]], limit: int = LABELLED_MAX) -> list[tuple[str, float]]:
    """Return the `limit` largest counts as (name, count); all others are summed under the name OTHERS."""
    rows = list(counts)
    if len(rows) <= limit:
        return rows
    kept = nlargest(limit, rows, key=lambda row: row[1])
    return [*kept, (OTHERS, sum(count for _, count in rows) - sum(count for _, count in kept))]


def _value(value: object) -> str:
    return escaped(str(value), VALUE_SIZE_MAX).translate(_ESCAPES)
