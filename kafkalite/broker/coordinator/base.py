"""Define the base class of groups of both protocols (`GroupBase`).

    GroupBase ─┬─ group.Group                    the classic protocol: the leading member assigns partitions
               └─ consumer_group.ConsumerGroup   the consumer protocol (KIP-848): the broker assigns partitions

If a client joins an empty group with the other protocol, a group of that protocol replaces it. The new group keeps
the id, the lock and the offsets. So a commit that the old group is still writing takes effect in the new group.

Thread rule: the group's lock, which `changing()` takes, guards everything; methods ending in `_locked` need it.
Responses are collected in an outbox and delivered when the lock is released.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.coordinator.group_offsets import GroupOffsets
from kafkalite.broker.coordinator.member_memory import MemberMemory
from kafkalite.broker.coordinator.outbox import Outbox
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.base.clock import Clock
    from kafkalite.broker.coordinator.group_offsets import Committed
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.coordinator.shard_epoch import ShardEpoch
    from kafkalite.broker.coordinator.timer_queue import TimerQueue
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.model import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"

_TOO_LARGE: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}
)


RECORD_SIZE_MAX: Final = 1 << 20
"""Maximum record size of `__consumer_offsets` in bytes, from Kafka's default of max.message.bytes."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The objects that groups share. In a cluster, each partition's groups have their own `write` and `home`."""

    clock: Clock
    timers: TimerQueue
    write: Callable[..., None]
    """group id, records, callback(code), optionally a producer and a watch: see `StateLog.write`."""
    initial_delay_ms: int
    size_max: int
    pending_max: int
    record_size_max: Callable[[], int] = lambda: RECORD_SIZE_MAX
    """Maximum record size of the groups' log in bytes."""
    memory: MemoryCeiling | None = None
    """The ceiling to which members' memory is charged; if None, the memory is not counted."""
    home: ShardEpoch | None = None
    """In a cluster: the partition of these groups, and the only leader epoch in which `write` writes."""


_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR}
)


def is_too_large(code: int) -> bool:
    """Return whether a group could not be written because its records exceed the log's maximum record size."""
    return code in _TOO_LARGE


def write_error(code: int) -> int:
    """Return the error code for the client if a write of its group or transactional id failed with `code`.

    Source: CoordinatorOperationExceptionHelper of Kafka 4.1, and TransactionStateManager for transactions.
    """
    if code == 0:
        return 0
    if code in _ELSEWHERE:
        return int(ErrorCode.NOT_COORDINATOR)
    return int(ErrorCode.UNKNOWN_SERVER_ERROR if code in _TOO_LARGE else ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupBase(Outbox, ABC):
    """One group and its committed offsets."""

    kind: ClassVar[str]
    """The group type in ListGroups (KIP-848)."""

    def __init__(self, group_id: str, environment: Environment, predecessor: GroupBase | None = None) -> None:
        super().__init__(predecessor)
        self.group_id = group_id
        self.holder: Holder | None = None if predecessor is None else predecessor.holder
        """The client that created the group and is charged for the group; None if the group was read from the log."""
        self._environment = environment
        if predecessor is None:
            self._memory = MemberMemory(environment.memory)
            self.offsets = GroupOffsets()
            self.open_commits: Counter[TopicPartition] = Counter()
            """Commits that were passed to the log and are not durable yet."""
        else:
            self._memory = MemberMemory(environment.memory, predecessor._memory)  # noqa: SLF001 - the same group
            self.offsets = predecessor.offsets
            self.open_commits = predecessor.open_commits

    @property
    def environment(self) -> Environment:
        """The objects that this group shares with other groups of the same partition and leader epoch
        (`shard_epoch`).
        """
        return self._environment

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """The protocol type that the group's members use, such as `consumer`; None if the group never had members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Kafka's name of the group's state."""

    @property
    @abstractmethod
    def dead(self) -> bool:
        """Whether the group was deleted, or replaced by a group of the other protocol."""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """The current number of members."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether the group is not dead and has no members."""

    @abstractmethod
    def commit_error_locked(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int = 9,
        *,
        transactional: bool = False,
    ) -> int:
        """Return the error code if this member may not commit now, else 0.

        `version` is OffsetCommit's; members of the consumer protocol (KIP-848) need 9 or later. In a transaction
        (TxnOffsetCommit), a live group accepts a commit without a member id, instance id and generation.
        """

    def knows_offset_locked(self, partition: TopicPartition) -> bool:
        """Return whether the partition has an offset that is committed, pending or being written."""
        offsets = self.offsets
        return offsets.get(*partition) is not None or partition in self.open_commits or offsets.is_pending(partition)

    @abstractmethod
    def fetch_error_locked(self, member_id: str | None, member_epoch: int) -> int:
        """Return the error code if this member may not fetch offsets (OffsetFetch 9+), else 0."""

    @abstractmethod
    def offset_delete_error_locked(self) -> int:
        """Return the error code if an administrator may delete no offsets of this group.

        Return 0 if offsets of unsubscribed topics may be deleted.
        """

    @abstractmethod
    def subscribes_locked(self, topic: str) -> bool:
        """Return whether members subscribe to a topic, or might: their subscriptions may be unknown."""

    @abstractmethod
    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        """Return the time in ms from which the retention of a committed offset counts; None while the offset must be
        kept.

            classic group, empty                      the commit, or the moment when it became empty if that is later
            classic group that never had members      the commit
            Stable classic group, type `consumer`     the commit; None if members subscribe to the topic
            group of the consumer protocol (KIP-848)  the commit; None if members subscribe to the topic
        """

    @property
    @abstractmethod
    def expendable(self) -> bool:
        """Whether the group can be deleted once it has no offsets: it has no members, and no client is about to
        join."""

    @abstractmethod
    def tombstones_locked(self) -> list[Record]:
        """Return the tombstones that delete the group from the log. Its offsets have separate tombstones."""

    @abstractmethod
    def bury_locked(self) -> None:
        """Mark the group as dead. Members that still use this object get an error, and look for the coordinator
        again.
        """

    @abstractmethod
    def exhume_locked(self) -> None:
        """Revive the dead group as an empty group, because its deletion could not be written."""

    @abstractmethod
    def wake(self) -> None:
        """Start the session timeouts of the members of a group that was loaded from the log."""

    @abstractmethod
    def stop(self) -> None:
        """Refuse all waiting requests, because the broker stops or no longer coordinates the group."""
