"""`format("kafkalite")`: what PySpark calls to read topics as DataFrames and to write rows to them.

    planner process      KafkaliteReader.partitions ─▶ one InputPartition a piece
    process of a stream  KafkaliteStreamReader.latestOffset, partitions: one object as long as the query runs
    worker processes     read ─▶ pyarrow.RecordBatches; write: rows ─▶ topics

PySpark finds the format by itself, through the package `pyspark_kafkalite`.

Thread rule: Spark makes the objects where it needs them, and each belongs to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructField, StructType

from kafkalite.client.columns.arrow import COLUMNS
from kafkalite.load.selection import OptionError
from kafkalite.spark.options import SourceOptions, StreamOptions, includes_headers, log_without_effect
from kafkalite.spark.sink.options import SinkOptions
from kafkalite.spark.source.batch import TYPES, KafkaliteReader, PushdownReader, columns_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter


class KafkaliteDataSource(DataSource):
    """What `format("kafkalite")` is. Options and rows: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """As users write it."""
        return "kafkalite"

    def schema(self) -> StructType:
        """Every column; headers with includeHeaders."""
        headers = includes_headers(self.options)
        return StructType([StructField(name, TYPES[name]) for name in COLUMNS if name != "headers" or headers])

    def reader(self, schema: StructType) -> KafkaliteReader:
        """For a batch query."""
        options = SourceOptions.parse(self.options)
        kind = PushdownReader if options.pushdown else KafkaliteReader
        return kind(options, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # PySpark's name
        """For a streaming query."""
        from kafkalite.spark.source.stream import KafkaliteStreamReader

        return KafkaliteStreamReader(StreamOptions.parse(self.options), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For a batch query."""
        from kafkalite.spark.sink.writers import KafkaliteWriter

        options = SinkOptions.parse(self.options, types_of(schema), streaming=False, overwrite=overwrite)
        log_without_effect(options.without_effect)
        return KafkaliteWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # PySpark's name
        """For a streaming query."""
        from kafkalite.spark.sink.writers import KafkaliteStreamWriter

        options = SinkOptions.parse(self.options, types_of(schema), streaming=True, overwrite=overwrite)
        return KafkaliteStreamWriter(options)


def types_of(schema: StructType) -> dict[str, str]:
    """Column → type as Spark writes it. OptionError for a name that comes twice."""
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"duplicate column {twice[0]!r}")
    return {field.name: field.dataType.simpleString() for field in schema.fields}
