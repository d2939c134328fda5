"""Folders by hour, by day and by a column, and flattened values: what is written, and what readers find."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafkalite.cli import main
from kafkalite.load import dataset, read
from kafkalite.load.columns import of_arrow
from kafkalite.load.compaction import compact
from kafkalite.load.layout import NO_PLACE, PLACES_MAX, Layout, flattened, require_layout
from kafkalite.load.loading import layouts_of, new_layouts
from kafkalite.load.manifest import Change, Target
from kafkalite.load.parquet import Writing
from kafkalite.load.storage import LoadError
from kafkalite.load.table_schema import schemas, spark_schemas, tables
from tests.kit.harness.load_target import HOUR_US, publish_batches

TEXTS = ["DE", "a/b", "x=y", "50%", "ü ö", "", None, "a:b*c?", "07", "+", "..", "tab\there", "'\"#"]


def add(
    folder: Path, rows: list[Any], *, kind: Any = None, topic: str = "t", hours: list[int] | None = None, **asked: Any
) -> None:
    """Load values of the column `decoded` (structs), one hour after the other, as an engine does."""
    target = Target(folder)
    with target.writing() as staging:
        first = max(
            (file.partitions[0].last + 1 for file in target.state.files.values() if file.topic == topic), default=0
        )
        count = len(rows)
        times = [HOUR_US * hour for hour in hours or range(count)]
        decoded = pa.array(rows) if kind is None else pa.array(rows, kind)
        columns = {
            "topic": pa.array([topic] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "value": pa.array([b"v"] * count),
            "decoded": decoded,
            "json_error": pa.nulls(count, pa.string()),
        }
        layouts = layouts_of(target.state, [topic], asked.get("by"), asked.get("flatten"), target.location)
        known = tables(target.storage, target.state, strict=False)
        more = {name: value for name, value in asked.items() if name not in {"by", "flatten"}}
        writing = Writing(staging, "part", "zstd", 1 << 30, {}, False, {}, known, layouts=layouts)._replace(**more)
        change = Change("load", layouts=new_layouts(target, layouts))
        publish_batches(target, [pa.record_batch(columns)], writing, change=change)


def found(folder: Path, *names: str, topic: str = "t") -> list[tuple[Any, ...]]:
    table = read(folder, topic).sort_by("offset").select(list(names))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def folders(place: Path) -> set[str]:
    return {str(path.parent.relative_to(place)) for path in place.glob("topic=*/**/*.parquet")}


# --- flattened --------------------------------------------------------------------------------------------------------


def flat(kind: pa.DataType, rows: list[Any], separator: str = "_", aliases: Any = None) -> tuple[Any, Any]:
    batch = pa.record_batch({"offset": pa.array(range(len(rows))), "decoded": pa.array(rows, kind)})
    return flattened(batch, of_arrow(batch.schema, aliases), separator)


def test_fields_become_columns() -> None:
    inner = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])
    kind = pa.struct([("id", pa.int32()), ("user", inner), ("offset", pa.int64())])
    rows = [{"id": 1, "user": {"name": "n", "tags": ["x"]}, "offset": 7}, {"id": 2, "user": None, "offset": None}, None]
    batch, columns = flat(kind, rows)
    assert batch.schema.names == ["offset", "id", "user_name", "user_tags", "decoded_offset"]
    assert [column.name for column in columns] == batch.schema.names
    assert batch.slice(0, 1).to_pylist() == [
        {"offset": 0, "id": 1, "user_name": "n", "user_tags": ["x"], "decoded_offset": 7}
    ]
    nothing = {"user_name": None, "user_tags": None, "decoded_offset": None}
    assert batch.slice(1).to_pylist() == [{"offset": 1, "id": 2, **nothing}, {"offset": 2, "id": None, **nothing}]
    assert flat(kind, rows, ".")[0].schema.names[-1] == "decoded.offset"


def test_older_names_are_those_of_flattened_fields() -> None:
    kind = pa.struct([("user", pa.struct([("name", pa.string())]))])
    aliases = {"decoded.user": ["who"], "decoded.user.name": ["nick"]}
    _, columns = flat(kind, [], ".", aliases)
    assert columns[1].aliases == ("user.nick", "who.name", "who.nick")


def test_two_fields_of_one_name_are_refused() -> None:
    kind = pa.struct([("a_b", pa.int32()), ("A", pa.struct([("b", pa.int32())]))])
    with pytest.raises(LoadError, match="two fields of the values would be column a_b; flatten with another separator"):
        flat(kind, [])
    assert flat(kind, [], ".")[0].schema.names == ["offset", "a_b", "A.b"]


def test_a_flattened_table_grows(tmp_path: Path) -> None:
    add(tmp_path, [{"id": 1, "user": {"name": "n"}}], flatten=".")
    add(tmp_path, [{"id": 2**40, "user": {"name": "m", "age": 5}}])
    assert found(tmp_path, "id", "user.name", "user.age") == [(1, "n", None), (2**40, "m", 5)]
    compact(tmp_path)
    assert found(tmp_path, "id", "user.name", "user.age") == [(1, "n", None), (2**40, "m", 5)]
    names = duckdb.read_parquet(f"{tmp_path}/topic=t/*/*/*.parquet", union_by_name=True).columns
    assert [name for name in names if name in {"decoded", "id", "user.name", "user.age"}] == [
        "id",
        "user.name",
        "user.age",
    ]


def test_a_renamed_field_of_a_flattened_table(tmp_path: Path) -> None:
    add(tmp_path, [{"user": {"nick": "n"}}], flatten="_")
    add(tmp_path, [{"user": {"name": "m"}}], aliases={"decoded.user.name": ["nick"]})
    assert found(tmp_path, "user_name") == [("n",), ("m",)]


def test_a_flattened_field_that_does_not_fit(tmp_path: Path) -> None:
    add(tmp_path, [{"user": {"id": 1}, "n": 1}], flatten="_")
    text = "column user_id is string here, but int64 in the table"
    with pytest.raises(LoadError, match=f"offset 1 of t-0 does not fit: {text}"):
        add(tmp_path, [{"user": {"id": "one"}, "n": 2}])
    add(tmp_path, [{"user": {"id": "one"}, "n": 2}, {"user": None, "n": 3}], errors="json_error")
    assert found(tmp_path, "user_id", "n", "json_error") == [(1, 1, None), (None, None, text), (None, 3, None)]


# --- folders ----------------------------------------------------------------------------------------------------------


def test_by_day(tmp_path: Path) -> None:
    add(tmp_path, [{"id": n} for n in range(50)], by="day")
    add(tmp_path, [{"id": 50, "more": 1}], hours=[47])
    assert folders(tmp_path) == {f"topic=t/date=1970-01-0{day}" for day in (1, 2, 3)}
    rows = [(n, f"1970-01-0{1 + hour // 24}") for n, hour in enumerate([*range(50), 47])]
    assert [(offset, str(date)) for offset, date in found(tmp_path, "offset", "date")] == rows
    assert {name for name in schemas(tmp_path)["t"].names if name in {"date", "hour"}} == {"date"}
    compact(tmp_path)
    assert [(offset, str(date)) for offset, date in found(tmp_path, "offset", "date")] == rows
    told = duckdb.read_parquet(f"{tmp_path}/topic=t/*/*.parquet", hive_partitioning=True, union_by_name=True)
    assert [(row[0], str(row[1])) for row in told.order('"offset"').project('"offset", "date"').fetchall()] == rows


def test_by_a_column_of_text(tmp_path: Path) -> None:
    """What Hive's rules make of each value, and what readers outside find."""
    rows = [{"id": n, "country": text} for n, text in enumerate(TEXTS)]
    add(tmp_path, rows, flatten="_", by="country")
    add(tmp_path, [{"id": len(rows), "country": "DE"}, {"id": len(rows) + 1, "country": "FR"}])
    expected = [(n, text or None) for n, text in enumerate([*TEXTS, "DE", "FR"])]
    assert found(tmp_path, "id", "country") == expected
    assert f"topic=t/country={NO_PLACE}" in folders(tmp_path)
    assert {"topic=t/country=a%2Fb", "topic=t/country=x%3Dy", "topic=t/country=50%25"} < folders(tmp_path)
    for _ in range(2):
        outside = ds.dataset(tmp_path, schema=schemas(tmp_path)["t"], partitioning="hive").to_table()
        pairs = zip(outside["id"].to_pylist(), outside["country"].to_pylist(), strict=True)
        assert sorted(pairs) == expected
        told = duckdb.read_parquet(f"{tmp_path}/topic=t/*/*.parquet", hive_partitioning=True, union_by_name=True).order(
            "id"
        )
        assert told.project("id, country").fetchall() == expected
        frame = pl.scan_parquet(
            f"{tmp_path}/topic=t/**/*.parquet",
            hive_partitioning=True,
            hive_schema={"topic": pl.String, "country": pl.String},
        )
        assert sorted(frame.select("id", "country").collect().rows()) == expected
        assert compact(tmp_path).files_after == (1 if _ == 0 else 0)
    assert found(tmp_path, "id", "country") == expected
    only = read(tmp_path, "t", columns=["id"], filter=ds.field("country") == "DE")
    assert sorted(only["id"].to_pylist()) == [0, len(rows)]
    assert "`country` STRING" in spark_schemas(tmp_path)["t"]


