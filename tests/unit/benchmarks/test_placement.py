"""The simulation of placement: each policy places as it says, and what is counted as lost is."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cluster import placement

BROKERS, PARTITIONS = 100, 2000


@pytest.mark.parametrize("policy", sorted(placement.POLICIES))
def test_three_brokers_each_spread_evenly(policy: str) -> None:
    placed = placement.POLICIES[policy](np.random.default_rng(1), BROKERS, PARTITIONS)
    assert placed.shape == (PARTITIONS, 3)
    assert all(len({*row}) == 3 for row in placed.tolist())
    counts = np.bincount(placed.ravel(), minlength=BROKERS)
    used = counts[counts > 0]
    assert len(used) >= BROKERS - BROKERS % 3
    assert used.max() < 2.5 * used.mean()


def test_replicas_are_in_racks_of_their_own() -> None:
    placed = placement.racks(np.random.default_rng(1), BROKERS, PARTITIONS)
    assert all(len({broker % placement.RACKS for broker in row}) == 3 for row in placed.tolist())


def test_what_is_lost_is_counted() -> None:
    placed = np.array([[0, 1, 2], [1, 2, 3], [3, 4, 5], [0, 2, 4]], dtype=np.int32)
    held = placement.by_broker(placed, 6)
    assert [each.tolist() for each in held] == [[0, 3], [0, 1], [0, 1, 3], [1, 2], [2, 3], [2]]
    assert placement.losses(held, (0, 1, 2)) == (1, 2)
    assert placement.losses(held, (5,)) == (0, 0)


def test_draws_agree_with_the_formula() -> None:
    """Within five standard errors of a thousand draws."""
    draw = np.random.default_rng(3)
    held = placement.by_broker(placement.random(draw, BROKERS, PARTITIONS), BROKERS)
    trials = 1000
    lost = [placement.losses(held, draw.choice(BROKERS, 4, replace=False))[0] > 0 for _ in range(trials)]
    expected = placement.formula(BROKERS, PARTITIONS, 4)
    assert abs(np.mean(lost) - expected) < 5 * np.sqrt(expected * (1 - expected) / trials)
