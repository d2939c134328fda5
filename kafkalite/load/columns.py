"""Keep one schema for all files of a topic, as the columns of its records change.

    a new column                    is added; it is null in older rows
    a column with another type      gets the wider type: int ─▶ long; int, long or float ─▶ double;
                                    string ─▶ bytes; decimals to more digits
    a renamed column                gets its new name, and keeps the old name as an alias

A table is the loaded data of one topic. Columns are matched by name or alias, in any order. The same rules apply to
fields inside structs, lists and maps.

Only `of_arrow`, `arrow_fields`, `arrow_type` and `fitted` need pyarrow.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Aliases = Mapping[str, Sequence[str]]
    """A column's path, such as decoded.id, items[].name or tags{}.name → its older names."""

INTEGERS: Final = ("int8", "int16", "int32", "int64")
FLOATS: Final = ("float", "double")
DECIMAL: Final = re.compile(r"decimal128\((\d+), (\d+)\)")
DECIMAL_DIGITS_MAX: Final = 38
TIMESTAMP: Final = re.compile(r"timestamp\[(\w+)(?:, tz=(.+))?\]")
FIXED_SIZE: Final = re.compile(r"fixed_size_binary\[(\d+)\]")
NAMES: Final = {"halffloat": "float16", "date32[day]": "date32", "date64[ms]": "date64"}
"""Names that Arrow prints for a type but does not parse."""


class Struct(NamedTuple):
    """The type of a struct: its named fields."""

    fields: tuple[Column, ...]


class Listed(NamedTuple):
    """The type of a list: the type of its items."""

    item: ColumnType


class Mapped(NamedTuple):
    """The type of a map with string keys: the type of its values."""

    item: ColumnType


class Column(NamedTuple):
    """A column of a table, or a field of a struct. `type` is the name of an Arrow type, unless the type is nested."""

    name: str
    type: ColumnType
    aliases: tuple[str, ...] = ()


ColumnType = str | Struct | Listed | Mapped
Columns = tuple[Column, ...]


class Conflict(NamedTuple):
    """A column whose type in the table and type in new records have no common type."""

    path: str
    table: str
    found: str

    def __str__(self) -> str:
        return f"column {self.path} is {self.found} here, but {self.table} in the table"


# --- one schema -------------------------------------------------------------------------------------------------------


def merged(table: Columns, found: Columns) -> tuple[Columns, list[Conflict]]:
    """Merge the columns of new records into a table's columns. Return the merged columns and the conflicts.

    A conflict is a column whose types in the table and in the records have no common type. It keeps the table's type.
    """
    conflicts: list[Conflict] = []
    return _fields(table, found, "", conflicts), conflicts


def _fields(table: Columns, found: Columns, path: str, conflicts: list[Conflict]) -> Columns:
    names = {field.name for field in table}
    incoming = {field.name: field for field in found}
    result: dict[str, Column] = {}
    used: set[str] = set()
    for known in table:
        new = incoming.get(known.name) or _renamed(known, found, names)
        if new is None:
            result[known.name] = known
            continue
        used.add(new.name)
        name = new.name if known.name in new.aliases and new.name != known.name else known.name
        aliases = tuple(dict.fromkeys((*known.aliases, *new.aliases, known.name, new.name)))
        kind = _type(known.type, new.type, f"{path}{name}", conflicts)
        result[name] = Column(name, kind, tuple(alias for alias in aliases if alias != name))
    taken = {alias for field in result.values() for alias in field.aliases}
    for new in found:
        if new.name in used:
            continue
        if new.name in taken:
            conflicts.append(Conflict(f"{path}{new.name}", "the old name of another column", "a column"))
            continue
        result[new.name] = new
    return tuple(result.values())


def _renamed(known: Column, found: Columns, names: set[str]) -> Column | None:
    """Return the new field that renames the field `known`; None if there is none.

    One of the two fields has the other's name as an alias.
    """
    for field in found:
        if field.name not in names and (known.name in field.aliases or field.name in known.aliases):
            return field
    return None


