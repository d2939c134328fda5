"""Map keys to partitions with murmur2, as Kafka's Java producer does, so that both choose the same partition.

Thread rule: functions are pure.
"""

from __future__ import annotations

from kafkalite._native.wire.lines import partitions_of
from kafkalite.wire.record.columns import BytesColumn


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of a key, from 0 to `count` - 1."""
    return int(partitions_of(BytesColumn.from_items([key]), count)[0])
