"""Encode a JSON document as an Avro message in a schema registry's wire format: the reverse of `documents`.

    document ─▶ bytes by the schema, or Unfit with the path that does not match ─▶ header + bytes

`kafkalite.avro.documents` lists the JSON form of each Avro type. A missing field gets its default. An unknown field is
an error.

Does not need pyarrow. The functions are pure, except `encoded`, which fetches the schema from the registry.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import struct
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.decoder import HEADER_SIZE, MAGIC
from kafkalite.avro.layout import TIMES, decimal_of
from kafkalite.avro.leaves import EPOCH
from kafkalite.avro.schema import MISSING
from kafkalite.avro.values import block, encode_default, sized, zigzag

if TYPE_CHECKING:
    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import Type

DIGITS: Final = {"ms": 3, "us": 6, "ns": 9, "time32": 3, "time64": 6}
RANGES: Final = {"int": 2**31, "long": 2**63}
EXACT: Final = Context(prec=50, traps=[Inexact, InvalidOperation])
"""A context that represents every decimal of Avro columns, and refuses to round."""
DEPTH_MAX: Final = 128
"""Maximum nesting of a document, the same as in `single`."""


class Unfit(ValueError):
    """A document that does not match its schema. The message has the path in the document and the reason."""


def encoded(registry: RegistryClient, subject: str, document: object) -> bytes:
    """Encode a document as a message with the latest schema of a subject.

    Unfit if the document does not match. RegistryRefused (40401: no such subject).
    """
    latest = registry.latest(subject)
    return bytes([MAGIC]) + latest.schema_id.to_bytes(HEADER_SIZE - 1, "big") + body(document, latest.schema.root)


def body(value: Any, made: Type, place: str = "$", depth: int = 0) -> bytes:
    """Encode a document as the Avro type `made`, without a header. Unfit if it does not match.

    `place` is the path of the value in the document, for errors; `depth` is its nesting level.
    """
    if depth > DEPTH_MAX:
        raise Unfit(f"{place[:80]} is nested more than {DEPTH_MAX} levels deep")
    match made.kind:
        case "union":
            return _branch(value, made, place, depth)
        case "null":
            _need(value is None, place, "null", value)
            return b""
    if value is None:
        raise Unfit(f"{place} must not be null")
    match made.kind:
        case "record":
            return _record(value, made, place, depth)
        case "array":
            _need(isinstance(value, list), place, "a list", value)
            assert made.items is not None, "an array has items"
            items = made.items
            return block([body(item, items, f"{place}[{number}]", depth + 1) for number, item in enumerate(value)])
        case "map":
            _need(isinstance(value, dict), place, "an object", value)
            assert made.items is not None, "a map has items"
            items = made.items
            return block(
                [_text(name, place) + body(item, items, f"{place}.{name}", depth + 1) for name, item in value.items()]
            )
    return _leaf(value, made, place)


def _record(value: Any, made: Type, place: str, depth: int) -> bytes:
    _need(isinstance(value, dict), place, "an object", value)
    unknown = value.keys() - {row.name for row in made.fields}
    if unknown:
        raise Unfit(f"{place} has field {min(unknown)!r}, which is not in {made.name}")
    parts = []
    for row in made.fields:
        if row.name in value:
            parts.append(body(value[row.name], row.type, f"{place}.{row.name}", depth + 1))
        elif row.default is MISSING:
            raise Unfit(f"{place} lacks field {row.name!r}, which has no default")
        else:
            parts.append(encode_default(row.type, row.default))
    return b"".join(parts)


def _branch(value: Any, made: Type, place: str, depth: int) -> bytes:
    """Encode a value with the first branch of a union that it matches."""
    others = [branch for branch in made.branches if branch.kind != "null"]
    if len(others) == 1 and value is not None:  # the reason why this one branch does not fit is the more useful error
        return zigzag(made.branches.index(others[0])) + body(value, others[0], place, depth + 1)
    for number, branch in enumerate(made.branches):
        try:
            return zigzag(number) + body(value, branch, place, depth + 1)
        except Unfit:
            continue
    if value is None:
        raise Unfit(f"{place} must not be null")
    raise Unfit(f"{place} matches none of {', '.join(branch.name or branch.kind for branch in others)}")


def _leaf(value: Any, made: Type, place: str) -> bytes:
    time = TIMES.get((made.kind, made.logical or ""))
    if time is not None:
        return zigzag(_time(value, made, time, place))
    scale = decimal_of(made)
    if scale is not None:
        return _decimal(value, made, scale, place)
    if made.kind in {"bytes", "fixed"}:
        return _bytes(value, made, place)
    if made.kind in RANGES:
        return zigzag(_whole(value, made, place))
    if made.kind in {"float", "double"}:
        return _real(value, made, place)
    if made.kind == "enum":
        _need(isinstance(value, str) and value in made.symbols, place, f"one of {', '.join(made.symbols)}", value)
        return zigzag(made.symbols.index(value))
    if made.kind == "boolean":
        _need(isinstance(value, bool), place, "true or false", value)
        return bytes([value])
    _need(made.kind == "string" and isinstance(value, str), place, f"a {made.kind}", value)
    return _text(value, place)


def _text(value: str, place: str) -> bytes:
    try:
        return sized(value.encode())
    except UnicodeEncodeError:
        raise Unfit(f"{place} has half of a surrogate pair, which UTF-8 cannot encode") from None


def _bytes(value: Any, made: Type, place: str) -> bytes:
    _need(isinstance(value, str), place, "text in base64", value)
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Unfit(f"{place} is not base64") from None
    if made.kind == "bytes":
        return sized(raw)
    if len(raw) != made.size:
        raise Unfit(f"{place} has {len(raw)} bytes; {made.name} has {made.size}")
    return raw


def _real(value: Any, made: Type, place: str) -> bytes:
    if not (isinstance(value, str) and value in {"NaN", "Infinity", "-Infinity"}):
        _need(isinstance(value, (int, float)) and not isinstance(value, bool), place, "a number", value)
    try:
        return struct.pack("<f" if made.kind == "float" else "<d", float(value))
    except OverflowError:
        raise Unfit(f"{place} is too large for {made.kind}") from None


def _whole(value: Any, made: Type, place: str) -> int:
    _need(isinstance(value, int) and not isinstance(value, bool), place, f"a whole number ({made.kind})", value)
    limit = RANGES[made.kind]
    number = int(value)
    if not -limit <= number < limit:
        raise Unfit(f"{place} does not fit {made.kind}")
    return number


def _decimal(value: Any, made: Type, scale: tuple[int, int], place: str) -> bytes:
    _need(isinstance(value, (str, int)) and not isinstance(value, bool), place, 'a decimal as text, "12.50"', value)
    try:
        found = Decimal(value)
        fits = found.is_finite() and found.copy_abs() < Decimal(10) ** (scale[0] - scale[1])
    except InvalidOperation:
        raise Unfit(f"{place} is not a decimal") from None
    try:
        number = int(found.scaleb(scale[1], EXACT).to_integral_exact(context=EXACT)) if fits else None
    except Inexact:
        number = None
    if number is None:
        raise Unfit(f"{place} does not fit decimal({scale[0]}, {scale[1]})")
    if made.kind == "bytes":
        return sized(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))
    try:
        return number.to_bytes(made.size, "big", signed=True)
    except OverflowError:
        raise Unfit(f"{place} does not fit the {made.size} bytes of {made.name}") from None


def _time(value: Any, made: Type, name: str, place: str) -> int:
    """Return a date or time as the stored number: days or units since 1970, or units since midnight.

    The value is ISO 8601 text or the stored number itself.
    """
    if not isinstance(value, str):
        return _whole(value, made, place)
    kind, _, unit = name.partition("_")
    try:
        if kind == "date32":
            return (dt.date.fromisoformat(value) - EPOCH.date()).days
        whole, _, rest = value.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        zone = rest[len(digits) :]
        if kind in {"time32", "time64"}:
            moment = dt.datetime.combine(EPOCH.date(), dt.time.fromisoformat(whole + zone))
            unit = kind
        else:
            moment = dt.datetime.fromisoformat(whole + zone)
        if moment.tzinfo is not None:
            moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
        length = DIGITS[unit]
        second = (moment - EPOCH) // dt.timedelta(seconds=1)
        found = second * 10**length + int(digits.ljust(length, "0")[:length] or "0")
    except (ValueError, OverflowError):
        raise Unfit(f"{place} is not a {made.logical} in ISO 8601") from None
    return _whole(found, made, place)


def _need(fits: bool, place: str, what: str, value: object) -> None:
    if not fits or (isinstance(value, float) and math.isnan(value)):
        raise Unfit(f"{place} is {type(value).__name__}, not {what}")
