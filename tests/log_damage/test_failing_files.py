"""Files that fail under an open log: cut from outside, with holes, unreadable. The process lives, the log says so."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite._native.base.mapped_faults import MappedFile, fault_count, watch_count
from kafkalite._native.log.scan import SegmentScan, batch_headers, header_at
from kafkalite._native.log.segment import SegmentUnreadable
from kafkalite._native.log.segment_read import READ_REFUSED
from kafkalite.broker.log import segment_removal
from kafkalite.errors import ErrorCode, KafkaError, StorageError
from tests.kit.harness.log_harness import LogHarness, PlainLog, damage_ranges, make_batch, read_all, release, split

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

PAGE = os.sysconf("SC_PAGESIZE")
STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


def filled(harness: LogHarness, batches: int = 120, value_size: int = 1000) -> tuple[PartitionLog, PlainLog]:
    """A log of many small segments, on the disk."""
    log, model = harness.open(), PlainLog()
    for _ in range(batches):
        batch = make_batch(value_size=value_size)
        model.append(log.append(batch).base_offset, batch)
    log.flush()
    return log, model


def read_code(log: PartitionLog, offset: int) -> int:
    try:
        log.read(offset, 1 << 20)
    except KafkaError as error:
        return int(error.code)
    return 0


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path, segment_bytes=40_000)


@pytest.mark.parametrize("kept", [0, 0.5])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_segment_cut_under_the_map_takes_the_log_offline_and_no_more(
    harness: LogHarness, number: int, kept: float, caplog: pytest.LogCaptureFixture
) -> None:
    log, model = filled(harness)
    assert len(read_all(log)) == len(model.batches), "everything is mapped, open and checked"
    segment = log.segments[number]
    os.truncate(segment.path, int(segment.size * kept) // PAGE * PAGE)
    before = fault_count()
    codes = {read_code(log, offset) for offset in range(segment.base_offset, segment.base_offset + 3)}
    read_code(log, log.log_end_offset - 1 if number == -1 else log.segments[number + 1].base_offset - 1)
    assert log.offline
    assert codes <= {0, STORAGE_ERROR}
    assert fault_count() == before + 1, "one fault ends it: all that is missing goes at once"
    assert read_code(log, model.end - 1) == STORAGE_ERROR
    with pytest.raises(StorageError):
        log.append(make_batch())
    assert len(harness.offline) == 1
    assert len([entry for entry in caplog.records if "offline" in entry.message]) == 1


def test_every_reader_of_the_map_says_so(harness: LogHarness) -> None:
    log, _ = filled(harness)
    segment = log.segments[0]
    readers: list[Callable[[], object]] = [
        lambda: segment.read_bytes(0, segment.size),
        lambda: header_at(segment, 0),
        lambda: batch_headers(segment, 0, segment.size),
        lambda: SegmentScan(segment, next_offset=0).run(segment.size, verify=True),
    ]
    with segment:
        os.truncate(segment.path, 0)
        for read in readers:
            with pytest.raises(SegmentUnreadable, match="truncated by another process"):
                read()
    assert segment.unreadable


def test_a_slice_that_was_lent_before_the_cut_is_not_copied_as_zeros(harness: LogHarness) -> None:
    log, _ = filled(harness)
    error, found = log.read_blocking(0, 1 << 20)
    assert error == 0
    assert found is not None
    os.truncate(log.segments[0].path, 0)
    with pytest.raises(SegmentUnreadable):
        found.tobytes()
    found.release()


def test_a_closed_segment_that_was_cut_is_noticed_when_it_is_opened(harness: LogHarness) -> None:
    log, _ = filled(harness)
    segment = log.segments[1]
    release(log)
    os.truncate(segment.path, segment.size - 1)
    assert read_code(log, segment.base_offset) == STORAGE_ERROR
    assert "truncated by another process" in harness.offline[0]


def test_a_cut_active_segment_is_noticed_at_the_next_flush(tmp_path: Path) -> None:
    log, _ = filled(LogHarness(tmp_path), 40)
    os.truncate(log.active.path, 4096)
    log.append(make_batch(value_size=100))  # beyond the cut: a hole of zeros, and no error from the system
    with pytest.raises(StorageError, match="truncated by another process"):
        log.flush()
    assert log.offline
    assert log.flushed_offset == 40, "what came after the cut is not acknowledged"


def test_retention_notices_a_truncated_sealed_segment_without_readers(harness: LogHarness) -> None:
    log, _ = filled(harness)
    os.truncate(log.segments[1].path, 8192)
    segment_removal.apply_retention(log, harness.clock.time_ms())
    assert log.offline


@pytest.mark.parametrize("number", [0, -1])
def test_a_hole_is_quarantined_and_everything_else_is_served(harness: LogHarness, number: int) -> None:
    log, model = filled(harness)
    read_all(log)
    segment = log.segments[number]
    punch(segment.path, PAGE, PAGE)
    served: set[int] = set()
    for offset in range(model.end):
        error, found = log.read_blocking(offset, 1)
        if found is not None:
            assert error == 0
            served.add(offset)
            found.release()
    assert not log.offline
    [(first, after)] = damage_ranges(log)
    assert served >= set(range(model.end)) - set(range(first, after))
    assert 3 <= after - first <= 6


def punch(path: str, position: int, size: int) -> None:
    subprocess.run(["fallocate", "--punch-hole", "--offset", str(position), "--length", str(size), path], check=True)


def test_the_index_of_a_sealed_segment_that_is_cut_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = LogHarness(tmp_path, index_interval_bytes=0, segment_bytes=800_000)
    log, model = filled(harness, 12_000, 60)
    assert len(log.segments) > 1
    log.close()
    log = harness.open(recovery_point=model.end)
    segment = log.segments[0]
    assert log.read(100, 100)
    assert segment.index is not None
    assert segment.index.size_bytes > 64 * 1024, "so many entries are mapped, not read"
    path = segment.path.replace(".log", ".klindex")
    os.truncate(path, 200)
    assert len(read_all(log)) == len(model.batches)
    assert not log.offline
    assert not segment.index.failed
    assert len([entry for entry in caplog.records if "rebuilding it from the log" in entry.message]) == 1


def test_an_index_that_fails_under_a_look_up_by_time_is_made_again(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, index_interval_bytes=0, segment_bytes=800_000)
    log, model = filled(harness, 12_000, 60)
    log.close()
    log = harness.open(recovery_point=model.end)
    found = log.max_timestamp()
    segment = log.segments[0]
    log.indexes.loaded(segment)
    os.truncate(segment.path.replace(".log", ".klindex"), 4096)
    assert log.max_timestamp() == found
    assert not log.offline


def test_maps_are_watched_only_while_they_last(harness: LogHarness) -> None:
    before = watch_count()
    log, _ = filled(harness)
    assert watch_count() > before
    release(log)
    assert watch_count() == before


def test_a_mapped_file_reads_as_zeros_behind_the_first_page_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (4 * PAGE))
    with path.open("rb") as file:
        mapped = MappedFile(file.fileno())
    view = memoryview(mapped)
    assert not mapped.failed
    os.truncate(path, 2 * PAGE)
    assert bytes(view) == b"x" * (2 * PAGE) + bytes(2 * PAGE)
    assert mapped.failed


FOREIGN = """
import faulthandler, mmap, os, signal, sys, tempfile
from kafkalite._native.base.mapped_faults import MappedFile
def mapped_with(module):
    file = tempfile.TemporaryFile()
    file.write(b"x" * 8192)
    file.flush()
    found = module(file.fileno())
    return file, found
