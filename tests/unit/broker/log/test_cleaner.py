"""Which log the cleaner takes and when, its offsets on disk, and what it does together with retention and deletion."""

import errno
import threading
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import checkpoints, files, segment_removal
from kafkalite.broker.log.manager import LogManager
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import InvalidRecord
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import seams
from tests.kit.harness.log_harness import TIME_MS, abandon, make_manager
from tests.kit.oracles.compaction_model import keyed_batch
from tests.kit.processes.broker import wait_until
from tests.log_damage.test_compaction_runs import read_from

pytestmark = pytest.mark.own_process

HOUR_MS = 3_600_000


class Setup:
    """A manager whose cleaner threads are off: the test is the cleaner."""

    def __init__(self, path: Path, **settings: str) -> None:
        self.path = path
        self.clock = FakeClock(TIME_MS)
        self.settings = {"log_cleaner_enable": "false", "log_segment_bytes": "400", **settings}
        self.manager = self.start()

    def start(self) -> LogManager:
        manager = make_manager(self.path, clock=self.clock, **self.settings)
        manager.open()
        return manager

    def topic(self, name: str = "c", **overrides: str) -> PartitionLog:
        values = {"cleanup.policy": "compact", **{key.replace("_", "."): value for key, value in overrides.items()}}
        return self.manager.create_topic(name, 1, values).partitions[0]

    def clean_all(self) -> int:
        count = 0
        while self.manager.cleaner.clean_dirtiest():
            count += 1
        return count


def fill(log: PartitionLog, count: int, keys: int = 3, *, timestamp: int = TIME_MS) -> None:
    for i in range(count):
        log.append(keyed_batch([(b"k%d" % (i % keys), b"v" * 90)], timestamp=timestamp)[0])
    settle(log)


def settle(log: PartitionLog) -> None:
    """Closes the active segment and waits until the sealer has done its part for all of them.

    The snapshot of the producers is the last file it writes: a fault that is armed later does not meet it.
    """
    log.roll()
    log.flush()
    pause = threading.Event()
    for _ in range(6000):
        indexed = all(segment.indexed_size == segment.size for segment in log.segments[:-1])
        if indexed and log.producer_state.snapshot_offset >= log.active.base_offset:
            return
        pause.wait(0.01)
    raise AssertionError(f"the sealer is not done with {log}")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    made = Setup(tmp_path)
    yield made  # type: ignore[misc]
    file_ops.disarm()
    made.manager.close()


def test_compacted_log_keeps_the_newest_of_each_key(setup: Setup) -> None:
    log = setup.topic()
    fill(log, 20)
    size = log.size_bytes
    assert setup.clean_all() > 0
    assert [record.offset for record in read_from(log, 0)] == [17, 18, 19]
    assert log.size_bytes < size / 3
    assert setup.manager.cleaner.offset_of(log) == 20
    assert setup.clean_all() == 0, "nothing is dirty any more"


def test_uncompacted_topics_and_single_segments_are_left_alone(setup: Setup) -> None:
    other = setup.topic("d", cleanup_policy="delete")
    fill(other, 20)
    young = setup.topic("y")
    young.append(keyed_batch([(b"k", b"v")], timestamp=TIME_MS)[0])
    assert setup.clean_all() == 0
    assert len(read_from(other, 0)) == 20


def test_records_without_key_are_refused(setup: Setup) -> None:
    with pytest.raises(InvalidRecord):
        setup.topic().append(keyed_batch([(None, b"v")], timestamp=TIME_MS)[0])


def test_dirty_ratio_decides(setup: Setup) -> None:
    log = setup.topic(min_cleanable_dirty_ratio="0.6")
    fill(log, 30, keys=30)
    setup.clean_all()
    fill(log, 30, keys=30)
    found = setup.manager.cleaner.look_at(log, TIME_MS)
    assert 0.4 < found.dirty_ratio < 0.6
    assert setup.clean_all() == 0
    fill(log, 30, keys=30)
    assert setup.clean_all() == 1


def test_dirtiest_comes_first(setup: Setup) -> None:
    clean, dirty = setup.topic("a", min_cleanable_dirty_ratio="0"), setup.topic("b")
    fill(clean, 30, keys=30)
    setup.clean_all()
    fill(clean, 6)
    fill(dirty, 6)
    setup.manager.cleaner.clean_dirtiest()
    assert setup.manager.cleaner.offset_of(dirty) == 6
    assert setup.manager.cleaner.offset_of(clean) == 30


