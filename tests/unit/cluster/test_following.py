"""Three brokers with a partition: whatever happens to them, in the end all have the same, and nothing that was on all
of those in sync is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.errors import StorageError
from kafkalite.log.assignment import NOWHERE
from kafkalite.log.replica_log import ReplicaChange, ReplicaLog
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


def calm(directory: Path) -> World:
    """Nothing goes wrong, and broker 1 leads; broker 2 has what it has."""
    world = World(directory, 1)
    world.faults = world.delays = 0.0
    for _ in range(3):
        world.write(world.nodes[1])
    for _ in range(50):
        world.turn(world.nodes[2])
    assert world.nodes[2].log.log_end_offset == world.nodes[1].log.log_end_offset > 0
    return world


def test_what_comes_too_late_is_not_asked_for_again_before_metadata_says_what_to_do(tmp_path: Path) -> None:
    world = calm(tmp_path)
    follower = world.nodes[2]
    (name,) = follower.executors.workers
    world.write(world.nodes[1])
    follower.log.resign(follower.log.assignment._replace(leader_epoch=1, leader_id=3))
    assert follower.executors.turn(name) is None, "it asks on and on for what it cannot use"
    follower.fetchers.use([ReplicaChange(follower.log, NOWHERE, follower.log.assignment)])
    assert len(follower.executors.workers) == 2
    world.close()


def test_a_replica_that_cannot_be_written_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = calm(tmp_path)
    follower = world.nodes[2]
    append = ReplicaLog.append_as_follower

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(ReplicaLog, "append_as_follower", full)
    for _ in range(2):
        world.write(world.nodes[1])
        for _ in range(5):
            world.clock.advance(2)
            world.turn(follower)
        assert [record.getMessage() for record in caplog.records] == ["a replica cannot be written now"]
    monkeypatch.setattr(ReplicaLog, "append_as_follower", append)
    world.settle()
    assert follower.log.log_end_offset == world.nodes[1].log.log_end_offset
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