if "before" in sys.argv: faulthandler.enable()
ours, view = mapped_with(MappedFile)
if "after" in sys.argv: faulthandler.enable()
if "again" in sys.argv: mapped_with(MappedFile)
os.ftruncate(ours.fileno(), 0)
if "ours" in sys.argv: assert bytes(memoryview(view)) == bytes(8192) and view.failed; print("alive"); sys.exit(7)
if "sent" in sys.argv: os.kill(os.getpid(), signal.SIGBUS)
foreign, other = mapped_with(lambda fd: mmap.mmap(fd, 0, prot=mmap.PROT_READ))
os.ftruncate(foreign.fileno(), 0)
other[5000]
"""


@pytest.mark.parametrize(
    "arguments", ["", "before", "after", "before after again", "after again", "sent", "sent before"]
)
def test_a_foreign_bus_error_still_ends_the_process(arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", FOREIGN, *arguments.split()], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGBUS
    assert (b"Fatal Python error: Bus error" in done.stderr) == ("before" in arguments or "after" in arguments)


@pytest.mark.parametrize("arguments", ["ours", "ours before", "ours after again"])
def test_a_bus_error_of_ours_does_not(arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", FOREIGN, *arguments.split()], capture_output=True, timeout=120)
    assert done.returncode == 7, done.stderr
    assert done.stdout == b"alive\n"


def test_the_handler_stands_with_faulthandler_which_pytest_enables() -> None:
    assert faulthandler.is_enabled()


# ---- what is quarantined is remembered ------------------------------------------------------------------------------


def codes_by_offset(log: PartitionLog, end: int) -> list[int]:
    """The error code of a read at each offset; where something is served it must be the batch of that offset."""
    codes = []
    for offset in range(end):
        error, found = log.read_blocking(offset, 1)
        codes.append(error)
        if found is not None:
            [(first, after, _)] = split(found.tobytes())
            assert first <= offset < after
            found.release()
    return codes


def with_damage(harness: LogHarness, number: int = 0) -> tuple[PartitionLog, list[int], int]:
    """An open log with a damaged range in one segment that a reader has found; the codes of all its offsets."""
    log, model = filled(harness)
    read_all(log)
    punch(log.segments[number].path, PAGE, PAGE)
    codes_by_offset(log, model.end)  # finds it
    codes = codes_by_offset(log, model.end)
    assert ErrorCode.CORRUPT_MESSAGE in codes
    return log, codes, model.end


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_same_offsets_are_under_quarantine_after_a_restart(
    harness: LogHarness, clean: bool, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, codes, end = with_damage(harness, number)
    if clean:
        log.close()
    release(log)
    caplog.clear()
    log = harness.open(clean=clean, recovery_point=end)
    damage = damage_ranges(log)
    [segment] = [each for each in log.segments if each.damage]
    first = damage[0][0]
    if number != -1:
        assert not segment.is_open, "nothing of it has been read"
    assert log.core.slice_at(first, 1) == (READ_REFUSED, ErrorCode.CORRUPT_MESSAGE, None)
    if number != -1:
        assert not segment.is_open
    assert codes_by_offset(log, end) == codes
    assert damage_ranges(log) == damage
    told = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    assert len(told) == 1, [entry.message for entry in told]
    assert "since an earlier run" in told[0].message


def test_a_good_copy_put_in_place_is_served(harness: LogHarness) -> None:
    log, model = filled(harness)
    path = Path(log.segments[0].path)
    good = path.read_bytes()
    punch(str(path), PAGE, PAGE)
    release(log)
    log = harness.open(clean=False, recovery_point=model.end)
    codes_by_offset(log, model.end)
    assert damage_ranges(log)
    log.close()
    path.write_bytes(good)
    log = harness.open(recovery_point=model.end)
    assert len(read_all(log)) == len(model.batches)
    assert not harness.files(".quarantine")


def test_the_memory_goes_with_its_segment(harness: LogHarness) -> None:
    log, _, _ = with_damage(harness)
    assert len(harness.files(".quarantine")) == 1
    segment_removal.delete_records(log, log.segments[1].base_offset)
    assert not harness.files(".quarantine")
    assert [path for path in harness.removed if path.endswith(".quarantine.deleted")]


@pytest.mark.parametrize("broken", [b"", b"00000000 {}\n", b"nonsense"])
def test_a_memory_that_is_damaged_itself_is_no_memory(harness: LogHarness, broken: bytes) -> None:
    log, codes, end = with_damage(harness)
    log.close()
    [path] = harness.files(".quarantine")
    path.write_bytes(broken)
    log = harness.open(recovery_point=end)
    assert codes_by_offset(log, end) == codes, "it is found again"


def test_a_memory_without_its_segment_is_removed(harness: LogHarness) -> None:
    log, _, end = with_damage(harness)
    log.close()
    harness.files()[0].unlink()
    harness.open(recovery_point=end)
    assert not harness.files(".quarantine")
