"""B4: index files deleted, emptied, cut, random, stale, or another partition's. The answers stay the same."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.broker.log import index_file
from kafkalite.broker.log.partition_log import PartitionLog
from tests.kit.harness.log_harness import TIME_MS, LogHarness, PlainLog, damage_ranges, make_batch, read_all, release

SETTINGS = {"segment_bytes": 3000, "index_interval_bytes": 200}


def written(path: Path, *, seed: int = 0) -> tuple[LogHarness, PlainLog]:
    harness = LogHarness(path, **SETTINGS)
    model = PlainLog()
    log = harness.open()
    rng = random.Random(seed)
    for i in range(80):
        batch = make_batch(rng.randint(1, 4), value_size=rng.randrange(60), timestamp=TIME_MS + i * 1000)
        model.append(log.append(batch).base_offset, batch)
    log.close()
    return harness, model


def answers(log: PartitionLog, model: PlainLog) -> list[object]:
    found: list[object] = [log.find_timestamp(TIME_MS + ms) for ms in range(-1000, 82_000, 700)]
    found.append(log.max_timestamp())
    for offset in range(0, model.end, 3):
        assert read_all(log, offset, size_max=400) == model.from_offset(offset)
    found.append((log.log_start_offset, log.log_end_offset, log.size_bytes))
    return found


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def randomise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_entry(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)


def flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)


DAMAGES: list[Callable[[Path], None]] = [delete, empty, randomise, halve, flip_entry, flip_header]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_index_changes_no_answer(tmp_path: Path, damage: Callable[[Path], None], clean: bool) -> None:
    harness, model = written(tmp_path)
    log = harness.open(recovery_point=model.end)
    expected = answers(log, model)
    release(log)
    for path in harness.files(".klindex"):
        damage(path)
    log = harness.open(clean=clean, recovery_point=model.end)
    assert answers(log, model) == expected
    assert not damage_ranges(log)
    release(log)


def test_index_of_another_partition_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    harness, model = written(tmp_path / "a")
    other, _ = written(tmp_path / "b", seed=5)
    for path in other.files(".klindex"):
        target = harness.path / path.name
        if target.exists():
            target.write_bytes(path.read_bytes())
    log = harness.open(recovery_point=model.end)
    answers(log, model)


def test_index_from_before_more_was_appended_covers_its_part(tmp_path: Path) -> None:
    """An index that a checkpoint saved of a growing segment, or that remains after Kafka appended to our directory."""
    harness = LogHarness(tmp_path, index_interval_bytes=200)
    model = PlainLog()
    log = harness.open()
    for _ in range(20):
        batch = make_batch(2, value_size=100)
        model.append(log.append(batch).base_offset, batch)
    log.close()
    covered = harness.files()[0].stat().st_size
    log = harness.open(recovery_point=model.end)
    for _ in range(20):
        batch = make_batch(2, value_size=100)
        model.append(log.append(batch).base_offset, batch)
    log.flush()
    release(log)
    for clean in (True, False):
        log = harness.open(clean=clean, recovery_point=model.end)
        assert log.log_end_offset == model.end
        assert read_all(log) == model.batches
        summary = index_file.read_summary(str(harness.files(".klindex")[0]))
        assert summary is not None
        assert summary.covered_size == covered
        release(log)


def test_index_of_a_log_that_was_replaced_is_not_used(tmp_path: Path) -> None:
    """Same partition, same base offset, other bytes: the CRC of the last covered batch tells."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    harness, _ = written(tmp_path / "a")
    other, other_model = written(tmp_path / "b", seed=9)
    for path in harness.files():
        path.unlink()
    for path in other.files():
        (harness.path / path.name).write_bytes(path.read_bytes())
    log = harness.open(recovery_point=other_model.end)
    assert read_all(log) == other_model.batches


def test_large_index_is_mapped_and_extended(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path, index_interval_bytes=0, segment_index_bytes=1 << 20)
    model = PlainLog()
    log = harness.open()
    batch = make_batch(1, value_size=1)
    for _ in range(4000):
        model.append(log.append(batch).base_offset, batch)
    log.close()
    assert harness.files(".klindex")[0].stat().st_size > index_file.MAPPED_SIZE_MIN
    log = harness.open(recovery_point=model.end)
    assert read_all(log, 3990) == model.from_offset(3990)
    model.append(log.append(batch).base_offset, batch)
    assert read_all(log, 1234) == model.from_offset(1234)
    index = log.segments[0].index
    assert index is not None
    assert len(index) == 4000
