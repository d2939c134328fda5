"""Decode the metrics that clients push (OpenTelemetry's MetricsData v1) into numbers by name and attributes.

Gauges and sums are decoded: Kafka's clients send these. Histograms and summaries are counted and dropped. Unknown
fields are skipped, as in protocol buffers. The number of fields is limited, because decoding time grows with it.

Source: opentelemetry/proto/metrics/v1/metrics.proto and the encoding of protocol buffers. No I/O, no clock.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS_MAX: Final = 200_000
"""The most fields of a message: about ten times as many as a client sends with all its metrics."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_SIZE_MAX: Final = 10
_DELTA: Final = 1
_DOUBLE: Final = struct.Struct("<d")
_INT64: Final = struct.Struct("<q")
_GAUGE, _SUM = 5, 7
_LEFT_OUT: Final = frozenset({9, 10, 11})
"""Histogram, exponential histogram, summary."""

Field = tuple[int, int, memoryview, int]
"""Number, wire type, bytes, and the value of a varint."""


class OtlpError(ValueError):
    """The bytes are not MetricsData, or have too many fields."""


class Point(NamedTuple):
    """A decoded number, with its name and attributes."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    """Attributes (name, value), sorted by name."""
    value: float
    counts: bool
    """Whether the number is a monotonic sum (a counter)."""
    delta: bool
    """Whether a sum is the increase since the client's last push."""


class _Reader:
    def __init__(self) -> None:
        self.left = FIELDS_MAX
        self.left_out = 0

    def fields(self, data: memoryview) -> Iterator[Field]:
        at, end = 0, len(data)
        empty = data[:0]
        while at < end:
            self.left -= 1
            if self.left < 0:
                raise OtlpError(f"more than {FIELDS_MAX} fields")
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                value, at = _varint(data, at)
                yield number, wire, empty, value
                continue
            if wire == _BYTES:
                size, at = _varint(data, at)
            elif wire in (_FIXED64, _FIXED32):
                size = 8 if wire == _FIXED64 else 4
            else:
                raise OtlpError(f"unsupported wire type {wire}")
            if size > end - at:
                raise OtlpError("a field is longer than the message that contains it")
            yield number, wire, data[at : at + size], 0
            at += size

    def inside(self, data: memoryview, *numbers: int) -> Iterator[memoryview]:
        """Yield the messages that are nested in `data` under this path of field numbers."""
        for number, wire, content, _ in self.fields(data):
            if number == numbers[0] and wire == _BYTES:
                yield from self.inside(content, *numbers[1:]) if len(numbers) > 1 else (content,)

    def metric(self, data: memoryview) -> Iterator[Point]:
        name, kinds = "", []
        for number, wire, content, _ in self.fields(data):
            if number == 1 and wire == _BYTES:
                name = _text(content)
            elif number in (_GAUGE, _SUM) and wire == _BYTES:
                kinds.append((number, content))
            elif number in _LEFT_OUT:
                self.left_out += 1
        for number, content in kinds:
            yield from self.numbers(name, content, is_sum=number == _SUM)

    def numbers(self, name: str, data: memoryview, *, is_sum: bool) -> Iterator[Point]:
        points, delta, rises = [], False, False
        for number, wire, content, value in self.fields(data):
            if number == 1 and wire == _BYTES:
                points.append(content)
            elif is_sum and wire == _VARINT and number == 2:
                delta = value == _DELTA
            elif is_sum and wire == _VARINT and number == 3:
                rises = bool(value)
        for point in points:
            attributes, number_ = {}, None
            for number, wire, content, _ in self.fields(point):
                if number == 7 and wire == _BYTES:
                    key, text = self.attribute(content)
                    attributes[key] = text
                elif number == 4 and wire == _FIXED64:
                    number_ = float(_DOUBLE.unpack(content)[0])
                elif number == 6 and wire == _FIXED64:
                    number_ = float(_INT64.unpack(content)[0])
            if number_ is not None:
                yield Point(name, tuple(sorted(attributes.items())), number_, rises, delta)

    def attribute(self, data: memoryview) -> tuple[str, str]:
        key = text = ""
        for number, wire, content, _ in self.fields(data):
            if number == 1 and wire == _BYTES:
                key = _text(content)
            elif number == 2 and wire == _BYTES:
                text = self.value(content)
        return key, text

    def value(self, data: memoryview) -> str:
        """Return an AnyValue as text; "" for a list or bytes."""
        text = ""
        for number, wire, content, value in self.fields(data):
            if number == 1 and wire == _BYTES:
                text = _text(content)
            elif number == 2 and wire == _VARINT:
                text = "true" if value else "false"
            elif number == 3 and wire == _VARINT:
                text = str(value - (1 << 64) if value >> 63 else value)
            elif number == 4 and wire == _FIXED64:
                text = str(_DOUBLE.unpack(content)[0])
        return text


def read(data: bytes | memoryview) -> tuple[list[Point], int]:
    """Decode a MetricsData; return (the points, the number of dropped metrics). Raises OtlpError."""
    reader = _Reader()
    points = [point for metric in reader.inside(memoryview(data), 1, 2, 2) for point in reader.metric(metric)]
    return points, reader.left_out


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _VARINT_SIZE_MAX]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise OtlpError("a varint is truncated or too long")


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise OtlpError("a string is not UTF-8") from None
