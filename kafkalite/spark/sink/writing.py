"""Write the rows of one Spark task to topics, at least once. Does not import PySpark.

    Arrow batches ─▶ ColumnWriter ─▶ acknowledged, or SinkError

If Spark repeats a task or a batch, its rows are written again. By default, the producer is idempotent, so within one
attempt a lost response causes no duplicates.

By default, one record batch and at most five requests per broker are in memory.

Thread rule: each thread has its own writers, which are kept between tasks.
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
"""Writers that a thread keeps, one per settings; beyond that the oldest is closed."""
WRITER_AGE_S_MAX: Final = 300.0
"""Age after which a writer is recreated, so that it sees new partitions."""

_kept = threading.local()
"""Writers of this thread. A worker process runs many tasks: a producer id per task would fill the brokers' tables."""


class SinkError(Exception):
    """Rows were not written. The message is one sentence."""


class WriteTask(NamedTuple):
    """The part of a query that a task writes. In a batch query, `batch` and `query` are None."""

    number: int
    batch: int | None = None
    query: str | None = None

    def __str__(self) -> str:
        return f"task {self.number}" if self.batch is None else f"task {self.number} of batch {self.batch}"


class KeptWriter(NamedTuple):
    """A writer with its creation time (monotonic s)."""

    writer: ColumnWriter
    since_s: float


def write_all(options: SinkOptions, task: WriteTask, batches: Iterator[Any]) -> int:
    """Send all rows, wait for their acknowledgements, and return their number. Raises SinkError."""
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
    """Return this thread's writer for these settings."""
    writers: dict[SinkOptions, KeptWriter] = _kept.__dict__.setdefault("writers", {})
    now = time.monotonic()
    found = writers.get(options)
    if found is not None and now - found.since_s < WRITER_AGE_S_MAX:
        return found.writer
    forget(options)
    while len(writers) >= WRITERS_MAX:
        forget(next(iter(writers)))
    writers[options] = KeptWriter(new_writer(client_of(options), options), now)
    return writers[options].writer


def client_of(options: SinkOptions) -> Client:
    """Return a new Client with these settings. The caller closes it."""
    return Client(options.bootstrap_servers, retry_first_timeout=True, **dict(options.client))


def new_writer(client: Client, options: SinkOptions, **more: Any) -> ColumnWriter:
    """Return a new writer. Missing topics are created if the broker creates topics automatically."""
    return ColumnWriter(client, options.topic, create_topics=True, **dict(options.producer), **more)


def forget(options: SinkOptions) -> None:
    """Close this thread's writer for these settings. Undelivered rows are dropped."""
    found = _kept.__dict__.get("writers", {}).pop(options, None)
    if found is not None:
        found.writer.close()
        found.writer.client.close()
