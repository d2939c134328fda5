"""OpenTelemetry's MetricsData, written by the encoding of protocol buffers as its specification has it."""

from __future__ import annotations

import struct
from typing import Any


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def whole(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def sized(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d" if isinstance(value, float) else "<q", value)


def any_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return whole(2, value)
    if isinstance(value, int):
        return whole(3, value)
    if isinstance(value, float):
        return fixed(4, value)
    return sized(1, value)


def point(value: float, attributes: dict[str, Any]) -> bytes:
    told = b"".join(sized(7, sized(1, key) + sized(2, any_value(one))) for key, one in attributes.items())
    return sized(1, told + fixed(3, 12) + fixed(4 if isinstance(value, float) else 6, value))


def gauge(name: str, value: float, **attributes: Any) -> bytes:
    return sized(2, sized(1, name) + sized(2, "what it is") + sized(5, point(value, attributes)))


def counter(name: str, value: float, *, delta: bool = True, **attributes: Any) -> bytes:
    inside = point(value, attributes) + whole(2, 1 if delta else 2) + whole(3, 1)
    return sized(2, sized(1, name) + sized(7, inside))


def histogram(name: str) -> bytes:
    return sized(2, sized(1, name) + sized(9, b""))


def metrics_data(*metrics: bytes) -> bytes:
    scope = sized(1, sized(1, "a scope")) + b"".join(metrics)
    return sized(1, sized(1, b"") + sized(2, scope) + sized(3, "a schema"))
