"""Who owns what: the range assignment that every consumer of a 0.7 group works out for itself.

Partitions `<broker>-<partition>` and threads `<consumer id>-<n>` are sorted as strings, so `0-10` comes before `0-2`.
With P partitions and T threads, thread i gets the `P // T` partitions from `(P // T) * i + min(i, P % T)` on, and one
more when `i < P % T`. All members see the same nodes, hence the same answer. Source: `kafkalite.classic`, fact 5. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.zookeeper.nodes import BrokerPartition


def java_order(text: str) -> bytes:
    """The key by which Java sorts strings: UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def thread_ids(consumer_id: str, stream_count: int) -> list[str]:
    """The threads of one consumer for one topic."""
    return [f"{consumer_id}-{number}" for number in range(stream_count)]


def share(index: int, partition_count: int, thread_count: int) -> range:
    """The places, in the sorted list of partitions, that the thread at `index` of the sorted threads gets."""
    each, extra = divmod(partition_count, thread_count)
    start = each * index + min(index, extra)
    return range(start, start + each + (1 if index < extra else 0))


def assign(partitions: Iterable[BrokerPartition], threads: Iterable[str]) -> dict[BrokerPartition, str]:
    """Partition to the id of the thread that owns it; empty where there is no thread."""
    in_order = sorted(partitions, key=lambda partition: java_order(str(partition)))
    takers: Sequence[str] = sorted(threads, key=java_order)
    return {
        in_order[place]: thread
        for index, thread in enumerate(takers)
        for place in share(index, len(in_order), len(takers))
    }
