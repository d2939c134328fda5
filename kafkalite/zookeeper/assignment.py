"""Assign partitions to the consumer threads of a Kafka 0.7 group by range.

Partitions `<broker>-<partition>` and threads `<consumer id>-<n>` are sorted as strings, so `0-10` precedes `0-2`. Each
consumer computes the assignment itself. All consumers read the same nodes, so they get the same result.

Source: `kafkalite.classic`, fact 5. Pure: no I/O, no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.zookeeper.nodes import BrokerPartition


def java_order(text: str) -> bytes:
    """Return a sort key that orders strings as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def thread_ids(consumer_id: str, stream_count: int) -> list[str]:
    """Return the ids of a consumer's threads for one topic."""
    return [f"{consumer_id}-{number}" for number in range(stream_count)]


def share(index: int, partition_count: int, thread_count: int) -> range:
    """Return the positions of a thread's partitions in the sorted list of partitions.

    `index` is the position of the thread in the sorted list of threads. With P partitions and T threads, thread i gets
    the `P // T` partitions from `(P // T) * i + min(i, P % T)` on, and one more if `i < P % T`.
    """
    each, extra = divmod(partition_count, thread_count)
    start = each * index + min(index, extra)
    return range(start, start + each + (1 if index < extra else 0))


def assign(partitions: Iterable[BrokerPartition], threads: Iterable[str]) -> dict[BrokerPartition, str]:
    """Return the thread id for each partition. Without threads, the result is empty."""
    in_order = sorted(partitions, key=lambda partition: java_order(str(partition)))
    takers: Sequence[str] = sorted(threads, key=java_order)
    return {
        in_order[place]: thread
        for index, thread in enumerate(takers)
        for place in share(index, len(in_order), len(takers))
    }
