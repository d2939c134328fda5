"""`write.format("kafkalite")` and `writeStream`: what PySpark calls to write rows to topics.

    worker process    write: Arrow batches ─▶ kafkalite.spark.sink.writing, or exactly_once; a failure is one sentence
    driver's process  commit, abort: of the batches of a stream, exactly once

Thread rule: a writer is pickled to the workers, so it holds options and nothing else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kafkalite.base.dataclass import dataclass
from kafkalite.spark.options import log_without_effect
from kafkalite.spark.sink.exactly_once import TaskOutcome, abort, commit, prepare
from kafkalite.spark.sink.writing import WriteTask, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalite.spark.sink.options import SinkOptions

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Properties of a job that belongs to a streaming query; the id is the one in its checkpoint."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    outcome: TaskOutcome | None = None
    """Of a task whose rows the driver commits."""


class KafkaliteWriter(DataSourceArrowWriter):
    """For batch queries, at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of a task. SinkError."""
        return Written(write_all(self._options, present_task(), chosen(self._options, iterator)))


class KafkaliteStreamWriter(DataSourceStreamArrowWriter):
    """For streaming queries."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of a task of a batch. SinkError."""
        task = present_task()
        iterator = chosen(self._options, iterator)
        if not self._options.exactly_once:
            return Written(write_all(self._options, task, iterator))
        outcome = prepare(self._options, task, iterator)
        return Written(outcome.rows, outcome)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # PySpark's names
        """Every task is done. SinkError: the query fails, and does the batch again when it is restarted."""
        log_once(self._options.without_effect)
        outcomes = outcomes_of(messages)
        if outcomes:
            commit(self._options, outcomes)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # PySpark's names
        """A task failed, or `commit` did."""
        abort(self._options, outcomes_of(messages))


@functools.cache
def log_once(names: tuple[str, ...]) -> None:
    """Log what has no effect. Spark makes a writer for each batch of a stream, in processes that it keeps."""
    log_without_effect(names)


def chosen(options: SinkOptions, batches: Iterator[Any]) -> Iterator[Any]:
    """The columns of the rows that are written."""
    if options.columns is None:
        return batches
    names = list(options.columns)
    return (batch.select(names) for batch in batches)


def present_task() -> WriteTask:
    """Which task this worker runs."""
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    batch = context.getLocalProperty(BATCH)
    return WriteTask(context.partitionId(), None if batch is None else int(batch), context.getLocalProperty(QUERY))


def outcomes_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    """Of the tasks that the driver has to end something for."""
    return [message.outcome for message in messages if isinstance(message, Written) and message.outcome is not None]