@pytest.mark.parametrize(
    ("values", "kind", "folder"),
    [
        ([7, -7, None], pa.int32(), "x=-7"),
        ([True, False, None], pa.bool_(), "x=true"),
        ([dt.date(2026, 1, 2), None], pa.date32(), "x=2026-01-02"),
    ],
    ids=str,
)
def test_by_a_column_of_another_type(tmp_path: Path, values: list[Any], kind: pa.DataType, folder: str) -> None:
    add(tmp_path, [{"x": value} for value in values], kind=pa.struct([("x", kind)]), flatten="_", by="x")
    assert f"topic=t/{folder}" in folders(tmp_path)
    assert [value for (value,) in found(tmp_path, "x")] == values
    compact(tmp_path)
    assert [value for (value,) in found(tmp_path, "x")] == values


def test_a_column_that_values_no_longer_have_is_null(tmp_path: Path) -> None:
    add(tmp_path, [{"id": 1, "x": 5}], flatten="_", by="x")
    add(tmp_path, [{"id": 2}])
    add(tmp_path, [{"id": 3, "x": 2**40}])
    assert found(tmp_path, "id", "x") == [(1, 5), (2, None), (3, 2**40)]


def test_a_value_that_does_not_fit_gets_no_folder(tmp_path: Path) -> None:
    add(tmp_path, [{"id": 1, "x": 5}], flatten="_", by="x")
    add(tmp_path, [{"id": 2, "x": "five"}], errors="json_error")
    assert found(tmp_path, "id", "x") == [(1, 5), (None, None)]
    assert folders(tmp_path) == {"topic=t/x=5", f"topic=t/x={NO_PLACE}"}


