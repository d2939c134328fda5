"""`spark.readStream.format("kafkalite")`: what PySpark, 4.2 or newer, asks of a stream.

`commit` is not used: it comes a batch late, and never for the last one of a run. A group's offsets are committed when
the next batch is planned, which is after the last one too.

Thread rule: as in kafkalite.spark.source.batch. The planner stays in the process of the query: it is not pickled.
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


class KafkaliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module; method names are PySpark's."""

    def __init__(self, options: StreamOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._planner = StreamPlanner(options)

    def __reduce__(self) -> tuple[type[KafkaliteStreamReader], tuple[StreamOptions, tuple[str, ...]]]:
        return KafkaliteStreamReader, (self._options, self._columns)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins."""
        return self._planner.initial()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there at the first look is all."""
        self._planner.bound()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits; `latestOffset` keeps all that are set."""
        options = self._options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        if options.size_max is not None:
            return ReadMaxBytes(options.size_max)
        return ReadAllAvailable() if options.rows_min is None else ReadMinRows(options.rows_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        return self._planner.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the partitions end: the lag in a query's progress."""
        return self._planner.reported()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One a task."""
        return [InputPartition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task."""
        if partition.value is None:
            return iter(())
        return read_task(self._options.source, self._columns, partition.value)
