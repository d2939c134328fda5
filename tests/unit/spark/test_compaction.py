"""Small files of an hour become few, by manifest: the same rows, nothing twice, and old files go after their grace."""

import contextlib
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from kafkalite.load.compaction import compact, groups
from kafkalite.load.manifest import DataFile, PartitionShare, Target
from kafkalite.load.storage import LoadError
from kafkalite.spark import load
from tests.kit.harness.load_target import add


def offsets_of(path: Path) -> list[tuple[int, int]]:
    rows = load.dataset(path).to_table(columns=["partition", "offset"])
    return list(zip(*(rows.column(name).to_pylist() for name in ("partition", "offset")), strict=True))


def test_small_files_of_an_hour_become_one(tmp_path: Path) -> None:
    for first in range(0, 50, 10):
        add(tmp_path, range(first, first + 10), partition=1)
    add(tmp_path, range(3), hour=1)
    add(tmp_path, range(7), partition=0)
    before = offsets_of(tmp_path)
    done = compact(tmp_path)
    assert (done.files_before, done.files_after, done.rows) == (6, 1, 57)
    one, other = sorted(load.files(tmp_path), key=lambda file: file.hour)
    assert (one.rows, one.partitions, one.hour) == (57, {0: PartitionShare(7, 0, 6), 1: PartitionShare(50, 0, 49)}, 0)
    assert (one.time_min, one.time_max) == (0, 9)
    assert (tmp_path / one.path).stat().st_size == one.size == done.size
    assert (other.rows, other.hour) == (3, 1)
    assert sorted(offsets_of(tmp_path)) == sorted(before)
    assert [offset for partition, offset in offsets_of(tmp_path) if partition == 1] == list(range(50)), "in order"
    assert ds.dataset(tmp_path, partitioning="hive").count_rows() == 60, "nobody sees the old ones"
    assert compact(tmp_path).files_before == 0


def test_grace_keeps_the_old_files(tmp_path: Path) -> None:
    add(tmp_path, range(5))
    add(tmp_path, range(5, 10))
    old = [tmp_path / file.path for file in load.files(tmp_path)]
    compact(tmp_path, grace_s=3600)
    assert all(path.exists() for path in old)
    assert len(offsets_of(tmp_path)) == 10


def test_columns_that_came_later_are_null_before(tmp_path: Path) -> None:
    add(tmp_path, range(2), more={"x": ["a", "b"]})
    add(tmp_path, range(2, 4), more={"y": [1.5, None]})
    compact(tmp_path)
    rows = load.dataset(tmp_path).to_table(columns=["offset", "x", "y"]).to_pylist()
    assert rows == [
        {"offset": 0, "x": "a", "y": None},
        {"offset": 1, "x": "b", "y": None},
        {"offset": 2, "x": None, "y": 1.5},
        {"offset": 3, "x": None, "y": None},
    ]


def test_groups_are_bounded_and_leave_large_files_alone() -> None:
    def file(name: str, size: int, hour: int = 0) -> DataFile:
        return DataFile(name, "t", "2026-11-21", hour, 1, size, {}, None, None)

    files = [file("a", 40), file("b", 40), file("large", 50), file("c", 30), file("alone", 1, hour=1), file("d", 1)]
    assert [[file.path for file in group] for group in groups(files, 100)] == [["a", "b"], ["c", "d"]]
    assert groups(files, 30) == []


def test_an_empty_load_is_reported(tmp_path: Path) -> None:
    for call in (compact, load.files, load.dataset, load.positions):
        with pytest.raises(LoadError, match="nothing has been loaded"):
            call(tmp_path)
    with contextlib.suppress(LoadError), Target(tmp_path).writing():
        pass
    assert load.files(tmp_path) == []
    with pytest.raises(LoadError, match=r"no files have been loaded into .* from topic t$"):
        load.dataset(tmp_path, "t")
