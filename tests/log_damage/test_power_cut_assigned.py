"""Power cuts at a broker whose partitions are given to it by controllers: strays, new topics of an old name, epochs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.broker.log import checkpoints, files
from kafkalite.broker.log.assigned import AssignedTopic, AssignedTopics
from kafkalite.broker.log.assignment import Assignment
from kafkalite.broker.log.manager import LogManager
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.topic_setting_lookup import TopicConfig
from tests.kit.harness.log_harness import abandon, make_batch, use_topics
from tests.kit.harness.replica_harness import leaders

if TYPE_CHECKING:
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.log.partition_log import PartitionLog
    from tests.kit.oracles.unsynced import NameRecorder

pytestmark = pytest.mark.own_process

FIRST, SECOND = bytes(range(16)), bytes(range(1, 17))
OWN = 7


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory that was started once and stopped."""
    path = tmp_path / "data"
    started(path).close()
    return path


def started(path: Path) -> LogManager:
    config = BrokerConfig.load(
        overrides={
            "log.dirs": str(path),
            "node.id": OWN,
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0",
        }
    )
    logs = LogManager(
        config, SystemClock(), on_fatal=_fail, cluster_id="aaaaaaaaaaaaaaaaaaaaaQ", topics_of=AssignedTopics
    )
    logs.open()
    return logs


def _fail(error: BaseException) -> None:
    raise AssertionError("a thread of the manager died") from error


def orders(logs: LogManager, topic_id: bytes, epoch: int = 0) -> AssignedTopic:
    """One partition that is led here."""
    led = Assignment(held=True, leads=True, leader_id=OWN, leader_epoch=epoch, replicas=(OWN,), isr=(OWN,))
    return AssignedTopic("orders", topic_id, TopicConfig.resolve(logs.config, {}, "orders"), [led])


def given(logs: LogManager, topic_id: bytes, epoch: int = 0) -> PartitionLog:
    use_topics(logs, [orders(logs, topic_id, epoch)])
    (log,) = logs.logs()
    return log


