"""Count the records of partitions exactly where that is cheap, by reading them; say at most how many otherwise.

The difference of two offsets counts the ends of transactions, aborted records and what compaction removed. Kafka has no
request for the number of records.

Thread rule: one thread at a time, that of the Cluster.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.errors import ClientError
from kafkalite.client.read.reader import Reader
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client.cluster import Cluster
    from kafkalite.model import TopicPartition

OFFSETS_MAX: Final = 10_000
"""Offsets that are read for one answer."""
SIZE_MAX: Final = 4 << 20
"""Bytes that are read for one answer, as far as the sizes of partitions are known."""
DURATION_S_MAX: Final = 3.0
POLL_S: Final = 0.2


class RecordCount(NamedTuple):
    """A partition's offsets, and its committed records: exactly, or at most so many."""

    start: int
    end: int
    records: int
    exact: bool

    @property
    def text(self) -> str:
        """Of the records: 62, or ≤112."""
        return count_text(self.records, exact=self.exact)


def count_text(count: int, *, exact: bool) -> str:
    """62, or ≤112 for a count that is an upper bound."""
    return str(count) if exact else f"≤{count}"


def count_records(
    client: Cluster, partitions: Iterable[TopicPartition], sizes: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, RecordCount]:
    """Count the records of each partition; those of partitions that are too long, or may not be read, at most."""
    keys = list(partitions)
    starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    spans = {key: (starts[key].offset, max(ends[key].offset, starts[key].offset)) for key in keys}
    found = {key: RecordCount(start, end, end - start, start == end) for key, (start, end) in spans.items()}
    chosen: dict[TopicPartition, int] = {}
    offsets = size = 0
    for key in sorted((key for key in keys if not found[key].exact), key=lambda key: found[key].records):
        offsets += found[key].records
        size += (sizes or {}).get(key, 0)
        if offsets > OFFSETS_MAX or size > SIZE_MAX:
            break
        chosen[key] = found[key].start
    try:
        counts = _read(client, chosen, {key: found[key].end for key in chosen})
    except (KafkaError, ClientError):  # we may describe a topic that we may not read
        counts = {}
    return found | {key: found[key]._replace(records=count, exact=True) for key, count in counts.items()}


def _read(
    client: Cluster, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Committed records from these offsets to before those, where no transaction is open; nothing after a while."""
    stable = client.list_offsets(dict.fromkeys(starts, OFFSET_LATEST), isolation=READ_COMMITTED) if starts else {}
    decided = {key: start for key, start in starts.items() if stable[key].offset >= ends[key]}
    if not decided:
        return {}
    counts = dict.fromkeys(decided, 0)
    deadline = time.monotonic() + DURATION_S_MAX
    with Reader(client, decided, ends={key: ends[key] for key in decided}, isolation=READ_COMMITTED) as reader:
        while not reader.done:
            if time.monotonic() > deadline:
                return {}
            for chunk in reader.poll(POLL_S):
                counts[chunk.partition] += len(chunk.columns)
    return counts
