"""`format("kafkalite")`: topics as DataFrames, batch and streaming, in the rows of Spark's own Kafka connector.

    planner process      KafkaliteReader.partitions ─▶ one InputPartition a piece
    process of a stream  KafkaliteStreamReader.latestOffset, partitions: one object as long as the query runs
    worker processes     read ─▶ pyarrow.RecordBatches

Writers are in `kafkalite.spark.sink.writers`.

Spark prunes no columns of a Python source, so a schema of the user's own is the projection: what it leaves out is not
even decoded. PySpark finds the source by itself, through the package `pyspark_kafkalite`.

Thread rule: Spark makes the objects where it needs them, and each belongs to one thread; a reader is pickled from the
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
"""As Spark has the columns; all may be null to it."""


class KafkaliteReader(DataSourceReader):
    """Reads what was there when the query was planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """One a task."""
        tasks = plan_tasks(client_for(self._options.client), self._options, self._narrowing)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task; none for the one that Spark makes when there is nothing to read."""
        if partition.value is None:
            return iter(())
        return read_task(self._options, self._columns, partition.value)


class PushdownReader(KafkaliteReader):
    """Reads only where rows may be that pass the query's filters.

    A class of its own, as PySpark fails each query whose reader has this method while its setting
    spark.sql.python.filterPushdown.enabled is off.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  # PySpark's name
        """All of them are given back: Spark looks at the rows again."""
        self._narrowing = narrowed(filters)
        return filters


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for. OptionError for one that there is not, or of another type."""
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