def directories(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


def written(log: PartitionLog) -> None:
    """One record more that was acknowledged."""
    log.append(make_batch())
    log.flush()


def test_acknowledged_after_a_kill(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    """The process that created the names died before it synced them: the next acknowledgement requires a sync."""
    logs = started(root)
    log = given(logs, FIRST)
    log.append(make_batch())
    abandon(logs)
    logs = started(root)
    log = given(logs, FIRST, 1)
    written(log)
    image = recorder.image(tmp_path / "image")
    abandon(logs)
    again = started(image)
    assert given(again, FIRST, 2).log_end_offset == 2
    again.close()


def test_directory_that_was_made_just_before_a_kill_is_on_the_disk_before_what_is_in_it_counts(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    """A start has nothing in it to walk, or to sync for that."""
    logs = started(root)
    log = given(logs, FIRST)
    log.append(make_batch())
    segment = Path(log.active.path)
    abandon(logs)
    segment.unlink()  # as where it was about to be made
    logs = started(root)
    written(given(logs, FIRST, 1))
    image = recorder.image(tmp_path / "image")
    abandon(logs)
    again = started(image)
    assert given(again, FIRST, 2).log_end_offset == 1
    again.close()


def test_stray_does_not_come_back_in_place_of_a_new_topic(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    logs = started(root)
    written(given(logs, FIRST))
    logs.close()
    logs = started(root)
    log = given(logs, SECOND)
    assert log.log_end_offset == 0
    log.append(make_batch())
    image = recorder.image(tmp_path / "image")
    abandon(logs)
    again = started(image)
    use_topics(again, [orders(again, SECOND)])
    kept = [name for name in directories(image) if name.endswith("-stray")]
    assert len(kept) == 1
    assert checkpoints.read_partition_topic_id(str(image / kept[0])) == FIRST
    again.close()


def test_topic_made_again_has_nothing_of_the_deleted_one(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    logs = started(root)
    written(given(logs, FIRST))
    use_topics(logs, [orders(logs, SECOND)], [FIRST])
    image = recorder.image(tmp_path / "image")
    logs.close()
    again = started(image)
    log = given(again, SECOND, 1)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    again.close()


def test_every_batch_has_an_epoch_that_is_known(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    logs = started(root)
    log = given(logs, FIRST, 3)
    written(log)
    use_topics(logs, [orders(logs, FIRST, 5)])
    use_topics(logs, [orders(logs, FIRST, 8)])
    assert log.epoch_end(4) == (3, 1)
    assert log.epoch_end(8) == (8, 1)
    written(log)
    image = recorder.image(tmp_path / "image")
    abandon(logs)
    again = started(image)
    log = given(again, FIRST, 9)
    assert [log.epoch_end(epoch) for epoch in (2, 3, 4, 8, 9, 10)] == [
        (2, 0),
        (3, 1),
        (3, 1),
        (8, 2),
        (9, 2),
        (-1, -1),
    ]
    again.close()


def followed(logs: LogManager, topic_id: bytes, epoch: int = 0) -> AssignedTopic:
    """One partition that another broker leads."""
    both = (OWN + 1, OWN)
    led = Assignment(held=True, leads=False, leader_id=OWN + 1, leader_epoch=epoch, replicas=both, isr=both)
    led = led._replace(others_whole=True)
    return AssignedTopic("orders", topic_id, TopicConfig.resolve(logs.config, {}, "orders"), [led])


def replica(logs: LogManager, topic_id: bytes, epoch: int = 0) -> ReplicaLog:
    use_topics(logs, [followed(logs, topic_id, epoch)])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    return log


def test_high_watermark_outlives_a_start_that_ends_early(root: Path) -> None:
    logs = started(root)
    log = replica(logs, FIRST)
    log.append_as_follower(leaders(0, 5), 0, 3)
    logs.close()
    logs = started(root)
    logs.checkpoints.write_high_watermarks()  # no metadata has listed this broker's partitions yet
    logs.close()
    logs = started(root)
    assert replica(logs, FIRST).high_watermark == 3
    logs.close()


def test_what_is_written_down_holds_until_the_logs_are_published(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut in the middle of a start brings back what was deleted."""
    logs = started(root)
    log = replica(logs, FIRST)
    log.append_as_follower(leaders(0, 5), 0, 5)
    log.append_as_follower(leaders(5, 5), 0, 10)
    log.advance_log_start(5)
    log.flush()
    logs.checkpoints.write_recovery_points()
    logs.checkpoints.write_high_watermarks()
    abandon(logs)
    names = (files.RECOVERY_POINTS_NAME, files.LOG_STARTS_NAME, files.HIGH_WATERMARKS_NAME)
    before = [checkpoints.read_offsets(str(root / name)) for name in names]
    assert before == [{("orders", 0): 10}, {("orders", 0): 5}, {("orders", 0): 10}]
    seen: list[object] = []
    publish = LogManager.publish

    def housekeeping_comes_first(self: LogManager, *topics: Topic) -> None:
        self.checkpoints.write_recovery_points()
        self.checkpoints.write_log_starts()
        self.checkpoints.write_high_watermarks()
        seen.append([checkpoints.read_offsets(str(root / name)) for name in names])
        publish(self, *topics)

    monkeypatch.setattr(LogManager, "publish", housekeeping_comes_first)
    logs = started(root)
    assert replica(logs, FIRST).log_start_offset == 5
    assert seen
    assert all(each == before for each in seen)
    logs.close()


def test_high_watermark_of_a_deleted_topic_is_not_its_successors(root: Path) -> None:
    logs = started(root)
    replica(logs, FIRST).append_as_follower(leaders(0, 5), 0, 5)
    logs.checkpoints.write_high_watermarks()
    use_topics(logs, [followed(logs, SECOND)], [FIRST])
    (log,) = logs.logs()
    assert isinstance(log, ReplicaLog)
    log.append_as_follower(leaders(0, 9), 0, 1)
    log.flush()
    abandon(logs)
    logs = started(root)
    log = replica(logs, SECOND)
    assert (log.high_watermark, log.log_end_offset) == (0, 9)
    logs.close()


def test_front_of_a_replica_has_its_name_before_the_next_segment(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    logs = started(root)
    log = replica(logs, FIRST)
    log.append_as_follower(leaders(0, 5), 0, 5)
    log.roll()
    log.append_as_follower(leaders(5, 2), 0, 7)
    image = recorder.image(tmp_path / "image")
    for path in (Path(log.active.path), Path(log.directory) / "partition.metadata"):
        target = image / path.relative_to(root)  # POSIX: any name may be there
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    abandon(logs)
    again = started(image)
    assert replica(again, FIRST).log_start_offset == 0
    again.close()


def test_start_of_a_replica_is_known_before_its_epochs_are_forgotten(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    logs = started(root)
    log = replica(logs, FIRST, 4)
    log.append_as_follower(leaders(0, 5, epoch=3) + leaders(5, 5, epoch=4), 4, 10)
    log.flush()
    log.advance_log_start(7)
    image = recorder.image(tmp_path / "image")
    abandon(logs)
    again = started(image)
    log = replica(again, FIRST, 4)
    assert (log.log_start_offset, log.epochs.epoch_at(7)) == (7, 4)
    again.close()
