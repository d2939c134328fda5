"""Read a task's piece of a partition as Arrow record batches, in a worker process. Does not import PySpark.

    piece ─▶ ColumnReader ─▶ record batches, or an error if records are missing

With failOnDataLoss=false, missing records are no error, and the records that still exist are read.

Thread rule: each thread has its own Clients, which are kept between tasks.
"""

from __future__ import annotations

import functools
import gc
import logging
from typing import TYPE_CHECKING, Any

from kafkalite.client import ColumnReader
from kafkalite.client.read.reader import FETCH_SIZE
from kafkalite.errors import InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from kafkalite.load.leftovers import what_is_left
from kafkalite.spark.source.offsets import REMEDY, DataLoss
from kafkalite.spark.source.plan import client_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalite.spark.options import SourceOptions
    from kafkalite.spark.source.plan import ReadTask
    from kafkalite.spark.source.values import ValueDecoding

logger = logging.getLogger(__name__)


@functools.cache
def freeze_imports() -> None:
    """Exclude a worker's imported modules from its garbage collector, once.

    PySpark's daemon runs the garbage collector after each task. To walk all modules took 20 to 40 ms each time, as long
    as reading 50,000 rows.
    """
    gc.freeze()


def read_task(
    options: SourceOptions, columns: Sequence[str], task: ReadTask, decoding: ValueDecoding | None = None
) -> Iterator[Any]:
    """Yield the records of a piece as pyarrow.RecordBatches of these columns.

    Raises DataLoss, RangeUnavailable and KafkaError. With `decoding`, it also raises the errors of `decode_values`.
    """
    freeze_imports()
    if decoding is None:
        return read_piece(options, columns, task)
    from kafkalite.spark.source.values import decode_values

    return decode_values(read_piece(options, decoding.sources(columns), task), columns, decoding, task.piece.key)


def read_piece(options: SourceOptions, columns: Sequence[str], task: ReadTask) -> Iterator[Any]:
    """Yield the records of a piece as they are in the log."""
    settings = options.client
    client = client_for(settings)
    (key, start, end, _), topic_id = task

    def reader(names: Sequence[str]) -> ColumnReader:
        return ColumnReader(
            client,
            isolation_level=settings.isolation_level,
            columns=names,
            fetch_size=settings.fetch_size or FETCH_SIZE,
            check_crcs=settings.check_crcs,
            stall_timeout_s=settings.stall_timeout_s,
        )

    if not options.fail_on_data_loss:
        with_offset = columns if "offset" in columns else [*columns, "offset"]
        for batch in what_is_left(reader(with_offset), key, start, end, topic_id, logger.warning):
            yield batch if with_offset is columns else batch.select(list(columns))
        return
    try:
        yield from reader(columns).read(key.topic, key.partition, start, end, topic_id=topic_id)
    except (OffsetOutOfRange, InconsistentTopicId, UnknownTopicOrPartition) as error:
        raise DataLoss(f"offsets {start} to {end} of {key} can no longer be read ({error}); {REMEDY}") from error
