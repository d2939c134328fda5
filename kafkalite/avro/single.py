"""Decode an Avro body into a JSON document, one value at a time.

This decoder is used without pyarrow, and for schemas that Arrow columns cannot represent, such as recursive ones. The
columnar decoder is much faster. `kafkalite.avro.documents` describes the form of documents.

Pure: no I/O, no state.
"""

from __future__ import annotations

import base64
import decimal
import struct
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalite.avro.layout import TIMES, decimal_of
from kafkalite.avro.leaves import DIGITS, date_text, number_text, stamp_text, time_text

if TYPE_CHECKING:
    from kafkalite.avro.schema import Type

T = TypeVar("T")

DEPTH_MAX: Final = 128
FREE_ITEMS: Final = 65_536
"""Items that a body may have in excess of its bytes: nulls in an array take none."""


class BodyError(ValueError):
    """A body that does not match its schema. The message is one sentence."""


def document(schema: Type, body: bytes) -> object:
    """Decode a complete body into a JSON document. BodyError if it does not match the schema.

    Nesting is limited to DEPTH_MAX levels. The number of items in arrays and maps is limited by the size of the body.
    """
    reader = _Body(body)
    found = reader.value(schema, 0)
    if reader.position != len(body):
        raise BodyError("trailing bytes after the record")
    return found


class _Body:
    """An Avro body and the current read position."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.items_left = len(data) + FREE_ITEMS

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes. BodyError if the body is shorter."""
        if size < 0:
            raise BodyError("a length is negative")
        if size > len(self.data) - self.position:
            raise BodyError("it is truncated")
        self.position += size
        return self.data[self.position - size : self.position]

    def long(self) -> int:
        """Read the next variable-length integer."""
        raw = shift = 0
        while True:
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
            if shift > 63:
                raise BodyError("a number has too many bytes")

    def value(self, made: Type, depth: int) -> object:
        """Read the next value, of type `made`."""
        if depth > DEPTH_MAX:
            raise BodyError("it is nested too deeply")
        match made.kind:
            case "null":
                return None
            case "boolean":
                return self._boolean()
            case "int" | "long":
                return self._integer(made)
            case "float" | "double":
                code, size = ("<f", 4) if made.kind == "float" else ("<d", 8)
                return number_text(struct.unpack(code, self.take(size))[0])
            case "string":
                return self._text()
            case "bytes" | "fixed":
                return self._bytes(made, self.take(made.size if made.kind == "fixed" else self.long()))
            case "enum":
                return self._chosen(made.symbols, "an enum has an unknown symbol")
            case "union":
                return self.value(self._chosen(made.branches, "a union has no such branch"), depth + 1)
            case "record":
                self._count_item()
                return {row.name: self.value(row.type, depth + 1) for row in made.fields}
        return self._items(made, depth)

    def _boolean(self) -> bool:
        (byte,) = self.take(1)
        if byte > 1:
            raise BodyError("a boolean is neither 0 nor 1")
        return byte == 1

    def _integer(self, made: Type) -> object:
        number = self.long()
        if made.kind == "int" and not -(2**31) <= number < 2**31:
            raise BodyError("an int does not fit 32 bits")
        kind, _, unit = TIMES.get((made.kind, made.logical or ""), "").partition("_")
        if kind == "date32":
            return date_text(number)
        if kind in {"time32", "time64"}:
            return time_text(number, DIGITS["ms" if kind == "time32" else "us"])
        if kind in {"timestamp", "local"}:
            return stamp_text(number, DIGITS[unit], "Z" if kind == "timestamp" else "")
        return number

    def _text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise BodyError("a string is not UTF-8") from None

    @staticmethod
    def _bytes(made: Type, raw: bytes) -> str:
        found = decimal_of(made)
        if found is None:
            return base64.b64encode(raw).decode()
        unscaled = int.from_bytes(raw, "big", signed=True)
        if abs(unscaled) >= 10 ** found[0]:
            raise BodyError("a decimal has too many digits")
        digits = decimal.Decimal(unscaled).as_tuple()
        return str(decimal.Decimal((digits.sign, digits.digits, -found[1])))

    def _chosen(self, among: tuple[T, ...], problem: str) -> T:
        number = self.long()
        if not 0 <= number < len(among):
            raise BodyError(problem)
        return among[number]

    def _count_item(self) -> None:
        self.items_left -= 1
        if self.items_left < 0:
            raise BodyError("an array or map has more items than bytes")

    def _items(self, made: Type, depth: int) -> object:
        assert made.items is not None, "an array and a map have items"
        items: list[object] = []
        keys: list[str] = []
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # the block's size in bytes
            for _ in range(count):
                self._count_item()
                if made.kind == "map":
                    keys.append(self._text())
                items.append(self.value(made.items, depth + 1))
        return dict(zip(keys, items, strict=True)) if made.kind == "map" else items
