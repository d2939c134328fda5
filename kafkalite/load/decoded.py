"""Find decoded values whose types do not fit into the columns of a topic's files.

Such a value becomes null, and avro_error or json_error contains the reason. The record is then handled like one that
cannot be decoded.

Thread rule: functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.load.columns import Listed, Struct, fitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.load.columns import Column, Columns, ColumnType, Conflict

DECODED: Final = "decoded"
PARTS: Final = ("[]", "{}")
"""Suffixes of the paths of lists and maps."""


def place_of(batch: Any, row: int) -> str | None:
    """Return the start of an error message with the offset, topic and partition of a record.

    None if the batch lacks these columns.
    """
    if not {"topic", "partition", "offset"} <= set(batch.schema.names):
        return None
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return f"offset {offset} of {topic}-{partition} cannot be decoded"


def misfits(batch: Any, found: Columns, conflicts: Sequence[Conflict]) -> tuple[Any, Any]:
    """Remove the values in conflict from a batch. Return the batch, and the reason for each row (null if it fits).

    `found` are the columns of the batch. A column that conflicts as a whole gets the type null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    reasons = pa.nulls(batch.num_rows, pa.string())
    for conflict in conflicts:
        wrong = pc.and_(pc.is_null(reasons), pc.is_valid(at_path(batch, conflict.path)))
        reasons = pc.if_else(wrong, pa.scalar(str(conflict)), reasons)
    return fitted(batch, without(found, {conflict.path for conflict in conflicts})), reasons


def column_at(batch: Any, path: str) -> str:
    """Return the name of the column with which a path begins. Column names may contain dots."""
    names = [
        name for name in batch.schema.names if path == name or path.startswith((f"{name}.", f"{name}[", f"{name}{{"))
    ]
    return str(max(names, key=len))


def at_path(batch: Any, path: str) -> Any:
    """Return the array at a path in a batch. For a path inside a list or map, return the list's or map's array."""
    name = column_at(batch, path)
    values, rest = batch.column(name), path[len(name) :]
    for step in rest.split(".")[1:] if rest.startswith(".") else ():
        inner = next((step.partition(part)[0] for part in PARTS if part in step), None)
        number = values.type.get_field_index(step if inner is None else inner)
        values = values.flatten()[number]
        if inner is not None:
            break
    return values


def without(columns: Iterable[Column], paths: set[str], path: str = "") -> Columns:
    """Return the columns with the type null at these paths."""
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
