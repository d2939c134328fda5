"""Continue a search with records as they arrive, from the end offsets of the search.

Topics and partitions that were created after the search are read from their beginning.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError, LogTruncated
from kafkalite.client.read.damage import next_readable
from kafkalite.errors import CorruptMessage, KafkaError, OffsetOutOfRange
from kafkalite.model import OFFSET_EARLIEST, TopicPartition
from kafkalite.track.questions import needles_of
from kafkalite.track.searches import CHUNK_COUNT, FETCH_SIZE, Hunt, Window
from kafkalite.track.snapshot import fault_of, offsets_at, reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client import Client
    from kafkalite.client.read.reader import Reader
    from kafkalite.track.questions import Questions
    from kafkalite.track.searches import Hit
    from kafkalite.track.snapshot import Snapshot, TopicFilter

POLL_S: Final = 0.2
REFRESH_S: Final = 3.0
"""Interval of the checks for new topics and partitions."""


def follow(
    client: Client,
    topics: TopicFilter,
    seen: Snapshot,
    questions: Questions,
    *,
    isolation: int = READ_COMMITTED,
    open_registry: Callable[[], RegistryClient] | None = None,
    trouble: Callable[[str], None] = print,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Hit]:
    """Yield hits as they arrive, until `stopped` returns true.

    Call `trouble` with a sentence about records that cannot be read.
    """
    hunt = Hunt(questions, Window(), open_registry)
    starts = {key: asked.end for key, asked in seen.asked.items()}
    known = {*starts, *(TopicPartition(row.topic, row.partition) for row in seen.refused)}
    options = {"fetch_size": FETCH_SIZE, "chunk_count": CHUNK_COUNT, "await_topics": True, "retry_damage": False}
    try:
        with client.reader(starts, isolation=isolation, needles=needles_of(questions.every()), **options) as reader:
            refreshed = time.monotonic()
            while not stopped():
                try:
                    for chunk in reader.answers(POLL_S):
                        yield from hunt.hits(chunk)[0]
                except (KafkaError, ClientError) as error:
                    step_over(client, reader, error, trouble)
                if time.monotonic() - refreshed > REFRESH_S:
                    known |= add_new(client, reader, topics, known)
                    refreshed = time.monotonic()
    finally:
        hunt.close()


def step_over(client: Client, reader: Reader, error: Exception, trouble: Callable[[str], None]) -> None:
    """Skip deleted or damaged offsets, and continue where a log was truncated. After any other error, stop reading the
    partition.
    """
    key = reader.failed
    if key is None:
        raise error
    here = reader.position(key)
    try:
        if isinstance(error, OffsetOutOfRange):
            first = client.list_offsets({key: OFFSET_EARLIEST})[key].offset
            trouble(f"{key}: offsets {here} to {first - 1} were deleted before they were read")
            reader.seek(key, first)
            return
        if isinstance(error, LogTruncated):
            first = client.list_offsets({key: OFFSET_EARLIEST})[key].offset
            parted = max(first, error.at or 0)
            trouble(f"{error}; continuing at offset {parted}")
            reader.seek(key, parted)
            return
        if isinstance(error, CorruptMessage):
            following = next_readable(client, key, here, client.end_offset(*key))
            trouble(f"{key}: offsets {here} to {following - 1} are damaged")
            reader.seek(key, following)
            return
    except (KafkaError, ClientError) as worse:
        error = worse
    trouble(f"{key} is no longer followed: {fault_of(error)}")
    reader.drop([key])


def add_new(client: Client, reader: Reader, topics: TopicFilter, known: set[TopicPartition]) -> set[TopicPartition]:
    """Add new partitions to the reader, from their beginning, and return them."""
    try:
        found = {name: row for name, row in client.topics().items() if topics.matches(name)}
        keys, faults = reachable(client, found)
    except (KafkaError, ClientError):
        return set()  # retried next time
    fresh = [key for key in keys if key not in known]
    starts = offsets_at(client, fresh, OFFSET_EARLIEST, READ_COMMITTED, faults)
    reader.add(starts)
    return set(starts)
