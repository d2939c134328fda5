"""A partition on three brokers: after any fault the replicas converge, and no record that all in-sync replicas had is
lost.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.broker.cluster.connection import ConnectionFailed
from kafkalite.broker.cluster.follower import Follower
from kafkalite.broker.log.assignment import LOST, NOWHERE
from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.kit.fakes.replication import Node, Way, World, batches_of
from tests.kit.harness.replica_harness import leaders
from tests.kit.harness.samples import sample


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


def test_a_replica_that_cannot_be_written_is_logged_once(
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
        assert [record.getMessage() for record in caplog.records] == ["could not write to a replica"]
    monkeypatch.setattr(ReplicaLog, "append_as_follower", append)
    world.settle()
    assert follower.log.log_end_offset == world.nodes[1].log.log_end_offset
    world.close()


def test_a_damaged_replica_is_cut_once_nobody_counts_on_it_and_copied_again(tmp_path: Path) -> None:
    world = calm(tmp_path)
    follower = world.nodes[2]
    log = follower.log
    world.unclean = True  # an unclean election: the damaged copy cannot be compared
    before = batches_of(log)
    first, second, third = sorted(before)[:3]
    begin = len(before[first])
    log.segments[0].add_damage(begin, begin + len(before[second]), second, third)
    log.note_damage()
    end = log.log_end_offset
    follower.fetchers.use([ReplicaChange(log, log.assignment, log.assignment)])
    world.turn(follower)
    assert (log.fit, log.damage_start, log.log_end_offset) == (False, second, end), "others count on it still"
    world.decide(isr=(1, 3))
    world.decide(directory=LOST)
    while follower.news:
        world.hear(follower, follower.news.pop(0))
    world.turn(follower)
    assert log.damage_start is None
    world.settle()
    assert (log.fit, log.damage_start, log.log_end_offset) == (True, None, world.nodes[1].log.log_end_offset)
    assert batches_of(log) == before
    world.close()


def damaged_at_its_end(world: World, follower: Node) -> None:
    """The follower's log ends in a damaged batch past the leader's log end offset; no in-sync replica needs it."""
    log = follower.log
    end, size = log.log_end_offset, log.active.size
    log.append_as_follower(leaders(end, 1), 0)
    log.segments[0].add_damage(size, log.active.size, end, log.log_end_offset)
    world.decide(isr=(1, 3), directory=LOST)
    while follower.news:
        world.hear(follower, follower.news.pop(0))
    log.note_damage()
    follower.fetchers.recheck(log)


def test_a_replica_is_fit_again_though_its_leader_has_nothing_new_to_say(tmp_path: Path) -> None:
    world = calm(tmp_path)
    leader, follower = world.nodes[1], world.nodes[2]
    for _ in range(3):
        world.turn(follower)
    end = leader.log.log_end_offset
    damaged_at_its_end(world, follower)
    for _ in range(10):
        world.turn(follower)
    assert (follower.log.log_end_offset, leader.log.log_end_offset) == (end, end)
    assert follower.log.fit
    world.close()


def test_a_replica_is_not_fit_again_before_it_has_what_a_new_leader_found(tmp_path: Path) -> None:
    """The new leader does not know yet how much of its log was acknowledged."""
    world = calm(tmp_path)
    leader, follower, next_leader = world.nodes[1], world.nodes[2], world.nodes[3]
    for _ in range(50):
        world.turn(next_leader)
    world.write(leader)
    for _ in range(5):
        world.turn(next_leader)
    known, end = next_leader.log.high_watermark, next_leader.log.log_end_offset
    assert leader.log.log_end_offset == end > known
    follower.log.truncate_to(known)
    follower.log.behind = True
    world.decide(leader_id=3, leader_epoch=1, isr=(3, 1), directory=LOST)
    for node in (next_leader, follower):
        world.hear(node, node.news.pop(0))
    fits = []
    for _ in range(20):
        world.turn(follower)
        fits.append((follower.log.log_end_offset, follower.log.fit))
    assert next_leader.log.high_watermark == known, "nobody else in sync has fetched"
    assert (end, True) in fits
    assert [each for each in fits if each[1] and each[0] < end] == []
    world.close()


def test_a_leader_that_does_not_tell_its_end_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = calm(tmp_path)
    follower = world.nodes[2]
    for _ in range(3):
        world.turn(follower)
    asked: list[int] = []

    def refuses(_world: World, number: int, _request: object) -> ListOffsetsResponse:
        asked.append(number)
        part = ListOffsetsPartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[part])])

    with monkeypatch.context() as patched:
        patched.setattr(World, "list_offsets", refuses)
        damaged_at_its_end(world, follower)
        for _ in range(10):
            world.turn(follower)
    assert len(asked) > 1
    assert not follower.log.fit
    for _ in range(10):
        world.turn(follower)
    assert follower.log.fit
    world.close()


def test_a_leader_that_is_gone_is_not_waited_for_once_for_each_replica_that_lost_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would take the whole time of a connection, a stop meanwhile too."""
    world = calm(tmp_path)
    follower = world.nodes[2]
    for _ in range(3):
        world.turn(follower)
    (fetcher,) = follower.fetchers._fetchers.values()
    tried: list[object] = []

    def refuses(_way: Way, address: object, *_: object) -> NoReturn:
        tried.append(address)
        raise ConnectionFailed("nobody is there")

    monkeypatch.setattr(Way, "connect", refuses)
    monkeypatch.setattr(Follower, "is_told", lambda *_: True)
    follower.log.behind = True
    keys = [(follower.log.topic_id, number) for number in range(5)]
    fetcher._logs.update(dict.fromkeys(keys, follower.log))
    fetcher._lacking.update(dict.fromkeys(keys, 0.0))
    assert fetcher._connection is not None
    fetcher._connection.close()
    fetcher._look_at_lacking()
    assert len(tried) == 1
    world.close()


