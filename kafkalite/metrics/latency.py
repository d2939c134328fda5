"""Quantiles of the last minutes, from histograms that count since the start.

A scrape looks at the histograms; what it saw is kept, and the next ones subtract it. So a quantile is of the requests
since the oldest look that is not older than WINDOW_S, or the last one; Kafka's own forget what is older than some five
minutes.
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
"""As Histogram.numbers gives them: sum, counts of the buckets."""

WINDOW_S: Final = 300.0
LOOK_EVERY_S: Final = 10.0
"""Looks that are closer together are not kept."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""
NOTHING: Final[Numbers] = (0, (0,) * BUCKETS)


def added(numbers: Iterable[Numbers]) -> Numbers:
    """Of several workers together."""
    found = list(numbers)
    return sum(total for total, _ in found), tuple(map(sum, zip(*(counts for _, counts in found), strict=True)))


def quantile(counts: Sequence[int], share: float) -> float:
    """The value below which a share of what was counted lies, in the histogram's unit; NaN where nothing was.

    Between the bounds of a bucket values are taken to be spread evenly; those of the last one to be at its lower bound.
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
    """(`le` of a bucket, values up to it), the last one +Inf; `scale` makes seconds of µs."""
    below = 0
    for at, count in enumerate(counts):
        below += count
        yield "+Inf" if at == len(counts) - 1 else repr((1 << at) * scale), below


class Window:
    """What earlier looks saw, by key. Any thread."""

    def __init__(self, now: float) -> None:
        """`now`: when nothing had been counted yet; in seconds, monotonic, as all times here."""
        self._lock = threading.Lock()
        self._looks: deque[tuple[float, Mapping[Hashable, Numbers]]] = deque([(now, {})])

    def recent(self, now: float, numbers: Mapping[Hashable, Numbers]) -> dict[Hashable, tuple[int, ...]]:
        """The counts of the buckets since the window began. Where nobody has looked for long, since the last look."""
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
