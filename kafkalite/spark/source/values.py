"""Decode values to columns in a task, for the option value.format. Does not import PySpark.

    batch of the log ─▶ JsonDecoder or AvroDecoder ─▶ value: as declared │ value_error: the reason for a null

The planner process converts the options to a ValueDecoding once per query, so all tasks use the same schema. A worker
keeps its decoders between tasks.

Thread rule: a worker process runs one task at a time.
"""

from __future__ import annotations

import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any, Final, cast

from kafkalite.avro.client import RegistryClient
from kafkalite.avro.decoder import AvroDecoder
from kafkalite.avro.layout import Layout, arrow_type
from kafkalite.avro.schema import SchemaError, parse
from kafkalite.base.dataclass import dataclass
from kafkalite.load.avro_values import as_spark, spark_type
from kafkalite.load.columns import Listed, Mapped, Struct, of_arrow
from kafkalite.load.columns import arrow_type as type_of_columns
from kafkalite.load.json_values import TYPES, ColumnsError, JsonDecoder, OnlySpark, parse_columns
from kafkalite.load.selection import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalite.load.columns import ColumnType
    from kafkalite.model import TopicPartition
    from kafkalite.spark.options import ValueOptions

VALUE: Final = "value"
ERROR: Final = "value_error"
"""The column with the reason why a value could not be decoded, or null."""
NO_TYPE: Final = "value.format json does not decode {}; declare a STRING, or decode the bytes with from_json"
DECODER_COUNT_MAX: Final = 16
"""Decoders that a Python worker keeps."""


class BadValue(RuntimeError):
    """A value that cannot be decoded, with the option value.mode=failfast. The message names the record."""


