"""Estimate the age of a group's oldest unread record from sampled end offsets, without fetching records.

    sampled end offsets   12:00:00 → 100 · 12:00:05 → 180
    committed offset 140  record 140 was written at about 12:00:02.5, assuming an even rate

For an offset older than every sample, only a lower bound of the age is known. Times are in ms since 1970, and come with
each call.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

POINTS_MAX: Final = 240


class Age(NamedTuple):
    """The age of the oldest unread record in ms. If `exact` is False, it is a lower bound."""

    ms: float
    exact: bool


class SeenEnds:
    """The sampled end offsets of one partition, with their times: at most 4 KB.

    When the samples are too many, every second one of the older half is dropped. So recent times stay exact, and older
    times become coarse.
    """

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._ends = array("q")
        self._times = array("q")

    def see(self, time_ms: int, end: int) -> None:
        """Add a sample. A sample with an earlier time is ignored. A lower offset discards the earlier samples."""
        if self._times and time_ms <= self._times[-1]:
            return
        if self._ends and end < self._ends[-1]:
            del self._ends[:], self._times[:]
        if len(self._ends) > 1 and self._ends[-1] == end == self._ends[-2]:
            self._times[-1] = time_ms  # of a plateau only the first and last sample are kept
            return
        self._ends.append(end)
        self._times.append(time_ms)
        if len(self._ends) > POINTS_MAX:
            half = POINTS_MAX // 2
            self._ends[:half] = self._ends[:half:2]
            self._times[:half] = self._times[:half:2]

    def age(self, committed: int, now_ms: int) -> Age | None:
        """Return the age of the record at the committed offset. It is 0 if the record does not exist yet. None without
        samples."""
        if not self._ends:
            return None
        if committed >= self._ends[-1]:
            return Age(0.0, True)
        after = bisect_right(self._ends, committed)
        if after == 0:
            return Age(max(now_ms - self._times[0], 0), False)
        before = after - 1
        share = (committed - self._ends[before]) / (self._ends[after] - self._ends[before])
        written = self._times[before] + share * (self._times[after] - self._times[before])
        return Age(max(now_ms - written, 0.0), True)
