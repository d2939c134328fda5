"""Map a reader's Avro schema to Arrow columns.

    record                          struct
    array                           list
    map                             map<string, ...>
    enum, string                    string
    bytes                           binary
    fixed                           fixed size binary
    [null, T]                       nullable T
    [A, B, ...]                     struct<member0: A, ...>; one member is not null
    date, time-*, timestamp-*       the Arrow type of that name; also local-timestamp-*, and decimal to 38 digits
    other logical types             as their underlying type

The columns are numbered for the native decoder.

Only the functions that return Arrow types, fields or arrays need pyarrow.

Thread rule: immutable after creation.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from kafkalite._native.avro import avro_decode as native
from kafkalite.avro.schema import Type
from kafkalite.base.dataclass import dataclass

NULL: Final = native.COLUMN_NULL
BOOLEAN: Final = native.COLUMN_BOOLEAN
FIXED: Final = native.COLUMN_FIXED
BYTES: Final = native.COLUMN_BYTES
LIST: Final = native.COLUMN_LIST
STRUCT: Final = native.COLUMN_STRUCT
"""Kinds of columns, as the native decoder numbers them."""
COLUMN_COUNT_MAX: Final = 10_000
DECIMAL_DIGITS_MAX: Final = 38
WIDTHS: Final = {"int": 4, "long": 8, "float": 4, "double": 8}
TIMES: Final = {
    ("int", "date"): "date32",
    ("int", "time-millis"): "time32",
    ("long", "time-micros"): "time64",
    ("long", "timestamp-millis"): "timestamp_ms",
    ("long", "timestamp-micros"): "timestamp_us",
    ("long", "timestamp-nanos"): "timestamp_ns",
    ("long", "local-timestamp-millis"): "local_ms",
    ("long", "local-timestamp-micros"): "local_us",
    ("long", "local-timestamp-nanos"): "local_ns",
}
"""(Avro kind, logical type) → the form of the column; other combinations are ignored."""


class UnsupportedSchema(ValueError):
    """A valid schema that Arrow columns cannot represent: recursive, or with more than COLUMN_COUNT_MAX columns."""


@dataclass(slots=True, eq=False)
class Node:
    """One column of a Layout."""

    index: int
    kind: int
    type: Type
    """The type without the union that makes it nullable."""
    nullable: bool
    width: int = 0
    children: list[Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The names of a struct's children."""
    precision: int = 0
    scale: int = 0

    @property
    def is_map(self) -> bool:
        return self.type.kind == "map"


class Layout:
    """The columns of a reader's schema. `root` is column 0."""

    def __init__(self, schema: Type) -> None:
        self.nodes: list[Node] = []
        self._inside: set[int] = set()
        self.root = self._node(schema)

    def columns(self) -> list[tuple[int, int, list[int]]]:
        """Return the columns in the native decoder's form: (kind, width in bytes, indexes of the children)."""
        return [(node.kind, node.width, [child.index for child in node.children]) for node in self.nodes]

    def _node(self, schema: Type) -> Node:
        made, nullable = nullable_part(schema)
        if len(self.nodes) >= COLUMN_COUNT_MAX:
            raise UnsupportedSchema(f"the schema has more than {COLUMN_COUNT_MAX} columns")
        if id(made) in self._inside:
            raise UnsupportedSchema(f"{made.name} is recursive, which columns do not support")
        node = Node(len(self.nodes), NULL, made, nullable)
        self.nodes.append(node)
        self._inside.add(id(made))
        self._fill(node, made)
        self._inside.discard(id(made))
        return node

    def _fill(self, node: Node, made: Type) -> None:
        if made.kind == "record":
            node.kind = STRUCT
            node.names = [row.name for row in made.fields]
            node.children = [self._node(row.type) for row in made.fields]
        elif made.kind == "union":
            node.kind = STRUCT
            branches = [branch for branch in made.branches if branch.kind != "null"]
            node.names = [f"member{number}" for number in range(len(branches))]
            node.children = [self._node(branch) for branch in branches]
        elif made.kind == "array" and made.items is not None:
            node.kind = LIST
            node.children = [self._node(made.items)]
        elif made.kind == "map" and made.items is not None:
            node.kind = LIST
            node.children = [self._node(Type("string")), self._node(made.items)]
        elif decimal_of(made) is not None:
            node.kind, node.width = FIXED, 16
            node.precision, node.scale = decimal_of(made) or (0, 0)
        elif made.kind in WIDTHS:
            node.kind, node.width = FIXED, WIDTHS[made.kind]
        elif made.kind == "fixed":
            node.kind, node.width = FIXED, made.size
        elif made.kind == "boolean":
            node.kind = BOOLEAN
        elif made.kind != "null":
            node.kind = BYTES


