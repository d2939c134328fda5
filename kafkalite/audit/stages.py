"""What stages have, read: the audit topic, topics of brokers, up to where a mirror says it has copied, loaded files.

Brokers are read committed; of records, loaded ones too, only headers are decoded.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.audit.events import Reported
from kafkalite.client import READ_COMMITTED, Reader
from kafkalite.client.columns.arrow import headers_of
from kafkalite.errors import UnknownTopicOrPartition
from kafkalite.load.manifest import Target
from kafkalite.load.storage import LoadError, storage_of
from kafkalite.mirror import Progress
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, ZERO_UUID, TopicPartition
from kafkalite.record.columns import HeaderColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.audit.counts import Count
    from kafkalite.client import Chunk, Client
    from kafkalite.load.manifest import DataFile

CHUNK_COUNT: Final = 100_000


class NothingToCompare(ValueError):
    """What an audit was asked to read is not there; the message is one sentence."""


def read_increments(client: Client, topic: str) -> Reported:
    """Everything in the audit topic. NothingToCompare."""
    reported = Reported()
    try:
        ranges = ranges_of(client, [topic])
    except UnknownTopicOrPartition as error:
        raise NothingToCompare(f"there is no topic {topic}, where producers' counts would be") from error
    with committed(client, ranges, "values") as reader:
        for chunk in reader:
            for value in chunk.columns.values:
                reported.add_message(value)
    return reported


def committed(client: Client, ranges: Mapping[TopicPartition, tuple[int, int]], field: str, **options: Any) -> Reader:
    """One column of what is committed in these ranges of offsets; `options` are Reader's."""
    starts = {key: start for key, (start, _) in ranges.items()}
    ends = {key: end for key, (_, end) in ranges.items()}
    return Reader(client, starts, ends=ends, isolation=READ_COMMITTED, fields=[field], **options)


def ranges_of(
    client: Client, topics: Iterable[str], since_ms: int | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """[start, end) of each partition, as far as it is committed; from the first record that is not older."""
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
    """Up to where each partition of `source` is copied, as the mirror of that name wrote it into `target`.

    A topic that was recreated since then is not copied at all.

    NothingToCompare when no mirror of that name ever was.
    """
    source.refresh([])
    try:
        reached = Progress(target, name, source.cluster_id or "").load()
    except UnknownTopicOrPartition as error:
        raise NothingToCompare(f"no mirror called {name} has ever copied to there") from error
    except ValueError as error:
        raise NothingToCompare(str(error)) from error
    ids = {name: topic.topic_id for name, topic in source.topics().items()}
    return {key: row.offset for key, row in reached.items() if row.topic_id in {ids.get(key.topic), ZERO_UUID}}


def count_broker(
    client: Client,
    topics: Iterable[str],
    count: Count,
    *,
    since_ms: int | None = None,
    copied: Mapping[TopicPartition, int] | None = None,
    copied_count: Count | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Counts a broker's records; those below the offsets `copied` in `copied_count` too. Returns what to tell of it.

    A topic that is not there has none. `on_progress` is called with the records read so far.
    """
    notes = []
    there = []
    for name in topics:
        try:
            client.topic(name)
        except UnknownTopicOrPartition:
            notes.append(f"there is no topic {name}")
            continue
        there.append(name)
    ranges = ranges_of(client, there, since_ms)
    if since_ms is None:
        begun = [(key, start) for key, (start, _) in ranges.items() if start]
        notes += [f"{key} begins at offset {start}: what was before is gone" for key, start in begun]
    with committed(client, ranges, "headers", chunk_count=CHUNK_COUNT) as reader:
        for chunk in reader:
            add_chunk(count, chunk)
            if copied_count is not None and copied is not None:
                add_chunk(copied_count, chunk, copied.get(chunk.partition, 0))
            if on_progress is not None:
                on_progress(count.record_count)
    return notes


def add_chunk(count: Count, chunk: Chunk, end: int | None = None) -> None:
    """The records of a chunk, or those before offset `end`."""
    offsets, headers = chunk.columns.offsets, chunk.columns.headers
    within = len(offsets) if end is None else int(offsets.searchsorted(end))
    if within == len(offsets):
        count.add(chunk.partition.topic, headers, within)
    elif within:
        count.add(chunk.partition.topic, None if headers is None else first_of(headers, within), within)


def first_of(headers: HeaderColumns, count: int) -> HeaderColumns:
    """The headers of the first records."""
    end = int(headers.record_ends[count - 1])
    starts, ends = headers.record_starts[:count], headers.record_ends[:count]
    return HeaderColumns(starts, ends, headers.keys[:end], headers.values[:end])


# --- loaded files -----------------------------------------------------------------------------------------------------


def loaded_files(folder: str) -> list[DataFile]:
    """What `kafkalite load` has published there. NothingToCompare."""
    target = Target(folder)
    if not target.exists:
        raise NothingToCompare(f"nothing was ever loaded into {folder}")
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
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Counts the records of loaded files. NothingToCompare for files without headers, and without pyarrow.

    FileNotFoundError when compaction has replaced one meanwhile.
    """
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise NothingToCompare("loaded files are read with pyarrow: pip install 'kafkalite[arrow]'") from error
    wanted = set(topics)
    storage = storage_of(folder)
    for file in files:
        if file.topic not in wanted or not count.may_take(file.time_max):
            continue
        with storage.open(file.path) as found, parquet.ParquetFile(found) as opened:
            if "headers" not in opened.schema_arrow.names:
                raise NothingToCompare(f"{file.path} was loaded without headers, where the audit's marks are")
            for batch in opened.iter_batches(CHUNK_COUNT, columns=["headers"]):
                count.add(file.topic, headers_of(batch.column(0), batch.num_rows), batch.num_rows)
                if on_progress is not None:
                    on_progress(count.record_count)
