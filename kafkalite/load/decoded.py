"""Fit the decoded values of records, in Avro or JSON, to the columns of their table, in a load without Spark.

    value ─▶ decoded struct │ … │ avro_error or json_error      value is kept only if it cannot be decoded

If a value has a type that the table's column cannot hold (kafkalite.load.columns), it is treated like a value that
cannot be decoded.

Thread rule: functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.load.columns import Column, Listed, Struct, fitted, merged, of_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.load.columns import Aliases, Columns, ColumnType

DECODED: Final = "decoded"
PARTS: Final = ("[]", "{}")
"""Suffixes of the paths of lists and maps."""


def place_of(batch: Any, row: int) -> str | None:
    """Return an error text with the topic, partition and offset of a record; None if the batch lacks these columns."""
    if not {"topic", "partition", "offset"} <= set(batch.schema.names):
        return None
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return f"offset {offset} of {topic}-{partition} cannot be decoded"


def fit_to_table(values: Any, table: Columns, aliases: Aliases) -> tuple[Any, Any]:
    """Return decoded values without those that a table cannot hold, and each row's reason (null if it fits)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = pa.RecordBatch.from_arrays([values], names=[DECODED])
    found = of_arrow(batch.schema, aliases)
    reasons = pa.nulls(len(values), pa.string())
    _, conflicts = merged(table, found)
    if not conflicts:
        return values, reasons
    for conflict in conflicts:
        wrong = pc.and_(pc.is_null(reasons), pc.is_valid(at_path(values, conflict.path)))
        reasons = pc.if_else(wrong, pa.scalar(str(conflict)), reasons)
    kept = fitted(batch, without(found, {conflict.path for conflict in conflicts})).column(0)
    return pc.if_else(pc.is_null(reasons), kept, pa.scalar(None, kept.type)), reasons


def at_path(values: Any, path: str) -> Any:
    """Return the array at a column's path in decoded values, or that of the list or map around it."""
    for name in path.split(".")[1:]:
        inner = next((name.partition(part)[0] for part in PARTS if part in name), None)
        number = values.type.get_field_index(name if inner is None else inner)
        values = values.flatten()[number]
        if inner is not None:
            break
    return values


def without(columns: Iterable[Column], paths: set[str], path: str = "") -> Columns:
    """Return the columns with type null at these paths."""
    return tuple(column._replace(type=_type_without(column.type, paths, f"{path}{column.name}")) for column in columns)


def _type_without(kind: ColumnType, paths: set[str], path: str) -> ColumnType:
    if path in paths:
        return "null"
    if isinstance(kind, Struct):
        return Struct(without(kind.fields, paths, f"{path}."))
    if isinstance(kind, str):
        return kind
    suffix = PARTS[0] if isinstance(kind, Listed) else PARTS[1]
    return type(kind)(_type_without(kind.item, paths, f"{path}{suffix}"))
