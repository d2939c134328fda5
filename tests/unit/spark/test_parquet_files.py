"""A load task's handling of record batches: the right hour, every row once and in order, files of bounded size."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.load.layout import NO_PLACE, folder_of
from kafkalite.load.manifest import DataFile, PartitionShare
from kafkalite.load.parquet import OPEN_MAX, Writing, write
from kafkalite.load.storage import LoadError

HOUR_US = 3_600_000_000
SCHEMA = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
Row = tuple[bytes | None, str | None, int, int, int | None]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def writing(folder: Path, **changes: object) -> Writing:
    return Writing(str(folder), "part", "zstd", 1 << 30, {}, False)._replace(**changes)


def written(settings: Writing, batches: list[pa.RecordBatch]) -> list[DataFile]:
    (told,) = write(settings, iter(batches))
    rows = [json.loads(text) for text in told.column("file").to_pylist()]
    return [DataFile.from_json(row) for row in rows if "schemas" not in row]


def rows_of(files: list[DataFile]) -> Iterator[tuple[str, str | None, int | None, Row]]:
    for file in files:
        table = pq.read_table(file.path, partitioning=None)
        assert "topic" not in table.schema.names, "it is in the path"
        columns = (*(table.column(name).to_pylist() for name in ("value", "partition", "offset")),)
        stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
        for value, partition, offset, stamp in zip(*columns, stamps, strict=True):
            yield file.topic, file.date, file.hour, (value, file.topic, partition, offset, stamp)


def test_hours_of_utc(tmp_path: Path) -> None:
    second = 1_000_000
    day = int(dt.datetime(2026, 11, 21, tzinfo=dt.UTC).timestamp()) * second
    stamps = [day - 1, day, day + HOUR_US - 1, day + HOUR_US, -1, 0, None, 2**63 - 1, -(2**63) + 1]
    files = written(writing(tmp_path), [batch_of([(b"v", "t", 0, n, stamp) for n, stamp in enumerate(stamps)])])
    places = {row[3]: (date, hour) for _, date, hour, row in rows_of(files)}
    assert [places[n] for n in range(len(stamps))] == [
        ("2026-11-20", 23), ("2026-11-21", 0), ("2026-11-21", 0), ("2026-11-21", 1), ("1969-12-31", 23),
        ("1970-01-01", 0), (None, None), (None, None), (None, None),
    ]  # fmt: skip
    nowhere = next(file for file in files if file.hour is None)
    assert (nowhere.time_min, nowhere.time_max, nowhere.rows) == (None, None, 3)
    assert folder_of("t", None, None) == f"topic=t/date={NO_PLACE}/hour={NO_PLACE}"
    assert folder_of("t", "2026-11-21", 7) == "topic=t/date=2026-11-21/hour=07"


rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=20)),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.integers(0, 3 * HOUR_US),
    ),
    max_size=60,
)


@given(rows, st.integers(1, 7), st.sampled_from([1, 600, 1 << 30]))
def test_every_row_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[bytes | None, str, int, int]],
    length: int,
    file_size: int,
) -> None:
    """Invariants: rows out are rows in; each in its hour's file; offsets of a partition rise; files tell the truth."""
    folder = tmp_path_factory.mktemp("files")
    made: list[Row] = [(value, topic, part, n, stamp) for n, (value, topic, part, stamp) in enumerate(drawn)]
    batches = [batch_of(made[first : first + length]) for first in range(0, len(made), length)]
    files = written(writing(folder, file_size=file_size), batches)
    found = list(rows_of(files))
    assert sorted((row for *_, row in found), key=lambda row: row[3]) == made
    for topic, date, hour, row in found:
        assert row[4] is not None
        assert (topic, date, hour) == (row[1], "1970-01-01", row[4] // HOUR_US)
    for file in files:
        mine = [row for *_, row in rows_of([file])]
        assert file.rows == len(mine) > 0
        assert file.size == Path(file.path).stat().st_size
        assert (file.time_min, file.time_max) == (min(row[4] for row in mine), max(row[4] for row in mine))
        for partition, share in file.partitions.items():
            offsets = [row[3] for row in mine if row[2] == partition]
            assert offsets == sorted(offsets)
            assert share == PartitionShare(len(offsets), offsets[0], offsets[-1])
        assert sum(share.rows for share in file.partitions.values()) == file.rows
    assert {Path(file.path) for file in files} == set(folder.iterdir())


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_files_are_bounded(tmp_path: Path, codec: str) -> None:
    """Values that do not compress, in batches larger than a file."""
    import random

    source = random.Random(1)
    file_size = 200_000
    batches = [
        batch_of([(source.randbytes(500), "t", 0, n, 0) for n in range(first, first + 1000)])
        for first in range(0, 3000, 1000)
    ]
    files = written(writing(tmp_path, codec=codec, file_size=file_size), batches)
    footer = 8_000
    assert all(file.size <= file_size + footer for file in files)
    assert len(files) <= 3 * 500_000 // (file_size // 2) + 1, "and not much smaller"
    assert sum(file.rows for file in files) == 3000


def test_more_hours_than_files_may_be_open(tmp_path: Path) -> None:
    hours = OPEN_MAX + 10
    batch = batch_of([(b"v", "t", 0, n, (n % hours) * HOUR_US) for n in range(3 * hours)])
    once = written(writing(tmp_path), [batch])
    assert len({file.path for file in once}) == len(once) == hours
    assert sum(file.rows for file in once) == 3 * hours


def test_a_task_without_rows_writes_no_file(tmp_path: Path) -> None:
    assert written(writing(tmp_path), []) == written(writing(tmp_path), [batch_of([])]) == []
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_fails_leaves_no_open_file(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of([(b"v", "t", 0, 0, 0)])
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        list(write(writing(tmp_path), batches()))
    assert list(tmp_path.iterdir()) == []


def test_what_is_loaded_is_an_error_or_left_out(tmp_path: Path) -> None:
    batch = batch_of([(b"v", topic, 0, n, 0) for topic in ("t", "u") for n in range(6)])
    loaded = {("t", 0): 4, ("t", 1): 9, ("u", 0): 0}
    with pytest.raises(LoadError, match=r"offset 0 of t-0 arrived again .loaded up to 4.*on_overlap"):
        written(writing(tmp_path, loaded=loaded), [batch])
    files = written(writing(tmp_path, loaded=loaded, skips=True), [batch])
    assert sorted((row[1], row[3]) for *_, row in rows_of(files)) == [
        ("t", 4), ("t", 5), *(("u", n) for n in range(6))
    ]  # fmt: skip


def test_a_row_without_a_topic_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="a row has no topic"):
        written(writing(tmp_path), [batch_of([(b"v", None, 0, 0, 0)])])
