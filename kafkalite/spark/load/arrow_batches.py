"""Limit Spark's Arrow batches by rows during a load, because the limit by bytes costs much CPU time.

    spark.sql.execution.arrow.maxBytesPerBatch    set to its maximum, at which Spark does not measure batches
    spark.sql.execution.arrow.maxRecordsPerBatch  set by the size of the load's records

With a lower maxBytesPerBatch, Spark's writer measures the whole batch after each row. That takes half the CPU time of a
load.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, cast

from kafkalite.client import ClientError, ColumnReader
from kafkalite.errors import KafkaError
from kafkalite.load.parquet import Writing, write
from kafkalite.model import TopicPartition, uuid_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pyspark.sql import SparkSession

    from kafkalite.load.plan import LoadPlan, LoadRound

ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
UNLIMITED: Final = 2**31 - 1
"""The value of BYTES at which Spark measures nothing."""
ROWS_MAX: Final = 10_000
"""Spark's default."""
SIZE_TARGET: Final = 16 * 1024 * 1024
"""Estimated bytes of a batch: a quarter of Spark's limit, because records vary and a transform may add columns."""
EXPANSION: Final = 4
"""Assumed limit of a record's size divided by its bytes on the wire, because batches may be compressed."""
SAMPLES: Final = 8
"""Samples of a round that are read before the load."""
SAMPLE_ROWS: Final = 1_000
SAMPLE_SIZE: Final = 256 * 1024
MEASURED: Final = "record size "


def rows_for(record_size: float) -> int:
    """Return the number of rows per batch for records of this many bytes."""
    return max(1, min(ROWS_MAX, int(SIZE_TARGET / max(record_size, 1.0))))


@contextlib.contextmanager
def bounded_by_rows(spark: SparkSession, record_size: float | None) -> Iterator[None]:
    """Limit the Arrow batches of this session's queries by rows, in a `with` block.

    `record_size` is the mean size in bytes; None if unknown. Spark's own limits apply if it is unknown, or if the user
    has set either setting.
    """
    settings = spark.conf
    if record_size is None or {ROWS, BYTES} & settings.getAll.keys():
        yield
        return
    settings.set(ROWS, str(rows_for(record_size)))
    settings.set(BYTES, str(UNLIMITED))
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Java may be gone; the error of the query is the one to report
            settings.unset(ROWS)
            settings.unset(BYTES)


def record_size_of(plan: LoadPlan, part: LoadRound) -> float | None:
    """Estimate the mean size in bytes of a round's records, in the part where they are largest.

    The result is the larger of two estimates. The first is EXPANSION times the bytes per offset in the densest stretch
    of the logs. The second is the largest mean size among samples at a few places; it takes compression and gaps
    between offsets into account. Return None if no sample could be read.
    """
    samples = [sample_at(plan, key, offset, part.ends[key]) for key, offset in places_of(part)]
    known = [size for size in samples if size is not None]
    return max(*known, part.density * EXPANSION) if known else None


def places_of(part: LoadRound) -> list[tuple[TopicPartition, int]]:
    """Return partitions and offsets, spread evenly over the round."""
    lengths = {key: part.ends[key] - part.starts[key] for key in sorted(part.ends)}
    total = sum(lengths.values())
    wanted = iter([total * number // SAMPLES for number in range(SAMPLES)])
    found: dict[tuple[TopicPartition, int], None] = {}
    passed, place = 0, next(wanted, None)
    for key, length in lengths.items():
        while place is not None and place < passed + length:
            found[key, part.starts[key] + place - passed] = None
            place = next(wanted, None)
        passed += length
    return list(found)


def sample_at(plan: LoadPlan, key: TopicPartition, offset: int, end: int) -> float | None:
    """Return the mean size in bytes of some records from an offset on, or None.

    Errors are ignored here, because the load itself reports them.
    """
    text = plan.topic_ids.get(key.topic)
    reader = ColumnReader(
        plan.client,
        isolation_level=plan.source.isolation_level,
        rows_max=SAMPLE_ROWS,
        size_max=SAMPLE_SIZE,
        fetch_size=SAMPLE_SIZE,
    )
    try:
        topic_id = None if text is None else uuid_bytes(text)
        batches = reader.read(key.topic, key.partition, offset, end, topic_id=topic_id)
        with contextlib.closing(cast("Generator[Any]", batches)):
            first = next(batches, None)
    except (KafkaError, ClientError):
        return None
    return None if first is None else mean_size(first)


def mean_size(batch: Any) -> float:
    """Return the mean bytes per record of a non-empty batch."""
    size: int = batch.nbytes
    rows: int = batch.num_rows
    return size / rows


# --- in tasks ---------------------------------------------------------------------------------------------------------


def write_measured(writing: Writing, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows of `kafkalite.load.parquet.write`, for mapInArrow, and one more row with the record size.

    `measured` separates them again.
    """
    import pyarrow as pa

    largest = 0.0

    def seen() -> Iterator[Any]:
        nonlocal largest
        for batch in batches:
            if batch.num_rows:
                largest = max(largest, mean_size(batch))
            yield batch

    yield from write(writing, seen())
    yield pa.RecordBatch.from_arrays([pa.array([f"{MEASURED}{largest}"])], names=["file"])


def measured(rows: Sequence[str]) -> tuple[list[str], float | None]:
    """Split the tasks' results into the rows of `write` and the largest mean record size of a batch, or None."""
    sizes = [float(row.removeprefix(MEASURED)) for row in rows if row.startswith(MEASURED)]
    return [row for row in rows if not row.startswith(MEASURED)], max(sizes, default=0.0) or None
