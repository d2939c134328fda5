"""Twelve kinds of change of a topic's columns between two hours, and directories that have them."""

import decimal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from kafkalite.load.manifest import Target
from kafkalite.load.parquet import Writing
from kafkalite.load.table_schema import tables
from tests.kit.harness.load_target import HOUR_US, publish_batches

BOTH = pa.struct([("id", pa.int32()), ("name", pa.string())])


class Change(NamedTuple):
    """Values of `decoded` with their types, in the first and in the second hour, and how they are read together."""

    before: tuple[Any, pa.DataType]
    after: tuple[Any, pa.DataType]
    read: list[Any]
    """The values of both hours."""
    aliases: Mapping[str, list[str]] = {}


def of(field: str, before: tuple[Any, pa.DataType], after: tuple[Any, pa.DataType], read: Any = None) -> Change:
    """A field whose type changes."""
    values = [before[0] if read is None else read, after[0]]
    return Change(
        ({field: before[0]}, pa.struct([(field, before[1])])),
        ({field: after[0]}, pa.struct([(field, after[1])])),
        [{field: value} for value in values],
    )


ONE, TWO = decimal.Decimal("1.5"), decimal.Decimal("12345.125")
ITEM = pa.struct([("a", pa.int32())])
LARGER_ITEM = pa.struct([("a", pa.int32()), ("b", pa.string())])
CHANGES = {
    "a field is added": Change(
        ({"id": 1}, pa.struct([("id", pa.int32())])),
        ({"id": 2, "name": "n"}, BOTH),
        [{"id": 1, "name": None}, {"id": 2, "name": "n"}],
    ),
    "a field is removed": Change(
        ({"id": 1, "name": "n"}, BOTH),
        ({"id": 2}, pa.struct([("id", pa.int32())])),
        [{"id": 1, "name": "n"}, {"id": 2, "name": None}],
    ),
    "fields are in another order": Change(
        ({"id": 1, "name": "n"}, BOTH),
        ({"name": "m", "id": 2}, pa.struct([BOTH.field(1), BOTH.field(0)])),
        [{"id": 1, "name": "n"}, {"id": 2, "name": "m"}],
    ),
    "int to long": of("x", (1, pa.int32()), (2**40, pa.int64())),
    "int to double": of("x", (1, pa.int32()), (2.5, pa.float64())),
    "long to double": of("x", (2**60 + 1, pa.int64()), (2.5, pa.float64()), float(2**60)),
    "float to double": of("x", (0.5, pa.float32()), (1e300, pa.float64())),
    "string to bytes": of("x", ("s", pa.string()), (b"\xff", pa.binary()), b"s"),
    "a decimal gets digits": of("x", (ONE, pa.decimal128(3, 1)), (TWO, pa.decimal128(9, 3))),
    "a record in a record gets a field": of(
        "x", ({"a": 1}, ITEM), ({"a": 2, "b": "n"}, LARGER_ITEM), {"a": 1, "b": None}
    ),
    "records of an array get a field": of(
        "x", ([{"a": 1}], pa.list_(ITEM)), ([{"a": 2, "b": "n"}], pa.list_(LARGER_ITEM)), [{"a": 1, "b": None}]
    ),
    "a field is renamed": Change(
        ({"id": 1, "old": "n"}, pa.struct([("id", pa.int32()), ("old", pa.string())])),
        ({"id": 2, "name": "m"}, BOTH),
        [{"id": 1, "name": "n"}, {"id": 2, "name": "m"}],
        {"decoded.name": ["old"]},
    ),
}


def add_hour(path: Path, hour: int, value: tuple[Any, pa.DataType], aliases: Mapping[str, list[str]]) -> None:
    """A load of one record of partition 0 in this hour, with this offset."""
    columns = {
        "topic": ["t"],
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([hour], pa.int64()),
        "timestamp": pa.array([hour * HOUR_US], pa.timestamp("us", tz="UTC")),
        "decoded": pa.array([value[0]], value[1]),
    }
    target = Target(path)
    with target.writing() as staging:
        known = tables(target.storage, target.state)
        writing = Writing(staging, f"part-{hour}", "zstd", 1 << 30, {}, False, {}, known, aliases)
        publish_batches(target, [pa.record_batch(columns)], writing)


def fill(path: Path, change: Change) -> None:
    add_hour(path, 0, change.before, {})
    add_hour(path, 1, change.after, change.aliases)
