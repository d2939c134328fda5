"""Zeros at the end of a segment's file that a broker preallocated before an unclean stop.

They are cut in any segment; zeros in place of batches are not.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite._native.base import file_ops
from kafkalite._native.log.log_append import append_batch
from kafkalite.errors import ErrorCode
from tests.kit.harness import seams
from tests.kit.harness.log_harness import LogHarness, PlainLog, damage_ranges, make_batch, read_all, release

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

pytestmark = pytest.mark.own_process

VALUE_SIZE = 1000
ZEROS_FROM = 16 * 1024
"""As in segment.pyx: a smaller segment has none."""
COUNT = 40


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    file_ops.disarm()


def fill(log: PartitionLog, model: PlainLog, count: int = COUNT, value_size: int = VALUE_SIZE) -> None:
    for _ in range(count):
        batch = make_batch(value_size=value_size)
        model.append(log.append(batch).base_offset, batch)


def blank_from(path: Path, kept: int) -> None:
    """Overwrite the file with zeros after `kept` bytes; it keeps its size."""
    content = path.read_bytes()
    path.write_bytes(content[:kept] + bytes(len(content) - kept))


def size_of(log: PartitionLog, number: int = -1) -> tuple[int, int]:
    """(bytes of batches, bytes of the file) of a segment."""
    segment = log.segments[number]
    return segment.size, Path(segment.path).stat().st_size


@pytest.mark.parametrize("value_size", [10, 1000, 20_000])
def test_a_killed_log_continues_after_its_last_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value_size: int
) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    fill(log, model, 500_000 // (value_size + 70), value_size)
    size, file_size = size_of(log)
    assert size < file_size <= size + 128 * 1024
    release(log)
    with caplog.at_level(logging.WARNING):
        log = harness.open(clean=False, recovery_point=0)
    assert caplog.records == [], "nothing was lost"
    assert size_of(log) == (size, size)
    fill(log, model)
    assert read_all(log) == model.batches
    log.close()
    assert size_of(log)[0] == size_of(log)[1]


def test_a_small_segment_ends_where_its_file_does(tmp_path: Path) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    for _ in range(ZEROS_FROM // (2 * VALUE_SIZE)):
        fill(log, model, 1)
        assert size_of(log)[0] == size_of(log)[1]


def test_large_batches_are_written_without(tmp_path: Path) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    fill(log, model, 5, 100_000)
    assert size_of(log)[0] == size_of(log)[1]


def test_a_roll_and_a_stop_cut_them(tmp_path: Path) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    harness.services.seal = lambda log, segment, state: None  # a sealer that has not come to it yet
    log = harness.open()
    fill(log, model)
    assert size_of(log)[0] < size_of(log)[1]
    log.roll()
    assert size_of(log, 0)[0] == size_of(log, 0)[1]
    fill(log, model)
    log.flush()
    log.close()
    assert size_of(log, 1)[0] == size_of(log, 1)[1]
    log = harness.open()
    assert read_all(log) == model.batches


def three_segments(path: Path) -> tuple[LogHarness, PlainLog]:
    """A killed log whose second segment had its zeros come back, as a power failure may leave it."""
    harness, model = LogHarness(path, index_interval_bytes=4000), PlainLog()
    log = harness.open()
    for _ in range(2):
        fill(log, model)
        log.roll()
    fill(log, model)
    release(log)
    with harness.files()[1].open("ab") as file:
        file.write(bytes(100_000))
    return harness, model


@pytest.mark.parametrize("indexes", ["kept", "lost"])
@pytest.mark.parametrize("flushed", [0, COUNT, 2 * COUNT, 2 * COUNT + 1])
def test_zeros_at_the_end_of_a_segment_with_others_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, indexes: str, flushed: int
) -> None:
    harness, model = three_segments(tmp_path)
    if indexes == "lost":
        for path in harness.files(".klindex"):
            path.unlink()
    with caplog.at_level(logging.WARNING):
        log = harness.open(clean=False, recovery_point=flushed)
    assert caplog.records == []
    assert size_of(log, 1)[0] == size_of(log, 1)[1]
    assert read_all(log) == model.batches
    assert read_all(log, size_max=1) == model.batches
    fill(log, model)
    release(log)
    assert read_all(harness.open(clean=False, recovery_point=flushed)) == model.batches


def test_a_directory_from_elsewhere(tmp_path: Path) -> None:
    harness, model = three_segments(tmp_path)
    log = harness.open(clean=False, recovery_point=None)
    assert read_all(log) == model.batches
    assert damage_ranges(log) == []


def test_a_batch_that_ends_in_zeros_stays(tmp_path: Path) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    for _ in range(2):
        batch = make_batch(value=bytes(500))
        model.append(log.append(batch).base_offset, batch)
        log.roll()
    fill(log, model, 1)
    release(log)
    for path in harness.files(".klindex"):
        path.unlink()
    log = harness.open(clean=False, recovery_point=model.end)
    assert read_all(log) == model.batches
    assert damage_ranges(log) == []


def test_zeros_in_place_of_flushed_batches_are_damage(tmp_path: Path) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    fill(log, model)
    size, _ = size_of(log)
    release(log)
    blank_from(harness.files()[0], size // 2)
    log = harness.open(clean=False, recovery_point=model.end)
    assert log.log_end_offset == model.end, "no offset is given twice"
    ((first, after),) = damage_ranges(log)
    assert 0 < first < after == model.end


def test_zeros_in_place_of_unflushed_batches_are_cut(tmp_path: Path) -> None:
    """A power failure kept the file's size and not its last pages."""
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    fill(log, model)
    size, _ = size_of(log)
    release(log)
    batch_size = size // COUNT
    blank_from(harness.files()[0], 10 * batch_size + 5)
    model.cut(10)
    log = harness.open(clean=False, recovery_point=10)
    assert read_all(log) == model.batches
    fill(log, model)
    assert read_all(log) == model.batches


@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("written", [0, 100])
def test_a_full_disk_while_zeros_are_written(tmp_path: Path, after: int, written: int) -> None:
    harness, model = LogHarness(tmp_path), PlainLog()
    log = harness.open()
    fill(log, model, ZEROS_FROM // (VALUE_SIZE + 100))
    assert log.segments[0].size < ZEROS_FROM
    seams.arm(["write"], after=after, error=errno.ENOSPC, written=written)
    refused = 0
    for _ in range(20):
        batch = make_batch(value_size=VALUE_SIZE)
        _, error, base_offset, *_ = append_batch(log.core, batch)
        refused += error == ErrorCode.KAFKA_STORAGE_ERROR
        if error == 0:
            model.append(base_offset, batch)
    file_ops.disarm()
    assert refused == 1
    assert read_all(log) == model.batches
    release(log)
    log = harness.open(clean=False, recovery_point=0)
    assert read_all(log) == model.batches
