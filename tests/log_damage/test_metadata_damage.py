"""B5 and B7: the small files deleted, cut, flipped; strangers in the directory. A start gives an older state or refuses
with one sentence; it never comes up empty over existing data.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from kafkalite._native.log.log_append import append_batch
from kafkalite.errors import ErrorCode, StartupError
from tests.kit.harness.log_harness import PlainLog, abandon, make_batch, make_manager, read_all
from tests.kit.harness.samples import sample

ROOT_FILES = ["metadata.journal", "meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
PARTITION_FILES = ["leader-epoch-checkpoint", "partition.metadata"]
CUTS_PER_FILE = 25
FLIPS_PER_FILE = 25


def prepared(path: Path) -> PlainLog:
    """A data directory with one topic, stopped cleanly after a kill in its life."""
    model = PlainLog()
    path.mkdir()
    for kill in (True, False):
        manager = make_manager(path, log_segment_bytes=1500)
        manager.open()
        topic = manager.topics.get("t") or manager.create_topic("t", 2, {"retention.ms": "-1"})
        log = topic.partitions[0]
        sequence = 0
        for i in range(20):
            batch = make_batch(1 + i % 3, value_size=40, producer_id=5, epoch=int(not kill), sequence=sequence)
            sequence += 1 + i % 3
            model.append(log.append(batch).base_offset, batch)
        log.flush()
        abandon(manager) if kill else manager.close()
    return model


def check_start(path: Path, model: PlainLog, what: str) -> None:
    """A start on damaged files: refused in words, or everything is served."""
    manager = make_manager(path, log_segment_bytes=1500)
    refused: StartupError | None = None
    try:
        manager.open()
    except StartupError as error:
        refused = error
    if refused is not None:
        assert str(path) in str(refused), what
        assert "\n" not in str(refused), what
        return
    try:
        assert "t" in manager.topics, f"{what}: came up empty over existing data"
        log = manager.topics["t"].partitions[0]
        assert log.log_end_offset >= model.end, what
        if not log.offline:
            served = read_all(log)
            assert served == model.batches, what
            assert log.append(make_batch()).base_offset >= model.end, what
    finally:
        manager.close()


def variants(data: bytes, seed: str) -> list[tuple[str, bytes | None]]:
    rng = random.Random(seed)
    found: list[tuple[str, bytes | None]] = [("deleted", None), ("empty", b""), ("zeros", bytes(len(data)))]
    found += [(f"cut at {at}", data[:at]) for at in sorted({rng.randrange(len(data)) for _ in range(CUTS_PER_FILE)})]
    for _ in range(FLIPS_PER_FILE):
        bit = rng.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found.append((f"bit {bit}", bytes(flipped)))
    return found


@pytest.mark.parametrize("clean", sample([False, True], 1), ids=["killed", "clean"])
@pytest.mark.parametrize("name", sample([*ROOT_FILES, *(f"t-0/{name}" for name in PARTITION_FILES), "t-0/snapshot"], 2))
def test_damaged_small_file(tmp_path: Path, name: str, clean: bool) -> None:
    original = tmp_path / "original"
    model = prepared(original)
    if name == "t-0/snapshot":
        name = f"t-0/{max((original / 't-0').glob('*.snapshot')).name}"
    for what, data in variants((original / name).read_bytes(), name):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        if not clean:
            (copy / ".kafka_cleanshutdown").unlink()
        if data is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(data)
        check_start(copy, model, f"{name} {what}")
        shutil.rmtree(copy)


def test_strangers_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "data"
    model = prepared(path)
    (path / "stray.txt").write_text("not ours")
    (path / "empty folder").mkdir()
    (path / "u-0").mkdir()
    (path / "t-0" / "notes").write_text("nor this")
    (path / "t-0" / f"{999:020d}.log").mkdir()
    (path / "t-0" / "123.log").write_bytes(b"x")
    (path / "t-0" / f"{0:020d}.log.deleted").write_bytes(b"x")
    check_start(path, model, "strangers")
    for kept in ("stray.txt", "empty folder", "u-0", "t-0/notes", f"t-0/{999:020d}.log", "t-0/123.log"):
        assert (path / kept).exists(), kept
    assert not (path / "t-0" / f"{0:020d}.log.deleted").exists()


def test_empty_partition_directory_is_an_empty_partition(tmp_path: Path) -> None:
    path = tmp_path / "data"
    prepared(path)
    (path / "t-1").mkdir(exist_ok=True)
    manager = make_manager(path)
    manager.open()
    assert manager.topics["t"].partitions[1].append(make_batch()).base_offset == 0
    manager.close()


def test_unreadable_log_takes_its_partition_offline_only(tmp_path: Path) -> None:
    """Permissions do not stop root, so a symbolic link to itself makes the log unreadable."""
    path = tmp_path / "data"
    prepared(path)
    manager = make_manager(path)
    manager.open()
    manager.topics["t"].partitions[1].append(make_batch())
    manager.close()
    shutil.rmtree(path / "t-0")
    os.symlink("t-0", path / "t-0")
    manager = make_manager(path)
    manager.open()
    bad, good = manager.topics["t"].partitions
    assert append_batch(bad.core, make_batch())[1] == ErrorCode.KAFKA_STORAGE_ERROR
    assert bad.core.read_copy(0, 10)[1] == ErrorCode.KAFKA_STORAGE_ERROR
    assert good.append(make_batch()).base_offset == 1
    manager.close()
    assert (path / "t-0").is_symlink()


def test_read_only_directory_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a file where the data directory should be")
    with pytest.raises(StartupError, match=r"log\.dirs"):
        make_manager(path).open()
