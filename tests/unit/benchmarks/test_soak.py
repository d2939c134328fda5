"""The soak's slopes: growth is found in noise, and no growth is not."""

import numpy as np
import pytest

from benchmarks.soak.slopes import slope

TIMES = np.arange(0, 3600, 5.0)


@pytest.mark.parametrize("per_hour", [0.0, 7.0, -3.0])
def test_growth_is_found_within_its_interval(per_hour: float) -> None:
    noise = np.random.default_rng(1).normal(0, 1, len(TIMES))
    found = slope(TIMES, 30 + per_hour * TIMES / 3600 + noise)
    assert found is not None
    assert found.half_width < 1.5
    assert abs(found.per_hour - per_hour) <= found.half_width
    assert found.is_flat == (per_hour == 0.0)


def test_samples_that_resemble_their_neighbours_widen_the_interval() -> None:
    steps = np.random.default_rng(2).normal(0, 1, len(TIMES))
    smooth = np.convolve(steps, np.ones(240) / 240, "same")
    lone, alike = slope(TIMES, steps * smooth.std() / steps.std()), slope(TIMES, smooth)
    assert lone is not None
    assert alike is not None
    assert alike.half_width > lone.half_width


def test_a_figure_that_never_changes_has_no_slope_and_no_interval() -> None:
    found = slope(TIMES, np.full(len(TIMES), 5.0))
    assert found is not None
    assert (found.per_hour, found.half_width, found.is_flat) == (0.0, 0.0, True)


def test_a_few_minutes_give_no_slope() -> None:
    assert slope(TIMES[:40], TIMES[:40]) is None
