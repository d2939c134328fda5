"""Implement the readers of `format("kafkalite")`, with the columns of Spark's own Kafka connector.

    planner process      KafkaliteReader.partitions ─▶ one InputPartition per piece
    process of a stream  KafkaliteStreamReader.latestOffset, partitions: one object while the query runs
    worker processes     read ─▶ pyarrow.RecordBatches

Writers are in `kafkalite.spark.sink.writers`.

Spark does not pass the columns that a query uses to a Python source. So the user's schema selects the columns: those
that it leaves out are not decoded. PySpark finds the source through the package `pyspark_kafkalite`.

Thread rule: Spark creates the objects where it needs them, and each belongs to one thread. A reader is pickled from the
planner to the workers, so it holds no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
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

from kafkalite.client.columns.arrow import COLUMNS
from kafkalite.load.selection import OptionError
from kafkalite.spark.source.plan import EVERYTHING, client_for, plan_tasks
from kafkalite.spark.source.pushdown import narrowed
from kafkalite.spark.source.reading import read_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import Filter

    from kafkalite.spark.options import SourceOptions

HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
"""Columns with their Spark types. All are nullable."""


class KafkaliteReader(DataSourceReader):
    """A reader of the records that exist when the query is planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        tasks = plan_tasks(client_for(self._options.client), self._options, self._narrowing)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a task. None for the task that Spark creates if there is nothing to read."""
        if partition.value is None:
            return iter(())
        return read_task(self._options, self._columns, partition.value)


class PushdownReader(KafkaliteReader):
    """A reader of only those ranges that may have rows for the query's filters.

    It is a separate class, because PySpark fails each query whose reader has this method while the setting
    spark.sql.python.filterPushdown.enabled is off.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  # PySpark's name
        """Narrow the ranges, and return all filters: Spark applies them to the rows again."""
        self._narrowing = narrowed(filters)
        return filters


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a schema requests. OptionError for an unknown column or a wrong type."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise OptionError(f"unknown column {field.name!r} in the schema; choose from {', '.join(COLUMNS)}")
        if field.dataType != TYPES[field.name]:
            wanted = TYPES[field.name].simpleString()
            raise OptionError(f"column {field.name} has type {wanted}, not {field.dataType.simpleString()}")
        if not field.nullable:
            raise OptionError(f"column {field.name} cannot be NOT NULL; make it nullable")
    if not schema.fields:
        raise OptionError(f"the schema has no columns; choose from {', '.join(COLUMNS)}")
    return tuple(field.name for field in schema.fields)
