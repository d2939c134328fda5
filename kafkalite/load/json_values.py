"""Decode the JSON values of record batches, for loads without Spark.

    value ─▶ value │ decoded struct │ json_error

The columns are those of the Spark engine, declared in Spark's syntax: 'id BIGINT, name STRING, tags ARRAY<STRING>'.
Fields that a value lacks are null. Fields without a column are dropped.

pyarrow parses many values at a time. If it rejects one of them, or does not support the type of a column, Python parses
these values one by one.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from kafkalite.load.columns import Column, Columns, ColumnType, Listed, Mapped, Struct, arrow_type
from kafkalite.load.decoded import DECODED, place_of
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.load.columns import Aliases

ERROR: Final = "json_error"
EXCEPTION: Final = "json.JSONDecodeError"
NO_TEXT: Final = "the value is not valid UTF-8"
NO_JSON: Final = "the value is not JSON of the schema"
REASON_SIZE_MAX: Final = 500
RUN_COUNT: Final = 500
"""Values of a run: a bad value sends this many values to the slower parser."""
TYPES: Final = {
    "boolean": "bool",
    "byte": "int8",
    "tinyint": "int8",
    "short": "int16",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "long": "int64",
    "bigint": "int64",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "date": "date32",
    "timestamp": "timestamp[us, tz=UTC]",
}
"""Spark's scalar type names → Arrow's."""
OF_SPARK: Final = {
    "binary", "char", "character", "dec", "decimal", "interval", "numeric", "time", "timestamp_ltz", "timestamp_ntz",
    "varchar", "variant", "void",
}  # fmt: skip
"""Types that only the Spark engine supports."""
BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
WHOLE: Final = {"bool", "string", "float", "double", *BITS}
"""Types for which pyarrow parses by the rules of this module."""
NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>,:()]|'[^']*')")


class OnlySpark(ValueError):
    """A column type that only Spark supports, such as DECIMAL."""


class ColumnsError(ValueError):
    """A text that does not declare columns."""


class JsonValues:
    """A decoder of JSON values into the given columns. Raises ColumnsError and OnlySpark.

    `mode` decides what happens with a record whose value cannot be decoded: with "failfast" the load fails, with
    "permissive" the record is loaded with the reason, and with "dlq" it becomes a dead letter.
    """

    def __init__(self, columns: str, mode: str) -> None:
        self.aside: Mapping[str, str] = {ERROR: EXCEPTION} if mode == "dlq" else {}
        self.aliases: Aliases = {}
        self.errors = "" if mode == "failfast" else ERROR
        self._decoder = JsonDecoder(parse_columns(columns), columns)

    def decoded(self, batch: Any) -> Any:
        """Return the batch with columns of its decoded values.

        In the mode "failfast", LoadError for the first value that cannot be decoded.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        values, errors = self._decoder.decode(batch.column("value"))
        if not self.errors and errors.null_count < batch.num_rows:
            row = pc.is_valid(errors).index(True).as_py()
            raise LoadError(f"{place_of(batch, row)}: {errors[row].as_py()}")
        return pa.RecordBatch.from_arrays([*batch.columns, values, errors], names=[*batch.schema.names, DECODED, ERROR])


class JsonDecoder:
    """A decoder of JSON values into structs with the given fields.

    `shown` is the text of the fields for error messages.
    """

    def __init__(self, fields: Columns, shown: str) -> None:
        self._fields = fields
        self.arrow_type = arrow_type(Struct(fields))
        """The type of the structs."""
        self._reason = f"{NO_JSON} {shown}"[:REASON_SIZE_MAX]
        self._whole = all(is_whole(field.type) for field in fields)

    def decode(self, values: Any) -> tuple[Any, Any]:
        """Decode a binary array. Return an array of structs, and an array of the reasons of failed values.

        The struct of a null and of a failed value is null. If pyarrow rejects the array, it is decoded in runs of
        RUN_COUNT values. Python decodes the values of a run that pyarrow rejects.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._whole:
            return self._one_by_one(values)
        if 0 < values.null_count < len(values):
            valid = values.is_valid()
            places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), None)
            found, errors = self.decode(values.drop_null())
            return found.take(places), errors.take(places)
        found = self._at_once(values)
        if found is not None:
            return found, pa.nulls(len(values), pa.string())
        runs = [values.slice(start, RUN_COUNT) for start in range(0, len(values), RUN_COUNT)]
        if len(runs) <= 1:
            return self._one_by_one(values)
        parts = [self.decode(run) for run in runs]
        return pa.concat_arrays([part[0] for part in parts]), pa.concat_arrays([part[1] for part in parts])

    def _one_by_one(self, values: Any) -> tuple[Any, Any]:
        import pyarrow as pa

        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            row, reason = None, None
            if value is not None:
                try:
                    row = struct_of(json.loads(value.decode()), self._fields)
                except UnicodeDecodeError:
                    reason = NO_TEXT
                except (ValueError, OverflowError, RecursionError):
                    reason = self._reason
            rows.append(row)
            reasons.append(reason)
        return pa.array(rows, self.arrow_type), pa.array(reasons, pa.string())

    def _at_once(self, values: Any) -> Any:
        """Decode an array with pyarrow, as one text with a line per value.

        Return None if pyarrow rejects the text, or if a value is not exactly one JSON object on one line.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json

        if not len(values) or values.null_count:
            return None
        try:
            text = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        # "}", a line break and "{" are never part of one object, so each value has at least one object.
        if not pc.all(pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))).as_py():
            return None
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(text)], pa.concat_arrays([text])), "\n")[0].as_buffer()
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(lines),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema(list(self.arrow_type)), unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(values):
            return None
        arrays = [column.combine_chunks() for column in table.columns]
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow_type))


