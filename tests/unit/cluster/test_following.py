"""Three brokers with a partition: whatever happens to them, in the end all have the same, and nothing that was on all
of those in sync is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.fakes.replication import World


def run(directory: Path, seed: int, *, unclean: bool, steps: int) -> None:
    world = World(directory, seed, unclean=unclean)
    for _ in range(3):
        for _ in range(steps):
            world.step()
        world.settle()
        world.check()
        world.faults, world.delays = 0.05, 0.3
    world.close()


@pytest.mark.parametrize("seed", range(25))
def test_replicas_agree_and_lose_nothing_that_was_committed(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, unclean=False, steps=80)


@pytest.mark.parametrize("seed", range(25))
def test_replicas_agree_after_elections_of_whoever_was_there(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, unclean=True, steps=80)


@pytest.mark.slow
@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_replicas_agree_at_length(tmp_path: Path, block: int, unclean: bool) -> None:
    for seed in range(1000 + block * 20, 1020 + block * 20):
        (tmp_path / str(seed)).mkdir()
        run(tmp_path / str(seed), seed, unclean=unclean, steps=150)