def test_min_compaction_lag_keeps_the_young(setup: Setup) -> None:
    log = setup.topic(min_compaction_lag_ms=str(HOUR_MS))
    fill(log, 20)
    assert setup.clean_all() == 0
    setup.clock.advance(3601)
    assert setup.clean_all() == 1
    assert len(read_from(log, 0)) == 3


def test_max_compaction_lag_overrides_the_ratio(setup: Setup) -> None:
    log = setup.topic(min_cleanable_dirty_ratio="1", max_compaction_lag_ms=str(HOUR_MS))
    fill(log, 20)
    assert setup.clean_all() == 0
    setup.clock.advance(3601)
    assert setup.clean_all() == 1


def test_offset_survives_a_restart_and_is_kafkas_file(setup: Setup) -> None:
    fill(setup.topic(), 20)
    setup.clean_all()
    path = setup.path / files.CLEANER_OFFSETS_NAME
    assert path.read_text() == "0\n1\nc 0 20\n"
    setup.manager.close()
    setup.manager = setup.start()
    log = setup.manager.topics["c"].partitions[0]
    assert setup.manager.cleaner.offset_of(log) == 20
    assert [record.offset for record in read_from(log, 0)] == [17, 18, 19]


def test_a_recreated_topic_is_cleaned_from_its_start(setup: Setup) -> None:
    fill(setup.topic(), 20)
    setup.clean_all()
    setup.manager.delete_topic("c")
    assert checkpoints.read_offsets(str(setup.path / files.CLEANER_OFFSETS_NAME)) == {}
    assert setup.manager.cleaner.offset_of(setup.topic()) == 0


def test_a_checkpoint_past_the_log_end_restarts_at_the_log_start(setup: Setup) -> None:
    fill(setup.topic(), 20)
    setup.clean_all()
    setup.manager.close()
    checkpoints.write_offsets(str(setup.path / files.CLEANER_OFFSETS_NAME), {("c", 0): 999})
    setup.manager = setup.start()
    log = setup.manager.topics["c"].partitions[0]
    assert setup.manager.cleaner.look_at(log, TIME_MS).first_dirty == 0


def test_full_disk_is_tried_again_and_other_logs_get_their_turn(setup: Setup) -> None:
    first, second = setup.topic("a"), setup.topic("b")
    fill(first, 30)
    fill(second, 6)
    seams.arm(("write",), after=0, error=errno.ENOSPC)
    setup.clean_all()
    file_ops.disarm()
    assert setup.manager.cleaner.offset_of(first) == 0
    assert setup.manager.cleaner.offset_of(second) == 6
    assert setup.clean_all() == 1
    assert setup.manager.cleaner.offset_of(first) == 30
    assert not list(Path(first.directory).glob("*.cleaned"))


def test_failing_disk_leaves_the_log_alone_and_serving(setup: Setup) -> None:
    log = setup.topic()
    fill(log, 20)
    seams.arm(("sync",), after=0, error=errno.EIO)
    setup.clean_all()
    file_ops.disarm()
    assert setup.clean_all() == 0
    assert not log.offline
    assert len(read_from(log, 0)) == 20


