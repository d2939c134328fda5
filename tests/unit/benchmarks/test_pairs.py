"""The interval that says whether one tree is slower than another."""

import pytest

from benchmarks.pairs import interval


def test_equal_pairs_have_an_interval_of_no_width() -> None:
    assert interval([2.0] * 15) == pytest.approx((2.0, 2.0, 2.0))


def test_noise_around_one_leaves_one_inside() -> None:
    mean, low, high = interval([0.8, 1.25] * 8)
    assert mean == pytest.approx(1.0)
    assert low < 1 < high


def test_a_drop_in_every_pair_lies_below_one() -> None:
    _, _, high = interval([0.90, 0.92, 0.91, 0.89, 0.93] * 3)
    assert high < 1


def test_one_pair_says_nothing() -> None:
    assert interval([0.5])[1:] == (0.0, float("inf"))
