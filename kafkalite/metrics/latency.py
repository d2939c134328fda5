"""Compute latency quantiles of the last few minutes from histograms whose counts only increase.

A scrape stores a snapshot of the histograms, at most every LOOK_EVERY_S seconds. The difference between the current
counts and an old snapshot gives the recent requests. Kafka's histograms are similar: they forget values after about
five minutes.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkalite._native.base.histogram import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

Numbers: TypeAlias = tuple[int, tuple[int, ...]]
"""The result of Histogram.numbers: the sum, and the counts of the buckets."""

WINDOW_S: Final = 300.0
LOOK_EVERY_S: Final = 10.0
"""Snapshots closer together than this are not kept."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles of Kafka's histograms."""
NOTHING: Final[Numbers] = (0, (0,) * BUCKETS)


def added(numbers: Iterable[Numbers]) -> Numbers:
    """Return the sum of several histograms, such as those of all network workers."""
    found = list(numbers)
    return sum(total for total, _ in found), tuple(map(sum, zip(*(counts for _, counts in found), strict=True)))


def quantile(counts: Sequence[int], share: float) -> float:
    """Return the value below which `share` of all counted values lie, in the unit of the histogram.

    NaN without values. Assumes that values are evenly distributed within a bucket. In the last bucket, they are assumed
    to equal its lower bound.
    """
    total = sum(counts)
    if total == 0:
        return math.nan
    wanted, below = share * total, 0
    for at, count in enumerate(counts):
        if count and below + count >= wanted:
            low = 0.0 if at == 0 else float(1 << (at - 1))
            width = 0.0 if at == len(counts) - 1 else float(1 << at) - low
            return round(low + width * max(0.0, wanted - below) / count, 3)
        below += count
    raise AssertionError("the last bucket that counts anything ends at the total")


def cumulative(counts: Sequence[int], scale: float = 1e-6) -> Iterator[tuple[str, int]]:
    """Yield each bucket for Prometheus: its upper bound as text (`le`), and the number of values up to it.

    The last bound is +Inf. `scale` converts microseconds to seconds.
    """
    below = 0
    for at, count in enumerate(counts):
        below += count
        yield "+Inf" if at == len(counts) - 1 else repr((1 << at) * scale), below


class Window:
    """The snapshots of histograms at earlier scrapes.

    Thread rule: any thread.
    """

    def __init__(self, now: float) -> None:
        """Create a window for histograms that began to count at `now`. All times are in monotonic seconds."""
        self._lock = threading.Lock()
        self._looks: deque[tuple[float, Mapping[Hashable, Numbers]]] = deque([(now, {})])

    def recent(self, now: float, numbers: Mapping[Hashable, Numbers]) -> dict[Hashable, tuple[int, ...]]:
        """Return the bucket counts since the oldest snapshot within WINDOW_S, or else since the last snapshot.

        `numbers` are the current histograms by key.
        """
        with self._lock:
            while len(self._looks) > 1 and self._looks[0][0] < now - WINDOW_S:
                self._looks.popleft()
            before = self._looks[0][1]
            if now - self._looks[-1][0] >= LOOK_EVERY_S:
                self._looks.append((now, dict(numbers)))
        return {
            key: tuple(new - old for new, old in zip(counts, before.get(key, NOTHING)[1], strict=True))
            for key, (_, counts) in numbers.items()
        }
