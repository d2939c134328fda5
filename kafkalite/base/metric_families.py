"""What the parts of a broker tell of themselves: numbers with a name and labels, read when somebody asks for them.

A part that has something to tell keeps plain counts where it works, and hands over a `Source`: a function that makes
families of them. The broker collects sources in `BrokerServices.metric_sources`; nobody calls them unless
`metrics.listeners` is set, then each scrape does, on a thread of the HTTP server.

    def families(self) -> Iterator[Family]:
        yield Family("kafkalite_queue_jobs", "gauge", "Jobs that …", [(labels(queue=name), 12), …])

    services.metric_sources.append(queues.families)

Rules. A source must not wait for a disk, and takes leaf locks alone. Labels whose values clients choose (client ids,
users) are bounded by `most`. Names are Prometheus's: the name of a counter stands here without its `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Final, Literal, NamedTuple

from kafkalite.base.logging import escaped

LABELLED_MAX: Final = 100
"""How many values of a label that clients choose are told; the rest are told together, as OTHERS."""
OTHERS: Final = "(others)"
VALUE_SIZE_MAX: Final = 256
"""Characters of a label's value; what is longer is cut."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})

Kind = Literal["counter", "gauge", "histogram", "summary"]


class Family(NamedTuple):
    """Samples of one name."""

    name: str
    kind: Kind
    help: str
    """One sentence."""
    rows: Iterable[tuple[str, float]]
    """(what follows the name, value). What follows is `labels(…)`, "" without any, and in a histogram or summary
    `_bucket`, `_count` or `_sum` before that."""


Source = Callable[[], Iterable[Family]]


def labels(**values: object) -> str:
    """`{topic="a",partition="0"}`, in the order given, escaped as the text format has it; "" for none.

    What is not printable, which only clients give, is written as an escape, so that it harms no terminal or page.
    """
    if not values:
        return ""
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in values.items()) + "}"


def most(counts: Iterable[tuple[str, float]], limit: int = LABELLED_MAX) -> list[tuple[str, float]]:
    """The largest of (name, count), and the sum of the others under the name OTHERS where there are more."""
    rows = list(counts)
    if len(rows) <= limit:
        return rows
    kept = nlargest(limit, rows, key=lambda row: row[1])
    return [*kept, (OTHERS, sum(count for _, count in rows) - sum(count for _, count in kept))]


def _value(value: object) -> str:
    return escaped(str(value), VALUE_SIZE_MAX).translate(_ESCAPES)
