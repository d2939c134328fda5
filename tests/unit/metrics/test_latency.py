"""Quantiles from powers of two, and of the last minutes alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.base.histogram import BUCKETS, Histogram
from kafkalite.metrics.latency import LOOK_EVERY_S, NOTHING, WINDOW_S, Window, added, cumulative, quantile


def counted(*durations_us: float) -> Histogram:
    histogram = Histogram()
    for duration in durations_us:
        histogram.add(duration * 1e-6)
    return histogram


def test_a_duration_is_in_the_bucket_below_whose_bound_it_is() -> None:
    total, counts = counted(0.5, 1.5, 3.5, 4.5, 1e12, -1).numbers()
    assert counts[:4] == (2, 1, 1, 1)
    assert counts[BUCKETS - 1] == 1
    assert total == 1_000_000_000_008


def test_buckets_end_with_all_there_is() -> None:
    rows = list(cumulative(counted(0.5, 3.5, 1e12).numbers()[1]))
    assert rows[0] == ("1e-06", 1)
    assert rows[-1] == ("+Inf", 3)
    assert [count for _, count in rows] == sorted(count for _, count in rows)


@given(st.lists(st.integers(0, 4_000_000), min_size=1), st.sampled_from([0.5, 0.75, 0.99, 0.999]))
def test_a_quantile_is_within_a_factor_of_two_of_the_true_one(durations: list[int], share: float) -> None:
    found = quantile(counted(*(one + 0.5 for one in durations)).numbers()[1], share)
    true = sorted(durations)[max(0, math.ceil(share * len(durations)) - 1)]
    assert true / 2 <= found <= max(1, 2 * true)


def test_nothing_has_no_quantile() -> None:
    assert math.isnan(quantile(NOTHING[1], 0.5))


def test_workers_are_added() -> None:
    one, other = counted(3.5).numbers(), counted(3.5, 1e12).numbers()
    assert added([one, other])[1] == counted(3.5, 3.5, 1e12).numbers()[1]


def test_only_what_was_counted_in_the_last_minutes_is_recent() -> None:
    window, histogram = Window(0.0), Histogram()

    def recent(now: float) -> int:
        return sum(window.recent(now, {"key": histogram.numbers()})["key"])

    histogram.add(1.0)
    assert recent(1.0) == 1, "all since the start"
    histogram.add(1.0)
    assert recent(LOOK_EVERY_S) == 2
    histogram.add(1.0)
    assert recent(WINDOW_S) == 3
    assert recent(WINDOW_S + 1.0) == 1, "the start is too long ago; since the next look there was one"
    assert recent(3 * WINDOW_S) == 0, "since the last look, however long ago, there was none"


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_what_is_off_the_scale_counts_as_its_end(share: float) -> None:
    assert quantile(counted(1e12).numbers()[1], share) == 1 << (BUCKETS - 2)
