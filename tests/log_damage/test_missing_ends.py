"""The end of a sealed segment is missing, below what was flushed: told once, remembered, and everything else served."""

import logging
from pathlib import Path

import pytest

from kafkalite.broker.log import segment_removal
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import CorruptMessage
from tests.kit.harness.log_harness import LogHarness, PlainLog, damage_ranges, make_batch, read_all, release
from tests.log_damage.test_holes_at_rolls import PER_SEGMENT, SEGMENTS, opened, without_its_end

END = SEGMENTS * PER_SEGMENT
CUT = 1  # the segment that is cut
GAP = [(2 * PER_SEGMENT - 1, 2 * PER_SEGMENT)]


def stopped(tmp_path: Path, **settings: object) -> tuple[LogHarness, PlainLog]:
    """Segments of three batches, one record each; a clean stop."""
    harness = LogHarness(tmp_path, **settings)
    log = harness.open()
    model = PlainLog()
    for i in range(END):
        if i and i % PER_SEGMENT == 0:
            log.roll()
        batch = make_batch(value_size=50 + i)
        model.append(log.append(batch).base_offset, batch)
    log.close()
    return harness, model


def start(harness: LogHarness, *, clean: bool) -> PartitionLog:
    return harness.open(recovery_point=END) if clean else opened(harness, recovery_point=END)


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("index", [True, False], ids=["indexed", "without index"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_missing_offsets_fail_and_all_others_are_served(
    tmp_path: Path, clean: bool, index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    harness, model = stopped(tmp_path)
    without_its_end(harness.files()[CUT])
    if not index:
        harness.files()[CUT].with_suffix(".klindex").unlink()
    log = start(harness, clean=clean)
    with pytest.raises(CorruptMessage):
        log.read(GAP[0][0], 1 << 20)
    assert damage_ranges(log) == GAP
    assert (log.log_end_offset, len(harness.files())) == (END, SEGMENTS)
    before = [batch for batch in model.batches if batch[1] <= GAP[0][0]]
    found = [batch for offset in range(GAP[0][0]) for batch in read_once(log, offset)]
    assert sorted(set(found)) == before
    assert read_all(log, GAP[0][1]) == model.from_offset(GAP[0][1])
    assert len(told(caplog)) == 1
    assert "records are missing" in told(caplog)[0].message


def read_once(log: PartitionLog, offset: int) -> list[tuple[int, int, bytes]]:
    """The batches of one read."""
    from tests.kit.harness.log_harness import split

    return list(split(log.read(offset, 1)))


def test_missing_offsets_are_remembered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness, _ = stopped(tmp_path)
    without_its_end(harness.files()[CUT])
    log = start(harness, clean=True)
    segment_removal.apply_retention(log, harness.clock.time_ms())
    assert damage_ranges(log) == GAP, "retention looks at all segments soon after a start"
    release(log)
    caplog.clear()
    log = start(harness, clean=True)
    assert damage_ranges(log) == GAP
    segment_removal.apply_retention(log, harness.clock.time_ms())
    assert len(told(caplog)) == 1
    assert "since an earlier run" in told(caplog)[0].message


def test_end_that_was_put_back_is_served(tmp_path: Path) -> None:
    harness, model = stopped(tmp_path)
    path = harness.files()[CUT]
    whole = path.read_bytes()
    without_its_end(path)
    log = start(harness, clean=True)
    segment_removal.apply_retention(log, harness.clock.time_ms())
    release(log)
    path.write_bytes(whole)
    log = start(harness, clean=True)
    assert not damage_ranges(log)
    assert read_all(log) == model.batches


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_segment_of_which_nothing_is_left(tmp_path: Path, clean: bool) -> None:
    harness, model = stopped(tmp_path)
    harness.files()[CUT].write_bytes(b"")
    log = start(harness, clean=clean)
    assert damage_ranges(log) == [(PER_SEGMENT, 2 * PER_SEGMENT)]
    with pytest.raises(CorruptMessage):
        log.read(PER_SEGMENT, 1 << 20)
    assert read_all(log, 2 * PER_SEGMENT) == model.from_offset(2 * PER_SEGMENT)


@pytest.mark.parametrize(
    ("policy", "cleaned", "beside"),
    [
        ("compact", False, None),
        ("delete", True, None),
        ("delete", False, ".index"),
        ("delete", False, f".log.damaged-{GAP[0][0]}-{GAP[0][1]}"),
    ],
    ids=["compacted", "compacted once", "Kafka's segment", "repaired"],
)
def test_offsets_that_may_be_missing_are_no_damage(
    tmp_path: Path, policy: str, cleaned: bool, beside: str | None
) -> None:
    harness, model = stopped(tmp_path, cleanup_policy=policy)
    path = harness.files()[CUT]
    without_its_end(path)
    path.with_suffix(".klindex").unlink()
    if beside is not None:
        path.with_suffix(beside).write_bytes(b"")
    del model.batches[GAP[0][0]]
    log = opened(harness, recovery_point=END, cleaned=cleaned)
    assert read_all(log) == model.batches
    assert not damage_ranges(log)


def test_offsets_below_the_log_start_are_not_missed(tmp_path: Path) -> None:
    harness, model = stopped(tmp_path)
    without_its_end(harness.files()[CUT])
    log = harness.open(recovery_point=END, log_start=GAP[0][1])
    segment_removal.apply_retention(log, harness.clock.time_ms())
    assert not damage_ranges(log)
    assert read_all(log) == model.from_offset(GAP[0][1])