def is_whole(kind: ColumnType) -> bool:
    """Return whether pyarrow's JSON parser handles a type by the rules of this module."""
    if isinstance(kind, Struct):
        return all(is_whole(field.type) for field in kind.fields)
    return kind in WHOLE if isinstance(kind, str) else isinstance(kind, Listed) and is_whole(kind.item)


# --- values -----------------------------------------------------------------------------------------------------------


def struct_of(value: object, fields: Columns) -> dict[str, Any]:
    """Convert a JSON object to a dict with these fields. ValueError for other JSON, or a field of a wrong type."""
    if not isinstance(value, dict):
        raise ValueError(value)  # noqa: TRY004  # a record is wrong, not a program
    return {field.name: value_of(value.get(field.name), field.type) for field in fields}


def value_of(value: Any, kind: ColumnType) -> Any:
    """Convert a JSON value to a type. ValueError if it does not fit."""
    if value is None:
        return None
    if isinstance(kind, Struct):
        return struct_of(value, kind.fields)
    if isinstance(kind, Listed) and isinstance(value, list):
        return [value_of(item, kind.item) for item in value]
    if isinstance(kind, Mapped) and isinstance(value, dict):
        return [(key, value_of(item, kind.item)) for key, item in value.items()]
    if isinstance(kind, str):
        return scalar_of(value, kind)
    raise ValueError(value)


def scalar_of(value: Any, kind: str) -> Any:
    """Convert a JSON value to a scalar type. ValueError if it does not fit.

    A value that is not a string becomes its JSON text in a string column. NaN, Infinity and -Infinity are numbers, also
    in quotes.
    """
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, bool):
        if kind == "bool":
            return value
    elif kind in BITS:
        if isinstance(value, int) and -(1 << BITS[kind] - 1) <= value < 1 << BITS[kind] - 1:
            return value
    elif kind in {"float", "double"}:
        if isinstance(value, int | float):
            return float(value)
        if value in NUMBERS:
            return NUMBERS[value]
    elif isinstance(value, str) and kind == "date32":
        return dt.date.fromisoformat(value)
    elif isinstance(value, str):
        found = dt.datetime.fromisoformat(value)
        return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
    raise ValueError(value)


# --- columns ----------------------------------------------------------------------------------------------------------


def parse_columns(text: str) -> Columns:
    """Parse a declaration of columns such as 'id BIGINT, name STRING'. Raises ColumnsError and OnlySpark."""
    tokens = list(tokens_of(text))
    fields = fields_of(tokens, text)
    if tokens:
        raise ColumnsError(f"columns {text!r}: unexpected {tokens[0]!r}; write them as 'id BIGINT, name STRING'")
    return fields


def tokens_of(text: str) -> Iterator[str]:
    """Split a declaration of columns into names, types and punctuation. Raises ColumnsError."""
    at = 0
    while text[at:].strip():
        found = TOKEN.match(text, at)
        if found is None:
            raise ColumnsError(f"columns {text!r}: cannot parse {text[at:].strip()!r}")
        yield found[1]
        at = found.end()


def fields_of(tokens: list[str], text: str) -> Columns:
    """Parse a list of fields and remove it from `tokens`. Raises ColumnsError and OnlySpark.

    `text` is the whole declaration, for error messages.
    """
    fields: list[Column] = []
    while True:
        name = take(tokens, text, "a name")
        if name[0] == "`":
            name = name[1:-1].replace("``", "`")
        if tokens[:1] == [":"]:
            tokens.pop(0)
        if name in {field.name for field in fields}:
            raise ColumnsError(f"columns {text!r}: {name!r} occurs twice")
        fields.append(Column(name, type_of(tokens, text)))
        skip_remarks(tokens, text)
        if tokens[:1] != [","]:
            return tuple(fields)
        tokens.pop(0)


def skip_remarks(tokens: list[str], text: str) -> None:
    """Remove NOT NULL and COMMENT from the start of `tokens`. They have no effect: all columns are nullable."""
    if [token.lower() for token in tokens[:2]] == ["not", "null"]:
        del tokens[:2]
    if [token.lower() for token in tokens[:1]] == ["comment"]:
        tokens.pop(0)
        take(tokens, text, "a comment")


def type_of(tokens: list[str], text: str) -> ColumnType:
    """Parse a type and remove it from `tokens`. Raises ColumnsError and OnlySpark."""
    name = take(tokens, text, "a type").lower()
    if name in TYPES:
        return TYPES[name]
    if name in OF_SPARK:
        raise OnlySpark(name.upper())
    if name not in {"array", "map", "struct"}:
        raise ColumnsError(f"columns {text!r}: unknown type {name!r}; expected one of {', '.join(TYPES)}, …")
    expect(tokens, text, "<")
    if name == "struct":
        kind: ColumnType = Struct(fields_of(tokens, text))
    elif name == "array":
        kind = Listed(type_of(tokens, text))
    else:
        key = type_of(tokens, text)
        expect(tokens, text, ",")
        kind = Mapped(type_of(tokens, text))
        if key != "string":
            raise OnlySpark("a MAP with keys that are not strings")
    expect(tokens, text, ">")
    return kind


def take(tokens: list[str], text: str, what: str) -> str:
    """Remove and return the next token. ColumnsError if it is punctuation or missing.

    `what` names the expected token in the error.
    """
    if not tokens or tokens[0] in "<>,:()":
        raise ColumnsError(f"columns {text!r}: {what} is missing; write them as 'id BIGINT, name STRING'")
    return tokens.pop(0)


def expect(tokens: list[str], text: str, sign: str) -> None:
    """Remove the next token, which must be `sign`. ColumnsError otherwise."""
    if tokens[:1] != [sign]:
        raise ColumnsError(f"columns {text!r}: {sign!r} is missing")
    tokens.pop(0)