def nullable_part(schema: Type) -> tuple[Type, bool]:
    """Split a type into its non-null part, and whether it allows null.

    The non-null part of a union is its only other branch. A union with several other branches is returned unchanged.
    """
    if schema.kind == "null":
        return schema, True
    if schema.kind != "union":
        return schema, False
    others = [branch for branch in schema.branches if branch.kind != "null"]
    nullable = len(others) < len(schema.branches)
    if not others:
        return Type("null"), True
    return (others[0], nullable) if len(others) == 1 else (schema, nullable)


def decimal_of(made: Type) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal type of at most 38 digits; None for any other type."""
    if made.kind not in {"bytes", "fixed"} or made.logical != "decimal":
        return None
    precision, scale = made.props.get("precision"), made.props.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (precision, scale) if 0 < precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision else None


def arrow_type(node: Node) -> Any:
    """Return the Arrow type of a column."""
    import pyarrow as pa

    made = node.type
    if made.kind in {"record", "union"}:
        return pa.struct([arrow_field(name, child) for name, child in zip(node.names, node.children, strict=True)])
    if made.kind == "array":
        return pa.list_(arrow_field("item", node.children[0]))
    if made.kind == "map":
        return pa.map_(pa.string(), arrow_field("value", node.children[1]))
    if node.precision:
        return pa.decimal128(node.precision, node.scale)
    time = TIMES.get((made.kind, made.logical or ""))
    if time is not None:
        return time_type(time)
    plain = {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
    }
    return pa.binary(made.size) if made.kind == "fixed" else plain[made.kind]


def time_type(name: str) -> Any:
    """Return the Arrow type of a date or time. `name` is one of the values of TIMES."""
    import pyarrow as pa

    kind, _, unit = name.partition("_")
    if kind == "timestamp":
        return pa.timestamp(unit, tz="UTC")
    if kind == "local":
        return pa.timestamp(unit)
    return {"date32": pa.date32(), "time32": pa.time32("ms"), "time64": pa.time64("us")}[kind]


def arrow_field(name: str, node: Node) -> Any:
    """Return the Arrow field of a column. All fields are nullable."""
    import pyarrow as pa

    return pa.field(name, arrow_type(node), nullable=True)


def build(decoder: Any, node: Node) -> Any:
    """Build the Arrow array of a column from the native decoder's buffers."""
    import numpy as np
    import pyarrow as pa

    length, nulls, valid, offsets, data = decoder.column(node.index)
    if node.kind == NULL:
        return pa.nulls(length)
    validity = None if valid is None else pa.py_buffer(packed(np.frombuffer(valid, np.uint8)))
    kind = arrow_type(node)
    if node.kind == STRUCT:
        children = [build(decoder, child) for child in node.children]
        return pa.Array.from_buffers(kind, length, [validity], nulls, children=children)
    if node.kind == LIST:
        children = [build(decoder, child) for child in node.children]
        if node.is_map:
            entries = pa.struct([pa.field("key", pa.string(), nullable=False), kind.item_field])
            children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=children)]
        return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(offsets)], nulls, children=children)
    if node.kind == BYTES:
        return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)
    if node.kind == BOOLEAN:
        data = packed(np.frombuffer(data, np.uint8))
    return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(data if data is not None else b"")], nulls)


def packed(flags: Any) -> bytes:
    """Pack flags of one byte each into Arrow's bitmap of one bit each."""
    import numpy as np

    result: bytes = np.packbits(flags, bitorder="little").tobytes()
    return result
