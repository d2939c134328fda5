"""Define a committed offset and the group member that commits it, and convert offsets for an OffsetCommit request.

The result of the conversion is the request's field `topics`.

Thread rule: functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client.cluster import by_topic
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Offsets = Mapping[TopicPartition, "int | CommittedOffset"]

OFFSET_FETCH_VERSION_MAX: Final = 7
OFFSET_COMMIT_VERSION_MAX: Final = 9
"""The newest versions used: the last OffsetFetch for one group, the last OffsetCommit with topic names."""


class CommittedOffset(NamedTuple):
    """A group's committed offset in one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """The member that commits, for `Producer.send_offsets_to_transaction`.

    Brokers reject a replaced member (KIP-447).
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def committed_offsets(offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """Convert each offset to a CommittedOffset. A plain number gets neither leader epoch nor metadata."""
    return {
        key: value if isinstance(value, CommittedOffset) else CommittedOffset(value) for key, value in offsets.items()
    }


def topics_to_commit(
    offsets: Mapping[TopicPartition, CommittedOffset],
    of_topic: Callable[..., Any] = OffsetCommitRequestTopic,
    of_partition: Callable[..., Any] = OffsetCommitRequestPartition,
) -> list[Any]:
    """Convert offsets to the field `topics` of a request; `of_topic` and `of_partition` are its classes."""
    return [
        of_topic(
            name=topic,
            partitions=[
                of_partition(
                    partition_index=number,
                    committed_offset=row.offset,
                    committed_leader_epoch=row.leader_epoch,
                    committed_metadata=row.metadata,
                )
                for number in numbers
                for row in (offsets[TopicPartition(topic, number)],)
            ],
        )
        for topic, numbers in by_topic(offsets)
    ]