@dataclass(frozen=True, slots=True)
class ValueDecoding:
    """The settings that a task needs to decode values. It is pickled to the workers."""

    format: str
    schema: str
    """JSON: the columns, for errors. Avro: the reader's schema."""
    made: Any
    """The Arrow type of the column value."""
    registry: str | None = None
    fails: bool = False

    def sources(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of the log that are needed for these columns."""
        needed = dict.fromkeys(name for name in columns if name != ERROR)
        return tuple(needed | dict.fromkeys((VALUE, "offset") if self.fails else (VALUE,)))


# --- in the planner ---------------------------------------------------------------------------------------------------


def schema_of_values(options: ValueOptions) -> str:
    """Return the schema by which values are decoded: the columns, or the reader's schema without references.

    Raises OptionError for an invalid schema, RegistryRefused and RegistryUnreachable.
    """
    if options.format == "json":
        if options.schema is None:
            raise OptionError(
                "value.format json needs option value.schema, such as 'id BIGINT, name STRING', "
                "or .schema('value STRUCT<id BIGINT, name STRING>')"
            )
        return options.schema
    try:
        with RegistryClient(options.registry or "") as registry:
            if options.subject is not None:
                return registry.latest(options.subject).schema.standalone()
    except ValueError as error:
        raise OptionError(f"option value.registry: {error}") from None
    try:
        return parse(options.schema or "").standalone()
    except SchemaError as error:
        raise OptionError(f"option value.schema: {error}") from None


def type_of_values(options: ValueOptions, schema: str) -> Any:
    """Return the Arrow type of values that are decoded by this schema. Raises OptionError."""
    if options.format == "avro":
        try:
            return spark_type(arrow_type(Layout(parse(schema).root).root))
        except SchemaError as error:
            raise OptionError(f"values cannot be decoded to columns: {error}") from None
    try:
        return type_of_columns(Struct(parse_columns(schema)))
    except OnlySpark as error:
        raise OptionError(f"option value.schema: {NO_TYPE.format(error)}") from None
    except ColumnsError as error:
        raise OptionError(f"option value.schema: {error}") from None


def decoding_of(options: ValueOptions, declared: Any, schema: str | None) -> ValueDecoding:
    """Return how tasks decode values to the Arrow type `declared`.

    `schema` is the result of `schema_of_values`, if it is known. JSON is decoded to any declared struct. Avro is
    decoded to the type of its schema, or to some of a record's fields. Raises OptionError, RegistryRefused and
    RegistryUnreachable.
    """
    if options.format == "json":
        columns = of_arrow([_field(declared)])[0].type
        if not isinstance(columns, Struct):
            raise OptionError(f"value.format json needs a STRUCT as column value, not {declared}")
        for kind in scalars_of(columns):
            if kind not in TYPES.values():
                raise OptionError(NO_TYPE.format(kind))
        shown = schema or ", ".join(f"{field.name} {field.type}" for field in declared)
        return ValueDecoding("json", shown, declared, fails=options.fails)
    text = schema_of_values(options) if schema is None else schema
    full = type_of_values(options, text)
    if not is_part_of(declared, full):
        raise OptionError(f"column value is {declared}, but the Avro schema has {full}")
    return ValueDecoding("avro", with_fields(text, declared), declared, options.registry, options.fails)


def _field(kind: Any) -> Any:
    import pyarrow as pa

    return pa.field(VALUE, kind)


def nullable(kind: Any) -> Any:
    """Return an Arrow type with all of its fields nullable."""
    return type_of_columns(of_arrow([_field(kind)])[0].type)


def scalars_of(kind: ColumnType) -> Iterator[str]:
    """Yield the scalar types in a type."""
    if isinstance(kind, Struct):
        for field in kind.fields:
            yield from scalars_of(field.type)
    elif isinstance(kind, Listed | Mapped):
        yield from scalars_of(kind.item)
    else:
        yield kind


def is_part_of(declared: Any, full: Any) -> bool:
    """Return whether `declared` equals `full`, or is a struct with some of its fields."""
    import pyarrow as pa

    if not (pa.types.is_struct(declared) and pa.types.is_struct(full)):
        return bool(of_arrow([_field(declared)]) == of_arrow([_field(full)]))
    known = {field.name: column for field, column in zip(full, of_arrow(full), strict=True)}
    return all(column == known.get(column.name) for column in of_arrow(declared))


def with_fields(schema: str, declared: Any) -> str:
    """Return the reader's schema with only the declared fields of the record.

    If that is not a valid schema by itself, return the schema unchanged.
    """
    import pyarrow as pa

    document = json.loads(schema)
    if not (pa.types.is_struct(declared) and isinstance(document, dict) and document.get("type") == "record"):
        return schema
    names = {field.name for field in declared}
    less = json.dumps({**document, "fields": [field for field in document["fields"] if field["name"] in names]})
    with contextlib.suppress(SchemaError):  # a kept field may use a type that a dropped one defines
        parse(less)
        return less
    return schema


# --- in tasks ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=DECODER_COUNT_MAX)
def decoder_of(decoding: ValueDecoding) -> Callable[[Any], tuple[Any, Any]]:
    """Return this worker's decoding function: it maps an array of values to the decoded values and the reasons of bad
    values.
    """
    import pyarrow as pa

    if decoding.format == "json":
        return JsonDecoder(of_arrow(decoding.made), decoding.schema).decode
    decoder = AvroDecoder(RegistryClient(decoding.registry or ""), decoding.schema, mode="permissive")

    def decode(values: Any) -> tuple[Any, Any]:
        found = decoder.decode(values)
        errors = found.errors() if len(found.failed) else pa.nulls(len(values), pa.string())
        if not pa.types.is_struct(found.values.type) or not pa.types.is_struct(decoding.made):
            return found.values, errors
        fields = {field.name: child for field, child in zip(found.values.type, found.values.flatten(), strict=True)}
        names = [field.name for field in decoding.made]
        mask = found.values.is_null() if found.values.null_count else None
        return pa.StructArray.from_arrays([fields[name] for name in names], names, mask=mask), errors

    return decode


def decode_values(
    batches: Iterable[Any], columns: Sequence[str], decoding: ValueDecoding, key: TopicPartition
) -> Iterator[Any]:
    """Decode the batches of one partition, and yield record batches with `columns`.

    `batches` have the columns `decoding.sources(columns)`. Raises BadValue for the first value that cannot be decoded,
    if `decoding.fails` is set. Raises RegistryRefused and RegistryUnreachable.
    """
    import pyarrow as pa

    decode = decoder_of(decoding)
    for batch in batches:
        values, errors = decode(batch.column(VALUE))
        if decoding.fails and errors.null_count < len(errors):
            row = cast("int", errors.is_valid().index(True).as_py())
            raise BadValue(f"offset {batch.column('offset')[row]} of {key} cannot be decoded: {errors[row]}")
        made = {VALUE: as_spark(values, decoding.made), ERROR: errors}
        arrays = [made[name] if name in made else batch.column(name) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
