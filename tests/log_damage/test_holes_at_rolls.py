"""A power cut leaves the name of a segment and not the end of the one before it, or not even that one's name."""

from pathlib import Path

import pytest

from kafkalite.broker.log.loading import LoadPlan, load
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import OffsetOutOfRange
from tests.kit.harness.log_harness import (
    TIME_MS,
    TOPIC_ID,
    LogHarness,
    PlainLog,
    damage_ranges,
    make_batch,
    read_all,
    release,
)
from tests.kit.oracles.compaction_model import keyed_batch
from tests.kit.oracles.unsynced import recorded

pytestmark = pytest.mark.own_process

SEGMENTS = 4
PER_SEGMENT = 3


def written(tmp_path: Path, **settings: object) -> tuple[LogHarness, PlainLog]:
    """Segments of three batches, one record each; no record of the flushed offset."""
    harness = LogHarness(tmp_path, **settings)
    log = harness.open()
    model = PlainLog()
    for i in range(SEGMENTS * PER_SEGMENT):
        if i and i % PER_SEGMENT == 0:
            log.roll()
        batch = make_batch(value_size=50 + i)
        model.append(log.append(batch).base_offset, batch)
    release(log)
    for path in harness.files(".klindex"):
        path.unlink()
    return harness, model


def without_its_end(path: Path, batches: int = 1) -> None:
    """Cuts the last batches off; all batches of a segment are of nearly one size."""
    data = path.read_bytes()
    ends = [at for at in range(len(data)) if data[at + 16 : at + 17] == b"\x02" and data[at : at + 7] == bytes(7)]
    path.write_bytes(data[: ends[-batches]])


def opened(harness: LogHarness, **known: object) -> PartitionLog:
    plan = {"recovery_point": None, "log_start": None, "leader_epoch": 0, **known}
    return load(
        LoadPlan(
            topic="t",
            partition=0,
            topic_id=TOPIC_ID,
            config=harness.config,
            directory=str(harness.path),
            clean=False,
            **plan,  # type: ignore[arg-type]
        ),
        harness.services,
    )


@pytest.mark.parametrize("number", range(SEGMENTS - 1))
def test_log_ends_where_offsets_are_missing(tmp_path: Path, number: int) -> None:
    harness, model = written(tmp_path)
    without_its_end(harness.files()[number])
    end = number * PER_SEGMENT + PER_SEGMENT - 1
    model.cut(end)
    log = opened(harness)
    assert (log.log_end_offset, len(harness.files())) == (end, number + 1)
    assert read_all(log) == model.batches
    assert not damage_ranges(log)
    assert log.append(make_batch()).base_offset == end
    release(log)
    assert opened(harness).log_end_offset == end + 1


def test_name_of_a_segment_is_missing(tmp_path: Path) -> None:
    harness, model = written(tmp_path)
    harness.files()[1].unlink()
    model.cut(PER_SEGMENT)
    log = opened(harness)
    assert (log.log_end_offset, len(harness.files())) == (PER_SEGMENT, 1)
    assert read_all(log) == model.batches


def test_names_in_front_are_missing(tmp_path: Path) -> None:
    """Those records were never acknowledged as durable, or their names would exist: a flush syncs all names."""
    harness, model = written(tmp_path)
    harness.files()[0].unlink()
    log = opened(harness)
    assert (log.log_start_offset, log.log_end_offset) == (PER_SEGMENT, SEGMENTS * PER_SEGMENT)
    assert read_all(log) == model.batches[PER_SEGMENT:]
    assert not damage_ranges(log)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1000)
    assert log.append(make_batch()).base_offset == SEGMENTS * PER_SEGMENT


def test_offsets_that_were_flushed_are_not_given_out_again(tmp_path: Path) -> None:
    harness, _ = written(tmp_path)
    without_its_end(harness.files()[1], batches=2)
    log = opened(harness, recovery_point=PER_SEGMENT + 2)
    assert damage_ranges(log) == [(PER_SEGMENT + 1, PER_SEGMENT + 2)]
    assert (log.log_end_offset, len(harness.files())) == (PER_SEGMENT + 2, 2)
    assert log.append(make_batch()).base_offset == PER_SEGMENT + 2


def test_kafkas_directory_may_have_gaps(tmp_path: Path) -> None:
    """Its index beside the active segment tells that Kafka wrote last, and may have compacted."""
    harness, model = written(tmp_path)
    without_its_end(harness.files()[1])
    harness.files()[-1].with_suffix(".index").write_bytes(b"")
    del model.batches[2 * PER_SEGMENT - 1]
    log = opened(harness)
    assert log.log_end_offset == SEGMENTS * PER_SEGMENT
    assert read_all(log) == model.batches


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ("compact", {"recovery_point": 2 * PER_SEGMENT}),
        ("compact", {"points_known": False}),
        ("delete", {"recovery_point": 2 * PER_SEGMENT, "cleaned": True}),
        ("delete", {"points_known": False, "cleaned": True}),
    ],
)
def test_what_compaction_took_out_is_not_missing(tmp_path: Path, policy: str, known: dict[str, object]) -> None:
    harness, model = written(tmp_path, cleanup_policy=policy)
    without_its_end(harness.files()[1])
    del model.batches[2 * PER_SEGMENT - 1]
    log = opened(harness, **known)
    assert log.log_end_offset == SEGMENTS * PER_SEGMENT
    assert read_all(log) == model.batches


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_compacted_log_is_cut_above_what_was_flushed(tmp_path: Path, policy: str) -> None:
    harness, _ = written(tmp_path, cleanup_policy=policy)
    without_its_end(harness.files()[1])
    log = opened(harness, recovery_point=PER_SEGMENT, cleaned=True)
    assert log.log_end_offset == 2 * PER_SEGMENT - 1


def test_compacted_segments_are_flushed_where_only_their_indexes_tell(tmp_path: Path) -> None:
    """The batch at a segment's end was taken out, and the file of recovery points is lost: damage stays damage."""
    harness = LogHarness(tmp_path, cleanup_policy="compact")
    log = harness.open()
    for i in range(6):
        log.append(keyed_batch([(b"k%d" % i, b"v")], timestamp=TIME_MS)[0])
        if i % 2:
            log.roll()
    release(log)
    first = harness.files()[0]
    kept = first.read_bytes()[: first.stat().st_size // 2]
    first.write_bytes(kept)
    first.with_suffix(".klindex").unlink()
    log = opened(harness, recovery_point=2)
    log.indexes.save(log.segments[0])
    release(log)
    damaged = harness.files()[1]
    data = bytearray(damaged.read_bytes())
    data[65] ^= 1
    damaged.write_bytes(data)
    log = opened(harness, points_known=False)
    log.verify_blocking(2, 1000)
    assert damage_ranges(log) == [(2, 3)]


def test_closed_classic_segment_has_its_name_on_the_disk(tmp_path: Path) -> None:
    """Its log would not be opened with a gap."""
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        harness = LogHarness(tmp_path, message_format="classic")
        log = harness.open()
        log.append_set(b"\0\0\0\5\0\0\0\0\0")  # type: ignore[attr-defined]
        recorder.syncs.clear()
        with log.core.locked():
            log.roll_locked()
        assert str(harness.path) in recorder.syncs
