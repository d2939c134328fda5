"""A read returns whole batches from the one that holds the offset, within its limits, and nothing else."""

import gc
from pathlib import Path

import pytest

from kafkalite._native.log.segment import FileCache
from kafkalite._native.log.segment_read import READ_DEFER, READ_FOUND, READ_NOTHING, READ_REFUSED
from kafkalite.broker.log import segment_removal
from tests.kit.harness.log_harness import LogHarness, PlainLog, make_batch, read_all, release, split


@pytest.fixture
def written(tmp_path: Path) -> tuple[LogHarness, PlainLog]:
    harness = LogHarness(tmp_path, segment_bytes=2000, index_interval_bytes=150)
    model = PlainLog()
    log = harness.open()
    for i in range(60):
        batch = make_batch(1 + i % 4, value_size=i % 70)
        model.append(log.append(batch).base_offset, batch)
    log.close()
    return harness, model


@pytest.mark.parametrize("size_max", [0, 1, 100, 400, 1999, 1 << 20])
def test_every_offset_with_every_limit(written: tuple[LogHarness, PlainLog], size_max: int) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    sizes = {base: len(covered) + 21 for base, _, covered in model.batches}
    first_offsets = {segment.base_offset for segment in log.segments}
    for offset in range(model.end):
        data = log.read(offset, size_max)
        batches = list(split(data))
        assert batches == model.from_offset(offset)[: len(batches)]
        assert len(batches) == 1 or len(data) <= size_max
        following = model.from_offset(offset)[len(batches) :]
        if following and following[0][0] not in first_offsets:
            assert len(data) + sizes[following[0][0]] > size_max, "another batch would have fitted"


def test_without_the_whole_first_batch_a_small_limit_gives_nothing(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    assert log.read(0, 10, whole_first_batch=False) == b""
    assert len(log.read(0, 10)) > 10


def test_ends_and_out_of_range(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    segment_removal.delete_records(log, 20)
    assert log.core.read_copy(model.end, 100) == (READ_NOTHING, 0, b"")
    assert log.core.read_copy(model.end + 1, 100) == (READ_REFUSED, 1, b"")
    assert log.core.read_copy(19, 100) == (READ_REFUSED, 1, b"")
    assert log.core.read_copy(-1, 100) == (READ_REFUSED, 1, b"")
    assert log.core.read_copy(20, 100, upper_offset=20) == (READ_NOTHING, 0, b"")


def test_upper_offset_ends_the_slice_before_it(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    read_all(log)
    for _, upper, _ in model.batches[::5]:
        for offset in range(max(0, upper - 9), upper):
            data = log.core.read_copy(offset, 1 << 20, upper_offset=upper)[2]
            assert data, f"{offset} below {upper}"
            assert list(split(data))[-1][1] <= upper


def test_bytes_from_disk_are_checked_before_they_are_served(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    assert log.core.read_copy(0, 100)[0] == READ_DEFER, "neither open nor checked: not on a thread that may not block"
    assert log.prepare_read(0, 100)
    assert log.core.read_copy(0, 100)[0] == READ_FOUND


def test_slice_outlives_the_deletion_of_its_segment(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    error, piece = log.read_blocking(0, 500)
    assert error == 0
    assert piece is not None
    before = piece.tobytes()
    segment = piece.segment
    assert segment is not None
    segment_removal.delete_records(log, model.end)
    for path in harness.removed:
        Path(path).unlink()
    gc.collect()
    assert segment.deleted
    assert segment.pins == 1
    assert piece.tobytes() == before
    piece.release()
    piece.release()
    assert segment.pins == 0
    with pytest.raises(ValueError, match="released"):
        piece.tobytes()


def test_forgotten_slice_gives_its_pin_back(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    log = harness.open(recovery_point=model.end)
    _, piece = log.read_blocking(0, 500)
    assert log.segments[0].pins == 1
    del piece
    gc.collect()
    assert log.segments[0].pins == 0


def test_file_cache_bounds_what_is_open(written: tuple[LogHarness, PlainLog]) -> None:
    harness, model = written
    cache = FileCache(2)
    harness.services.cache = cache
    log = harness.open(recovery_point=model.end)
    assert len(log.segments) > 3
    for offset in [*range(0, model.end, 7), *range(model.end - 1, 0, -11)]:
        assert log.read(offset, 10)
        assert cache.open_count <= 2
    held = [log.read_blocking(segment.base_offset, 10)[1] for segment in log.segments]
    assert cache.open_count == len(log.segments), "pinned segments are not closed under their readers"
    assert all(piece is not None and piece.tobytes() for piece in held)
    del held
    log.read(0, 10)
    release(log)
    assert cache.open_count == 0


def test_segment_outgrows_its_map_while_a_reader_holds_the_old_one(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, segment_bytes=5000, max_message_bytes=1 << 24)
    log = harness.open()
    log.append(make_batch(1, value_size=10))
    _, piece = log.read_blocking(0, 100)
    assert piece is not None
    log.core.configure(
        **{
            name: getattr(log.core, name)
            for name in (
                "segment_ms",
                "roll_jitter_ms",
                "index_interval",
                "index_count_max",
                "message_size_max",
                "log_append_time",
                "timestamp_before_max_ms",
                "timestamp_after_max_ms",
                "compacted",
                "validate_records",
                "flush_messages",
            )
        },
        segment_size_max=1 << 24,
    )
    for _ in range(4):
        log.append(make_batch(1, value_size=1 << 20))
    assert len(log.segments) == 1
    assert [base for base, _, _ in split(log.read(0, 1 << 24))] == [0, 1, 2, 3, 4]
    assert [base for base, _, _ in split(piece.tobytes())] == [0]


def test_gaps_left_by_compaction_are_stepped_over(tmp_path: Path) -> None:
    """A compacted log of Kafka's: batches missing inside a segment, at its end and at the next one's start."""
    import struct

    harness = LogHarness(tmp_path, index_interval_bytes=0)
    batches = {base: struct.pack(">q", base) + make_batch(2)[8:] for base in (4, 10, 30, 44)}
    (harness.path / f"{0:020d}.log").write_bytes(batches[4] + batches[10])
    (harness.path / f"{20:020d}.log").write_bytes(batches[30])
    (harness.path / f"{40:020d}.log").write_bytes(batches[44])
    (harness.path / f"{40:020d}.index").write_bytes(b"")
    log = harness.open(clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (0, 46)
    for offset, expected in ((0, 4), (5, 4), (6, 10), (12, 30), (25, 30), (32, 44), (45, 44)):
        assert next(split(log.read(offset, 1)))[0] == expected, offset
