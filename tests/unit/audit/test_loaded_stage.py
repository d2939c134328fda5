"""Files of a continuous audit: each row is counted once, also of files that are read again."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from kafkalite.audit import following_stages, stages
from kafkalite.audit.following_stages import LoadedStage
from kafkalite.audit.lasting import LastingReported
from kafkalite.audit.marks import HEADER, Marks, mark, read_marks
from kafkalite.load.manifest import DataFile, PartitionShare

if TYPE_CHECKING:
    from kafkalite.wire.record.columns import BytesColumn, HeaderColumns

BATCH = 10
"""Rows that are read at a time."""


class Marked:
    """Reads marks from headers, and fails after some batches like a disk that does."""

    def __init__(self) -> None:
        self.batches_left: int | None = None

    def field(self, _topic: str) -> str:
        return "mark"

    def marks(self, _topic: str, headers: HeaderColumns | None, _values: BytesColumn) -> Marks:
        if self.batches_left is not None:
            if not self.batches_left:
                raise OSError(errno.EIO, "Input/output error")
            self.batches_left -= 1
        return read_marks(headers)


class Loaded:
    """A folder with files of topic `t`, and the stage that reads them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.files: list[DataFile] = []
        self.marks = Marked()
        self.stage = self.new_stage()
        monkeypatch.setattr(following_stages, "loaded_files", lambda _folder: self.files)
        monkeypatch.setattr(stages, "CHUNK_COUNT", BATCH)

    def new_stage(self) -> LoadedStage:
        return LoadedStage(
            "loaded",
            str(self.folder),
            reported=LastingReported(),
            horizon_ms=0,
            beat=lambda: None,
            fields=self.marks,
        )

    def add(self, name: str, *parts: list[int]) -> None:
        """Adds a file with these offsets of partitions 0 and 1, each with the mark of another message.

        With several parts, the file is what compaction makes of files with one part each.
        """
        rows = [(partition, offset) for offsets in parts for partition in (0, 1) for offset in offsets]
        offsets = [offset for part in parts for offset in part]
        headers = [[{"key": HEADER, "value": mark(1 + partition, offset, offset, b"s")}] for partition, offset in rows]
        table = pa.table(
            {
                "partition": pa.array([partition for partition, _ in rows], pa.int32()),
                "offset": pa.array([offset for _, offset in rows], pa.int64()),
                "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                "value": pa.array([b"v"] * len(rows), pa.binary()),
            }
        )
        parquet.write_table(table, self.folder / name)
        share = PartitionShare(len(offsets), min(offsets), max(offsets))
        self.files.append(DataFile(name, "t", "2026-11-21", 7, len(rows), 1, {0: share, 1: share}, 0, 10**15))

    def read(self, batches: int | None = None) -> None:
        self.marks.batches_left = batches
        self.stage.count.look_ahead(0)
        self.stage.read(["t"], threading.Event())

    def counted(self) -> tuple[int, int]:
        """Return the numbers of messages that were counted, and of those that were counted twice."""
        self.stage.count.settle(10**15)
        seen = self.stage.count.windows.values()
        return sum(one.distinct + one.unreported for one in seen), sum(one.duplicated for one in seen)

    def restart(self) -> None:
        """Continue with another process's stage, which has the saved state."""
        meta, arrays = self.stage.count.saved()
        saved = json.loads(json.dumps(self.stage.saved()))
        self.stage = self.new_stage()
        self.stage.count.restore(meta, arrays)
        self.stage.restore(saved)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    return Loaded(tmp_path, monkeypatch)


@pytest.mark.parametrize("batches", [0, 1, 5])
@pytest.mark.parametrize("restarts", [False, True], ids=["same-process", "restarted"])
def test_a_file_that_cannot_be_read_to_its_end_is_continued(loaded: Loaded, batches: int, restarts: bool) -> None:
    loaded.add("a", list(range(0, 60, 2)))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            loaded.read(batches)
        if restarts:
            loaded.restart()
    loaded.read()
    assert loaded.counted() == (60, 0)


def test_a_file_that_was_counted_partly_and_then_replaced(loaded: Loaded) -> None:
    a, b, c = (list(range(first, first + 20)) for first in (0, 20, 40))
    loaded.add("a", a)
    loaded.read()
    loaded.add("b", b)
    with pytest.raises(OSError, match="Input/output"):
        loaded.read(3)
    loaded.files.clear()
    loaded.add("cab", c, a, b)
    with pytest.raises(OSError, match="Input/output"):
        loaded.read(9)
    loaded.restart()
    loaded.files.clear()
    loaded.add("dcab", list(range(60, 80)), c, a, b)
    loaded.read()
    assert loaded.counted() == (160, 0)
    assert not loaded.stage.saved()["begun"]


def test_no_offsets_are_compared_without_a_failure_or_compaction(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(following_stages, "rows_of", asked.append)
    for name in ("a", "b"):
        loaded.add(name, list(range(0, 60, 2)))
        loaded.read()
    assert not asked


def test_the_state_of_a_half_read_file_does_not_grow_with_gaps_between_its_offsets(loaded: Loaded) -> None:
    loaded.add("a", list(range(0, 6000, 3)))
    with pytest.raises(OSError, match="Input/output"):
        loaded.read(300)
    (begun,) = loaded.stage.saved()["begun"]
    assert begun == ["a", ["t", "2026-11-21", 7], [(0, (0, 5997)), (1, (0, 5997))], 3000]
