"""Compile two Avro schemas to a program that decodes the writer's data into the columns of the reader's schema.

    compile_program(writer, layout, reader) ─▶ [(op, column, operands, argument, bytes), ...] for the native decoder

The program does Avro's schema resolution. In addition to the specification, units of logical types are converted or
refused (`logical.py`).

Types that do not match become an op that fails when a message reaches it. So a union can be decoded while messages
contain only its matching branches. An op with column -1 skips a value that the reader's schema lacks.

Pure: no I/O, no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.avro.avro_decode import (
    OP_ARRAY,
    OP_BOOLEAN,
    OP_BYTES,
    OP_DECIMAL,
    OP_DEFAULT,
    OP_DOUBLE,
    OP_ENUM,
    OP_FAIL,
    OP_FIXED,
    OP_FLOAT,
    OP_FLOAT_TO_DOUBLE,
    OP_INT,
    OP_LONG,
    OP_MEMBER,
    OP_NULL,
    OP_RECORD,
    OP_STRING,
    OP_SYMBOL,
    OP_TO_DOUBLE,
    OP_TO_FLOAT,
    OP_UNION,
)
from kafkalite.avro.compatibility import PROMOTIONS, can_read, same_name, writer_field
from kafkalite.avro.layout import Layout, Node, nullable_part
from kafkalite.avro.logical import factor
from kafkalite.avro.schema import MISSING, NAMED, SchemaError, Type
from kafkalite.avro.values import encode_default

if TYPE_CHECKING:
    from collections.abc import Sequence

SKIP: Final = -1
LOGICAL: Final = 2
"""The argument of OP_FAIL if logical types differ."""
OP_COUNT_MAX: Final = 100_000
NUMBERS: Final = {
    ("int", "int"): OP_INT,
    ("int", "long"): OP_LONG,
    ("int", "float"): OP_TO_FLOAT,
    ("int", "double"): OP_TO_DOUBLE,
    ("long", "long"): OP_LONG,
    ("long", "float"): OP_TO_FLOAT,
    ("long", "double"): OP_TO_DOUBLE,
    ("float", "float"): OP_FLOAT,
    ("float", "double"): OP_FLOAT_TO_DOUBLE,
    ("double", "double"): OP_DOUBLE,
}
"""(writer's kind, reader's kind) → op."""


class Op(NamedTuple):
    """One step of a program for the native decoder."""

    code: int
    column: int = SKIP
    operands: Sequence[int] = ()
    argument: int = 0
    blob: bytes = b""


def compile_program(writer: Type, layout: Layout, reader: Type, first: int = 0) -> list[Op]:
    """Return the ops that decode data of `writer` into the columns of `reader`. The first op decodes the whole message.

    `first` is the number of the first op. SchemaError if the schemas need too many ops.
    """
    return _Compiler(layout, first).compile(writer, reader)


class _Compiler:
    """The state of one compilation."""

    def __init__(self, layout: Layout, first: int) -> None:
        self.layout = layout
        self.first = first
        self.ops: list[Op | None] = []
        self.skips: dict[int, int] = {}
        """id of a named type → the op that skips it."""

    def compile(self, writer: Type, reader: Type) -> list[Op]:
        self._read(writer, reader, self.layout.root)
        assert None not in self.ops, "every op that was begun is filled"
        return [op for op in self.ops if op is not None]

    def _begin(self) -> int:
        """Reserve the index of an op, so that its operands can be compiled before it.

        SchemaError if there are too many ops.
        """
        if len(self.ops) >= OP_COUNT_MAX:
            raise SchemaError(f"resolving the schemas takes more than {OP_COUNT_MAX} steps")
        self.ops.append(None)
        return len(self.ops) - 1

    def _fill(self, index: int, op: Op) -> int:
        self.ops[index] = op
        return self.first + index

    def _add(self, op: Op) -> int:
        return self._fill(self._begin(), op)

    # --- read into columns --------------------------------------------------------------------------------------------

    def _read(self, writer: Type, reader: Type, node: Node) -> int:
        """Compile the reading of a writer's type into a reader's column. Return the index of the op."""
        if writer.kind == "union":
            index = self._begin()
            return self._fill(index, Op(OP_UNION, node.index, [self._read(b, reader, node) for b in writer.branches]))
        if reader.kind == "union":
            return self._read_into_union(writer, reader, node)
        return self._read_plain(writer, reader, node)

    def _read_into_union(self, writer: Type, reader: Type, node: Node) -> int:
        """Compile the reading of a writer's type into a reader's union.

        The union's branch is the one of the same type, or else the first branch that can read the writer's type, or
        else the first branch of the same kind.
        """
        branches = list(reader.branches)
        fitting = [b for b in branches if same_type(b, writer)] + [b for b in branches if can_read(b, writer)]
        if not fitting:
            fitting = [b for b in branches if b.kind == writer.kind]  # some of its values may match
        if not fitting:
            return self._add(Op(OP_FAIL))
        branch = fitting[0]
        if branch.kind == "null" or node.type is not reader:
            return self._read_plain(writer, branch, node)
        others = [b for b in branches if b.kind != "null"]
        number = next(number for number, other in enumerate(others) if other is branch)
        index = self._begin()
        inner = self._read_plain(writer, branch, node.children[number])
        return self._fill(index, Op(OP_MEMBER, node.index, [inner], number))

    def _read_plain(self, writer: Type, reader: Type, node: Node) -> int:
        """Compile the reading of a type when neither the writer's nor the reader's type is a union."""
        times = factor(reader, writer)
        if times is None:
            return self._add(Op(OP_FAIL, argument=LOGICAL))
        if (writer.kind, reader.kind) in NUMBERS:
            argument = int(writer.kind == "int") | (times << 1 if times > 1 else 0)
            return self._add(Op(NUMBERS[writer.kind, reader.kind], node.index, argument=argument))
        if writer.kind != reader.kind and writer.kind not in PROMOTIONS.get(reader.kind, ()):
            return self._add(Op(OP_FAIL))
        if writer.kind in NAMED and not same_name(reader, writer):
            return self._add(Op(OP_FAIL))
        if reader.kind in {"bytes", "string"}:
            code = OP_DECIMAL if node.precision else OP_STRING if reader.kind == "string" else OP_BYTES
            return self._add(Op(code, node.index, argument=node.precision))
        if reader.kind == "fixed":
            return self._read_fixed(writer, reader, node)
        if reader.kind == "enum":
            return self._read_enum(writer, reader, node)
        if reader.kind == "record":
            return self._read_record(writer, reader, node)
        if reader.items is not None and writer.items is not None:
            index = self._begin()
            keys = [self._add(Op(OP_STRING, node.children[0].index))] if node.is_map else []
            operands = [*keys, self._read(writer.items, reader.items, node.children[-1])]
            return self._fill(index, Op(OP_ARRAY, node.index, operands))
        return self._add(Op(OP_BOOLEAN if reader.kind == "boolean" else OP_NULL, node.index))

    def _read_fixed(self, writer: Type, reader: Type, node: Node) -> int:
        if writer.size != reader.size:
            return self._add(Op(OP_FAIL))
        if node.precision and writer.size:
            return self._add(Op(OP_DECIMAL, node.index, argument=node.precision | writer.size << 8))
        return self._add(Op(OP_FIXED, node.index, argument=writer.size))

    def _read_enum(self, writer: Type, reader: Type, node: Node) -> int:
        index = self._begin()
        known: dict[str, int] = {}
        for symbol in writer.symbols:
            name = symbol if symbol in reader.symbols else reader.default
            key = name if isinstance(name, str) else ""
            if key not in known:
                known[key] = self._add(Op(OP_SYMBOL, node.index, blob=key.encode()) if key else Op(OP_FAIL, argument=1))
        operands = [
            known[s if s in reader.symbols else str(reader.default) if reader.default is not MISSING else ""]
            for s in writer.symbols
        ]
        return self._fill(index, Op(OP_ENUM, node.index, operands))

    def _read_record(self, writer: Type, reader: Type, node: Node) -> int:
        index = self._begin()
        partners = {}
        for number, row in enumerate(reader.fields):
            partner = writer_field(row, writer)
            if partner is not None and id(partner) not in partners:
                partners[id(partner)] = number
        operands = []
        for field in writer.fields:
            wanted = partners.get(id(field))
            if wanted is None:
                operands.append(self._skip(field.type))
            else:
                operands.append(self._read(field.type, reader.fields[wanted].type, node.children[wanted]))
        filled = set(partners.values())
        for number, row in enumerate(reader.fields):
            if number not in filled:
                operands.append(self._default(row.type, row.default, node.children[number]))
        return self._fill(index, Op(OP_RECORD, node.index, operands))

    def _default(self, reader: Type, default: object, node: Node) -> int:
        """Compile the default of a field that the writer lacks. Without a default, the op fails for every message."""
        if default is MISSING:
            return self._add(Op(OP_FAIL))
        if default is None and nullable_part(reader)[1]:
            return self._add(Op(OP_NULL, node.index))
        try:
            blob = encode_default(reader, default)
        except ValueError:
            return self._add(Op(OP_FAIL))
        index = self._begin()
        return self._fill(index, Op(OP_DEFAULT, node.index, [self._read(reader, reader, node)], 0, blob))

    # --- skip ---------------------------------------------------------------------------------------------------------

    def _skip(self, writer: Type) -> int:
        """Compile the skipping of a writer's value. Return the index of the op.

        Each named type has one shared op for skipping, so a skipped type may be recursive.
        """
        if id(writer) in self.skips:
            return self.skips[id(writer)]
        simple = {
            "null": Op(OP_NULL),
            "boolean": Op(OP_BOOLEAN),
            "int": Op(OP_INT, argument=1),
            "long": Op(OP_LONG),
            "float": Op(OP_FLOAT),
            "double": Op(OP_DOUBLE),
            "bytes": Op(OP_BYTES),
            "string": Op(OP_BYTES),
            "fixed": Op(OP_FIXED, argument=writer.size),
        }
        if writer.kind in simple:
            return self._add(simple[writer.kind])
        index = self._begin()
        if writer.kind in NAMED:
            self.skips[id(writer)] = self.first + index
        return self._fill(index, self._skip_compound(writer))

    def _skip_compound(self, writer: Type) -> Op:
        if writer.kind == "record":
            return Op(OP_RECORD, operands=[self._skip(field.type) for field in writer.fields])
        if writer.kind == "union":
            return Op(OP_UNION, operands=[self._skip(branch) for branch in writer.branches])
        if writer.kind == "enum":
            if not writer.symbols:
                return Op(OP_FAIL, argument=1)
            return Op(OP_ENUM, operands=[self._add(Op(OP_NULL))] * len(writer.symbols))
        assert writer.items is not None, "an array or a map has items"
        keys = [self._add(Op(OP_BYTES))] if writer.kind == "map" else []
        return Op(OP_ARRAY, operands=[*keys, self._skip(writer.items)])


def same_type(reader: Type, writer: Type) -> bool:
    """Return whether a reader's branch and a writer's type are the same type.

    They have the same kind. If they are named, they also have the same full name, and the reader can read the writer's
    data.
    """
    if reader.kind != writer.kind:
        return False
    return writer.kind not in NAMED or (reader.name == writer.name and can_read(reader, writer))
