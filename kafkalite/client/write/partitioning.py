"""Where records with a key go: murmur2 of it, as Kafka's own producers have it, so that one key stays in one partition.

Thread rule: functions are pure.
"""

from __future__ import annotations

from kafkalite._native.wire.lines import partitions_of
from kafkalite.wire.record.columns import BytesColumn


def partition_of(key: bytes, count: int) -> int:
    """Of `count` partitions, from 0."""
    return int(partitions_of(BytesColumn.from_items([key]), count)[0])
