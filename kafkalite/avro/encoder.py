"""Encode Arrow columns as Avro messages in a schema registry's wire format: the reverse of `decoder`.

    Arrow column ─▶ cast to the schema's own types ─▶ nodes over its buffers ─▶ native loop ─▶ binary column

When the encoder is created, the registry registers the schema under the subject, or looks it up there, unless its id is
given. Each message begins with this id.

Needs pyarrow. Thread rule: one thread at a time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.avro.avro_encode import (
    FAILURES,
    NODE_ARRAY,
    NODE_BOOLEAN,
    NODE_BYTES,
    NODE_DECIMAL,
    NODE_ENUM,
    NODE_INT,
    NODE_LONG,
    NODE_NULL,
    NODE_RAW,
    NODE_RECORD,
    NODE_UNION,
    ColumnEncoder,
)
from kafkalite.avro.decoder import MAGIC
from kafkalite.avro.layout import BOOLEAN, BYTES, FIXED, LIST, NULL, Layout, Node, arrow_type
from kafkalite.avro.schema import Schema, Type, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.avro.client import RegistryClient

NO_BRANCH: Final = -1
NUMBERS: Final = {"int": NODE_INT, "long": NODE_LONG, "float": NODE_RAW, "double": NODE_RAW, "fixed": NODE_RAW}


class EncodeError(ValueError):
    """A row that does not match the schema. `row` is its index in the batch."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


class AvroEncoder:
    """An encoder of Arrow columns as Avro messages with one schema.

    `schema`          the text of a schema, or a parsed schema (required if the schema has references)
    `references`      the references of the schema, in the registry's form
    `auto_register`   register the schema; if False, RegistryRefused (40401, 40403) unless it is already registered
    `schema_id`       the schema's id, if it is known; then the registry is not called
    """

    def __init__(
        self,
        registry: RegistryClient,
        subject: str,
        schema: str | Schema,
        *,
        references: Iterable[Mapping[str, Any]] = (),
        auto_register: bool = True,
        schema_id: int | None = None,
    ) -> None:
        self.schema = parse(schema) if isinstance(schema, str) else schema
        self._layout = Layout(self.schema.root)
        self.arrow_type = arrow_type(self._layout.root)
        """The type to which columns are cast."""
        ask = registry.register if auto_register else registry.look_up
        self.schema_id = ask(subject, self.schema.text, references) if schema_id is None else schema_id

    def encode(self, values: Any) -> Any:
        """Encode an Arrow array or a record batch as an Arrow array of messages.

        A null row is encoded as Avro's null if the schema allows null. Otherwise it becomes a null message (a
        tombstone).

        EncodeError for the first row that does not match the schema. ArrowInvalid if the column cannot be cast to its
        types.
        """
        import pyarrow as pa

        if isinstance(values, pa.RecordBatch):
            values = values.to_struct_array()
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        array = array if array.type == self.arrow_type else array.cast(self.arrow_type)
        nodes: list[Any] = []
        self._walk(array, self._layout.root, self.schema.root, nodes)
        prefix = struct.pack(">BI", MAGIC, self.schema_id)
        data, ends, failures = ColumnEncoder(nodes).encode(prefix)
        if failures.any():
            row = int((failures != 0).argmax())
            raise EncodeError(row, FAILURES[failures[row]])
        nulls = None
        if array.null_count and not self._layout.root.nullable:
            nulls = array.is_valid().buffers()[1] if len(array) else None
        return pa.Array.from_buffers(
            pa.binary(), len(array), [nulls, pa.py_buffer(ends), pa.py_buffer(data)], array.null_count if nulls else 0
        )

    def _walk(self, array: Any, node: Node, schema: Type, nodes: list[Any]) -> int:
        """Append the native encoder's nodes for a column and its children to `nodes`.

        Return the index of the column's node.
        """
        index = len(nodes)
        nodes.append(None)
        null_branch, value_branch = branches_of(schema, node)
        children: list[int] = []
        symbols: list[bytes] = []
        buffers = array.buffers()
        data = offsets = None
        width = node.width
        if node.kind == LIST:
            code = NODE_ARRAY
            parts = [array.keys, array.items] if node.is_map else [array.values]
            items = node.type.items or Type("null")
            types = [Type("string"), items] if node.is_map else [items]
            children = [self._walk(*row, nodes) for row in zip(parts, node.children, types, strict=True)]
            offsets = buffers[1]
        elif node.type.kind in {"record", "union"}:
            code = NODE_RECORD if node.type.kind == "record" else NODE_UNION
            inner = [row.type for row in node.type.fields] or [b for b in node.type.branches if b.kind != "null"]
            parts = [array.field(number) for number in range(len(node.children))]
            children = [self._walk(*row, nodes) for row in zip(parts, node.children, inner, strict=True)]
        elif node.kind == BYTES:
            code = NODE_ENUM if node.type.kind == "enum" else NODE_BYTES
            symbols = [symbol.encode() for symbol in node.type.symbols]
            offsets, data = buffers[1], buffers[2]
        elif node.precision:
            code, width, data = NODE_DECIMAL, node.type.size, buffers[1]
        elif node.kind == FIXED:
            code, data = NUMBERS[node.type.kind], buffers[1]
        elif node.kind == BOOLEAN:
            code, data = NODE_BOOLEAN, buffers[1]
        else:
            assert node.kind == NULL, "every kind of column is known"
            code = NODE_NULL
        valid = buffers[0] if code != NODE_NULL and array.null_count else None
        nodes[index] = (
            code,
            null_branch,
            value_branch,
            width,
            children,
            symbols,
            len(array),
            array.offset,
            valid,
            data,
            offsets,
        )
        return index


def branches_of(schema: Type, node: Node) -> tuple[int, int]:
    """Return the index of a union's null branch, and the index of its only other branch.

    An index is -1 if there is no such branch. The second index is also -1 if the union has several other branches.
    """
    if schema.kind != "union":
        return NO_BRANCH, NO_BRANCH
    kinds = [branch.kind for branch in schema.branches]
    null_branch = kinds.index("null") if "null" in kinds else NO_BRANCH
    if node.type is schema or len(kinds) - (null_branch >= 0) != 1:
        return null_branch, NO_BRANCH
    return null_branch, next(number for number, kind in enumerate(kinds) if kind != "null")
