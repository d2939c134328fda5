"""Assign partitions to the consumer threads of a 0.7 group. Every consumer computes the same range assignment.

Partitions `<broker>-<partition>` and threads `<consumer id>-<n>` are sorted as strings, so `0-10` precedes `0-2`. With
P partitions and T threads, thread i gets the `P // T` partitions from `(P // T) * i + min(i, P % T)` on, and one more
if `i < P % T`. All members read the same nodes, so their results agree. Source: `kafkalite.classic`, fact 5. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.zookeeper.nodes import BrokerPartition


def java_order(text: str) -> bytes:
    """Return a sort key for Java's order of strings, which compares UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def thread_ids(consumer_id: str, stream_count: int) -> list[str]:
    """Return the ids of a consumer's threads for one topic."""
    return [f"{consumer_id}-{number}" for number in range(stream_count)]


def share(index: int, partition_count: int, thread_count: int) -> range:
    """Return the positions of the partitions for the thread at `index`; partitions and threads are sorted."""
    each, extra = divmod(partition_count, thread_count)
    start = each * index + min(index, extra)
    return range(start, start + each + (1 if index < extra else 0))


def assign(partitions: Iterable[BrokerPartition], threads: Iterable[str]) -> dict[BrokerPartition, str]:
    """Return each partition's thread id; empty without threads."""
    in_order = sorted(partitions, key=lambda partition: java_order(str(partition)))
    takers: Sequence[str] = sorted(threads, key=java_order)
    return {
        in_order[place]: thread
        for index, thread in enumerate(takers)
        for place in share(index, len(in_order), len(takers))
    }
