"""Count the records of small partitions exactly by reading them, and compute an upper bound for large partitions.

Kafka has no request for the number of records. The difference of two offsets is only an upper bound: it also counts
control records, aborted records and records that compaction removed.

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
"""Offsets read at most per result."""
SIZE_MAX: Final = 4 << 20
"""Bytes read at most per result, as far as partition sizes are known."""
DURATION_S_MAX: Final = 3.0
POLL_S: Final = 0.2


class RecordCount(NamedTuple):
    """A partition's offsets and its number of committed records, exact or an upper bound."""

    start: int
    end: int
    records: int
    exact: bool

    @property
    def text(self) -> str:
        """Return the count as text: 62, or ≤112."""
        return count_text(self.records, exact=self.exact)


def count_text(count: int, *, exact: bool) -> str:
    """Return a count as text: 62, or ≤112 for an upper bound."""
    return str(count) if exact else f"≤{count}"


def count_records(
    client: Cluster, partitions: Iterable[TopicPartition], sizes: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, RecordCount]:
    """Count the records of each partition. Partitions that are too large or not readable get an upper bound."""
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
    except (KafkaError, ClientError):  # the client may be allowed to describe a topic but not to read it
        counts = {}
    return found | {key: found[key]._replace(records=count, exact=True) for key, count in counts.items()}


def _read(
    client: Cluster, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Count the committed records of those partitions that have no open transaction, by reading them.

    The result is empty if reading takes longer than DURATION_S_MAX.
    """
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
