"""Provide `format("ready")`, a Spark source whose record batches exist in advance: the ceiling of any Python source.

Rows look like those of the topic that is compared with it: the same columns, and the same keys and values repeatedly.
Only the offsets differ, because each batch needs its own.

Thread rule: Spark creates the objects where it needs them. The batch is built once per worker process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.rows import portion
from kafkalite.client.columns.arrow import schema_of
from kafkalite.spark.format import KafkaliteDataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ROWS = 10_000
DISTINCT_ROWS = 100_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
STAMP_MS = 1_700_000_000_000


@functools.cache
def distinct() -> Any:
    """Return the keys and values, which are built once per process."""
    return portion(DISTINCT_ROWS)


@functools.cache
def constants(partition: int) -> list[Any]:
    """Return the columns that are the same in every batch, by their place in COLUMNS; None for the others."""
    import pyarrow as pa

    schema = schema_of(COLUMNS)
    values = {"topic": "ready", "partition": partition, "timestamp": STAMP_MS * 1000, "timestampType": 0}
    return [
        pa.repeat(pa.scalar(values[name], schema.field(name).type), BATCH_ROWS) if name in values else None
        for name in COLUMNS
    ]


def batches(partition: int, start: int, end: int) -> Iterator[Any]:
    """Return rows `start` to `end` of a partition."""
    import pyarrow as pa

    source = distinct()
    schema = schema_of(COLUMNS)
    fixed = constants(partition)
    for first in range(start, end, BATCH_ROWS):
        count = min(BATCH_ROWS, end - first)
        at = first % DISTINCT_ROWS
        columns = {
            "key": source.column("key").slice(at, count),
            "value": source.column("value").slice(at, count),
            "offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
        }
        arrays = [
            columns[name] if array is None else array.slice(0, count)
            for name, array in zip(COLUMNS, fixed, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class ReadyDataSource(DataSource):
    """The source. Its options are `rows` in total and `tasks` that divide them."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return KafkaliteDataSource({}).schema()

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # PySpark's signature
        return ReadyReader(int(self.options["rows"]), int(self.options["tasks"]))


class ReadyReader(DataSourceReader):
    """Reads the rows; each task is a separate partition."""

    def __init__(self, rows: int, tasks: int) -> None:
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        each = -(-self._rows // self._tasks)
        return [InputPartition((i, min(each, self._rows - i * each))) for i in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        number, count = partition.value
        return batches(number, 0, count)
