"""Sample how many visits each stage of the pipeline has, and compute each stage's throughput, lag and freshness.

    counters, once a second ─▶ Samples ─▶ throughput (visits/s), lag (visits), freshness (s)

A stage's lag is the number of visits that the live broker has and the stage lacks. Its freshness is the age of the
oldest of these visits, or 0 if there are none.

Thread rule: `StageSampler` starts one thread, which calls the counters; read `samples` after the `with` block.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Counter = Callable[[], int]

INTERVAL_S: Final = 1.0
WINDOW_S: Final = 3.0
"""Throughput is the mean over this time."""
FIRST: Final = "live"
"""The stage to which the others are compared."""
STAGES: Final = {
    FIRST: "live broker",
    "mirror": "mirror",
    "stream": "streaming load",
    "follow-up": "failing consumer",
}


class Kill(NamedTuple):
    """A process that was killed (SIGKILL) and started again. Times in seconds since 1970."""

    part: str
    killed_s: float
    back_s: float | None
    """When it was ready again; None for a process that does not report it."""


class Series(NamedTuple):
    """The values of one stage at the times at which its counter answered (s since 1970)."""

    times: NDArray[np.float64]
    counts: NDArray[np.float64]
    throughput: NDArray[np.float64]
    lag: NDArray[np.float64]
    freshness: NDArray[np.float64]


class Samples:
    """The counts of visits by stage over time."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def add(self, stage: str, at_s: float, count: int) -> None:
        """Add one count."""
        self._rows[stage].append((at_s, count))

    def series(self, stage: str) -> Series:
        """Return a stage's series, compared with the live broker's counts at the same times."""
        times, counts = self._columns(stage)
        first_times, first_counts = self._columns(FIRST)
        if not len(times) or not len(first_times):
            return Series(*[np.empty(0)] * 5)
        newest = np.interp(times, first_times, first_counts)
        return Series(
            times,
            counts,
            throughput(times, counts),
            np.maximum(newest - counts, 0),
            freshness(times, counts, first_times, first_counts),
        )

    def _columns(self, stage: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows = np.array(self._rows[stage], np.float64).reshape(-1, 2)
        return rows[:, 0], np.maximum.accumulate(rows[:, 1])


def throughput(times: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the visits per second over the last WINDOW_S, at each time."""
    before = np.maximum(times - WINDOW_S, times[0])
    length = times - before
    grown = counts - np.interp(before, times, counts)
    rates: NDArray[np.float64] = np.divide(grown, length, out=np.zeros_like(grown), where=length > 0)
    return rates


def freshness(
    times: NDArray[np.float64],
    counts: NDArray[np.float64],
    first_times: NDArray[np.float64],
    first_counts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return at each time the age in seconds of the oldest visit in the live broker that the stage lacks."""
    after = np.searchsorted(first_counts, counts, side="right")  # the first sample with more visits than the stage
    lacks = after < len(first_counts)
    at = np.minimum(after, len(first_counts) - 1)
    grown_from = first_times[np.maximum(at - 1, 0)]
    return np.where(lacks, np.maximum(times - grown_from, 0), 0.0)


class StageSampler:
    """Calls the counters once a second in a thread, inside its `with` block. A counter that fails leaves a gap."""

    def __init__(self, counters: Mapping[str, Counter]) -> None:
        self.samples = Samples()
        self._counters = counters
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for stage, counter in self._counters.items():
                with contextlib.suppress(KafkaError, ClientError, LoadError, OSError):
                    self.samples.add(stage, time.time(), counter())
            self._stopped.wait(INTERVAL_S)
