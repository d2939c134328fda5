"""Write batches of a streaming query to topics exactly once: tasks prepare transactions, and the driver commits them.

    task      1. initializes its transactional id; this aborts the open transaction of an earlier attempt
              2. reads the marker of its last batch
              3. writes the rows and leaves the transaction open
    driver    all tasks are done: for each open transaction, writes the task's marker and commits; then Spark stores
              the checkpoint
              a task has failed: aborts the open transactions of the other tasks

A task's rows and its marker (kafkalite.spark.sink.markers) are in one transaction. If Spark repeats a task after its
commit, the task finds the marker. It then writes nothing, but checks that its rows are the same.

A transactional id consists of the query's id and the task's number.

A read_committed consumer sees each task's rows completely or not at all.

Thread rule: the functions share no state; a connection is used in one call only.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client import Client, ClientError
from kafkalite.errors import InvalidProducerEpoch, InvalidTxnState, KafkaError, ProducerFenced
from kafkalite.spark.sink.markers import Marker, Markers, RowTally
from kafkalite.spark.sink.writing import SinkError, client_of, new_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite.client import ColumnWriter, PreparedTransaction
    from kafkalite.spark.sink.options import SinkOptions
    from kafkalite.spark.sink.writing import WriteTask

MARKER_WAIT_S: Final = 60.0
"""How long, in addition to the transaction timeout, a coordinator may take to end a transaction."""
TAKEN: Final = (ProducerFenced, InvalidProducerEpoch, InvalidTxnState)
"""Errors of a transaction that another attempt, or its timeout, has ended."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task's result for the driver."""

    task: WriteTask
    rows: int
    checksum: int
    prepared: PreparedTransaction | None = None
    """The open transaction; None: the task has no rows, or was committed before."""
    committed: bool = False
    tasks_before: int | None = None
    """The number of tasks in the earlier attempt if part of it was committed."""


# --- in a task --------------------------------------------------------------------------------------------------------


def prepare(options: SinkOptions, task: WriteTask, batches: Iterator[Any]) -> TaskOutcome:
    """Write a task's rows into a transaction that is left open. If the rows were committed before, only check them.

    Raises SinkError.
    """
    try:
        with client_of(options) as client:
            markers = markers_of(options, client, task)
            markers.create()
            writer = new_writer(
                client,
                options,
                transactional_id=markers.transactional_id(task.number),
                transaction_timeout_s=options.transaction_timeout_s,
            )
            with contextlib.closing(writer):
                writer.producer.init_transactions()
                found = markers.load(options.transaction_timeout_s + MARKER_WAIT_S)
                before = tasks_before(options, task, found)
                mine = found.get(task.number)
                if mine is not None and mine.batch == task.batch:
                    return written_before(task, mine, batches)
                return write_prepared(options, task, writer, batches, before)
    except (KafkaError, ClientError, ValueError) as error:
        raise SinkError(f"{task}: {reason(options, error)}") from None


def tasks_before(options: SinkOptions, task: WriteTask, found: Mapping[int, Marker]) -> int | None:
    """Return the batch's number of tasks if part of the batch was committed before, else None.

    The repeated batch must then have the same tasks with the same rows, or the query fails. The driver compares this
    number before anything is committed; the tasks compare rows and checksum.

    Raises SinkError if the markers are newer than the batch, or missing.
    """
    assert task.batch is not None, "batches of streams have numbers"
    newest = max((marker.batch for marker in found.values()), default=-1)
    if newest > task.batch:
        raise SinkError(
            f"{task}: the query has already written batch {newest}; its checkpoint is older than its output"
        )
    if not found and task.batch > 0 and options.fail_on_marker_loss:
        raise SinkError(
            f"{task}: the query's markers are missing, so this batch may already have been written;"
            " set failOnMarkerLoss=false to write it"
        )
    return next((marker.tasks for marker in found.values() if marker.batch == task.batch), None)


