"""Throughput, lag and freshness of the example pipeline's stages, from counts of visits over time."""

import itertools
import threading

import numpy as np

from kafkalite.client.errors import ClientError
from kafkalite.examples.pipeline.stages import Samples, StageSampler


def samples(**counts: list[tuple[float, int]]) -> Samples:
    found = Samples()
    for stage, rows in counts.items():
        for at, count in rows:
            found.add(stage, at, count)
    return found


def test_a_stage_that_keeps_up_has_no_lag_and_is_fresh() -> None:
    rows = [(float(at), 10 * at) for at in range(6)]
    series = samples(live=rows, mirror=rows).series("mirror")
    assert series.lag.tolist() == [0] * 6
    assert series.freshness.tolist() == [0] * 6
    assert series.throughput.tolist() == [0, 10, 10, 10, 10, 10]


def test_freshness_is_the_age_of_the_oldest_visit_that_the_stage_lacks() -> None:
    live = [(0.0, 0), (1.0, 10), (2.0, 20), (3.0, 20), (4.0, 20), (5.0, 20)]
    mirror = [(0.0, 0), (1.0, 10), (2.0, 10), (3.0, 10), (4.0, 15), (5.0, 20)]
    series = samples(live=live, mirror=mirror).series("mirror")
    assert series.lag.tolist() == [0, 0, 10, 10, 5, 0]
    assert series.freshness.tolist() == [0, 0, 1, 2, 3, 0]


def test_a_count_that_falls_is_an_old_answer() -> None:
    series = samples(live=[(0.0, 5), (1.0, 3), (2.0, 8)]).series("live")
    assert series.counts.tolist() == [5, 5, 8]


def test_a_stage_without_counts_has_an_empty_series() -> None:
    assert [len(column) for column in samples(live=[(0.0, 1)]).series("mirror")] == [0] * 5
    assert [len(column) for column in samples(mirror=[(0.0, 1)]).series("mirror")] == [0] * 5


def test_a_counter_that_fails_leaves_a_gap_and_the_others_continue() -> None:
    calls, enough = itertools.count(), threading.Event()

    def failing() -> int:
        raise ClientError("the broker is down")

    def counting() -> int:
        call = next(calls)
        if call:
            enough.set()
        return call

    with StageSampler({"mirror": failing, "live": counting}) as sampler:
        assert enough.wait(60)
    assert np.all(np.diff(sampler.samples.series("live").counts) == 1)
    assert not len(sampler.samples.series("mirror").counts)
