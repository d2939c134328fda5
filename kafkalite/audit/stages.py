"""Read the audit topic and the stages of an audit: brokers' topics, parts of these topics, and loaded files.

`count_broker` reads the records of a broker once, with read_committed, and counts them in up to three kinds of stages:

    broker      all records
    mirror      records below the offsets that a mirror has copied
    consumers   records in the ranges that consumers reported

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kafkalite.audit.events import classic_topic
from kafkalite.audit.fields import merged
from kafkalite.audit.marks import Marks, read_marks
from kafkalite.base.extras import needs_extra
from kafkalite.client import READ_COMMITTED, Reader
from kafkalite.client.columns.arrow import bytes_column, headers_of
from kafkalite.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from kafkalite.load.manifest import Target
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError
from kafkalite.mirror import Progress
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from kafkalite.audit.counts import Count
    from kafkalite.audit.events import Reported
    from kafkalite.audit.fields import MarkFields
    from kafkalite.audit.taken import Spans, Taken
    from kafkalite.client import Chunk, Client
    from kafkalite.load.manifest import DataFile

CHUNK_COUNT: Final = 100_000
DECODED: Final = "decoded"
"""The column of loaded files for decoded Avro values."""


class NothingToCompare(ValueError):
    """The data to audit does not exist; the message is one sentence."""


class View(NamedTuple):
    """A stage that is a part of a broker's records. Of each chunk, it has the records for which `keeps` is true."""

    into: Count
    keeps: Callable[[Chunk], NDArray[np.bool_]]


def read_reports(client: Client, topic: str, reported: Reported, taken: Taken | None = None) -> None:
    """Read increments and consumers' reports from the topics of counts.

    Raises NothingToCompare if neither topic exists.
    """
    there = topics_of_counts(client, topic)
    if not there:
        raise NothingToCompare(f"topic {topic}, which should hold the producers' counts, does not exist")
    with committed(client, ranges_of(client, there), ["values"]) as reader:
        for chunk in reader:
            for value in chunk.columns.values:
                if taken is None or not taken.add_message(value, client.cluster_id):
                    reported.add_message(value)


def topics_of_counts(client: Client, topic: str) -> list[str]:
    """Return which of `topic` and the topic in 0.7's format exist. The latter is left out if ACLs hide it."""
    found = present(client, [topic])
    with contextlib.suppress(TopicAuthorizationFailed):
        found += present(client, [classic_topic(topic)])
    return found


def present(client: Client, topics: Iterable[str]) -> list[str]:
    """Return which of these topics exist."""
    found = []
    for name in topics:
        with contextlib.suppress(UnknownTopicOrPartition):
            client.topic(name)
            found.append(name)
    return found


def committed(
    client: Client, ranges: Mapping[TopicPartition, tuple[int, int]], fields: Sequence[str], **options: Any
) -> Reader:
    """Return a reader for the committed records in these ranges, with the columns that an audit needs."""
    starts = {key: start for key, (start, _) in ranges.items()}
    ends = {key: end for key, (_, end) in ranges.items()}
    return Reader(client, starts, ends=ends, isolation=READ_COMMITTED, fields=fields, **options)


def ranges_of(
    client: Client, topics: Iterable[str], since_ms: int | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return each partition's committed range [start, end), from the first record that is not older than `since_ms`."""
    keys = [TopicPartition(name, partition) for name in topics for partition in client.partitions(name)]
    wanted = OFFSET_EARLIEST if since_ms is None else since_ms
    starts = client.list_offsets(dict.fromkeys(keys, wanted), isolation=READ_COMMITTED)
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=READ_COMMITTED)
    found = {}
    for key in keys:
        start, end = starts[key].offset, ends[key].offset
        if 0 <= start < end:
            found[key] = (start, end)
    return found


def mirror_progress(source: Client, target: Client, name: str) -> dict[TopicPartition, int]:
    """Return the offset up to which the mirror has copied each partition of `source`, from its progress in `target`.

    A topic that was recreated since it was copied counts as not copied. Raises NothingToCompare if that mirror has no
    progress.
    """
    source.refresh([])
    try:
        reached = Progress(target, name, source.cluster_id or "", prefix=None).load()
    except UnknownTopicOrPartition as error:
        raise NothingToCompare(f"no mirror named {name} has stored progress in the target") from error
    except ValueError as error:
        raise NothingToCompare(str(error)) from error
    ids = {name: topic.topic_id for name, topic in source.topics().items()}
    return {key: row.offset for key, row in reached.items() if row.topic_id in {ids.get(key.topic), ZERO_UUID}}


def copied_below(reached: Mapping[TopicPartition, int]) -> Callable[[Chunk], NDArray[np.bool_]]:
    """Return a filter for the records of a chunk below these offsets."""

    def keeps(chunk: Chunk) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = chunk.columns.offsets < reached.get(chunk.partition, 0)
        return kept

    return keeps


def taken_in(spans: Mapping[TopicPartition, Spans]) -> Callable[[Chunk], NDArray[np.bool_]]:
    """Return a filter for the records of a chunk in these spans."""

    def keeps(chunk: Chunk) -> NDArray[np.bool_]:
        if chunk.partition not in spans:
            return np.zeros(len(chunk.columns.offsets), np.bool_)
        return spans[chunk.partition].has(chunk.columns.offsets)

    return keeps


