"""Past a batch that cannot be read: where the next one begins that can.

    offset        +1  +2  +4  +8                    steps that double until something can be read,
    ▼ ✗            ✗   ✗   ✓                        then halves between the last that could not and that one

A fetch of one byte answers with the one batch that holds an offset (KIP-74), or with the broker's word that it is
damaged; its checksum is looked at here.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite._native.wire.batch import HEADER_SIZE, BatchError, crc_matches
from kafkalite.client.cluster import raise_from_leader
from kafkalite.client.read.reader import FETCH_VERSION_MAX
from kafkalite.errors import CorruptMessage
from kafkalite.protocol.api import FETCH
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.record.batches import next_whole
from kafkalite.record.compression import CompressionError, decompress

if TYPE_CHECKING:
    from kafkalite.client.cluster import Cluster
    from kafkalite.model import TopicPartition


def next_readable(client: Cluster, key: TopicPartition, damaged: int, end: int) -> int:
    """The first offset above `damaged`, which cannot be read, that can, or at which no record is; at most `end`."""
    bad, step = damaged, 1
    good = None
    while bad + step < end and good is None:
        good = _readable_at(client, key, bad + step)
        if good is None:
            bad += step
            step *= 2
    if good is None:
        good = end
    while good - bad > 1:
        middle = (bad + good) // 2
        found = _readable_at(client, key, middle)
        if found is None:
            bad = middle
        else:
            good = min(found, middle)
    return min(good, end)


def _readable_at(client: Cluster, key: TopicPartition, offset: int) -> int | None:
    """Where the batch begins that holds the offset, or comes after it, if it can be read."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[
            FetchTopic(
                topic=key.topic,
                partitions=[FetchPartition(partition=key.partition, fetch_offset=offset, partition_max_bytes=1)],
            )
        ],
    )

    def ask() -> int | None:
        answer = client.leader(key).request(FETCH, request, version_max=FETCH_VERSION_MAX)
        row = answer.responses[0].partitions[0]
        raise_from_leader(row.error_code, key)
        return offset if not row.records else readable(row.records)

    try:
        return ask()
    except CorruptMessage:
        return None


def readable(records: memoryview) -> int | None:
    """The base offset of the batch that these bytes begin with; None when it cannot be read."""
    try:
        info = next_whole(records, 0)
        if info is None or not crc_matches(records[: info.size]):
            return None
        if info.codec:
            decompress(info.codec, records[HEADER_SIZE : info.size])
    except (BatchError, CompressionError):
        return None
    return info.base_offset
