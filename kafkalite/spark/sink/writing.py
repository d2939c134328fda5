"""What a task of a Spark query writes to topics: all of the sink that is not PySpark.

    Arrow batches ─▶ ColumnWriter ─▶ acknowledged, or SinkError in one sentence

A task that fails is done again by Spark, and so is a batch of a stream whose end was not noted: what it had written is
written once more. Within one attempt the producer is idempotent, so nothing is doubled by a lost answer. In memory are
a record batch and what is on its way, at most five requests to each broker.

Thread rule: functions; each thread has writers of its own, which live as long as the worker process does.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client import Client, ClientError, ColumnWriter
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.spark.sink.options import SinkOptions

WRITERS_MAX: Final = 16
"""Settings of which a thread keeps a writer; beyond that the oldest is closed."""
WRITER_AGE_S_MAX: Final = 300.0
"""After that a writer is recreated, and sees partitions that were added."""

_kept = threading.local()
"""A worker process runs many tasks one after the other: a producer id for each would fill brokers' tables."""


class SinkError(Exception):
    """Rows were not written; the message is one sentence."""


class WriteTask(NamedTuple):
    """Which part of a query is written. No batch and no query: a batch query."""

    number: int
    batch: int | None = None
    query: str | None = None

    def __str__(self) -> str:
        return f"task {self.number}" if self.batch is None else f"task {self.number} of batch {self.batch}"


class KeptWriter(NamedTuple):
    """A writer, and when it was made (monotonic clock, s)."""

    writer: ColumnWriter
    since_s: float


def write_all(options: SinkOptions, task: WriteTask, batches: Iterator[Any]) -> int:
    """Sends every row, and waits until all are acknowledged; how many. SinkError."""
    rows = 0
    done = False
    try:
        writer = writer_for(options)
        for batch in batches:
            writer.write(batch, topic=options.topic)
            rows += batch.num_rows
        writer.flush()
        done = True
    except (KafkaError, ClientError, ValueError) as error:
        raise SinkError(f"{task}: {error}") from None
    finally:
        if not done:
            forget(options)
    return rows


def writer_for(options: SinkOptions) -> ColumnWriter:
    """This thread's writer of these settings."""
    writers: dict[SinkOptions, KeptWriter] = _kept.__dict__.setdefault("writers", {})
    now = time.monotonic()
    found = writers.get(options)
    if found is not None and now - found.since_s < WRITER_AGE_S_MAX:
        return found.writer
    forget(options)
    while len(writers) >= WRITERS_MAX:
        forget(next(iter(writers)))
    client = Client(options.bootstrap_servers, **dict(options.client))
    writers[options] = KeptWriter(new_writer(client, options), now)
    return writers[options].writer


def new_writer(client: Client, options: SinkOptions, **more: Any) -> ColumnWriter:
    """A writer of these settings. A broker that creates topics creates those that are missing."""
    return ColumnWriter(client, options.topic, create_topics=True, **dict(options.producer), **more)


def forget(options: SinkOptions) -> None:
    """Closes this thread's writer of these settings: what it has not delivered is dropped."""
    found = _kept.__dict__.get("writers", {}).pop(options, None)
    if found is not None:
        found.writer.close()
        found.writer.client.close()
