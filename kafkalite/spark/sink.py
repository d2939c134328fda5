"""`write.format("kafkalite")` and `writeStream`: what PySpark calls to write rows to topics.

    worker process    write: Arrow batches ─▶ kafkalite.spark.writing, or the task fails with one sentence

Thread rule: a writer is pickled to the workers, so it holds options and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kafkalite.spark.writing import Task, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.spark.sink_options import SinkOptions

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Properties of a job that belongs to a streaming query; the id is the one in its checkpoint."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int


class KafkaliteWriter(DataSourceArrowWriter):
    """For batch queries: at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of a task. SinkError."""
        return Written(write_all(self._options, present_task(), iterator))


class KafkaliteStreamWriter(DataSourceStreamArrowWriter):
    """For streaming queries."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of a task of a batch. SinkError."""
        return Written(write_all(self._options, present_task(), iterator))


def present_task() -> Task:
    """Which task this worker runs."""
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    batch = context.getLocalProperty(BATCH)
    return Task(context.partitionId(), None if batch is None else int(batch), context.getLocalProperty(QUERY))