@pytest.mark.parametrize(
    ("rows", "asked", "message"),
    [
        (
            [{"id": 1}],
            {"by": "country", "flatten": "_"},
            "topic t has no column country to partition by .columns: id, json_error.$",
        ),
        ([{"country": "DE"}], {"by": "country"}, "no column country .*; flatten the values to use their fields"),
        ([{"x": 0.5}], {"by": "x", "flatten": "_"}, "column x of t has type double; partition by a column of text"),
        ([{"x": [1]}], {"by": "x", "flatten": "_"}, "column x of t has type list"),
        (
            [{"x": "v" * 300}],
            {"by": "x", "flatten": "_"},
            "a value of column x needs a folder name of 302 bytes .at most 255.",
        ),
        (
            [{"x": n} for n in range(PLACES_MAX + 1)],
            {"by": "x", "flatten": "_"},
            "column x of t has more than 1,000 values in one commit; partition by a column with fewer values",
        ),
    ],
)
def test_columns_that_cannot_be_folders(tmp_path: Path, rows: list[Any], asked: dict[str, str], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        add(tmp_path, rows, **asked)
    assert folders(tmp_path) == set(), "nothing is published"


def test_a_renamed_column_of_folders_is_refused(tmp_path: Path) -> None:
    add(tmp_path, [{"x": 1}], flatten="_", by="x")
    with pytest.raises(LoadError, match="column x, which partitions t, was renamed to y; keep its name"):
        add(tmp_path, [{"y": 1}], aliases={"decoded.y": ["x"]})


def test_a_topic_keeps_its_layout(tmp_path: Path) -> None:
    add(tmp_path, [{"x": 1}])
    add(tmp_path, [{"x": 1}], topic="u", by="day", flatten="_")
    add(tmp_path, [{"x": 1}], by="hour")
    add(tmp_path, [{"x": 1}], topic="u", by="day", flatten="_")
    for topic, asked, message in (
        ("t", {"by": "day"}, "is partitioned by hour, not by day; omit the option, or load into another directory"),
        ("t", {"flatten": "."}, "is not flattened; omit"),
        ("u", {"by": "x"}, "is partitioned by day, not by x"),
        ("u", {"flatten": "."}, "is flattened with '_'; omit"),
    ):
        with pytest.raises(LoadError, match=f"topic {topic} in .* {message}"):
            add(tmp_path, [{"x": 1}], topic=topic, **asked)
    assert Target(tmp_path).refresh().layouts == {"u": Layout("day", "_")}


@pytest.mark.parametrize("name", ["a/b", "", "offset", "Key", "date", "decoded", "a b"])
def test_names_that_are_no_columns_of_values(name: str) -> None:
    with pytest.raises(ValueError, match="partition_by must be hour, day or "):
        require_layout(name, None)


def test_topics_of_several_layouts_in_one_dataset(tmp_path: Path) -> None:
    add(tmp_path, [{"id": 1, "x": "a"}], topic="t", flatten="_", by="x")
    add(tmp_path, [{"id": 2, "x": "b"}], topic="u", flatten="_", by="day")
    add(tmp_path, [{"id": 3, "x": "c"}], topic="v", flatten="_")
    rows = dataset(tmp_path).to_table(columns=["topic", "id", "x", "date", "hour"]).sort_by("id").to_pylist()
    assert [(row["topic"], row["id"], row["x"], str(row["date"]), row["hour"]) for row in rows] == [
        ("t", 1, "a", "None", None),
        ("u", 2, "b", "1970-01-01", None),
        ("v", 3, "c", "1970-01-01", 0),
    ]


def test_many_changes_keep_layouts_in_snapshots(tmp_path: Path) -> None:
    for number in range(51):
        add(tmp_path, [{"x": number % 3}], flatten="_", by="x")
    fresh = Target(tmp_path).refresh()
    assert fresh.layouts == {"t": Layout("x", "_")}
    assert {file.place for file in fresh.files.values()} == {"x=0", "x=1", "x=2"}


def test_the_status_names_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path, [{"x": "a"}, {"x": None}, {"x": "a"}], flatten="_", by="x")
    add(tmp_path, [{"x": "a"}], topic="u", by="day")
    assert main(["load", "status", str(tmp_path), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["commits"]
    assert [(row["folder"], row["records"], row["date"]) for row in first["hours"]] == [
        (f"topic=t/x={NO_PLACE}", 1, None),
        ("topic=t/x=a", 2, None),
    ]
    assert [(row["folder"], row["date"], row["hour"]) for row in second["hours"]] == [
        ("topic=u/date=1970-01-01", "1970-01-01", None)
    ]
    assert main(["load", "status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "t/x=-, t/x=a" in out
    assert "u/1970-01-01" in out
