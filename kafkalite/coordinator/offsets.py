"""The offsets that one group has committed, and when they go.

    commit ─▶ written to `__consumer_offsets` ─▶ durable ─▶ apply ─▶ seen by OffsetFetch

What is not durable is not visible, so an answer never takes back what another answer said.

Thread rule: belongs to its group and is guarded by the group's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.coordinator.records import OffsetCommitValue
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Committed(NamedTuple):
    """One partition's committed offset. Times in ms since 1970; expire_ms is -1 unless the client named a time."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: bytes = ZERO_UUID

    @classmethod
    def of(cls, value: OffsetCommitValue) -> Committed:
        """As read from the log."""
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
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


class GroupOffsets:
    """Partition → committed offset."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, Committed]] = {}

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

    def topics(self) -> list[str]:
        """Topics with a commit."""
        return list(self._committed)

    def apply(self, partition: TopicPartition, committed: Committed) -> None:
        """Takes over a commit that is durable."""
        self._committed.setdefault(partition.topic, {})[partition.partition] = committed

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets commits whose tombstones are written."""
        for topic, partition in partitions:
            left = self._committed.get(topic)
            if left is not None and left.pop(partition, None) is not None and not left:
                del self._committed[topic]

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: Callable[[str, Committed], int | None]
    ) -> list[TopicPartition]:
        """Commits that may go: past the time the client named, else `retention_ms` after `since_ms` (None: stays)."""
        gone = []
        for partition, committed in self:
            since = since_ms(partition.topic, committed)
            if since is None:
                continue
            due = committed.expire_ms if committed.expire_ms >= 0 else since + retention_ms
            if now_ms >= due:
                gone.append(partition)
        return gone
