"""Compute the rates of topics and the lags of groups from offsets, for `kafkalite top` without the brokers' metrics.

Both come from readings of end offsets and committed offsets through Kafka's protocol: rates from two, lags from one.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.model import OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.client import Client
    from kafkalite.client.admin.groups import GroupProgress


class OffsetRead(NamedTuple):
    """The end offsets and committed offsets of a cluster at one moment."""

    at: float
    """Seconds, monotonic."""
    ends: Mapping[TopicPartition, int]
    """Of all partitions that have a leader, except those of internal topics."""
    groups: Sequence[GroupProgress]


class OffsetRate(NamedTuple):
    """The growth of a topic's end offsets per second, over all partitions. Transaction markers are included."""

    topic: str
    offsets_per_s: float


class GroupLag(NamedTuple):
    """The lag of a group in a topic, at the second of two readings."""

    group: str
    topic: str
    lag: int
    state: str


def read(client: Client) -> OffsetRead:
    """Return the end offsets of all partitions, and the committed offsets of all groups; see OffsetRead."""
    groups = client.groups.progress()  # first, so that committed offsets do not exceed the end offsets
    led = [
        TopicPartition(name, row.partition)
        for name, topic in client.topics().items()
        if not topic.is_internal
        for row in topic.partitions
        if row.leader >= 0
    ]
    at = time.monotonic()
    ends = client.list_offsets(dict.fromkeys(led, OFFSET_LATEST))
    return OffsetRead(at, {key: row.offset for key, row in ends.items()}, groups)


def topics(before: OffsetRead, now: OffsetRead) -> list[OffsetRate]:
    """Return the rates, highest first.

    A partition whose end offset has decreased, because its topic was recreated, counts as 0.
    """
    moved: Counter[str] = Counter()
    for key, end in now.ends.items():
        moved[key.topic] += max(0, end - before.ends.get(key, end))
    seconds = now.at - before.at
    rows = [OffsetRate(topic, count / seconds if seconds > 0 else 0.0) for topic, count in moved.items()]
    return sorted(rows, key=lambda row: (-row.offsets_per_s, row.topic))


def groups(now: OffsetRead) -> list[GroupLag]:
    """Return the lag of each group in each topic with a committed offset, largest first."""
    rows = []
    for group, committed in now.groups:
        lags: Counter[str] = Counter()
        for key, offset in (committed or {}).items():
            if key in now.ends:
                lags[key.topic] += max(0, now.ends[key] - offset)
        rows += [GroupLag(group.group_id, topic, lag, group.state) for topic, lag in lags.items()]
    return sorted(rows, key=lambda row: (-row.lag, row.group, row.topic))
