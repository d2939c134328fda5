"""After any power cut, a deleted topic does not return, and a new one has no data of an old one."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import checkpoints, files, segment_removal
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import StorageError
from tests.kit.harness import seams
from tests.kit.harness.log_harness import TIME_MS, abandon, damage_ranges, make_batch, started
from tests.kit.oracles.unsynced import NameRecorder
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.own_process

METADATA = "partition.metadata"
DAMAGES = pytest.mark.parametrize("damage", [b"", bytes(50), b"version: 0\ntopic_id: "], ids=["empty", "zeros", "cut"])


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    file_ops.disarm()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def written(manager: LogManager, name: str, *, flush: bool = True) -> None:
    """A topic with one record."""
    log = manager.create_topic(name, 1, {}).partitions[0]
    log.append(make_batch())
    if flush:
        log.flush()


def directories(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()}


def test_topic_id_is_on_the_disk_with_the_first_flush(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_path", synced.append)
    manager = started(root)
    written(manager, "t")
    assert str(root / "t-0" / METADATA) in synced
    synced.clear()
    log = manager.topics["t"].partitions[0]
    log.roll()
    log.append(make_batch())
    log.flush()
    assert synced == [], "once is enough"
    abandon(manager)
    manager = started(root)
    manager.topics["t"].partitions[0].append(make_batch())
    manager.topics["t"].partitions[0].flush()
    assert str(root / "t-0" / METADATA) in synced, "who wrote it may have died before it synced it"
    manager.close()


@pytest.mark.parametrize("forget", [(), (METADATA,)], ids=["", "id lost"])
def test_deleted_topic_stays_deleted(
    root: Path, recorder: NameRecorder, tmp_path: Path, forget: tuple[str, ...]
) -> None:
    manager = started(root)
    written(manager, "t")
    manager.delete_topic("t")
    image = recorder.image(tmp_path / "image", forget_content=forget)
    manager.close()
    again = started(image)
    assert not again.topics
    assert "t-0" not in directories(image)
    again.close()


@pytest.mark.parametrize("forget", [(), (METADATA,)], ids=["", "id lost"])
def test_topic_made_again_has_nothing_of_the_deleted_one(
    root: Path, recorder: NameRecorder, tmp_path: Path, forget: tuple[str, ...]
) -> None:
    manager = started(root)
    written(manager, "t")
    manager.delete_topic("t", durable=False)  # its answer waits for others in the request
    second = manager.create_topic("t", 1, {})
    image = recorder.image(tmp_path / "image", forget_content=forget)
    manager.close()
    again = started(image)
    assert again.topics["t"].id == second.id
    assert again.topics["t"].partitions[0].log_end_offset == 0
    again.close()


def test_removal_at_a_start_is_durable_before_the_journal_forgets_the_id(
    root: Path, recorder: NameRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.SLACK_LINES", 0)
    manager = started(root)
    written(manager, "t")
    shutil.copytree(root / "t-0", tmp_path / "t-0")
    manager.delete_topic("t")
    abandon(manager)
    shutil.move(tmp_path / "t-0", root / "t-0")  # it was killed before the renaming, and after the line in the journal
    recorder.sync_directory(str(root))
    recorder.sync_directory(str(root / "t-0"))
    manager = started(root)
    assert "delete" not in (root / "metadata.journal").read_text()
    again = started(recorder.image(tmp_path / "image"))
    assert not again.topics
    again.close()
    manager.close()


def test_nothing_of_a_deleted_topic_goes_before_its_name_has_gone_durably(root: Path) -> None:
    manager = started(root)
    manager.create_topic("t", 1, {"file.delete.delay.ms": "0"}).partitions[0].append(make_batch())
    manager.delete_topic("t", durable=False)
    manager.housekeeper.run_due()
    (renamed,) = root.glob("t-0.*-delete")
    assert (renamed / METADATA).exists(), "under its old name again it could not say whose it was"
    manager.removals.sync_renames()
    manager.housekeeper.run_due()
    wait_until(lambda: not renamed.exists(), 30, "the directory is removed")
    manager.close()


def test_a_start_removes_nothing_of_a_directory_whose_name_may_come_back(
    root: Path, recorder: NameRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = started(root)
    written(manager, "t")
    shutil.copytree(root / "t-0", tmp_path / "t-0")
    manager.delete_topic("t")
    abandon(manager)
    shutil.move(tmp_path / "t-0", root / "t-0")  # it was killed before the renaming, and after the line in the journal
    recorder.sync_directory(str(root))
    durable: list[set[str]] = []
    remove_tree = files.remove_tree

    def look_and_remove(path: str) -> None:
        durable.append(directories(recorder.image(tmp_path / f"image-{len(durable)}")))
        remove_tree(path)

    monkeypatch.setattr(files, "remove_tree", look_and_remove)
    started(root).close()
    assert durable
    assert not any("t-0" in names for names in durable)


def test_a_deleted_topics_directory_without_its_id_file_belongs_to_no_topic(root: Path, tmp_path: Path) -> None:
    manager = started(root)
    written(manager, "t")
    shutil.copytree(root / "t-0", tmp_path / "t-0")
    manager.delete_topic("t")
    abandon(manager)
    (tmp_path / "t-0" / METADATA).unlink()  # no sync had covered its name, nor that of the directory's renaming
    shutil.move(tmp_path / "t-0", root / "t-0")
    manager = started(root)
    assert not manager.topics
    assert [name for name in directories(root) if name.endswith("-stray")]
    manager.close()
    again = started(root)
    assert not again.topics
    again.close()


def test_directory_without_an_id_is_adopted_after_a_clean_stop_whatever_was_deleted(root: Path, tmp_path: Path) -> None:
    manager = started(root)
    written(manager, "t")
    shutil.copytree(root / "t-0", tmp_path / "t-0")
    manager.delete_topic("t")
    manager.close()
    (tmp_path / "t-0" / METADATA).unlink()
    shutil.move(tmp_path / "t-0", root / "t-0")  # an operator's doing
    manager = started(root)
    assert manager.topics["t"].partitions[0].log_end_offset == 1
    manager.close()


def test_deletion_that_cannot_be_synced_is_not_reported_done(root: Path) -> None:
    manager = started(root)
    for name in ("t", "u", "v"):
        manager.create_topic(name, 1, {}).partitions[0].append(make_batch())
    manager.delete_topic("t", durable=False)
    seams.arm(("sync",), after=0, error=errno.EIO)
    with pytest.raises(StorageError):
        manager.removals.sync_renames()
    file_ops.disarm()
    with pytest.raises(StorageError):
        manager.delete_topic("u")  # a later sync that succeeds says nothing of what the failed one was to write
    with pytest.raises(StorageError):
        manager.create_topic("t", 1, {})
    assert set(manager.topics) == {"v"}
    manager.close()


@DAMAGES
def test_a_directory_without_its_id_belongs_to_no_topic(
    root: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    manager = started(root)
    written(manager, "t")
    shutil.copytree(root / "t-0", root / "u-0")
    manager.close()
    (root / "u-0" / METADATA).write_bytes(damage)
    for index in (root / "u-0").glob("*.klindex"):
        index.unlink()
    manager = started(root)
    assert set(manager.topics) == {"t"}
    assert "its topic is unknown" in caplog.text
    kept = {path.name: path.read_bytes() for path in (root / "u-0").iterdir()}
    topic = manager.create_topic("u", 1, {})
    topic.partitions[0].append(make_batch(3))
    assert topic.partitions[0].log_end_offset == 3, "its own record alone"
    (stray,) = [name for name in directories(root) if name.endswith("-stray")]
    assert {path.name: path.read_bytes() for path in (root / stray).iterdir()} == kept
    abandon(manager)
    manager = started(root)
    assert set(manager.topics) == {"t", "u"}
    assert (root / stray / f"{0:020d}.log").exists()
    manager.close()


@DAMAGES
def test_directory_of_a_known_topic_gets_its_id_back(root: Path, damage: bytes) -> None:
    manager = started(root)
    written(manager, "t", flush=False)
    topic_id = manager.topics["t"].id
    abandon(manager)
    (root / "t-0" / METADATA).write_bytes(damage)
    manager = started(root)
    assert manager.topics["t"].partitions[0].log_end_offset == 1
    assert checkpoints.read_partition_topic_id(str(root / "t-0")) == topic_id
    manager.close()


def test_saved_index_tells_that_a_directory_was_a_deleted_topics(root: Path) -> None:
    manager = started(root)
    manager.create_topic("t", 1, {}).partitions[0].append(make_batch())
    manager.close()
    assert list((root / "t-0").glob("*.klindex"))
    shutil.copytree(root / "t-0", root.parent / "old")
    manager = started(root)
    manager.delete_topic("t")
    written(manager, "t", flush=False)
    abandon(manager)
    shutil.rmtree(root / "t-0")
    shutil.move(root.parent / "old", root / "t-0")
    (root / "t-0" / METADATA).write_bytes(b"")
    manager = started(root)
    assert manager.topics["t"].partitions[0].log_end_offset == 0, "records of the deleted topic are not the new one's"
    manager.close()


def test_added_partition_takes_nothing_that_lies_under_its_name(root: Path) -> None:
    manager = started(root)
    written(manager, "t")
    shutil.copytree(root / "t-0", root / "t-1")
    topic = manager.add_partitions("t", 2)
    assert topic.partitions[1].log_end_offset == 0
    assert [name for name in os.listdir(root) if name.endswith("-stray")]
    manager.close()


def test_successor_begins_at_offset_0_whatever_the_checkpoints_said(root: Path) -> None:
    """They know topics by name."""
    manager = started(root)
    log = manager.create_topic("t", 1, {}).partitions[0]
    for _ in range(10):
        log.append(make_batch())
    segment_removal.delete_records(log, 7)
    manager.housekeeper.checkpoint()
    manager.delete_topic("t")
    log = manager.create_topic("t", 1, {}).partitions[0]
    log.append(make_batch(2))
    log.flush()
    abandon(manager)
    manager = started(root)
    log = manager.topics["t"].partitions[0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    assert not damage_ranges(log)
    manager.close()


def test_deleted_records_stay_deleted(root: Path, recorder: NameRecorder, tmp_path: Path) -> None:
    """The files that held them may come back; where the log starts is written down until they cannot."""
    manager = started(root)
    log = manager.create_topic("t", 1, {}).partitions[0]
    for _ in range(3):
        log.append(make_batch())
        log.roll()
    log.flush()
    segment_removal.delete_records(log, 2)
    assert log.segments[0].base_offset == 2
    manager.housekeeper.checkpoint()
    image = recorder.image(tmp_path / "image")
    assert (image / "t-0" / f"{0:020d}.log").exists()
    again = started(image)
    assert again.topics["t"].partitions[0].log_start_offset == 2
    again.close()
    log.flush()
    manager.housekeeper.checkpoint()
    assert (root / files.LOG_STARTS_NAME).read_text() == "0\n0\n", "the name of the first segment tells it by now"
    manager.close()


def test_segments_that_come_back_cost_none_of_those_behind_them(
    root: Path, recorder: NameRecorder, tmp_path: Path
) -> None:
    """Retention removed two, and the first one's old name is there again: the hole is not the end of the log."""
    manager = started(root)
    log = manager.create_topic("t", 1, {}).partitions[0]
    for _ in range(4):
        log.append(make_batch())
        log.roll()
    log.flush()
    manager.alter_topic("t", {"retention.bytes": str(2 * log.segments[0].size)})
    assert segment_removal.apply_retention(log, TIME_MS) == 2
    image = recorder.image(tmp_path / "image")
    for path in (image / "t-0").glob(f"{1:020d}.*"):
        path.unlink()
    for path in (image / "t-0").glob("*.klindex"):
        path.unlink()
    manager.close()
    again = started(image)
    log = again.topics["t"].partitions[0]
    assert log.log_end_offset == 4
    assert log.read(3, 1 << 20)
    again.close()