def _type(table: ColumnType, found: ColumnType, path: str, conflicts: list[Conflict]) -> ColumnType:
    if table == found or found == "null":
        return table
    if table == "null":
        return found
    if isinstance(table, Struct) and isinstance(found, Struct):
        return Struct(_fields(table.fields, found.fields, f"{path}.", conflicts))
    if isinstance(table, Listed) and isinstance(found, Listed):
        return Listed(_type(table.item, found.item, f"{path}[]", conflicts))
    if isinstance(table, Mapped) and isinstance(found, Mapped):
        return Mapped(_type(table.item, found.item, f"{path}{{}}", conflicts))
    if isinstance(table, str) and isinstance(found, str):
        wider = _wider(table, found)
        if wider is not None:
            return wider
    conflicts.append(Conflict(path, shown(table), shown(found)))
    return table


def _wider(one: str, other: str) -> str | None:
    """Return the Arrow type that can represent the values of both types; None if there is none."""
    pair = {one, other}
    if pair <= {*INTEGERS}:
        return max(pair, key=INTEGERS.index)
    if pair <= {*INTEGERS, *FLOATS}:
        return "double"
    if pair == {"string", "binary"}:
        return "binary"
    first, second = DECIMAL.fullmatch(one), DECIMAL.fullmatch(other)
    if first and second:
        scale = max(int(first[2]), int(second[2]))
        digits = max(int(first[1]) - int(first[2]), int(second[1]) - int(second[2])) + scale
        return f"decimal128({digits}, {scale})" if digits <= DECIMAL_DIGITS_MAX else None
    return None


def shown(kind: ColumnType) -> str:
    """Return a type as text for messages."""
    if isinstance(kind, Struct):
        return f"struct<{', '.join(f'{field.name}: {shown(field.type)}' for field in kind.fields)}>"
    if isinstance(kind, Listed):
        return f"list<{shown(kind.item)}>"
    return f"map<string, {shown(kind.item)}>" if isinstance(kind, Mapped) else kind


# --- JSON -------------------------------------------------------------------------------------------------------------


