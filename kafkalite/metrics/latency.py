"""Compute quantiles of the last few minutes from histograms that only ever count up.

Each scrape keeps a snapshot of the histograms, and a later scrape subtracts it. A quantile covers the requests since
the oldest snapshot of the last WINDOW_S seconds or, without one, since the latest snapshot. For comparison: Kafka's
histograms forget values older than about five minutes.
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
    """Return the sum of the histograms of several workers."""
    found = list(numbers)
    return sum(total for total, _ in found), tuple(map(sum, zip(*(counts for _, counts in found), strict=True)))


def quantile(counts: Sequence[int], share: float) -> float:
    """Return the value below which this share of the counted values lies, in the histogram's unit; NaN without values.

    Assumes that values are spread evenly within a bucket, and that those of the last bucket equal its lower bound.
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
    """Yield (`le` of a bucket, number of values up to it), ending with +Inf. `scale` converts µs to seconds."""
    below = 0
    for at, count in enumerate(counts):
        below += count
        yield "+Inf" if at == len(counts) - 1 else repr((1 << at) * scale), below


class Window:
    """Snapshots of earlier scrapes, by key. Any thread."""

    def __init__(self, now: float) -> None:
        """Create a window; counting began at `now`. All times here are in monotonic seconds."""
        self._lock = threading.Lock()
        self._looks: deque[tuple[float, Mapping[Hashable, Numbers]]] = deque([(now, {})])

    def recent(self, now: float, numbers: Mapping[Hashable, Numbers]) -> dict[Hashable, tuple[int, ...]]:
        """Return the bucket counts of the last WINDOW_S, or since the last snapshot if that is older."""
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