def written_before(task: WriteTask, marker: Marker, batches: Iterator[Any]) -> TaskOutcome:
    """Check that the rows equal those that were committed. Raises SinkError."""
    tally = RowTally()
    for batch in batches:
        tally.add(batch)
    if (tally.rows, tally.checksum) != (marker.rows, marker.checksum):
        raise SinkError(
            f"{task}: its {tally.rows} rows differ from the {marker.rows} rows committed before; a retried batch must"
            " give each task the same rows"
        )
    return TaskOutcome(task, tally.rows, tally.checksum, None, committed=True, tasks_before=marker.tasks)


def write_prepared(
    options: SinkOptions, task: WriteTask, writer: ColumnWriter, batches: Iterator[Any], before: int | None
) -> TaskOutcome:
    """Write the rows and wait for all acknowledgements. The transaction is left open, or aborted on an error."""
    tally = RowTally()
    producer = writer.producer
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if not tally.rows:
                producer.begin_transaction()
            tally.add(batch)
            writer.write(batch, topic=options.topic)
        prepared = producer.prepare_transaction() if tally.rows else None
    except BaseException:
        if tally.rows:
            with contextlib.suppress(KafkaError, ClientError, RuntimeError):  # the next attempt or the timeout ends it
                producer.abort_transaction()
        raise
    return TaskOutcome(task, tally.rows, tally.checksum, prepared, tasks_before=before)


# --- in the driver ----------------------------------------------------------------------------------------------------


def commit(options: SinkOptions, outcomes: Sequence[TaskOutcome]) -> None:
    """Commit the tasks of a batch one after another.

    Raises SinkError; then the caller must abort the tasks that are not committed.
    """
    first = outcomes[0].task
    batch = first.batch
    assert batch is not None, "batches of streams have numbers"
    count = len(outcomes)
    for outcome in outcomes:
        if outcome.tasks_before not in {None, count}:
            raise SinkError(
                f"batch {batch} has {count} tasks, but had {outcome.tasks_before} when part of it was committed; a"
                " retried batch must have the same tasks"
            )
    at = f"batch {batch}"
    try:
        with client_of(options) as client:
            markers = markers_of(options, client, first)
            for outcome in outcomes:
                if outcome.prepared is not None:
                    at = str(outcome.task)
                    commit_one(client, markers, outcome, count)
            if not any(outcome.prepared is not None or outcome.committed for outcome in outcomes):
                with client.producer() as producer:
                    markers.write(producer, first.number, Marker(batch, count, 0, 0))
    except (KafkaError, ClientError) as error:
        raise SinkError(f"{at}: {reason(options, error)}") from None


def commit_one(client: Client, markers: Markers, outcome: TaskOutcome, count: int) -> None:
    """Write a task's marker, and commit its transaction."""
    prepared, task = outcome.prepared, outcome.task
    assert prepared is not None, "there is something to commit"
    assert task.batch is not None, "batches of streams have numbers"
    producer = client.producer(transactional_id=prepared.transactional_id)
    with contextlib.closing(producer):
        producer.resume_transaction(prepared)
        named = (prepared.producer_id, prepared.epoch, prepared.second)
        markers.write(producer, task.number, Marker(task.batch, count, outcome.rows, outcome.checksum, named))
        producer.commit_transaction()


def abort(options: SinkOptions, outcomes: Sequence[TaskOutcome]) -> None:
    """Abort the uncommitted transactions of a batch. A transaction whose broker is unreachable times out."""
    if not any(outcome.prepared is not None for outcome in outcomes):
        return
    with client_of(options) as client:
        markers = markers_of(options, client, outcomes[0].task)
        for outcome in outcomes:
            if outcome.prepared is not None:
                markers.abort(outcome.prepared)


def markers_of(options: SinkOptions, client: Client, task: WriteTask) -> Markers:
    """Return the markers of a task's query."""
    assert task.query is not None, "streaming queries have ids"
    return Markers(client, options.bootstrap_servers, task.query)


def reason(options: SinkOptions, error: Exception) -> str:
    """Return the error message for users."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TAKEN):
            return (
                "its transaction was ended by another attempt, or because the batch took longer than"
                f" {options.transaction_timeout_s:g} s (kafka.transaction.timeout.ms)"
            )
        cause = cause.__cause__
    return str(error)