def count_broker(
    client: Client,
    topics: Iterable[str],
    count: Count,
    *,
    since_ms: int | None = None,
    views: Sequence[View] = (),
    fields: MarkFields | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Count a broker's records and, in each view, the records that the view keeps. Return notes for the report.

    A missing topic has no records. `on_progress` is called with the number of records read so far.
    """
    wanted = list(topics)
    there = present(client, wanted)
    notes = [f"topic {name} does not exist" for name in wanted if name not in there]
    ranges = ranges_of(client, there, since_ms)
    if since_ms is None:
        begun = [(key, start) for key, (start, _) in ranges.items() if start]
        notes += [f"{key} starts at offset {start}; earlier records were deleted" for key, start in begun]
    for part, columns in by_columns(ranges, fields):
        with committed(client, part, columns, chunk_count=CHUNK_COUNT) as reader:
            for chunk in reader:
                add_chunk([View(count, everything), *views], chunk, fields)
                if on_progress is not None:
                    on_progress(count.record_count)
    return notes


def by_columns(
    ranges: Mapping[TopicPartition, tuple[int, int]], fields: MarkFields | None
) -> Iterator[tuple[dict[TopicPartition, tuple[int, int]], list[str]]]:
    """Split ranges into topics with marks in headers only, and topics with marks in values. Yield each with the columns
    to read.
    """
    in_values = {key for key in ranges if fields is not None and fields.field(key.topic) is not None}
    for chosen, columns in ((ranges.keys() - in_values, ["headers"]), (in_values, ["headers", "values"])):
        if chosen:
            yield {key: ranges[key] for key in sorted(chosen)}, columns


def everything(chunk: Chunk) -> NDArray[np.bool_]:
    """Keep all records of a chunk."""
    return np.ones(len(chunk.columns.offsets), np.bool_)


def add_chunk(views: Iterable[View], chunk: Chunk, fields: MarkFields | None = None) -> None:
    """Add a chunk to each view that keeps some of its records. Marks are decoded once."""
    topic, columns = chunk.partition.topic, chunk.columns
    marks = read_marks(columns.headers) if fields is None else fields.marks(topic, columns.headers, columns.values)
    for view in views:
        kept = view.keeps(chunk)
        whole = bool(kept.all())
        if whole or kept.any():
            some = marks if whole else marks.chosen(np.flatnonzero(kept[marks.records]))
            view.into.add_marks(topic, some, int(kept.sum()))


# --- loaded files -----------------------------------------------------------------------------------------------------


def loaded_files(folder: str) -> list[DataFile]:
    """Return the files that `kafkalite load` has published in a directory. Raises NothingToCompare."""
    target = Target(folder)
    if not target.exists:
        raise NothingToCompare(f"{folder} contains no loaded files")
    try:
        return list(target.refresh().files.values())
    except LoadError as error:
        raise NothingToCompare(str(error)) from error


def count_loaded(
    folder: str,
    files: Iterable[DataFile],
    topics: Iterable[str],
    count: Count,
    *,
    fields: MarkFields | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Count the records of loaded files.

    Raises NothingToCompare for files without marks, and if pyarrow is missing. Raises FileNotFoundError if compaction
    has replaced a file.
    """
    wanted = set(topics)
    for file in files:
        if file.topic in wanted:
            for _ in count_file(folder, file, count, fields=fields):
                if on_progress is not None:
                    on_progress(count.record_count)


def count_file(
    folder: str,
    file: DataFile,
    count: Count,
    *,
    fields: MarkFields | None = None,
    skips: Callable[[Any], NDArray[np.bool_]] | None = None,
) -> Iterator[int]:
    """Count the records of a loaded file. After each batch, yield the number of its rows.

    `skips` gets the columns partition and offset of each batch in order, and returns the rows to skip. Raises as
    `count_loaded`.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise NothingToCompare(needs_extra("reading loaded files needs pyarrow", "arrow")) from error
    if not count.may_take(file.time_max):
        return
    with storage_of(folder).open(file.path) as found, parquet.ParquetFile(found) as opened:
        columns = mark_columns(opened.schema_arrow, file, fields)
        placed = [] if skips is None else ["partition", "offset"]
        for batch in opened.iter_batches(CHUNK_COUNT, columns=[*columns, *placed]):
            taken = batch if skips is None else batch.filter(pa.array(~skips(batch)))
            count.add_marks(file.topic, marks_of_batch(taken, file.topic, fields), taken.num_rows)
            yield batch.num_rows


def mark_columns(schema: Any, file: DataFile, fields: MarkFields | None) -> list[str]:
    """Return the columns that contain marks. Raises NothingToCompare if there are none."""
    field = None if fields is None else fields.field(file.topic)
    found = [name for name in ("headers",) if name in schema.names]
    if field is not None:
        found += [name for name in (DECODED, "value") if name in schema.names][:1]
        if found in ([], ["headers"]):
            raise NothingToCompare(
                f"{file.path} was loaded without values, but the audit marks are in the field {field} of the values"
            )
    if not found:
        raise NothingToCompare(f"{file.path} was loaded without headers, which contain the audit marks")
    return found


def marks_of_batch(batch: Any, topic: str, fields: MarkFields | None) -> Marks:
    """Return the marks in rows of a loaded file: in headers, in the value, or in the decoded value's struct."""
    names = batch.schema.names
    headers = headers_of(batch.column("headers"), batch.num_rows) if "headers" in names else None
    field = None if fields is None else fields.field(topic)
    if fields is None or field is None:
        return read_marks(headers)
    if DECODED not in names:
        return fields.marks(topic, headers, bytes_column("value", batch.column("value")))
    decoded = batch.column(DECODED)
    texts = decoded.field(field).to_pylist() if decoded.type.get_field_index(field) >= 0 else []
    return merged(headers, {row: text.encode() for row, text in enumerate(texts) if isinstance(text, str)})