def test_a_look_at_a_damaged_replica_does_not_change_whom_it_follows(tmp_path: Path) -> None:
    world = calm(tmp_path)
    follower = world.nodes[2]
    log, fetchers = follower.log, follower.fetchers
    (name,) = follower.executors.workers
    log.resign(log.assignment._replace(leader_epoch=1, leader_id=3))
    fetchers.recheck(log)
    assert [place[0] for place in fetchers._followed.values()] == [1], "metadata has not said so to the fetchers"
    assert follower.executors.workers.keys() == {name}
    fetchers.use([ReplicaChange(log, log.assignment, NOWHERE)])
    fetchers.recheck(log)
    assert fetchers._followed == {}, "it is gone"
    world.close()


def test_a_log_of_unknown_epochs_is_cut_before_anything_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = calm(tmp_path)
    leader, follower = world.nodes[1], world.nodes[2]
    world.write(leader)
    world.turn(follower)
    end = follower.log.log_end_offset
    assert follower.log.high_watermark < end
    follower.log.epochs.clear()
    cut = ReplicaLog.truncate_to

    def full(*_: object, **_named: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(ReplicaLog, "truncate_to", full)
    world.decide(leader_epoch=1)
    for node in world.nodes.values():
        world.hear(node, node.news.pop(0))
    world.write(leader)
    for _ in range(5):
        world.clock.advance(2)
        world.turn(follower)
    assert follower.log.log_end_offset == end
    monkeypatch.setattr(ReplicaLog, "truncate_to", cut)
    world.settle()
    world.check()
    assert follower.log.epochs.entries == leader.log.epochs.entries
    world.close()


def test_no_fetch_waits_for_a_broker_that_leads_nothing(tmp_path: Path) -> None:
    world = calm(tmp_path)
    fetchers = world.nodes[2].fetchers
    assert [leader for leader, _ in fetchers._fetchers] == [1]
    world.decide(leader_id=3, leader_epoch=1)
    world.hear(world.nodes[2], world.told)
    assert [leader for leader, _ in fetchers._fetchers] == [3]
    assert world.nodes[2].executors.turn("kafkalite-fetcher-1-0") is None
    fetchers.stop()
    assert not fetchers._ending
    world.close()


def samples(world: World, number: int) -> dict[str, dict[str, float]]:
    """Return each metric family's values by labels."""
    return {family.name: dict(family.rows) for family in world.nodes[number].fetchers.families()}


def test_replica_lag_is_exported_under_kafkas_names(tmp_path: Path) -> None:
    world = calm(tmp_path)
    log = world.nodes[2].log
    lag = f'{{clientId="ReplicaFetcherThread-0-1",topic="{log.topic}",partition="0"}}'
    manager = '{clientId="Replica"}'
    assert samples(world, 2)["kafka_server_fetcherlagmetrics_consumerlag"] == {lag: 0}
    for _ in range(8):
        world.write(world.nodes[1])
    world.nodes[1].log.advance_high_watermark(world.nodes[1].log.log_end_offset)
    world.nodes[2].executors.turn("kafkalite-fetcher-1-0")
    behind = world.nodes[1].log.high_watermark - log.log_end_offset
    assert behind > 0
    told = samples(world, 2)
    assert told["kafka_server_fetcherlagmetrics_consumerlag"] == {lag: behind}
    assert told["kafka_server_replicafetchermanager_maxlag"] == {manager: behind}
    assert told["kafka_server_replicafetchermanager_failedpartitionscount"] == {manager: 0}
    log.resign(log.assignment._replace(leader_epoch=1, leader_id=3))
    world.nodes[2].executors.turn("kafkalite-fetcher-1-0")
    assert samples(world, 2)["kafka_server_replicafetchermanager_failedpartitionscount"] == {manager: 1}
    world.nodes[2].fetchers.use([ReplicaChange(log, NOWHERE, log.assignment)])
    told = samples(world, 2)
    assert told["kafka_server_fetcherlagmetrics_consumerlag"] == {}
    assert told["kafka_server_replicafetchermanager_maxlag"] == {manager: 0}
    world.close()


def test_a_limited_replica_that_is_behind_waits_while_the_limit_is_used_up(tmp_path: Path) -> None:
    world = calm(tmp_path)
    world.decide(isr=(1,))
    leader, follower = world.nodes[1], world.nodes[2]
    for node in world.nodes.values():
        while node.news:
            world.hear(node, node.news.pop(0))
    limit = follower.fetchers.limits.following
    limit.bound_by(1.0, 1.0)
    config = follower.log.config
    follower.log.configure(replace(config, follower_replication_throttled_replicas=("1:2", "0:1")))
    before = follower.log.log_end_offset
    for _ in range(40):
        world.write(leader)
    for _ in range(3):
        world.turn(follower)
    others = follower.log.log_end_offset
    assert others > before, "the limit is about another partition, and another broker"
    follower.log.configure(replace(config, follower_replication_throttled_replicas=("0:2",)))
    for _ in range(3):
        world.turn(follower)
    held = follower.log.log_end_offset
    assert others < held < leader.log.log_end_offset
    for _ in range(5):
        world.turn(follower)
    assert follower.log.log_end_offset == held
    limit.bound_by(inf, inf)
    world.settle()
    assert follower.log.log_end_offset == leader.log.log_end_offset
    world.close()


@pytest.mark.parametrize("seed", sample(range(25), 8))
def test_replicas_agree_and_lose_nothing_that_was_committed(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, unclean=False, steps=80)


@pytest.mark.parametrize("seed", sample(range(25), 8))
def test_replicas_converge_after_random_elections(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, unclean=True, steps=80)


@pytest.mark.slow
@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_replicas_agree_at_length(tmp_path: Path, block: int, unclean: bool) -> None:
    for seed in range(1000 + block * 20, 1020 + block * 20):
        (tmp_path / str(seed)).mkdir()
        run(tmp_path / str(seed), seed, unclean=unclean, steps=150)
