"""Keep the committed offsets of one group, and find the expired ones.

    OffsetCommit       written to `__consumer_offsets` ─▶ durable ─▶ visible to OffsetFetch
    TxnOffsetCommit    written to `__consumer_offsets` ─▶ durable ─▶ pending ─┬─ commit marker ─▶ visible
                                                                              └─ abort marker ──▶ dropped

If a partition has several commits, the last one in the log wins.

Thread rule: belongs to its group and is guarded by the group's lock.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.broker.coordinator.records import OffsetCommitValue
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Committed(NamedTuple):
    """One partition's committed offset. Times in ms since 1970; `expire_ms` is -1 unless the client set it.

    Within a group, `order` rises with the position in the log.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: bytes = ZERO_UUID
    order: int = 0

    @classmethod
    def of(cls, value: OffsetCommitValue, order: int = 0) -> Committed:
        """Return a committed offset from its record value."""
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            order,
        )

    def stored(self) -> OffsetCommitValue:
        """Return the value of the record of this commit."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expire_ms,
            topic_id=self.topic_id,
        )

    def belongs_to(self, topic_id: bytes | None) -> bool:
        """Return whether the offset belongs to the current topic of its name, and not to a deleted topic of the same
        name.

        `topic_id` is the current topic's id. It is None if no topic has this name; the result is then True.
        """
        return topic_id is None or self.topic_id in (ZERO_UUID, topic_id)


UNSTABLE: Final = Committed(-1, -1, "", -1)
"""Result for an offset that an open transaction may still replace, when the client requires stable offsets."""


class GroupOffsets:
    """The committed offsets of one group by partition, and the pending offsets of open transactions."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, Committed]] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}  # producer id → what it commits
        self._pending_count: Counter[TopicPartition] = Counter()  # number of producers with a pending offset
        self.open_transactional: Counter[TopicPartition] = Counter()
        """Transactional commits that were passed to the log and are not durable yet."""
        self.order = 0
        """Position of the newest commit passed to the log."""

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def __iter__(self) -> Iterator[tuple[TopicPartition, Committed]]:
        for topic, partitions in self._committed.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def get(self, topic: str, partition: int) -> Committed | None:
        """Return the committed offset of a partition."""
        return self._committed.get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> list[int]:
        """Return the partitions of a topic that have a committed offset."""
        return list(self._committed.get(topic, ()))

    def producers(self) -> list[int]:
        """Return the ids of producers whose open transactions have pending offsets."""
        return list(self._pending)

    def pending(self) -> list[TopicPartition]:
        """Return the partitions with pending offsets."""
        return list(self._pending_count)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction may replace a partition's offset."""
        return partition in self._pending_count or partition in self.open_transactional

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return whether a partition has a pending offset."""
        return partition in self._pending_count

    def topics(self) -> list[str]:
        """Return the topics with a committed offset."""
        return list(self._committed)

    def apply(self, partition: TopicPartition, committed: Committed) -> None:
        """Make a durable commit visible."""
        self._committed.setdefault(partition.topic, {})[partition.partition] = committed

    def put_pending(self, producer_id: int, partition: TopicPartition, committed: Committed) -> None:
        """Keep a durable transactional commit until its transaction ends."""
        partitions = self._pending.setdefault(producer_id, {})
        if partition not in partitions:
            self._pending_count[partition] += 1
        partitions[partition] = committed

    def end(self, producer_id: int, *, commit: bool) -> None:
        """End a producer's transaction: make its pending offsets visible, except where a later commit exists.

        After an abort, drop all its pending offsets instead.
        """
        for partition, committed in self._pending.pop(producer_id, {}).items():
            self._uncount(partition)
            there = self.get(*partition)
            if commit and (there is None or there.order < committed.order):
                self.apply(partition, committed)

    def _uncount(self, partition: TopicPartition) -> None:
        self._pending_count[partition] -= 1
        if not self._pending_count[partition]:
            del self._pending_count[partition]

    def _drop_pending(self, partition: TopicPartition) -> None:
        if partition not in self._pending_count:
            return
        for producer_id, partitions in list(self._pending.items()):
            if partitions.pop(partition, None) is not None:
                self._uncount(partition)
                if not partitions:
                    del self._pending[producer_id]

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget committed and pending offsets, after their tombstones were written."""
        for topic, partition in partitions:
            self._drop_pending(TopicPartition(topic, partition))
            left = self._committed.get(topic)
            if left is not None and left.pop(partition, None) is not None and not left:
                del self._committed[topic]

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: Callable[[str, Committed], int | None]
    ) -> list[TopicPartition]:
        """Return the partitions whose offset has expired. Those with a pending offset are left out.

        An offset expires at the time that the client set. Without such a time, it expires `retention_ms` after the time
        that `since_ms` returns. If this is None, the offset is kept in any case.
        """
        gone = []
        for partition, committed in self:
            if partition in self._pending_count:
                continue
            since = since_ms(partition.topic, committed)
            if since is None:
                continue
            due = committed.expire_ms if committed.expire_ms >= 0 else since + retention_ms
            if now_ms >= due:
                gone.append(partition)
        return gone
