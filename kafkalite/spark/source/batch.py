"""Implement the batch reader of `format("kafkalite")`, with the columns of Spark's own Kafka connector.

    planner process      KafkaliteReader.partitions ─▶ one InputPartition per piece
    worker processes     read ─▶ pyarrow.RecordBatches

Columns that the user's schema leaves out are not decoded. The query itself cannot select columns, because Spark passes
only filters to a Python source.

Thread rule: Spark creates the objects where it needs them, and each belongs to one thread. A reader is pickled from the
planner to the workers, so it contains no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalite.load.selection import OptionError
from kafkalite.spark.source.plan import EVERYTHING, client_for, plan_tasks
from kafkalite.spark.source.pushdown import narrowed
from kafkalite.spark.source.reading import read_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import DataType

    from kafkalite.spark.options import SourceOptions, ValueOptions
    from kafkalite.spark.source.values import ValueDecoding

HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
"""Columns of the log with their Spark types. All are nullable."""


class KafkaliteReader(DataSourceReader):
    """A reader of the records that exist when the query is planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], decoding: ValueDecoding | None = None) -> None:
        self._options = options
        self._columns = columns
        self._decoding = decoding
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        tasks = plan_tasks(client_for(self._options.client), self._options, self._narrowing)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a task. If there is nothing to read, Spark creates one task with None as the
        partition.
        """
        if partition.value is None:
            return iter(())
        return read_task(self._options, self._columns, partition.value, self._decoding)


class PushdownReader(KafkaliteReader):
    """A reader that skips ranges without rows for the query's filters.

    It is a separate class, because a reader with the method `pushFilters` makes PySpark fail each query while the
    setting spark.sql.python.filterPushdown.enabled is off.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  # PySpark's name
        """Narrow the ranges. Return all filters, so that Spark also applies them to the rows."""
        self._narrowing = narrowed(filters)
        return filters


def projection_of(
    schema: StructType, values: ValueOptions | None, values_schema: str | None
) -> tuple[tuple[str, ...], ValueDecoding | None]:
    """Return the columns that a schema requests, and how values are decoded.

    The second result is None if values are not decoded or not requested. `values_schema` is as in `decoding_of`. Raises
    OptionError for an unknown column or a wrong type, RegistryRefused and RegistryUnreachable.
    """
    if values is None:
        return columns_of(schema, TYPES), None
    from kafkalite.spark.source.values import ERROR, VALUE, decoding_of, nullable, schema_of_values, type_of_values

    types: dict[str, DataType] = {**TYPES, ERROR: StringType()}
    declared = {field.name: field.dataType for field in schema.fields}
    if VALUE not in declared and ERROR not in declared:
        return columns_of(schema, types), None
    if VALUE in declared:
        kind = to_arrow_type(declared[VALUE], timezone="UTC")
    else:
        values_schema = schema_of_values(values) if values_schema is None else values_schema
        kind = type_of_values(values, values_schema)
    decoding = decoding_of(values, kind, values_schema)
    types[VALUE] = from_arrow_type(nullable(kind))
    return columns_of(schema, types), decoding


def columns_of(schema: StructType, types: Mapping[str, DataType]) -> tuple[str, ...]:
    """Return the columns that a schema requests. Raises OptionError for an unknown column or a wrong type."""
    for field in schema.fields:
        wanted = types.get(field.name)
        if wanted is None:
            raise OptionError(f"unknown column {field.name!r} in the schema; choose from {', '.join(types)}")
        if field.dataType != wanted:
            raise OptionError(wrong_type(field, wanted, decodes=types is not TYPES))
        if not field.nullable:
            raise OptionError(f"column {field.name} cannot be NOT NULL; make it nullable")
    if not schema.fields:
        raise OptionError(f"the schema has no columns; choose from {', '.join(types)}")
    return tuple(field.name for field in schema.fields)


def wrong_type(field: StructField, wanted: DataType, *, decodes: bool) -> str:
    """Return the error message for a column with another type."""
    found, expected = field.dataType.simpleString(), wanted.simpleString()
    if found == expected:
        return f"the fields of column {field.name} cannot be NOT NULL; make them nullable"
    hint = "" if decodes or field.name != "value" else "; set option value.format to decode values"
    return f"column {field.name} has type {expected}, not {found}{hint}"