def to_json(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return columns in the JSON format of manifests, which `kafkalite load schema --json` prints, too.

    A column is {"name", "type", "aliases"}. "type" is the name of an Arrow type, or {"struct": [columns]}, {"list":
    type} or {"map": type}. The keys of maps are strings.
    """
    found = []
    for column in columns:
        row: dict[str, Any] = {"name": column.name, "type": _type_to_json(column.type)}
        if column.aliases:
            row["aliases"] = list(column.aliases)
        found.append(row)
    return found


def _type_to_json(kind: ColumnType) -> Any:
    if isinstance(kind, Struct):
        return {"struct": to_json(kind.fields)}
    if isinstance(kind, Listed):
        return {"list": _type_to_json(kind.item)}
    return {"map": _type_to_json(kind.item)} if isinstance(kind, Mapped) else kind


def from_json(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """Parse columns from the JSON format of manifests."""
    return tuple(Column(row["name"], _type_from_json(row["type"]), tuple(row.get("aliases", ()))) for row in rows)


def _type_from_json(value: Any) -> ColumnType:
    if isinstance(value, str):
        return value
    ((kind, part),) = value.items()
    if kind == "struct":
        return Struct(from_json(part))
    return Listed(_type_from_json(part)) if kind == "list" else Mapped(_type_from_json(part))


# --- Arrow ------------------------------------------------------------------------------------------------------------


def of_arrow(fields: Iterable[Any], aliases: Aliases | None = None, path: str = "") -> Columns:
    """Convert the fields of a pyarrow.Schema or StructType to columns.

    `aliases` has the older names of fields by their paths. `path` is the prefix of these paths.
    """
    given = aliases or {}
    return tuple(
        Column(field.name, _of_type(field.type, given, f"{path}{field.name}"), tuple(given.get(path + field.name, ())))
        for field in fields
    )


def _of_type(kind: Any, aliases: Aliases, path: str) -> ColumnType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return Struct(of_arrow(kind, aliases, f"{path}."))
    if pa.types.is_map(kind):
        return Mapped(_of_type(kind.item_type, aliases, f"{path}{{}}"))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Listed(_of_type(kind.value_type, aliases, f"{path}[]"))
    if pa.types.is_dictionary(kind):
        return _of_type(kind.value_type, aliases, path)
    text = str(kind).removeprefix("large_").removesuffix("_view")
    return NAMES.get(text, text)


def arrow_fields(columns: Iterable[Column]) -> list[Any]:
    """Convert columns to pyarrow.Fields."""
    import pyarrow as pa

    return [pa.field(column.name, arrow_type(column.type)) for column in columns]


def arrow_type(kind: ColumnType) -> Any:
    """Convert a type to a pyarrow.DataType. ValueError for an unknown name."""
    import pyarrow as pa

    if isinstance(kind, Struct):
        return pa.struct(arrow_fields(kind.fields))
    if isinstance(kind, Listed):
        return pa.list_(arrow_type(kind.item))
    if isinstance(kind, Mapped):
        return pa.map_(pa.string(), arrow_type(kind.item))
    if found := TIMESTAMP.fullmatch(kind):
        return pa.timestamp(found[1], tz=found[2])
    if found := DECIMAL.fullmatch(kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := FIXED_SIZE.fullmatch(kind):
        return pa.binary(int(found[1]))
    return pa.type_for_alias(kind)


def plain(columns: Columns) -> Columns:
    """Return the columns without aliases, as in a Parquet file."""
    return tuple(Column(column.name, _plain_type(column.type)) for column in columns)


def _plain_type(kind: ColumnType) -> ColumnType:
    if isinstance(kind, Struct):
        return Struct(plain(kind.fields))
    return kind if isinstance(kind, str) else type(kind)(_plain_type(kind.item))


def fits_by_cast(found: Columns, table: Columns) -> bool:
    """Return whether any reader can convert columns `found` to the columns `table` without knowing aliases.

    This is possible if it only has to add nulls and cast to wider types. A rename is not possible. Neither is int64 to
    double, because the cast of a large integer fails.
    """
    by_name = {column.name: column for column in table}
    return all(
        column.name in by_name and _type_fits_by_cast(column.type, by_name[column.name].type) for column in found
    )


def _type_fits_by_cast(found: ColumnType, table: ColumnType) -> bool:
    if isinstance(found, Struct) and isinstance(table, Struct):
        return fits_by_cast(found.fields, table.fields)
    if isinstance(found, Listed | Mapped) and isinstance(table, Listed | Mapped):
        return _type_fits_by_cast(found.item, table.item)
    return not (found == "int64" and table == "double")


def fitted(batch: Any, columns: Columns) -> Any:
    """Convert a record batch to these columns.

    Missing columns are null, types are widened, and columns with older names are renamed. Other columns are dropped.
    """
    import pyarrow as pa

    fields = arrow_fields(columns)
    sources = {field.name: batch.column(number) for number, field in enumerate(batch.schema)}
    arrays = _children(columns, fields, sources, batch.num_rows)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _children(columns: Columns, fields: list[Any], sources: Mapping[str, Any], count: int) -> list[Any]:
    import pyarrow as pa

    found = []
    for column, field in zip(columns, fields, strict=True):
        name = next((name for name in (column.name, *column.aliases) if name in sources), None)
        source = None if name is None else sources[name]
        found.append(pa.nulls(count, field.type) if source is None else _array(source, column.type, field.type))
    return found


def _array(array: Any, kind: ColumnType, wanted: Any) -> Any:
    import pyarrow as pa

    if array.type == wanted:
        return array
    if kind == "null":
        return pa.nulls(len(array))
    if isinstance(kind, str):
        return array.cast(wanted, safe=False)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    mask = array.is_null()
    if isinstance(kind, Struct):
        sources = {array.type.field(number).name: child for number, child in enumerate(array.flatten())}
        children = _children(kind.fields, list(wanted), sources, len(array))
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if array.offset:  # with a mask, the offsets must start the array
        array = array.take(pa.array(range(len(array)), pa.int64()))
    if isinstance(kind, Listed):
        items = _array(array.values, kind.item, wanted.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=wanted, mask=mask)
    items = _array(array.items, kind.item, wanted.item_type)
    return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=wanted, mask=mask)
