"""Implement the Spark data source `format("kafkalite")`, which reads topics as DataFrames and writes rows to topics.

    planner process      KafkaliteReader.partitions ─▶ one InputPartition per piece
    process of a stream  KafkaliteStreamReader.latestOffset, partitions: one object while the query runs
    worker processes     read ─▶ pyarrow.RecordBatches; write: rows ─▶ topics

PySpark finds the format through the package `pyspark_kafkalite`.

Thread rule: Spark creates the objects where it needs them, and each belongs to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from kafkalite.client.columns.arrow import COLUMNS
from kafkalite.load.selection import OptionError
from kafkalite.spark.options import SourceOptions, StreamOptions, includes_headers, log_without_effect, values_of
from kafkalite.spark.sink.options import SinkOptions
from kafkalite.spark.source.batch import TYPES, KafkaliteReader, PushdownReader, projection_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter


class KafkaliteDataSource(DataSource):
    """The data source `format("kafkalite")`. Its options and rows are described in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name that users write."""
        return "kafkalite"

    values_schema: str | None = None
    """The schema of decoded values, once `schema` has resolved it: Spark pickles this object afterwards."""

    def schema(self) -> StructType:
        """Return all columns. Headers require includeHeaders, and value_error requires value.format."""
        headers = includes_headers(self.options)
        fields = [StructField(name, TYPES[name]) for name in COLUMNS if name != "headers" or headers]
        values = values_of(self.options)
        if values is None:
            return StructType(fields)
        from kafkalite.spark.source import values as decoding

        self.values_schema = decoding.schema_of_values(values)
        made = from_arrow_type(decoding.type_of_values(values, self.values_schema))
        fields[COLUMNS.index(decoding.VALUE)] = StructField(decoding.VALUE, made)
        return StructType([*fields, StructField(decoding.ERROR, StringType())])

    def reader(self, schema: StructType) -> KafkaliteReader:
        """Return the reader of a batch query."""
        options = SourceOptions.parse(self.options)
        kind = PushdownReader if options.pushdown else KafkaliteReader
        return kind(options, *projection_of(schema, options.values, self.values_schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # PySpark's name
        """Return the reader of a streaming query."""
        from kafkalite.spark.source.stream import KafkaliteStreamReader

        options = StreamOptions.parse(self.options)
        return KafkaliteStreamReader(options, *projection_of(schema, options.source.values, self.values_schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from kafkalite.spark.sink.writers import KafkaliteWriter

        options = SinkOptions.parse(self.options, types_of(schema), streaming=False, overwrite=overwrite)
        log_without_effect(options.without_effect)
        return KafkaliteWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # PySpark's name
        """Return the writer of a streaming query."""
        from kafkalite.spark.sink.writers import KafkaliteStreamWriter

        options = SinkOptions.parse(self.options, types_of(schema), streaming=True, overwrite=overwrite)
        return KafkaliteStreamWriter(options)


def types_of(schema: StructType) -> dict[str, str]:
    """Return the type of each column, as Spark writes it. Raises OptionError for a duplicate name."""
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"duplicate column {twice[0]!r}")
    return {field.name: field.dataType.simpleString() for field in schema.fields}
