"""When a new segment begins: by size, age, a full index, offsets too far apart; and what the old one leaves."""

from pathlib import Path

from kafkalite._native.log.segment_read import READ_NOTHING
from kafkalite.broker.log import index_file, snapshots
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.log_harness import TIME_MS, LogHarness, PlainLog, make_batch, read_all


def bases(harness: LogHarness) -> list[int]:
    return [int(path.stem) for path in harness.files()]


def test_roll_by_size_keeps_every_segment_within_it(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=500)
    log = harness.open()
    for _ in range(30):
        log.append(make_batch(1, value_size=100))
    assert len(harness.files()) == 15
    assert all(path.stat().st_size <= 500 for path in harness.files())
    assert [segment.base_offset for segment in log.segments] == bases(harness)


def test_a_batch_larger_than_a_segment_gets_its_own_segment(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=500)
    log = harness.open()
    model = PlainLog()
    for size in (10, 3000, 10, 2000, 10):
        batch = make_batch(1, value_size=size)
        model.append(log.append(batch).base_offset, batch)
    assert bases(harness) == [0, 1, 2, 3, 4]
    assert read_all(log) == model.batches


def test_roll_by_age_counts_from_the_first_append(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, segment_ms=60_000)
    log = harness.open()
    log.append(make_batch())
    clock.advance(60)
    log.append(make_batch())
    assert bases(harness) == [0]
    clock.advance(0.002)
    log.append(make_batch(timestamp=0))
    assert bases(harness) == [0, 2]
    clock.jump(-3600)
    log.append(make_batch(timestamp=1))
    assert bases(harness) == [0, 2], "old records and a clock set back do not roll"


def test_jitter_rolls_earlier_never_later(tmp_path: Path) -> None:
    clock = FakeClock(TIME_MS)
    harness = LogHarness(tmp_path, clock=clock, segment_ms=60_000, segment_jitter_ms=30_000)
    log = harness.open()
    assert 0 <= log.core.roll_jitter_ms < 30_000
    log.append(make_batch())
    clock.advance(60.001)
    log.append(make_batch())
    assert bases(harness) == [0, 1]


def test_roll_when_the_index_is_full(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, index_interval_bytes=0, segment_index_bytes=32)
    log = harness.open()
    for _ in range(12):
        log.append(make_batch())
    assert len(harness.files()) == 3
    assert all(len(segment.index or ()) <= 4 for segment in log.segments)


def test_roll_when_offsets_would_not_fit_an_int32_delta(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    end = (1 << 31) - 3
    log = harness.open()
    log.append(make_batch())
    log.core.set_offsets(0, 0, end)  # as if that many records had come
    log.append(make_batch(2))
    assert bases(harness) == [0]
    log.append(make_batch(2))
    assert bases(harness) == [0, end + 2]


def test_sealed_segment_is_synced_trimmed_and_indexed(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, index_interval_bytes=100)
    log = harness.open()
    for i in range(10):
        log.append(make_batch(producer_id=5, epoch=0, sequence=i))
    active = log.segments[0]
    allocated = Path(active.path).stat().st_blocks * 512
    log.roll()
    assert active.flushed_size == active.size == Path(active.path).stat().st_size
    assert Path(active.path).stat().st_blocks * 512 < allocated
    summary = index_file.read_summary(index_file.path_of(active))
    assert summary is not None
    assert (summary.covered_size, summary.end_offset) == (active.size, 10)
    assert snapshots.offsets_in(log.directory) == [10]
    log.roll()
    assert len(log.segments) == 2, "an empty segment is not rolled"


def test_nothing_is_on_the_disk_before_the_first_append(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = harness.open()
    assert list(harness.path.iterdir()) == []
    assert log.core.read_copy(0, 100) == (READ_NOTHING, 0, b"")
    log.close()
    assert list(harness.path.iterdir()) == []


def test_preallocate_claims_the_segment_at_once_and_gives_it_back(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, preallocate="true", segment_bytes=1 << 20)
    log = harness.open()
    log.append(make_batch())
    path = harness.files()[0]
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert path.stat().st_size < 1000, "the file's size stays the truth"
    log.close()
    assert path.stat().st_blocks * 512 < 1 << 20
