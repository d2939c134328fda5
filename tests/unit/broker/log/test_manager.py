"""A data directory's life: topics made, changed, deleted; clean and unclean starts; one owner; adopted partitions."""

import errno
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite._native.log.leading import wait_replicated
from kafkalite._native.log.log_append import append_batch
from kafkalite.broker.log import checkpoints
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    StartupError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from kafkalite.model import uuid_text
from tests.kit.harness import seams
from tests.kit.harness.log_harness import PlainLog, abandon, make_batch, make_manager, read_all

pytestmark = pytest.mark.own_process

WAIT_S = 120


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    manager = make_manager(tmp_path)
    manager.open()
    yield manager
    manager.close()


def reopened(manager: LogManager, *, kill: bool = False, **settings: object) -> LogManager:
    abandon(manager) if kill else manager.close()
    again = make_manager(Path(manager.directory), **settings)
    again.open()
    return again


def test_topic_is_there_at_once_and_after_each_kind_of_stop(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    topic = manager.create_topic("a", 3, {"retention.ms": "5"})
    model = PlainLog()
    for kill in (False, True, True, False):
        found = manager.topics["a"]
        assert (found.id, len(found.partitions), found.overrides) == (topic.id, 3, {"retention.ms": "5"})
        assert manager.table.get(b"a") is found
        assert manager.topics_by_id[topic.id] is found
        log = found.partitions[2]
        batch = make_batch(2)
        model.append(log.append(batch).base_offset, batch)
        assert read_all(log) == model.batches
        manager = reopened(manager, kill=kill)
    assert manager.clean_start
    manager.close()


def test_unclean_starts_raise_the_leader_epoch_clean_ones_do_not(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    old = manager.create_topic("old", 1, {}).partitions[0]
    assert old.leader_epoch == 0
    old.append(make_batch())
    manager = reopened(manager, kill=True)
    old = manager.topics["old"].partitions[0]
    assert old.leader_epoch == 1
    young = manager.create_topic("young", 1, {}).partitions[0]
    assert young.leader_epoch == 0, "a new topic starts at 0 whatever happened before it"
    assert old.epoch_end(0) == (0, 1)
    old.append(make_batch(2))
    manager = reopened(manager)
    old = manager.topics["old"].partitions[0]
    assert (old.leader_epoch, manager.topics["young"].partitions[0].leader_epoch) == (1, 0)
    manager = reopened(manager, kill=True)
    old = manager.topics["old"].partitions[0]
    old.append(make_batch())
    assert [old.epoch_end(epoch) for epoch in (-1, 0, 1, 2, 3)] == [(-1, -1), (0, 1), (1, 3), (2, 4), (-1, -1)]
    assert checkpoints.read_epochs(f"{old.directory}/leader-epoch-checkpoint") == [(0, 0), (1, 1), (2, 3)]
    manager.close()


@pytest.mark.parametrize(
    ("name", "count", "overrides", "error"),
    [
        ("", 1, {}, InvalidTopic),
        ("a/b", 1, {}, InvalidTopic),
        ("..", 1, {}, InvalidTopic),
        ("x" * 250, 1, {}, InvalidTopic),
        ("there", 1, {}, TopicAlreadyExists),
        ("th.ere_2", 1, {}, None),
        ("there.", 0, {}, InvalidPartitions),
        ("t", -1, {}, InvalidPartitions),
        ("t", 101, {}, PolicyViolation),
        ("t", 1, {"no.such.key": "1"}, InvalidConfig),
        ("t", 1, {"retention.ms": "soon"}, InvalidConfig),
    ],
)
def test_what_cannot_be_created(
    tmp_path: Path, name: str, count: int, overrides: dict[str, str], error: type[KafkaError] | None
) -> None:
    manager = make_manager(tmp_path, max_partitions=100)
    manager.open()
    manager.create_topic("there", 1, {})
    if error is None:
        manager.create_topic(name, count, overrides)
        with pytest.raises(InvalidTopic, match="only"):
            manager.create_topic(name.replace(".", "_"), count, overrides)
    else:
        with pytest.raises(error):
            manager.create_topic(name, count, overrides)
        assert list(manager.topics) == ["there"]
    manager.close()


def test_deleted_topic_is_gone_and_its_successor_empty(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    first = manager.create_topic("t", 2, {})
    first.partitions[0].append(make_batch(5))
    manager.delete_topic("t")
    assert append_batch(first.partitions[0].core, make_batch())[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(UnknownTopicOrPartition):
        manager.delete_topic("t")
    second = manager.create_topic("t", 1, {})
    assert second.id != first.id
    log = second.partitions[0]
    assert log.log_end_offset == 0
    log.append(make_batch())
    manager = reopened(manager, kill=True)
    assert manager.topics["t"].id == second.id
    assert manager.topics["t"].partitions[0].log_end_offset == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-delete")], "removed at the start at the latest"
    manager.close()


def test_crash_between_the_deletion_and_its_cleaning_up(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
    shutil.copytree(tmp_path / "t-0", tmp_path / "kept")
    manager.delete_topic("t")
    abandon(manager)
    shutil.move(tmp_path / "kept", tmp_path / "t-0")
    manager = make_manager(tmp_path)
    manager.open()
    assert not manager.topics
    assert not (tmp_path / "t-0").exists()
    manager.close()


def test_partitions_are_added_never_removed(manager: LogManager) -> None:
    log = manager.create_topic("t", 2, {}).partitions[0]
    log.append(make_batch())
    topic = manager.add_partitions("t", 4)
    assert len(topic.partitions) == 4
    assert topic.partitions[0] is log
    topic.partitions[3].append(make_batch())
    for total in (4, 3, 0):
        with pytest.raises(InvalidPartitions):
            manager.add_partitions("t", total)
    with pytest.raises(UnknownTopicOrPartition):
        manager.add_partitions("u", 4)


def test_settings_change_live_and_stay(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    manager.create_topic("t", 1, {"retention.ms": "7"})
    log = manager.alter_topic("t", {"max.message.bytes": "500"}).partitions[0]
    assert append_batch(log.core, make_batch(1, value_size=600))[1] == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(InvalidConfig):
        manager.alter_topic("t", {"max.message.bytes": "many"})
    manager.alter_broker({"log.retention.ms": "12345"})
    assert manager.topics["t"].config.retention_ms == 12345
    with pytest.raises(InvalidConfig):
        manager.alter_broker({"log.dirs": "elsewhere"})
    manager = reopened(manager, kill=True)
    topic = manager.topics["t"]
    assert (topic.overrides, topic.config.retention_ms) == ({"max.message.bytes": "500"}, 12345)
    assert manager.broker_overrides == {"log.retention.ms": "12345"}
    manager.close()


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    given: list[int] = []
    for kill in (False, True, True):
        given += [manager.metadata.allocate_producer_ids(10) for _ in range(3)]
        manager = reopened(manager, kill=kill)
    assert given == [10 * i for i in range(9)]
    manager.close()


def test_directory_has_one_owner(manager: LogManager) -> None:
    second = make_manager(Path(manager.directory))
    with pytest.raises(StartupError, match=rf"in use by another broker \(process {os.getpid()}\)"):
        second.open()


def test_everything_in_a_data_directory_is_its_owners_alone(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        manager = make_manager(tmp_path / "data")
        manager.open()
        manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
        manager.close()
    finally:
        os.umask(previous)
    paths = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert {"data", "t-0", ".lock", "metadata.journal", "00000000000000000000.log"} <= modes.keys()
    assert modes == {path.name: 0o700 if path.is_dir() else 0o600 for path in paths}


def test_a_world_readable_directory_is_logged_once_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_to_all = tmp_path / "data"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    manager = make_manager(open_to_all)
    manager.open()
    manager.create_topic("t", 1, {})
    manager.close()
    told = [record.getMessage() for record in caplog.records if "other users" in record.getMessage()]
    assert told == ["other users of this machine can access the data directory; run chmod 700 on it"]
    assert stat.S_IMODE(open_to_all.stat().st_mode) == 0o755


def test_failed_start_lets_the_next_one_in(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    manager.close()
    with pytest.raises(StartupError, match=r"node\.id"):
        make_manager(tmp_path, node_id=77).open()
    manager = make_manager(tmp_path)
    manager.open()
    assert not manager.clean_start or manager.topics == {}
    manager.close()


def test_stop_leaves_the_marker_and_a_start_takes_it(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    marker = tmp_path / ".kafka_cleanshutdown"
    assert not marker.exists()
    manager.close()
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    manager = make_manager(tmp_path)
    manager.open()
    assert not marker.exists()
    manager.create_topic("t", 1, {}).partitions[0].go_offline("a test says so")
    manager.close()
    assert not marker.exists(), "with a partition offline the next start must look at everything"


def test_clean_start_does_not_read_the_logs(tmp_path: Path) -> None:
    manager = make_manager(tmp_path, log_segment_bytes=2000)
    manager.open()
    log = manager.create_topic("t", 1, {}).partitions[0]
    for _ in range(50):
        log.append(make_batch(3, value_size=100))
    manager = reopened(manager, log_segment_bytes=2000)
    log = manager.topics["t"].partitions[0]
    assert log.log_end_offset == 150
    assert all(segment.index is None and not segment.is_open for segment in log.segments)
    assert log.producers is None
    assert log.segments[0].unverified == log.segments[0].size
    manager.close()


def test_copied_in_partitions_are_adopted_with_their_id(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    source = make_manager(tmp_path / "a")
    source.open()
    topic = source.create_topic("t", 3, {})
    for i in range(4):
        topic.partitions[1].append(make_batch(producer_id=4321, epoch=0, sequence=i))
    source = reopened(source, kill=True)
    source.topics["t"].partitions[1].append(make_batch())
    source.close()
    target = make_manager(tmp_path / "b")
    target.open()
    target.close()
    shutil.copytree(tmp_path / "a" / "t-1", tmp_path / "b" / "t-1")
    target = make_manager(tmp_path / "b")
    target.open()
    adopted = target.topics["t"]
    assert (adopted.id, len(adopted.partitions)) == (topic.id, 2)
    log = adopted.partitions[1]
    assert (log.log_end_offset, log.leader_epoch) == (5, 2), "on above the last epoch it has"
    assert log.append(make_batch(producer_id=4321, epoch=0, sequence=3)).base_offset == 3
    assert target.metadata.allocate_producer_ids(1) > 4321
    target.close()
    target = make_manager(tmp_path / "b")
    target.open()
    assert target.topics["t"].partitions[1].leader_epoch == 2
    target.close()


def test_another_topics_data_under_our_name_is_refused(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    topic = manager.create_topic("t", 1, {})
    topic.partitions[0].append(make_batch())
    manager.close()
    checkpoints.write_partition_topic_id(str(tmp_path / "t-0"), bytes(range(16)))
    with pytest.raises(StartupError, match=re.escape(uuid_text(topic.id))):
        make_manager(tmp_path).open()
    assert (tmp_path / "t-0" / f"{0:020d}.log").exists()


def test_copy_under_another_name_is_refused_with_the_same_topic_id(tmp_path: Path) -> None:
    # Clients fetch by id: two topics with one would read each other's records.
    manager = make_manager(tmp_path)
    manager.open()
    manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
    manager.close()
    shutil.copytree(tmp_path / "t-0", tmp_path / "copy-0")
    with pytest.raises(StartupError, match=r"topic copy have topic id \S+, which belongs to topic t;"):
        make_manager(tmp_path).open()
    (tmp_path / "copy-0" / "partition.metadata").unlink()
    manager = make_manager(tmp_path)
    manager.open()
    assert len({topic.id for topic in manager.topics.values()} - {bytes(16)}) == 2
    assert manager.topics["copy"].partitions[0].log_end_offset == 1
    manager.close()


def test_directory_with_topic_id_zero_gets_an_id(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
    manager.close()
    shutil.copytree(tmp_path / "t-0", tmp_path / "other-0")
    checkpoints.write_partition_topic_id(str(tmp_path / "other-0"), bytes(16))
    manager = make_manager(tmp_path)
    manager.open()
    given = manager.topics["other"].id
    assert given not in (bytes(16), manager.topics["t"].id)
    manager = reopened(manager)
    assert manager.topics["other"].id == given
    assert checkpoints.read_partition_topic_id(str(tmp_path / "other-0")) == given
    manager.close()


def test_a_missing_journal_next_to_data_is_refused(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    manager.create_topic("t", 1, {})
    manager.close()
    (tmp_path / "metadata.journal").unlink()
    with pytest.raises(StartupError, match=r"metadata\.journal is missing"):
        make_manager(tmp_path).open()


def test_housekeeper_removes_deleted_files_when_due(tmp_path: Path) -> None:
    from tests.kit.fakes.clock import FakeClock

    clock = FakeClock()
    manager = make_manager(tmp_path, clock=clock)
    manager.open()
    manager.housekeeper.stop()
    manager.create_topic("t", 1, {"file.delete.delay.ms": "60000"}).partitions[0].append(make_batch())
    manager.delete_topic("t")
    manager.housekeeper.run_due()
    deleted = [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    assert len(deleted) == 1
    clock.advance(60.1)
    manager.housekeeper.run_due()
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    manager.close()


def test_full_disk_at_the_start_is_said_in_one_sentence(tmp_path: Path) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    abandon(manager)
    seams.arm(("write",), after=0, error=errno.ENOSPC, sticky=True)
    try:
        with pytest.raises(StartupError, match="No space left"):
            make_manager(tmp_path).open()
    finally:
        file_ops.disarm()
    manager = make_manager(tmp_path)
    manager.open()
    manager.close()


@pytest.mark.parametrize("after", range(6))
def test_first_append_that_met_a_full_disk_leaves_a_whole_directory(tmp_path: Path, after: int) -> None:
    manager = make_manager(tmp_path)
    manager.open()
    topic = manager.create_topic("t", 1, {})
    log = topic.partitions[0]
    seams.arm(("mkdir", "open", "write"), after=after, error=errno.ENOSPC)
    code = append_batch(log.core, make_batch())[1]
    hit = file_ops.disarm()
    assert code == (ErrorCode.KAFKA_STORAGE_ERROR if hit else 0)
    assert not log.offline
    assert log.append(make_batch()).base_offset == int(not hit)
    assert checkpoints.read_partition_topic_id(str(tmp_path / "t-0")) == topic.id
    manager.close()


@pytest.mark.parametrize("locked", [False, True])
def test_a_wait_for_a_log_with_failed_storage_gets_the_error(manager: LogManager, locked: bool) -> None:
    log = manager.create_topic("t", 1, {}).partitions[0]
    told: list[int] = []
    done = threading.Event()

    def answer(code: int) -> None:
        told.append(code)
        done.set()

    wait_replicated(log.core, log.log_end_offset + 1, log.leader_epoch, answer)
    error = OSError(errno.EIO, "the disk is gone")
    with log.core.locked() if locked else nullcontext():
        log.storage_failed(error, "a test says so")
    assert done.wait(WAIT_S)
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]


def churn(manager: LogManager, count: int) -> None:
    for number in range(count):
        manager.create_topic(f"short-{number}", 1, {})
        manager.delete_topic(f"short-{number}")


def journal_lines(manager: LogManager) -> int:
    return (Path(manager.directory) / "metadata.journal").read_bytes().count(b"\n")


def test_journal_of_a_running_broker_stays_short_while_topics_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.RUNNING_SLACK_LINES", 20)
    manager = make_manager(tmp_path)
    manager.open()
    kept = manager.create_topic("kept", 3, {"retention.ms": "5"})
    longest, positions = 0, [manager.metadata.position()[0]]
    for _ in range(5):
        churn(manager, 20)
        longest = max(longest, journal_lines(manager))
        manager.compact_journal()
        positions.append(manager.metadata.position()[0])
        state = manager.metadata.state
        assert (state.deleted_ids, state.deleted_names) == (set(), set())
        assert journal_lines(manager) < 10
    assert longest < 60
    assert positions == sorted(set(positions)), "what clients are given as the metadata log's end never goes back"
    manager.create_topic("later", 1, {})
    manager = reopened(manager, kill=True)
    assert set(manager.topics) == {"kept", "later"}
    assert (manager.topics["kept"].id, manager.topics["kept"].overrides) == (kept.id, {"retention.ms": "5"})
    manager.close()


def test_journal_keeps_the_id_of_a_deleted_topic_whose_directory_has_its_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.RUNNING_SLACK_LINES", 0)
    manager = make_manager(tmp_path)
    manager.open()
    gone = manager.create_topic("gone", 1, {})
    gone.partitions[0].append(make_batch())
    manager.delete_topic("gone", durable=False)  # its new name is not synced yet
    churn_size = journal_lines(manager)
    manager.compact_journal()
    assert journal_lines(manager) == churn_size
    manager.removals.sync_renames()
    for number in range(10):
        manager.alter_broker({"log.retention.ms": str(1000 + number)})
    manager.compact_journal()
    assert gone.id not in manager.metadata.state.deleted_ids
    assert journal_lines(manager) < churn_size
    manager.close()


def test_checkpoint_shortens_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.RUNNING_SLACK_LINES", 20)
    manager = make_manager(tmp_path)
    manager.open()
    churn(manager, 30)
    manager.housekeeper.checkpoint()
    assert journal_lines(manager) < 10
    manager.close()


def test_a_stop_does_not_wait_for_a_housekeeper_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop holds the manager's lock while the housekeeper ends, which may want it for the journal or a backup."""
    manager = make_manager(tmp_path)
    manager.open()
    reached = threading.Event()
    compact, stop = manager.compact_journal, manager.housekeeper.stop

    def compacting() -> None:
        reached.set()
        compact()

    def stopping() -> None:
        manager.housekeeper._chores[0].due = 0.0
        manager.housekeeper._chores[0].run = compacting
        manager.housekeeper.notify_later(manager.create_topic("t", 1, {}).partitions[0])
        assert reached.wait(WAIT_S)
        stop()

    monkeypatch.setattr(manager.housekeeper, "stop", stopping)
    closing = threading.Thread(target=manager.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
