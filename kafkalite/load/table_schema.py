"""Return the columns of each loaded topic, from the manifests of the directory or else from its files.

Needs pyarrow.

Thread rule: functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.load.columns import (
    DECIMAL,
    FIXED_SIZE,
    TIMESTAMP,
    Column,
    Columns,
    ColumnType,
    Listed,
    Struct,
    arrow_fields,
    from_json,
    merged,
    of_arrow,
)
from kafkalite.load.contents import state_of
from kafkalite.load.layout import DAY, HOUR
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from kafkalite.load.layout import Layout
    from kafkalite.load.manifest import DataFile, LoadState
    from kafkalite.load.storage import Storage


SPARK_TYPES: Final = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date32": "DATE",
    "null": "VOID",
}


DATE_COLUMN: Final = Column("date", "date32")
HOUR_COLUMN: Final = Column("hour", "int32")


def tables(storage: Storage, state: LoadState, *, strict: bool = True) -> dict[str, Columns]:
    """Return the columns of each topic that has files.

    If only older releases loaded a topic, its columns are read from its files. LoadError if their types have no common
    type. Without `strict`, the type of the older file is used instead.
    """
    found = {topic: from_json(rows) for topic, rows in state.schemas.items()}
    unknown: dict[str, list[DataFile]] = {}
    for file in state.files.values():
        if file.topic not in found:
            unknown.setdefault(file.topic, []).append(file)
    for topic, files in unknown.items():
        found[topic] = columns_of(storage, topic, files, strict=strict)
    return dict(sorted(found.items()))


def columns_of(storage: Storage, topic: str, files: Iterable[DataFile], *, strict: bool) -> Columns:
    """Merge the columns of these files of a topic, as their footers declare them.

    LoadError if they conflict and `strict` is set.
    """
    columns: Columns = ()
    seen = set()
    for file in files:
        found = footer_of(storage, file.path)
        if found in seen:
            continue
        seen.add(found)
        columns, conflicts = merged(columns, found)
        if conflicts and strict:
            raise LoadError(f"the files of {topic} have columns of different types: {conflicts[0]} ({file.path})")
    return columns


def footer_of(storage: Storage, path: str) -> Columns:
    """Return the columns of a Parquet file, from its footer."""
    import pyarrow.parquet as pq

    with storage.open(path) as opened:
        return of_arrow(pq.read_schema(opened))


def schemas(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a pyarrow.Schema for each topic. It has the columns of the files, then those in their paths.

    LoadError if the files of a topic have conflicting columns.
    """
    import pyarrow as pa

    state = state_of(path)
    found = tables(storage_of(path), state)
    return {
        topic: pa.schema([*arrow_fields(columns), *arrow_fields(of_paths(state.layouts.get(topic)))])
        for topic, columns in found.items()
    }


def of_paths(layout: Layout | None) -> Columns:
    """Return the columns that are only in the paths of files: date and hour, or date."""
    by = HOUR if layout is None else layout.by
    return {HOUR: (DATE_COLUMN, HOUR_COLUMN), DAY: (DATE_COLUMN,)}.get(by, ())


def spark_schemas(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return a schema for each topic, as text for Spark's `DataFrameReader.schema`.

    It includes the columns in the paths of files. LoadError if the files of a topic have conflicting columns, or a type
    that Spark lacks.
    """
    state = state_of(path)
    return {
        topic: _spark_fields((*columns, *of_paths(state.layouts.get(topic))), " ")
        for topic, columns in tables(storage_of(path), state).items()
    }


def _spark_fields(columns: Columns, between: str) -> str:
    return ", ".join(f"`{c.name.replace('`', '``')}`{between}{_spark_type(c.type)}" for c in columns)


def _spark_type(kind: ColumnType) -> str:
    if isinstance(kind, Struct):
        return f"STRUCT<{_spark_fields(kind.fields, ': ')}>"
    if not isinstance(kind, str):
        item = _spark_type(kind.item)
        return f"ARRAY<{item}>" if isinstance(kind, Listed) else f"MAP<STRING, {item}>"
    if found := DECIMAL.fullmatch(kind):
        return f"DECIMAL({found[1]}, {found[2]})"
    if found := TIMESTAMP.fullmatch(kind):
        return "TIMESTAMP_NTZ" if found[2] is None else "TIMESTAMP"
    if FIXED_SIZE.fullmatch(kind):
        return "BINARY"
    if kind not in SPARK_TYPES:
        raise LoadError(f"Spark has no type for {kind}")
    return SPARK_TYPES[kind]
