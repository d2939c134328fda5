"""Implement the writers of `format("kafkalite")`, which PySpark calls to write a query's rows to topics.

    worker process    write: Arrow batches ─▶ kafkalite.spark.sink.writing, or exactly_once
    driver's process  commit, abort: for batches of exactly-once streams

A write that fails raises SinkError, whose message is one sentence.

Thread rule: a writer is pickled to the workers, so it contains only options.
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
"""Job properties of a streaming query; the id is the one in its checkpoint."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """A task's message to the driver."""

    rows: int
    outcome: TaskOutcome | None = None
    """The outcome of a task whose rows the driver commits."""


class KafkaliteWriter(DataSourceArrowWriter):
    """The writer of batch queries. It writes at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task. Raises SinkError."""
        return Written(write_all(self._options, present_task(), chosen(self._options, iterator)))


class KafkaliteStreamWriter(DataSourceStreamArrowWriter):
    """The writer of streaming queries."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task of a batch. Raises SinkError."""
        task = present_task()
        iterator = chosen(self._options, iterator)
        if not self._options.exactly_once:
            return Written(write_all(self._options, task, iterator))
        outcome = prepare(self._options, task, iterator)
        return Written(outcome.rows, outcome)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # PySpark's names
        """Commit a batch after all its tasks.

        Raises SinkError: the query fails, and repeats the batch after a restart.
        """
        log_once(self._options.without_effect)
        outcomes = outcomes_of(messages)
        if outcomes:
            commit(self._options, outcomes)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # PySpark's names
        """Abort a batch after one of its tasks, or `commit`, has failed."""
        abort(self._options, outcomes_of(messages))


@functools.cache
def log_once(names: tuple[str, ...]) -> None:
    """Log the options without effect once per process, because Spark creates a writer for each batch of a stream."""
    log_without_effect(names)


def chosen(options: SinkOptions, batches: Iterator[Any]) -> Iterator[Any]:
    """Return the batches with only the columns that are written."""
    if options.columns is None:
        return batches
    names = list(options.columns)
    return (batch.select(names) for batch in batches)


def present_task() -> WriteTask:
    """Return the task that this worker runs."""
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    batch = context.getLocalProperty(BATCH)
    return WriteTask(context.partitionId(), None if batch is None else int(batch), context.getLocalProperty(QUERY))


def outcomes_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    """Return the outcomes in the tasks' messages. A failed task has None instead of a message."""
    return [message.outcome for message in messages if isinstance(message, Written) and message.outcome is not None]
