"""Find the next readable batch after a corrupt batch, and find out whether another replica may have an intact copy.

The module fetches single batches and verifies their checksums. It tries offsets after the corrupt batch in three steps:

    1. +1 +2 … +512    each of the next 512 offsets, so that no batch between two corrupt batches is missed
    2. +2 +4 +8 …      steps that double, to get out of a large corrupt batch
    3. bisection       between the last unreadable and the first readable offset

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite._native.wire.batch import HEADER_SIZE, BatchError, crc_matches
from kafkalite.client.cluster import FETCH_VERSION_MAX, raise_from_leader
from kafkalite.client.errors import ClientError
from kafkalite.client.read.splitting import one_batch
from kafkalite.errors import CorruptMessage, KafkaError
from kafkalite.wire.protocol.api import FETCH
from kafkalite.wire.record.batches import next_whole
from kafkalite.wire.record.compression import CompressionError, decompress

if TYPE_CHECKING:
    from kafkalite.client.cluster import Cluster
    from kafkalite.model import TopicPartition

IN_TURN: Final = 512
"""Offsets that are tried one by one."""


def has_other_in_sync(client: Cluster, key: TopicPartition) -> bool:
    """Return whether another in-sync replica could become leader; True if no broker reports the replicas.

    Raises nothing, because the caller holds records that it has read.
    """
    try:
        topics = client.refresh([key.topic]).topics
    except (KafkaError, ClientError):
        return True
    found = [row for topic in topics for row in topic.partitions if row.partition_index == key.partition]
    return not found or any(broker != found[0].leader_id for broker in found[0].isr_nodes)


def is_readable(client: Cluster, key: TopicPartition, offset: int) -> bool:
    """Return whether the batch at or after this offset can be read now."""
    return _tried_at(client, key, offset) is not None


def next_readable(client: Cluster, key: TopicPartition, damaged: int, end: int) -> int:
    """Return an offset after the corrupt offset `damaged` that can be read or has no record; at most `end`."""
    bad, step, looks = damaged, 1, 0
    good = None
    while bad + step < end and good is None:
        good = _tried_at(client, key, bad + step)
        if good is None:
            bad += step
            looks += 1
            step = 1 if looks < IN_TURN else 2 * step
    if good is None:
        good = end
    while good - bad > 1:
        middle = (bad + good) // 2
        found = _tried_at(client, key, middle)
        if found is None:
            bad = middle
        else:
            good = min(found, middle)
    return min(max(good, damaged + 1), end)


def _tried_at(client: Cluster, key: TopicPartition, offset: int) -> int | None:
    """Return the result of `_readable_at`, with retries after a leader change."""
    return client.with_retries(lambda: _readable_at(client, key, offset))


def _readable_at(client: Cluster, key: TopicPartition, offset: int) -> int | None:
    """Return the base offset of the batch at or after this offset; None if that batch is corrupt.

    If there is no batch, return the offset itself.
    """
    request = one_batch(key, offset)

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
    """Return the base offset of the first batch in these bytes; None if that batch is corrupt."""
    try:
        info = next_whole(records, 0)
        if info is None or not crc_matches(records[: info.size]):
            return None
        if info.codec:
            decompress(info.codec, records[HEADER_SIZE : info.size])
    except (BatchError, CompressionError):
        return None
    return info.base_offset
