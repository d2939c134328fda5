"""A crash at every file operation of a compaction, damage, and logs with transactions, against the expected content.

A crash after the n-th operation is every later one failing, then a start from the remaining directory. For every n:
each key has its newest value, no offset has a wrong record, and only the old or the new segments are there.
"""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import files, swap
from kafkalite.broker.log.compaction import Compaction, CompactionLimits, SegmentDamaged
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.wire.record.compression import Codec
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import seams
from tests.kit.harness.log_harness import TIME_MS, LogHarness, release
from tests.kit.harness.samples import sample
from tests.kit.oracles.compaction_model import CompactedModel, ModelRecord, keyed_batch, marker
from tests.log_damage.test_compaction_runs import read_from

pytestmark = pytest.mark.own_process

LIMITS = CompactionLimits(key_map_size=100_000, key_map_load_factor=0.9, output_size=1000)
POINTS_MAX = 500
DELETE_RETENTION_MS = 1000


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    file_ops.disarm()


def make_harness(path: Path, **settings: object) -> LogHarness:
    return LogHarness(
        path,
        clock=FakeClock(TIME_MS),
        cleanup_policy="compact",
        segment_bytes=settings.pop("segment_bytes", 600),
        index_interval_bytes=100,
        delete_retention_ms=DELETE_RETENTION_MS,
        **settings,
    )


def fill(log: PartitionLog, model: CompactedModel, rounds: int = 6) -> None:
    """Several segments with the same keys over and over."""
    for i in range(rounds):
        pairs = [(b"k%d" % (n % 5), None if (i + n) % 7 == 0 else b"%d-%d" % (i, n) * 8) for n in range(9)]
        batch, records = keyed_batch(pairs, timestamp=TIME_MS + i, codec=Codec.ZSTD if i % 2 else Codec.NONE)
        model.append(log.append(batch).base_offset, records, len(records))
    log.roll()
    log.flush()


def compact(log: PartitionLog, first_dirty: int = 0, now_ms: int = TIME_MS) -> int:
    return Compaction(
        log, first_dirty, log.active.base_offset, now_ms=now_ms, limits=LIMITS, spend=lambda _size: None
    ).run()


def compact_model(log: PartitionLog, model: CompactedModel, now_ms: int = TIME_MS) -> None:
    end = log.active.base_offset
    model.compact(0, end, end, now_ms=now_ms, delete_retention_ms=DELETE_RETENTION_MS)


def latest(records: list[ModelRecord]) -> dict[bytes | None, bytes | None]:
    """Return the values that a consumer has after reading everything."""
    known = {record.key: record.value for record in records}
    return {key: value for key, value in known.items() if value is not None}


@pytest.mark.parametrize("sticky", [True, False], ids=["crash", "one call fails"])
@pytest.mark.parametrize("error", sample([errno.EIO, errno.ENOSPC], 1), ids=["EIO", "ENOSPC"])
def test_every_file_operation(tmp_path: Path, error: int, sticky: bool) -> None:
    for after in range(POINTS_MAX):
        directory = tmp_path / str(after)
        directory.mkdir()
        harness = make_harness(directory)
        log = harness.open()
        model = CompactedModel()
        fill(log, model, rounds=4)
        before = model.records
        seams.arm(file_ops.KINDS, after=after, error=error, sticky=sticky)
        failed = False
        try:
            compact(log)
        except OSError:
            failed = True
        hits = file_ops.disarm()
        assert not failed or hits
        compact_model(log, model)
        if not log.offline:
            assert_old_or_new(read_from(log, 0), before, model.records)
            log.append(keyed_batch([(b"k1", b"later")], timestamp=TIME_MS)[0])
        release(log)
        harness.offline.clear()
        again = harness.open(clean=False, recovery_point=log.flushed_offset)
        found = [record for record in read_from(again, 0) if record.value != b"later"]
        assert_old_or_new(found, before, model.records)
        left = {path.suffix for path in harness.path.iterdir()}
        assert not left & {files.CLEANED_SUFFIX, files.SWAP_SUFFIX}
        assert [s.base_offset for s in again.segments] == sorted({s.base_offset for s in again.segments})
        compact(again)  # what was begun can be done again
        if not hits:
            assert found == model.records
            return
    pytest.fail(f"still hitting faults after {POINTS_MAX} points")


