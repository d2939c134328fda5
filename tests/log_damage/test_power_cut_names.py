"""An acknowledgement of acks=all outlives a power cut after which no name is left but those that were synced."""

import threading
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.base.pool import IoPool
from kafkalite.broker.coordinator.state_log import StateLog, Stored
from kafkalite.broker.log import directory
from kafkalite.broker.log.flusher import flush_together
from kafkalite.broker.log.manager import LogManager
from kafkalite.broker.log.partition_log import PartitionLog
from tests.kit.harness import seams
from tests.kit.harness.log_harness import LogHarness, abandon, make_batch, make_manager, read_all, release, started
from tests.kit.oracles.unsynced import NameRecorder, recorded

pytestmark = pytest.mark.own_process

WAIT_S = 120


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory with the empty topic t, stopped."""
    path = tmp_path / "data"
    manager = started(path)
    manager.create_topic("t", 1, {})
    manager.close()
    return path


def started_log(root: Path) -> tuple[LogManager, PartitionLog]:
    manager = started(root)
    return manager, manager.topics["t"].partitions[0]


def started_again(manager: LogManager, root: Path) -> tuple[LogManager, PartitionLog]:
    """After a kill -9."""
    abandon(manager)
    return started_log(root)


def acknowledge(log: PartitionLog, end_offset: int) -> None:
    """Return when a producer with acks=all gets the acknowledgement of everything below `end_offset`."""
    codes: list[int] = []
    done = threading.Event()

    def answer(code: int) -> None:
        codes.append(code)
        done.set()

    log.flush_async(end_offset, answer)
    assert done.wait(WAIT_S)
    assert codes == [0]


def append(log: PartitionLog, sequence: int = 0) -> int:
    """What acks=1 does with the batch of an idempotent producer; the end behind it."""
    return log.append(make_batch(producer_id=7, epoch=0, sequence=sequence)).end_offset


def end_in(image: Path) -> int:
    """Where partition t-0 ends at the next start; all of it can be read."""
    manager, log = started_log(image)
    try:
        read_all(log)
        return log.log_end_offset
    finally:
        manager.close()


@pytest.mark.parametrize("what", ["new topic", "new segment"])
def test_acknowledged_while_the_file_system_is_being_synced(
    root: Path, recorder: NameRecorder, tmp_path: Path, what: str
) -> None:
    """A checkpoint of many logs syncs the file system, which takes long; a flush in between cannot lean on it."""
    manager, log = started_log(root)
    first = 0
    if what == "new segment":
        append(log)
        log.flush()
        log.roll()
        first = 1
    end = append(log, first)

    def meanwhile() -> None:
        acknowledge(log, end)
        recorder.image(tmp_path / "image")

    recorder.before_file_system_sync = meanwhile
    flush_together([log], str(root))
    manager.close()
    assert end_in(tmp_path / "image") == end


def test_name_made_while_the_file_system_is_being_synced(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    manager, log = started_log(root)
    append(log)

    def meanwhile() -> None:
        log.roll()
        append(log, 1)

    recorder.after_file_system_sync = meanwhile
    flush_together([log], str(root))
    assert log.flushed_offset == 1
    acknowledge(log, 2)
    assert end_in(recorder.image(tmp_path / "image")) == 2
    manager.close()


@pytest.mark.parametrize("how", ["new record", "duplicate"])
def test_acknowledged_after_a_kill(root: Path, recorder: NameRecorder, tmp_path: Path, how: str) -> None:
    """The process that created the names died before it synced them: the next acknowledgement requires a sync."""
    manager, log = started_log(root)
    append(log)
    manager, log = started_again(manager, root)
    end = append(log, 1 if how == "new record" else 0)
    assert end == (2 if how == "new record" else 1)
    acknowledge(log, end)
    assert end_in(recorder.image(tmp_path / "image")) == end
    manager.close()


def test_acknowledged_after_a_kill_what_a_saved_index_covers(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    """A full segment is synced and its index saved as soon as it is full, but its name is not synced."""
    manager, log = started_log(root)
    append(log)
    log.roll()
    manager, log = started_again(manager, root)
    assert (root / "t-0" / f"{0:020d}.klindex").exists()
    acknowledge(log, append(log))
    manager.checkpoints.write_recovery_points()
    assert end_in(recorder.image(tmp_path / "image")) == 1
    manager.close()


def test_saved_index_says_nothing_of_the_segment_before_it(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = harness.open()
    log.append(make_batch())
    log.roll()
    log.append(make_batch())
    log.roll()
    release(log)
    harness.files(".klindex")[0].unlink()  # as if the process that filled the first segment had died before its sync
    log = harness.open(clean=False)
    assert log.flushed_offset == 0
    assert [segment.flushed_size for segment in log.segments] == [0, 0, 0]
    log.flush()
    assert all(segment.flushed_size == segment.size for segment in log.segments)


def test_coordinator_reads_what_is_on_the_disk(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    """What it reads at a start it answers by, without writing anything again."""
    manager, log = started_log(root)
    append(log)
    manager, log = started_again(manager, root)
    pool = IoPool(1)
    state_log = StateLog("t", manager, pool, manager.clock, partition_count=1, segment_bytes=1 << 20, in_sync=False)
    assert [entry.offset for entry in state_log.entries(log) if isinstance(entry, Stored)] == [0]
    assert end_in(recorder.image(tmp_path / "image")) == 1
    assert pool.close(WAIT_S)
    manager.close()


def test_visible_classic_messages_after_a_kill(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, message_format="classic")
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        release(harness.open(clean=True))
        (harness.path / f"{0:020d}.kafka").write_bytes(b"\0\0\0\5\0\0\0\0\0")
        log = harness.open(clean=False)
        assert log.high_watermark == 9
        assert str(harness.path) in recorder.syncs


def test_stop_that_counts_as_clean_leaves_no_name_behind(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    manager, log = started_log(root)
    append(log)
    log.flush()
    log.roll()
    manager.close()
    image = recorder.image(tmp_path / "image")
    assert (image / ".kafka_cleanshutdown").exists()
    assert (image / "t-0" / f"{1:020d}.log").exists()


def test_copied_directory_is_not_taken_for_synced(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    other = LogHarness(tmp_path)
    other.open().append(make_batch())
    other.path.rename(root / "copied-0")
    manager, _ = started_log(root)
    log = manager.topics["copied"].partitions[0]
    acknowledge(log, log.append(make_batch()).end_offset)
    assert (recorder.image(tmp_path / "image") / "copied-0" / f"{0:020d}.log").stat().st_size > 0
    manager.close()


def test_new_data_directory_and_those_above_it(tmp_path: Path) -> None:
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        directory.prepare(str(tmp_path / "a" / "b"))
        assert set(recorder.syncs) == {str(tmp_path), str(tmp_path / "a")}
        recorder.syncs.clear()
        directory.prepare(str(tmp_path / "a" / "b"))
        assert recorder.syncs == [str(tmp_path / "a")], "who made it may have died before its name was on the disk"


def test_used_data_directory_costs_no_sync(root: Path, recorder: NameRecorder) -> None:
    directory.prepare(str(root))
    assert recorder.syncs == []


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_start_syncs_as_often_for_many_partitions_as_for_few(tmp_path: Path, stop: str) -> None:
    counts = []
    for partition_count in (2, 40):
        path = tmp_path / str(partition_count)
        manager = make_manager(path)
        manager.open()
        for log in manager.create_topic("t", partition_count, {}).partitions:
            log.append(make_batch())
        abandon(manager) if stop == "killed" else manager.close()
        manager = make_manager(path)
        seams.arm((), after=0, error=0)
        manager.open()
        counts.append(file_ops.call_counts()["sync"])
        file_ops.disarm()
        manager.close()
    assert counts[0] == counts[1]
