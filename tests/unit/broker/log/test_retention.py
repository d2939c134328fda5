"""Which segments go, when, and what stays: by age, by size, by DeleteRecords, by a policy of one's own."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalite._native.log.segment import Segment
from kafkalite.broker.log import files, segment_removal, snapshots
from kafkalite.broker.log.indexes import SegmentIndexes
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.broker.log.retention import SegmentAge, SizeRetention, StartRetention, TimeRetention, time_of
from kafkalite.errors import ErrorCode, OffsetOutOfRange
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, make_batch

HOUR_MS = 3_600_000
NEVER_MS = (1 << 63) - 1


def ages(*sizes: int, step: int = HOUR_MS) -> list[SegmentAge]:
    return [
        SegmentAge(i, i + 1, size, TIME_MS - (len(sizes) - i) * step, TIME_MS, i + 1 == len(sizes), "t", 0)
        for i, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(("retention_ms", "count"), [(-1, 0), (0, 2), (HOUR_MS, 2), (2 * HOUR_MS, 1), (3 * HOUR_MS, 0)])
def test_time_retention_counts_from_the_front(retention_ms: int, count: int) -> None:
    assert TimeRetention(retention_ms).deletable_count(ages(10, 10, 10), TIME_MS) == count


@pytest.mark.parametrize(("retention_bytes", "count"), [(-1, 0), (0, 3), (9, 2), (10, 2), (11, 1), (30, 0), (1000, 0)])
def test_size_retention_keeps_at_least_its_size(retention_bytes: int, count: int) -> None:
    assert SizeRetention(retention_bytes).deletable_count(ages(10, 10, 10), TIME_MS) == count


@pytest.mark.parametrize(("start", "count"), [(0, 0), (1, 1), (2, 2), (3, 2), (99, 2)])
def test_start_retention_never_takes_the_active_segment(start: int, count: int) -> None:
    assert StartRetention(start).deletable_count(ages(10, 10, 10), TIME_MS) == count


@pytest.mark.parametrize("timestamp", [0, -1, 1, NEVER_MS, -(1 << 62)])
def test_absurd_timestamps_do_not_age_a_live_segment(timestamp: int) -> None:
    """G3: whatever timestamp a record has, the active segment is as old as its last append."""
    live = SegmentAge(0, 1, 10, timestamp, TIME_MS - 10, active=True, topic="t", partition=0)
    assert time_of(live, TIME_MS) == TIME_MS - 10
    sealed = live._replace(active=False)
    assert time_of(sealed, TIME_MS) == (timestamp if 0 <= timestamp <= TIME_MS else TIME_MS - 10)


def hourly_log(harness: LogHarness, clock: FakeClock) -> PartitionLog:
    """Five segments, one an hour, two records each; the last one active."""
    log = harness.open()
    for hour in range(5):
        for _ in range(2):
            log.append(make_batch(timestamp=clock.time_ms(), value_size=50))
        os.utime(log.active.path, (clock.time_ms() / 1000,) * 2)
        if hour < 4:
            log.roll()
            clock.advance(3600)
    return log


def test_age_deletes_whole_segments_and_moves_the_log_start(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, retention_ms=2 * HOUR_MS + 1000)
    log = hourly_log(harness, clock)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 2
    assert (log.log_start_offset, log.log_end_offset) == (4, 10)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 0
    assert log.core.read_copy(3, 10)[1] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [path.name for path in harness.files(".log.deleted")] == [f"{0:020d}.log.deleted", f"{2:020d}.log.deleted"]
    assert {Path(path).name for path in harness.removed} >= {f"{0:020d}.log.deleted", f"{0:020d}.klindex.deleted"}
    log.close()
    log = harness.open(recovery_point=10)
    assert (log.log_start_offset, harness.files(".deleted")) == (4, [])


def test_everything_old_is_deleted_and_offsets_continue(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, retention_ms=HOUR_MS)
    log = hourly_log(harness, clock)
    clock.advance(7200)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 5
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (10, 10, 0)
    log.close()
    log = harness.open(recovery_point=10, log_start=10)
    assert log.append(make_batch()).base_offset == 10


def test_a_record_of_the_year_zero_keeps_its_company(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    log = LogHarness(tmp_path, clock=clock, retention_ms=HOUR_MS).open()
    for timestamp in (0, -1, TIME_MS):
        log.append(make_batch(timestamp=timestamp))
    os.utime(log.active.path, (TIME_MS / 1000,) * 2)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 0
    clock.jump(24 * 3600)
    log.append(make_batch(timestamp=0))
    os.utime(log.active.path, (clock.time_ms() / 1000,) * 2)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 0, (
        "a clock set forward does not delete what was just written"
    )


def test_compacted_topics_are_not_deleted_by_age(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    log = hourly_log(LogHarness(tmp_path, clock=clock, retention_ms=1, cleanup_policy="compact"), clock)
    assert segment_removal.apply_retention(log, clock.time_ms() + 10 * HOUR_MS) == 0


def test_own_policy_is_asked_too(tmp_path: Path) -> None:
    class KeepTwo:
        def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
            return max(0, len(segments) - 2)

    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock)
    harness.services.policies = (KeepTwo(),)
    log = hourly_log(harness, clock)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 3
    assert log.log_start_offset == 6


def test_own_policy_is_not_asked_for_what_is_compacted(tmp_path: Path) -> None:
    class All:
        def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
            return len(segments)

    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, cleanup_policy="compact")
    harness.services.policies = (All(),)
    assert segment_removal.apply_retention(hourly_log(harness, clock), clock.time_ms()) == 0


@pytest.mark.parametrize("answer", [-1, "many", None, RuntimeError("an application's mistake")])
def test_own_policy_that_makes_no_sense_deletes_nothing(tmp_path: Path, answer: object) -> None:
    class Strange:
        def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]  # the wrong type on purpose

    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, retention_ms=HOUR_MS)
    harness.services.policies = (Strange(),)
    log = hourly_log(harness, clock)
    by_age = segment_removal.apply_retention(log, clock.time_ms())
    assert by_age == 3, "the other policies are asked all the same"


def test_own_policy_may_take_everything(tmp_path: Path) -> None:
    class More:
        def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
            assert {(segment.topic, segment.partition) for segment in segments} == {("t", 0)}
            return len(segments) + 5

    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock)
    harness.services.policies = (More(),)
    log = hourly_log(harness, clock)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 5
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)


def test_delete_records_moves_the_start_and_drops_whole_segments(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock)
    log = hourly_log(harness, clock)
    assert segment_removal.delete_records(log, 5) == 5
    assert [segment.base_offset for segment in log.segments] == [4, 6, 8]
    assert segment_removal.delete_records(log, 3) == 5, "the start never goes back"
    assert log.core.read_copy(4, 100)[1] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(5, 100)
    for bad in (-2, 11):
        with pytest.raises(OffsetOutOfRange):
            segment_removal.delete_records(log, bad)
    assert segment_removal.delete_records(log, -1) == 10
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert log.append(make_batch()).base_offset == 10
    log.close()
    assert harness.open(recovery_point=11, log_start=10).log_start_offset == 10


def take_meanwhile(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Somebody else deletes the oldest segments, once, just before one of them is looked at."""
    ensure_summary = SegmentIndexes.ensure_summary
    left = [count]

    def delete_then_look(indexes: SegmentIndexes, segment: Segment) -> None:
        if left:
            log = indexes._log.owner
            assert isinstance(log, PartitionLog)
            for each in log.segments[: left[0]]:
                each.forget_index()
                each.set_summary(-1, -1, -1)
            segment_removal.remove_front(log, log.segments, left.pop())
        ensure_summary(indexes, segment)

    monkeypatch.setattr(SegmentIndexes, "ensure_summary", delete_then_look)