def test_compact_and_delete_does_both(setup: Setup) -> None:
    log = setup.topic(cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
    fill(log, 20, timestamp=TIME_MS)
    setup.clean_all()
    assert len(read_from(log, 0)) == 3
    setup.clock.advance(7200)
    fill(log, 20, timestamp=TIME_MS + 2 * HOUR_MS)
    segment_removal.apply_retention(log, setup.clock.time_ms())
    assert log.log_start_offset >= 20
    setup.clean_all()
    assert [record.offset for record in read_from(log, log.log_start_offset)] == [37, 38, 39]


def test_retention_judging_old_segments_never_takes_their_replacement(setup: Setup) -> None:
    log = setup.topic(cleanup_policy="compact,delete")
    fill(log, 20)
    judged = log.segments
    setup.clean_all()
    assert segment_removal.remove_front(log, judged, len(judged) - 1) == 0
    assert [record.offset for record in read_from(log, 0)] == [17, 18, 19]


def test_topic_deleted_during_compaction_ends_it(setup: Setup) -> None:
    log = setup.topic()
    fill(log, 20)
    cleaner = setup.manager.cleaner
    spend = cleaner._spend

    def delete_then_spend(cleaned: PartitionLog, size: int) -> None:
        if not cleaned.deleted:
            setup.manager.delete_topic("c")
        spend(cleaned, size)

    cleaner._spend = delete_then_spend  # type: ignore[method-assign]
    setup.clean_all()
    assert log.deleted
    assert checkpoints.read_offsets(str(setup.path / files.CLEANER_OFFSETS_NAME)) in ({}, None)


def test_throttle_waits_for_what_was_moved(setup: Setup) -> None:
    setup.manager.alter_broker({"log.cleaner.io.max.bytes.per.second": "1000"})
    log = setup.topic()
    fill(log, 20)
    cleaner = setup.manager.cleaner
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        setup.clock.advance(seconds)

    cleaner._wait = wait  # type: ignore[method-assign]
    size = log.size_bytes
    setup.clean_all()
    assert 2 * size / 1000 <= sum(waits) <= 5 * size / 1000, "noting keys, filtering, and writing a little"


def test_stop_ends_a_compaction_early(setup: Setup) -> None:
    log = setup.topic()
    fill(log, 20)
    setup.manager.cleaner.stop()
    setup.manager.cleaner.clean_dirtiest()
    assert len(read_from(log, 0)) == 20
    assert not list(Path(log.directory).glob("*.cleaned"))


def test_threads_clean_by_themselves(tmp_path: Path) -> None:
    # A cleaner thread may start before the last segment exists: the dirty ratio is then below the usual half.
    made = Setup(
        tmp_path,
        log_cleaner_enable="true",
        log_cleaner_threads="2",
        log_cleaner_backoff_ms="1",
        log_cleaner_min_cleanable_ratio="0.01",
    )
    try:
        logs = [made.topic(name) for name in ("a", "b", "c")]
        for log in logs:
            fill(log, 20)
        done = threading.Event()
        for _ in range(6000):
            if all(made.manager.cleaner.offset_of(log) == 20 for log in logs):
                break
            done.wait(0.01)
        assert [len(read_from(log, 0)) for log in logs] == [3, 3, 3]
    finally:
        made.manager.close()


def test_threads_follow_their_setting(tmp_path: Path) -> None:
    made = Setup(tmp_path, log_cleaner_enable="true")
    cleaner = made.manager.cleaner
    try:
        threads = []
        for count in (2, 3, 1, 2):
            made.manager.alter_broker({"log.cleaner.threads": str(count)})
            assert cleaner.thread_count == count
            threads += [worker for worker in cleaner._workers if worker not in threads]
        wait_until(lambda: sum(worker._thread.is_alive() for worker in threads) == 2, 60, "threads that end")
    finally:
        made.manager.close()
    assert not any(worker._thread.is_alive() for worker in threads)


def test_log_recovered_after_a_kill_is_flushed_and_compacted(tmp_path: Path) -> None:
    made = Setup(tmp_path)
    fill(made.topic(), 20)
    abandon(made.manager)
    for path in (tmp_path / "c-0").glob("*.klindex"):
        path.unlink()
    checkpoints.write_offsets(str(tmp_path / files.RECOVERY_POINTS_NAME), {})
    made.manager = made.start()
    log = made.manager.topics["c"].partitions[0]
    assert any(segment.flushed_size < segment.size for segment in log.segments[:-1])
    log.append(keyed_batch([(b"k0", b"later")], timestamp=TIME_MS)[0])
    settle_newest(log)
    assert made.clean_all() > 0
    assert all(segment.flushed_size == segment.size for segment in log.segments[:-1])
    assert sorted(record.key for record in read_from(log, 0)) == [b"k0", b"k1", b"k2"]
    made.manager.close()


def settle_newest(log: PartitionLog) -> None:
    """The newest full segment is synced by the sealer while recovered ones below it are not."""
    log.roll()
    pause = threading.Event()
    for _ in range(6000):
        if log.segments[-2].flushed_size == log.segments[-2].size:
            return
        pause.wait(0.01)
    raise AssertionError(f"the sealer is not done with {log}")


def test_leftovers_are_removed_at_start(tmp_path: Path) -> None:
    made = Setup(tmp_path)
    log = made.topic()
    fill(log, 20)
    abandon(made.manager)
    stray = Path(log.directory) / f"{files.stem(0)}.log.cleaned"
    stray.write_bytes(b"half")
    made.manager = made.start()
    assert not stray.exists()
    made.manager.close()
