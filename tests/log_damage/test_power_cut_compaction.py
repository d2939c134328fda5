"""A power cut in or after a compaction: what it took out is not missing, and what it was made of does not come back."""

from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import checkpoints, files, snapshots
from kafkalite.broker.log.manager import LogManager
from kafkalite.broker.log.partition_log import PartitionLog
from tests.kit.harness.log_harness import TIME_MS, LogHarness, damage_ranges, make_manager, release
from tests.kit.oracles.compaction_model import CompactedModel, keyed_batch
from tests.kit.oracles.unsynced import NameRecorder, recorded
from tests.log_damage.test_compaction_runs import read_from
from tests.log_damage.test_compaction_swap import (
    COMMIT,
    DATA,
    compact,
    fill,
    make_harness,
    transactional_log,
)

pytestmark = pytest.mark.own_process


def test_segments_behind_a_compacted_one_are_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness(tmp_path)
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        log = harness.open()
        fill(log, CompactedModel())
        log.roll()
        log.append(keyed_batch([(b"k", b"v")], timestamp=TIME_MS)[0])
        log.roll()  # the name of the last segment is not synced
        rename = file_ops.rename
        images: list[Path] = []

        def renaming(source: str, target: str) -> None:
            rename(source, target)
            if target.endswith(files.SWAP_SUFFIX):
                images.append(image_with(recorder, tmp_path / f"image{len(images)}", Path(target)))

        monkeypatch.setattr(file_ops, "rename", renaming)
        compact(log)
    assert images
    for image in images:
        assert (image / "t-0" / Path(log.active.path).name).exists()


def image_with(recorder: NameRecorder, target: Path, announced: Path) -> Path:
    """What was synced, and by chance the name of the announced segment alone."""
    image = recorder.image(target)
    (image / "t-0" / announced.name).write_bytes(announced.read_bytes())
    return image


def test_compacted_segment_that_is_the_last_one(tmp_path: Path) -> None:
    harness = make_harness(tmp_path, segment_bytes=1 << 20)
    log = harness.open()
    log.append(keyed_batch([(b"first", b"v")], timestamp=TIME_MS)[0])
    for i in range(12):
        log.append(keyed_batch([(b"k%d" % (i % 4), b"%d" % i)], timestamp=TIME_MS)[0])
    log.append(keyed_batch([(b"only", b"v"), (b"k0", b"new")], timestamp=TIME_MS)[0])
    log.roll()
    log.flush()
    compact(log)
    expected = read_from(log, 0)
    assert [record.offset for record in expected] != list(range(expected[0].offset, expected[-1].offset + 1))
    end = log.log_end_offset
    active = Path(log.active.path)
    release(log)
    active.unlink()
    for path in harness.files(".klindex"):
        path.unlink()
    log = harness.open(clean=False, recovery_point=end)
    assert not damage_ranges(log)
    assert read_from(log, 0) == expected
    assert log.append(keyed_batch([(b"k", b"v")], timestamp=TIME_MS)[0]).base_offset == end


def test_offsets_missing_above_the_flushed_ones_are_no_compactions(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, cleanup_policy="compact")
    log = harness.open()
    for i in range(3):
        log.append(keyed_batch([(b"k%d" % i, b"v")], timestamp=TIME_MS)[0])
    release(log)
    (path,) = harness.files()
    data = path.read_bytes()
    size = len(data) // 3
    path.write_bytes(data[:size] + data[2 * size :])
    log = harness.open(clean=False, recovery_point=1)
    assert log.log_end_offset == 1


def test_recovery_point_is_written_down_before_anything_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager(tmp_path, log_cleaner_enable="false")
    manager.open()
    log = dirty_log(manager)
    path = f"{tmp_path}/{files.RECOVERY_POINTS_NAME}"
    assert not (checkpoints.read_offsets(path) or {}).get(("c", 0))
    seen: list[int] = []
    rename = file_ops.rename

    def renaming(source: str, target: str) -> None:
        if target.endswith(files.SWAP_SUFFIX):
            assert not log.entries.dirty
            seen.append((checkpoints.read_offsets(path) or {})["c", 0])
        rename(source, target)

    monkeypatch.setattr(file_ops, "rename", renaming)
    assert manager.cleaner.clean_dirtiest()
    assert seen
    assert min(seen) >= log.active.base_offset
    manager.close()


def dirty_log(manager: LogManager) -> PartitionLog:
    settings = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0"}
    log: PartitionLog = manager.create_topic("c", 1, settings).partitions[0]
    for i in range(20):
        log.append(keyed_batch([(b"k%d" % (i % 3), b"v" * 50)], timestamp=TIME_MS)[0])
    return log


def test_snapshot_that_knows_a_finished_transaction_as_open_does_not_come_back(tmp_path: Path) -> None:
    """The marker may go in a later compaction, and then nothing would end the transaction any more."""
    harness = make_harness(tmp_path)
    log = transactional_log(harness, [(DATA, 1, b"a"), (COMMIT, 1, b""), (DATA, 2, b"a"), (COMMIT, 2, b"")])
    log.ensure_producers()
    snapshots.write(log.directory, 1, snapshots.encode(()))
    with recorded(tmp_path, tmp_path / "kept") as recorder:
        compact(log)
        image = recorder.image(tmp_path / "image") / "t-0"
    assert snapshots.offsets_in(str(image)) == [4]
    assert snapshots.decode((image / f"{4:020d}.snapshot").read_bytes()) is not None