def test_segments_deleted_while_retention_judges_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, retention_ms=str(2 * HOUR_MS))
    log = hourly_log(harness, clock)
    take_meanwhile(monkeypatch, 1)
    clock.advance(1)
    assert segment_removal.apply_retention(log, clock.time_ms()) == 2
    assert log.log_start_offset == 6


def test_segments_deleted_while_records_are_deleted_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(TIME_MS)
    log = hourly_log(LogHarness(tmp_path, clock=clock), clock)
    take_meanwhile(monkeypatch, 1)
    assert segment_removal.delete_records(log, 5) == 5
    assert [segment.base_offset for segment in log.segments] == [4, 6, 8]


def test_index_of_a_segment_that_is_deleted_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(TIME_MS)
    log = hourly_log(LogHarness(tmp_path, clock=clock), clock)
    first = log.segments[0]
    segment_removal.remove_front(log, log.segments, 1)
    caplog.clear()
    log.indexes.save(first)
    assert not caplog.records
    assert not Path(first.path).with_suffix(".klindex").exists()


def test_what_a_producer_wrote_and_retention_took_is_not_held_against_it(tmp_path: Path) -> None:
    """A crash loses the newer snapshots; the one that is left, of before what is gone, knows an old sequence."""
    harness = LogHarness(tmp_path)
    log = harness.open()
    old: dict[Path, bytes] = {}
    for sequence in range(3):
        log.append(make_batch(producer_id=5, epoch=0, sequence=sequence))
        log.roll()
        old = old or {path: path.read_bytes() for path in harness.files(f"{files.SNAPSHOT_SUFFIX}*")}
    assert old
    log.append(make_batch(producer_id=6, epoch=0, sequence=0))
    segment_removal.delete_records(log, 3)
    assert [segment.base_offset for segment in log.segments] == [3]
    log.close()
    for offset in snapshots.offsets_in(log.directory):
        snapshots.remove(log.directory, offset)
    for path, data in old.items():
        path.write_bytes(data)
    log = harness.open(clean=False, log_start=3)
    assert log.append(make_batch(producer_id=5, epoch=0, sequence=3)).base_offset == 4
    assert log.append(make_batch(producer_id=6, epoch=0, sequence=1)).base_offset == 5
    log.close()
