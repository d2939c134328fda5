"""Encode JSON documents as messages in the registry's wire format: the reverse of `documents`.

    document ─▶ `fitted` to the schema (a sentence says what does not fit, and where) ─▶ AvroEncoder ─▶ bytes

Takes what `documents` gives, by its table there. A field that is left out gets its default; one that the schema does
not have is refused; of a union's members the first that the value fits is taken.

Needs pyarrow. Thread rule: functions are pure.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.encoder import AvroEncoder
from kafkalite.avro.layout import TIMES, decimal_of, nullable_part
from kafkalite.avro.leaves import EPOCH
from kafkalite.avro.schema import MISSING

if TYPE_CHECKING:
    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import Type

DIGITS: Final = {"ms": 3, "us": 6, "ns": 9, "time32": 3, "time64": 6}
RANGES: Final = {"int": 2**31, "long": 2**63}


class Unfit(ValueError):
    """A document that the schema has no place for."""


def encoded(registry: RegistryClient, subject: str, document: object) -> bytes:
    """A message by the last schema of a subject. Unfit; RegistryRefused (40401: no such subject), EncodeError."""
    import pyarrow as pa

    latest = registry.latest(subject)
    encoder = AvroEncoder(registry, subject, latest.schema, schema_id=latest.schema_id)
    value = fitted(document, latest.schema.root)
    try:
        array = pa.array([value], type=encoder.arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise Unfit(str(error)) from error
    message: bytes | None = encoder.encode(array)[0].as_py()
    if message is None:
        raise Unfit("the document is null, but its schema is not nullable")
    return message


def fitted(value: Any, schema: Type, place: str = "$") -> Any:
    """What pyarrow makes a column of this type of; Unfit."""
    made, nullable = nullable_part(schema)
    if value is None:
        if nullable:
            return None
        raise Unfit(f"{place} must not be null")
    match made.kind:
        case "record":
            return _record(value, made, place)
        case "union":
            return _member(value, made, place)
        case "array":
            _need(isinstance(value, list), place, "a list", value)
            assert made.items is not None, "an array has items"
            items = made.items
            return [fitted(item, items, f"{place}[{number}]") for number, item in enumerate(value)]
        case "map":
            _need(isinstance(value, dict), place, "an object", value)
            assert made.items is not None, "a map has items"
            items = made.items
            return [(name, fitted(item, items, f"{place}.{name}")) for name, item in value.items()]
    return _leaf(value, made, place)


def _record(value: Any, made: Type, place: str) -> dict[str, Any]:
    _need(isinstance(value, dict), place, "an object", value)
    unknown = value.keys() - {row.name for row in made.fields}
    if unknown:
        raise Unfit(f"{place} has field {min(unknown)!r}, which is not in {made.name}")
    found = {}
    for row in made.fields:
        if row.name in value:
            found[row.name] = fitted(value[row.name], row.type, f"{place}.{row.name}")
        elif row.default is MISSING:
            raise Unfit(f"{place} lacks field {row.name!r}, which has no default")
        else:
            found[row.name] = fitted(_default(row.default, row.type), row.type, f"{place}.{row.name}")
    return found


def _default(value: Any, schema: Type) -> Any:
    """A default of a schema as `documents` would write it: bytes stand there as characters up to U+00FF."""
    made = schema.branches[0] if schema.kind == "union" else schema
    if made.kind in {"bytes", "fixed"} and isinstance(value, str):
        raw = value.encode("latin-1")
        scale = decimal_of(made)
        if scale is not None:
            return str(Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale[1]))
        return base64.b64encode(raw).decode()
    if made.kind == "array" and made.items is not None:
        return [_default(item, made.items) for item in value]
    if made.kind == "map" and made.items is not None:
        return {name: _default(item, made.items) for name, item in value.items()}
    if made.kind == "record":
        types = {row.name: row.type for row in made.fields}
        return {name: _default(item, types[name]) for name, item in value.items()}
    return value


def _member(value: Any, made: Type, place: str) -> dict[str, Any]:
    """The first member of a union that the value fits."""
    branches = [branch for branch in made.branches if branch.kind != "null"]
    for number, branch in enumerate(branches):
        try:
            found = fitted(value, branch, place)
        except Unfit:
            continue
        return {f"member{other}": found if other == number else None for other in range(len(branches))}
    raise Unfit(f"{place} matches none of {', '.join(branch.name or branch.kind for branch in branches)}")


def _leaf(value: Any, made: Type, place: str) -> Any:
    time = TIMES.get((made.kind, made.logical or ""))
    if time is not None:
        return _time(value, made, time, place)
    scale = decimal_of(made)
    if scale is not None:
        return _decimal(value, scale, place)
    if made.kind in {"bytes", "fixed"}:
        _need(isinstance(value, str), place, "text in base64", value)
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Unfit(f"{place} is not base64") from None
        if made.kind == "fixed" and len(raw) != made.size:
            raise Unfit(f"{place} has {len(raw)} bytes; {made.name} has {made.size}")
        return raw
    if made.kind in RANGES:
        return _whole(value, made, place)
    if made.kind in {"float", "double"}:
        if isinstance(value, str) and value in {"NaN", "Infinity", "-Infinity"}:
            return float(value)
        _need(isinstance(value, (int, float)) and not isinstance(value, bool), place, "a number", value)
        return _float(value, place)
    if made.kind == "enum":
        _need(isinstance(value, str) and value in made.symbols, place, f"one of {', '.join(made.symbols)}", value)
        return value
    if made.kind == "boolean":
        _need(isinstance(value, bool), place, "true or false", value)
        return value
    _need(made.kind == "string" and isinstance(value, str), place, f"a {made.kind}", value)
    return value


def _float(value: Any, place: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Unfit(f"{place} is too large for a number") from None


def _whole(value: Any, made: Type, place: str) -> int:
    _need(isinstance(value, int) and not isinstance(value, bool), place, f"a whole number ({made.kind})", value)
    limit = RANGES[made.kind]
    number = int(value)
    if not -limit <= number < limit:
        raise Unfit(f"{place} does not fit {made.kind}")
    return number


def _decimal(value: Any, scale: tuple[int, int], place: str) -> Decimal:
    _need(isinstance(value, (str, int)) and not isinstance(value, bool), place, 'a decimal as text, "12.50"', value)
    try:
        found = Decimal(value)
        fits = found.is_finite() and abs(found) < Decimal(10) ** (scale[0] - scale[1])
        quantized = found.quantize(Decimal(1).scaleb(-scale[1])) if fits else found
    except InvalidOperation:
        raise Unfit(f"{place} is not a decimal") from None
    if not fits or quantized != found:
        raise Unfit(f"{place} does not fit decimal({scale[0]}, {scale[1]})")
    return quantized


def _time(value: Any, made: Type, name: str, place: str) -> int:
    """Days, or units since 1970 or midnight; a number is taken as it would be stored."""
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