def assert_old_or_new(found: list[ModelRecord], old: list[ModelRecord], new: list[ModelRecord]) -> None:
    """Groups are swapped one by one, so old and new may coexist; each record is one of the old."""
    assert latest(found) == latest(old)
    assert set(found) <= set(old)
    assert set(new) <= set(found)
    assert [record.offset for record in found] == sorted({record.offset for record in found})


def test_small_segments_are_merged(tmp_path: Path) -> None:
    harness = make_harness(tmp_path, segment_bytes=600)
    log = harness.open()
    model = CompactedModel()
    fill(log, model, rounds=20)
    count = len(log.segments)
    assert count > 8
    compact(log)
    compact(log)
    compact_model(log, model)
    assert len(log.segments) < count / 2
    assert read_from(log, 0) == model.records
    assert all(segment.index is not None for segment in log.segments[:-1])
    assert Path(f"{log.segments[0].path[:-4]}{files.INDEX_SUFFIX}").exists()


def test_segment_that_lost_everything_is_empty_and_harmless(tmp_path: Path) -> None:
    harness = make_harness(tmp_path, segment_bytes=100)
    log = harness.open()
    for i in range(5):
        log.append(keyed_batch([(b"k", bytes(70))], timestamp=TIME_MS + i)[0])
    log.roll()
    log.flush()
    compact(log)
    assert [record.offset for record in read_from(log, 0)] == [4]
    release(log)
    log = harness.open(clean=False, recovery_point=5)
    assert [record.offset for record in read_from(log, 0)] == [4]
    found = log.find_timestamp(0)
    assert found is not None
    assert found.offset == 4
    assert log.log_end_offset == 5


def test_tombstone_stays_until_its_horizon(tmp_path: Path) -> None:
    log = make_harness(tmp_path).open()
    log.append(keyed_batch([(b"k", b"v")], timestamp=TIME_MS)[0])
    log.append(keyed_batch([(b"k", None), (b"other", b"v")], timestamp=TIME_MS)[0])
    log.roll()
    log.flush()
    compact(log, now_ms=TIME_MS)
    assert [r.offset for r in read_from(log, 0)] == [1, 2]
    assert [r.timestamp for r in read_from(log, 0)] == [TIME_MS, TIME_MS + 1]
    compact(log, now_ms=TIME_MS + DELETE_RETENTION_MS - 1)
    assert [r.offset for r in read_from(log, 0)] == [1, 2]
    compact(log, now_ms=TIME_MS + DELETE_RETENTION_MS)
    assert [r.offset for r in read_from(log, 0)] == [2]


def test_damaged_segment_is_kept_and_so_are_tombstones_behind_it(tmp_path: Path) -> None:
    harness = make_harness(tmp_path, segment_bytes=200)
    log = harness.open()
    for i in range(4):
        log.append(keyed_batch([(b"k%d" % i, b"v" * 100)], timestamp=TIME_MS)[0])
    log.append(keyed_batch([(b"k1", None), (b"k3", b"new")], timestamp=TIME_MS)[0])
    log.roll()
    log.flush()
    log.close()
    damaged = harness.files()[1]
    data = bytearray(damaged.read_bytes())
    data[80] ^= 1
    damaged.write_bytes(data)
    log = harness.open(clean=True, recovery_point=6)
    compact(log)
    compact(log, now_ms=TIME_MS + 10 * DELETE_RETENTION_MS)
    assert damaged.read_bytes() == data
    assert log.segments[1].damage is not None
    assert [r.offset for r in read_from(log, 2)] == [2, 4, 5], "the tombstone of k1 must outlive the damage below it"


def test_damage_found_on_the_way_stops_the_pass(tmp_path: Path) -> None:
    harness = make_harness(tmp_path)
    log = harness.open()
    fill(log, CompactedModel())
    path = harness.files()[0]
    with path.open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
    with pytest.raises(SegmentDamaged):
        compact(log)
    assert not list(harness.path.glob("*.cleaned"))


