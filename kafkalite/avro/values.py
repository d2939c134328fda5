"""Encode the default values of an Avro schema in Avro's binary format.

The decoder uses them for fields that the writer's schema lacks. A schema contains its defaults as JSON (specification,
"Complex Types").

Pure: no I/O, no state.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kafkalite.avro.schema import MISSING

if TYPE_CHECKING:
    from kafkalite.avro.schema import Type

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
DEPTH_MAX: Final = 100


def encode_default(schema: Type, value: object, depth: int = 0) -> bytes:
    """Encode a default value. ValueError if it does not match its type.

    In the default of bytes or fixed, each character is one byte, with a code point up to 255. The default of a union is
    encoded with the first branch that it matches.
    """
    if depth > DEPTH_MAX:
        raise ValueError("a default is nested too deeply")
    match schema.kind:
        case "union":
            return _union(schema, value, depth)
        case "null" if value is None:
            return b""
        case "boolean" if isinstance(value, bool):
            return bytes([value])
        case "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
            limit = INT_MAX if schema.kind == "int" else LONG_MAX
            if -limit - 1 <= value <= limit:
                return zigzag(value)
        case "float" | "double" if isinstance(value, int | float) and not isinstance(value, bool):
            return _real(schema.kind, value)
        case "string" if isinstance(value, str):
            return sized(value.encode())
        case "bytes" if isinstance(value, str):
            return sized(value.encode("latin-1"))
        case "fixed" if isinstance(value, str) and len(value) == schema.size:
            return value.encode("latin-1")
        case "enum" if value in schema.symbols:
            return zigzag(schema.symbols.index(str(value)))
        case _:
            return _compound(schema, value, depth)
    raise ValueError(f"{value!r} is not of type {schema.kind}")


def _compound(schema: Type, value: object, depth: int) -> bytes:
    match schema.kind:
        case "record" if isinstance(value, dict):
            parts = []
            for row in schema.fields:
                inner = value.get(row.name, row.default)
                if inner is MISSING:
                    raise ValueError(f"the default of {schema.name} has no {row.name}")
                parts.append(encode_default(row.type, inner, depth + 1))
            return b"".join(parts)
        case "array" if isinstance(value, list) and schema.items is not None:
            return block([encode_default(schema.items, item, depth + 1) for item in value])
        case "map" if isinstance(value, dict) and schema.items is not None:
            items = schema.items
            return block(
                [sized(str(key).encode()) + encode_default(items, item, depth + 1) for key, item in value.items()]
            )
    raise ValueError(f"{value!r} is not of type {schema.kind}")


def _union(schema: Type, value: object, depth: int) -> bytes:
    for number, branch in enumerate(schema.branches):
        try:
            return zigzag(number) + encode_default(branch, value, depth + 1)
        except ValueError:
            continue
    raise ValueError(f"{value!r} matches no type of the union")


def _real(kind: str, value: float) -> bytes:
    try:
        return struct.pack("<f" if kind == "float" else "<d", value)
    except OverflowError as error:
        raise ValueError(f"{value!r} is not of type {kind}") from error


def sized(raw: bytes) -> bytes:
    """Return bytes with their length in front, which is the Avro encoding of bytes and strings."""
    return zigzag(len(raw)) + raw


def block(items: list[bytes]) -> bytes:
    """Return the Avro encoding of an array or map, in one block. The items are already encoded."""
    return zigzag(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def zigzag(value: int) -> bytes:
    """Return the Avro encoding of an int or long: a variable-length zigzag integer."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
