"""The offsets that one group has committed, and when they go.

    commit ─▶ written to `__consumer_offsets` ─▶ durable ─▶ apply ─▶ seen by OffsetFetch
    in a transaction ─▶ written ─▶ durable ─▶ pending ─▶ its marker is durable ─▶ apply, or dropped

What is not durable is not visible, so an answer never takes back what another answer said. Of two commits for a
partition the one that stands later in the log counts, also when the earlier one's marker comes after both; `order`
says where each stands.

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
    """One partition's committed offset. Times in ms since 1970; expire_ms is -1 unless the client named a time; order
    rises with the place in the log, within a group."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: bytes = ZERO_UUID
    order: int = 0

    @classmethod
    def of(cls, value: OffsetCommitValue, order: int = 0) -> Committed:
        """As read from the log."""
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
        """As the log keeps it."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expire_ms,
            topic_id=self.topic_id,
        )

    def belongs_to(self, topic_id: bytes | None) -> bool:
        """False for an offset of another topic that had the same name before. None: there is no topic now."""
        return topic_id is None or self.topic_id in (ZERO_UUID, topic_id)


UNSTABLE: Final = Committed(-1, -1, "", -1)
"""Stands for an offset that an open transaction may still replace, where only stable ones were asked for."""


class GroupOffsets:
    """Partition → committed offset, and what open transactions may make of it."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, Committed]] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}  # producer id → what it commits
        self._pending_count: Counter[TopicPartition] = Counter()  # producers that have one pending
        self.open_transactional: Counter[TopicPartition] = Counter()
        """Commits in transactions that were handed over and are not durable yet."""
        self.order = 0
        """Of the newest commit handed over."""

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def __iter__(self) -> Iterator[tuple[TopicPartition, Committed]]:
        for topic, partitions in self._committed.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def get(self, topic: str, partition: int) -> Committed | None:
        """What is committed for a partition."""
        return self._committed.get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> list[int]:
        """The partitions of a topic that have a commit."""
        return list(self._committed.get(topic, ()))

    def producers(self) -> list[int]:
        """Producers whose transactions have commits open."""
        return list(self._pending)

    def pending(self) -> list[TopicPartition]:
        """Partitions for which a transaction has a commit open."""
        return list(self._pending_count)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may replace a partition's offset."""
        return partition in self._pending_count or partition in self.open_transactional

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a transaction has a commit open for a partition."""
        return partition in self._pending_count

    def topics(self) -> list[str]:
        """Topics with a commit."""
        return list(self._committed)

    def apply(self, partition: TopicPartition, committed: Committed) -> None:
        """Takes over a commit that is durable."""
        self._committed.setdefault(partition.topic, {})[partition.partition] = committed

    def put_pending(self, producer_id: int, partition: TopicPartition, committed: Committed) -> None:
        """Takes over a commit that is durable and holds once its transaction is committed."""
        partitions = self._pending.setdefault(producer_id, {})
        if partition not in partitions:
            self._pending_count[partition] += 1
        partitions[partition] = committed

    def end(self, producer_id: int, *, commit: bool) -> None:
        """A producer's transaction has ended: what it had open holds, unless a later commit does; or it is dropped."""
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
        """Forgets commits whose tombstones are written, those of open transactions too."""
        for topic, partition in partitions:
            self._drop_pending(TopicPartition(topic, partition))
            left = self._committed.get(topic)
            if left is not None and left.pop(partition, None) is not None and not left:
                del self._committed[topic]

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: Callable[[str, Committed], int | None]
    ) -> list[TopicPartition]:
        """Commits that may go: past the time the client named, else `retention_ms` after `since_ms` (None: stays)."""
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