def test_damaged_announced_segment_does_not_replace_good_ones(tmp_path: Path) -> None:
    harness = make_harness(tmp_path)
    log = harness.open()
    model = CompactedModel()
    fill(log, model)
    release(log)
    first = harness.files()[0]
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    (harness.path / f"{first.name}.swap").write_bytes(data)
    swap.finish(str(harness.path), log.format, harness.services.cache)
    log = harness.open(clean=False, recovery_point=log.flushed_offset)
    assert read_from(log, 0) == model.records


# ---- transactions, as Kafka's own logs have them --------------------------------------------------------------------

DATA, COMMIT, ABORT = "data", "commit", "abort"


def transactional_log(harness: LogHarness, steps: list[tuple[str, int, bytes]]) -> PartitionLog:
    """Write a closed segment as Kafka would: each (what, producer, key) in a separate batch; the next segment is
    active.
    """
    harness.path.mkdir(exist_ok=True)
    written = b""
    for offset, (what, producer, key) in enumerate(steps):
        if what == DATA:
            batch = keyed_batch(
                [(key, b"at %d" % offset)],
                timestamp=TIME_MS,
                attributes=0x10,
                producer_id=producer,
                epoch=0,
                sequence=offset,
            )[0]
        else:
            batch = marker(commit=what == COMMIT, producer_id=producer, epoch=0, timestamp=TIME_MS)
        written += offset.to_bytes(8, "big") + batch[8:]
    (harness.path / f"{files.stem(0)}.log").write_bytes(written)
    (harness.path / f"{files.stem(len(steps))}.log").write_bytes(b"")
    log = harness.open(clean=False)
    log.flush()
    return log


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_from(log, 0)]


def test_aborted_records_go_and_markers_outlive_their_data(tmp_path: Path) -> None:
    steps = [(DATA, 1, b"a"), (DATA, 2, b"a"), (ABORT, 2, b""), (DATA, 1, b"b"), (COMMIT, 1, b""), (DATA, 3, b"c")]
    steps += [(COMMIT, 3, b""), (DATA, 9, b"b"), (COMMIT, 9, b"")]
    log = transactional_log(make_harness(tmp_path), steps)
    compact(log)
    # 1 was aborted: the value of `a` at 0 is the committed one. 3 is superseded by 7.
    assert offsets(log) == [0, 2, 4, 5, 6, 7, 8]
    assert log.ensure_producers().aborted.between(0, 9) == [(1, 2)]
    compact(log)
    compact(log, now_ms=TIME_MS + DELETE_RETENTION_MS)
    assert 2 in offsets(log), "of an active producer the last batch stays, without records, and so does its marker"
    assert log.producer_state.expire(TIME_MS, 0) == 4
    compact(log)
    assert 2 in offsets(log)
    assert log.ensure_producers().aborted.between(0, 9) == [(1, 2)], "who reads older segments must still be told"
    compact(log)
    assert log.ensure_producers().aborted.between(0, 9) == []
    compact(log, now_ms=TIME_MS + DELETE_RETENTION_MS)
    assert offsets(log) == [0, 4, 5, 6, 7, 8], "the abort marker goes once its data is gone and its horizon has passed"


def test_open_transaction_bounds_compaction(tmp_path: Path) -> None:
    steps = [(DATA, 1, b"a"), (COMMIT, 1, b""), (DATA, 1, b"a"), (COMMIT, 1, b""), (DATA, 2, b"a"), (DATA, 1, b"x")]
    log = transactional_log(make_harness(tmp_path), steps)
    assert compact(log) == 4
    assert offsets(log) == [1, 2, 3, 4, 5]


def test_readers_of_replaced_segments_continue(tmp_path: Path) -> None:
    harness = make_harness(tmp_path)
    log = harness.open()
    model = CompactedModel()
    fill(log, model)
    old = log.segments
    error, held = log.read_blocking(0, 1000)
    assert error == 0
    assert held is not None
    before = held.tobytes()
    compact(log)
    assert held.tobytes() == before
    held.release()
    gone = [segment for segment in old if segment not in log.segments]
    assert gone
    for segment in gone:
        segment.close()
        with pytest.raises(FileNotFoundError):
            segment.read_bytes(0, 1)
