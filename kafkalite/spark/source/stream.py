"""Implement the streaming reader of `format("kafkalite")`, for PySpark 4.2 or newer.

The offsets of a batch are committed for the group kafka.group.id when Spark requests the end of the next batch. Spark
sends this request even after the last batch. The method `commit` is not used, because Spark never calls it for the last
batch of a run.

Thread rule: Spark creates the objects where it needs them, and each belongs to one thread. The planner remains in the
query's process: it is not pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkalite.spark.source.reading import read_task
from kafkalite.spark.source.stream_plan import StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.spark.options import StreamOptions
    from kafkalite.spark.source.values import ValueDecoding


class KafkaliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. Method names are PySpark's."""

    def __init__(self, options: StreamOptions, columns: tuple[str, ...], decoding: ValueDecoding | None = None) -> None:
        self._options = options
        self._columns = columns
        self._decoding = decoding
        self._planner = StreamPlanner(options)

    def __reduce__(self) -> tuple[type[KafkaliteStreamReader], tuple[Any, ...]]:
        return KafkaliteStreamReader, (self._options, self._columns, self._decoding)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the position where a new query starts."""
        return self._planner.initial()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the records that exist when it first looks at the topics."""
        self._planner.bound()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the query's limits. `latestOffset` applies all limits that are set."""
        options = self._options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        if options.size_max is not None:
            return ReadMaxBytes(options.size_max)
        return ReadAllAvailable() if options.rows_min is None else ReadMinRows(options.rows_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch."""
        return self._planner.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the partitions, for the lag in a query's progress."""
        return self._planner.reported()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition per task."""
        return [InputPartition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a task."""
        if partition.value is None:
            return iter(())
        return read_task(self._options.source, self._columns, partition.value, self._decoding)
