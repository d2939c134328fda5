"""The classifier of benchmarks.enumeration finds what there is to be found, and nothing else."""

import random

import pytest

from benchmarks.enumeration import Try, accuracy, learn


def tries(users_s: float, chance: random.Random, count: int = 10_000) -> list[Try]:
    """Return steps of about 60 µs, in which users take `users_s` longer."""
    found = []
    for _ in range(count):
        exists = chance.random() < 0.5
        first = chance.gauss(60e-6, 4e-6) + (users_s if exists else 0.0)
        found.append(Try(exists, first, chance.gauss(60e-6, 4e-6)))
    return found


@pytest.mark.parametrize("users_s", [1e-6, -1e-6, 8e-6])
def test_a_difference_is_found_whichever_way_it_goes(users_s: float) -> None:
    what, right = accuracy(tries(users_s, random.Random(1)))
    assert what == "first step"
    assert right > (0.8 if abs(users_s) > 2e-6 else 0.53)


def test_where_there_is_none_it_guesses() -> None:
    _, right = accuracy(tries(0.0, random.Random(2)))
    assert abs(right - 0.5) < 0.02


def test_the_best_cut_is_learnt() -> None:
    rows = [Try(exists, value, 0.0) for value, exists in ((1.0, False), (2.0, False), (3.0, True), (4.0, True))]
    assert learn(rows, lambda one: one.first) == (2.0, True, 4)
    rows = [Try(not exists, value, 0.0) for exists, value, _ in rows]
    assert learn(rows, lambda one: one.first) == (2.0, False, 4)
