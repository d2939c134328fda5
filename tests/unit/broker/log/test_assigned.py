"""The data directory of a broker in a cluster goes by what the controllers say."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalite._native.base import file_ops
from kafkalite.base.clock import SystemClock
from kafkalite.broker.log import checkpoints, files
from kafkalite.broker.log.assigned import AssignedTopic, AssignedTopics
from kafkalite.broker.log.assignment import LOST, Assignment
from kafkalite.broker.log.manager import LogManager
from kafkalite.broker.log.removals import Removals
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.topic_setting_lookup import TopicConfig
from tests.kit.harness.log_harness import abandon, make_batch, use_topics

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.own_process

OWN = 7


def assigned(logs: LogManager, name: str, leader: int, epoch: int) -> AssignedTopic:
    """One partition that is held here and on broker 8."""
    place = Assignment(
        held=True,
        leads=leader == OWN,
        leader_id=leader,
        leader_epoch=epoch,
        replicas=(OWN, 8),
        isr=(OWN, 8),
        others_whole=True,
    )
    return AssignedTopic(name, name.encode().ljust(16), TopicConfig.resolve(logs.config, {}, name), [place])


def fail(error: BaseException) -> None:
    raise AssertionError("a thread of the manager died") from error


def opened(directory: Path) -> LogManager:
    overrides = {
        "log.dirs": str(directory),
        "node.id": OWN,
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    logs = LogManager(
        BrokerConfig.load(overrides=overrides),
        SystemClock(),
        on_fatal=fail,
        cluster_id="a" * 21 + "Q",
        topics_of=AssignedTopics,
    )
    logs.open()
    return logs


def test_a_replica_that_was_given_up_before_a_start_is_not_fit_until_it_has_what_its_leader_has(tmp_path: Path) -> None:
    """The stop may have come in the middle of copying it again, and was clean."""
    topic = assigned(logs := opened(tmp_path / "data"), "old", 8, 1)
    use_topics(logs, [topic])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    assert log.fit
    logs.close()
    logs = opened(tmp_path / "data")
    use_topics(logs, [replace(topic, partitions=[topic.partitions[0]._replace(directory=LOST)])])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    assert not log.fit
    log.caught_up(1)
    assert not log.fit
    log.caught_up(0)
    assert log.fit
    logs.close()


def test_a_partition_that_cannot_begin_keeps_no_other_from_what_metadata_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of an image is carried out once: what an exception left out would not be heard of again."""
    logs = opened(tmp_path / "data")
    use_topics(logs, [assigned(logs, "old", OWN, 1)])
    (old,) = logs.logs()
    assert old.led
    clear = Removals.clear_directories

    def full(self: Removals, name: str, partitions: Iterable[int]) -> None:
        if name == "new":
            raise OSError(errno.ENOSPC, "no space")
        clear(self, name, partitions)

    monkeypatch.setattr(Removals, "clear_directories", full)
    use_topics(logs, [assigned(logs, "new", OWN, 0), assigned(logs, "old", 8, 2)])
    assert (old.led, old.leader_epoch) == (False, 2)
    (new,) = logs.topics["new"].partitions
    assert new.offline
    logs.close()


@pytest.mark.parametrize("together", [True, False])
def test_what_a_start_has_walked_is_synced_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    """Thousands of replicas would take thousands of syncs one by one; one that cannot be synced is not gone on with."""
    names = [f"topic{number}" for number in range(5)]
    logs = opened(tmp_path / "data")
    use_topics(logs, [assigned(logs, name, OWN, 1) for name in names])
    for log in logs.logs():
        log.append(make_batch(1))
    abandon(logs)
    synced: list[str] = []
    sync_file_system = file_ops.sync_file_system

    def sync_all(path: str) -> None:
        if not together:
            raise OSError(errno.EIO, "I/O error")
        synced.append(path)
        sync_file_system(path)

    def sync_path(path: str) -> None:
        if "topic3" in path and not together:
            raise OSError(errno.EIO, "I/O error")
        synced.append(path)

    logs = opened(tmp_path / "data")
    monkeypatch.setattr(file_ops, "sync_file_system", sync_all)
    monkeypatch.setattr(files, "sync_path", sync_path)
    use_topics(logs, [assigned(logs, name, OWN, 2) for name in names])
    monkeypatch.undo()
    alone = {path for path in synced if path.endswith(".log")}
    if together:
        assert (logs.directory in synced, alone) == (True, set())
        assert sorted(log.topic for log in logs.logs()) == names
    else:
        assert alone == {log.active.path for log in logs.logs() if log.topic != "topic3"}
        assert [log.topic for log in logs.offline_logs] == ["topic3"]
    logs.close()


@pytest.mark.parametrize("writable", [True, False])
def test_a_replica_that_lost_what_was_behind_its_start_hides_nothing_that_comes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, writable: bool
) -> None:
    """Its start was written down, and the records up to it were not flushed when the power went."""
    logs = opened(tmp_path / "data")
    use_topics(logs, [assigned(logs, name, OWN, 1) for name in ("other", "short")])
    for log in logs.logs():
        log.append(make_batch(10))
    abandon(logs)
    path = f"{logs.directory}/{files.LOG_STARTS_NAME}"
    checkpoints.write_offsets(path, {("other", 0): 4, ("short", 0): 15})

    def full(_path: str, _offsets: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    logs = opened(tmp_path / "data")
    if not writable:
        monkeypatch.setattr(checkpoints, "write_offsets", full)
    use_topics(logs, [assigned(logs, name, OWN, 2) for name in ("other", "short")])
    monkeypatch.undo()
    assert [log.topic for log in logs.offline_logs] == ([] if writable else ["short"])
    if writable:
        assert checkpoints.read_offsets(path) == {("other", 0): 4, ("short", 0): 10}
        for log in logs.logs():
            log.append(make_batch(10))
        abandon(logs)
        logs = opened(tmp_path / "data")
        use_topics(logs, [assigned(logs, name, OWN, 3) for name in ("other", "short")])
        ends = {log.topic: (log.log_start_offset, log.log_end_offset) for log in logs.logs()}
        assert ends == {"other": (4, 20), "short": (10, 20)}
    logs.close()
