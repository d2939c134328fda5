"""Twelve kinds of change between two hours of a topic, read by kafkalite and by other libraries, before and after
compaction.

Other libraries get the schema of `kafkalite load schema`, or read the directory by glob after compaction.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafkalite import load
from kafkalite.load.compaction import compact
from kafkalite.load.manifest import LoadState, Target
from kafkalite.load.table_schema import schemas
from tests.kit.harness.load_target import forget_schemas
from tests.kit.harness.schema_changes import CHANGES, add_hour, fill

PLACES = pa.schema([("topic", pa.string()), ("date", pa.date32()), ("hour", pa.int32())])


def glob_of(path: Path) -> str:
    return f"{path}/topic=t/*/*/*.parquet"


def by_pyarrow(path: Path, schema: pa.Schema | None) -> list[Any]:
    found = ds.dataset(path, schema=schema, partitioning=ds.partitioning(PLACES, flavor="hive"))
    return found.to_table().sort_by("offset").column("decoded").to_pylist()


def by_pandas(path: Path, schema: pa.Schema | None) -> list[Any]:
    found = pd.read_parquet(path, schema=schema, partitioning=ds.partitioning(PLACES, flavor="hive"))
    return pa.array(found.sort_values("offset")["decoded"], schemas(path)["t"].field("decoded").type).to_pylist()


def by_duckdb(path: Path, schema: pa.Schema | None) -> list[Any]:
    found = duckdb.read_parquet(glob_of(path), union_by_name=schema is not None)
    return [row[0] for row in found.order('"offset"').project("decoded").fetchall()]


def by_polars(path: Path, schema: pa.Schema | None) -> list[Any]:
    polars = pytest.importorskip("polars")
    if schema is None:
        found = polars.read_parquet(glob_of(path))
    else:
        casts = polars.ScanCastOptions(
            integer_cast=["upcast", "allow-float"],
            float_cast="upcast",
            missing_struct_fields="insert",
            extra_struct_fields="ignore",
        )
        columns = polars.Schema(pa.schema([field for field in schema if field.name not in PLACES.names]))
        found = polars.scan_parquet(
            glob_of(path), schema=columns, missing_columns="insert", cast_options=casts, hive_partitioning=False
        ).collect()
    return found.sort("offset")["decoded"].to_list()


READERS = {"pyarrow": by_pyarrow, "pandas": by_pandas, "duckdb": by_duckdb, "polars": by_polars}
ONLY_COMPACTED = {
    "pyarrow": {"a field is renamed", "long to double"},
    "pandas": {"a field is renamed", "long to double"},
    "duckdb": {"a field is renamed"},
    "polars": {"a field is renamed", "string to bytes", "a decimal gets digits"},
}
"""What a library cannot do with a schema alone: renames, large integers as doubles, casts that Polars lacks."""


@pytest.mark.parametrize("name", CHANGES)
def test_kafkalite_reads_both_hours(tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    fill(tmp_path, change)
    table = load.read(tmp_path, "t").sort_by("offset")
    assert table.column("decoded").to_pylist() == change.read
    assert table.column("hour").to_pylist() == [0, 1]
    assert load.dataset(tmp_path).count_rows() == 2
    compact(tmp_path)
    assert load.read(tmp_path).sort_by("offset").column("decoded").to_pylist() == change.read


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CHANGES)
def test_others_read_both_hours(tmp_path: Path, name: str, reader: str) -> None:
    change = CHANGES[name]
    fill(tmp_path, change)
    read: Callable[[Path, pa.Schema | None], list[Any]] = READERS[reader]
    if name not in ONLY_COMPACTED[reader]:
        assert read(tmp_path, schemas(tmp_path)["t"]) == change.read, "with the schema"
    compact(tmp_path)
    assert read(tmp_path, None) == change.read, "by glob after compaction"


@pytest.mark.parametrize("name", ["a field is added", "int to long", "long to double"])
def test_directories_of_older_releases(tmp_path: Path, name: str) -> None:
    """Their manifests have no columns: files say what they have, and a load or a compaction writes it down."""
    change = CHANGES[name]
    fill(tmp_path, change)
    forget_schemas(tmp_path)
    state = Target(tmp_path).refresh()
    assert (state.schemas, state.outdated) == ({}, {*state.files})
    assert load.read(tmp_path).sort_by("offset").column("decoded").to_pylist() == change.read
    add_hour(tmp_path, 2, change.after, {})
    state = Target(tmp_path).refresh()
    assert len(state.outdated) == 2
    assert [column["name"] for column in state.schemas["t"]] == ["partition", "offset", "timestamp", "decoded"]
    read = [*change.read, change.read[1]]
    assert load.read(tmp_path).sort_by("offset").column("decoded").to_pylist() == read
    compact(tmp_path)
    assert by_duckdb(tmp_path, None) == by_pyarrow(tmp_path, None) == read
    assert compact(tmp_path).files_after == 0, "nothing is left to do"


def test_a_schema_lasts_in_a_snapshot(tmp_path: Path) -> None:
    change = CHANGES["a field is renamed"]
    fill(tmp_path, change)
    state = Target(tmp_path).refresh()
    again = LoadState.from_json(json.loads(json.dumps(state.to_json())))
    assert (again.schemas, again.outdated) == (state.schemas, state.outdated)
    assert len(again.outdated) == 1
    (decoded,) = (column for column in again.schemas["t"] if column["name"] == "decoded")
    assert decoded["type"]["struct"][1] == {"name": "name", "type": "string", "aliases": ["old"]}
    old = {name: value for name, value in state.to_json().items() if name not in {"schemas", "outdated"}}
    assert LoadState.from_json(old).outdated == {*state.files}, "of an older release"


def test_a_writer_that_still_has_the_old_name(tmp_path: Path) -> None:
    """A producer that was not restarted does not bring the old column back."""
    change = CHANGES["a field is renamed"]
    fill(tmp_path, change)
    add_hour(tmp_path, 2, change.before, {})
    expected = [*change.read, change.read[0]]
    assert load.read(tmp_path).sort_by("offset").column("decoded").to_pylist() == expected


def test_a_type_that_does_not_fit_ends_a_load_that_has_no_letters(tmp_path: Path) -> None:
    add_hour(tmp_path, 0, ({"x": 1}, pa.struct([("x", pa.int64())])), {})
    with pytest.raises(
        load.LoadError,
        match=r"offset 1 of t-0 does not fit: column decoded[.]x is string here, but int64 in the table",
    ):
        add_hour(tmp_path, 1, ({"x": "one"}, pa.struct([("x", pa.string())])), {})
    assert load.read(tmp_path).num_rows == 1
