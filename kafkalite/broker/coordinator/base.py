"""What groups of both kinds have: a lock, committed offsets, answers that leave when the lock is given back.

    GroupBase ─┬─ group.Group                    the classic protocol: clients agree among themselves
               └─ consumer_group.ConsumerGroup   the newer one (KIP-848): the broker assigns

A group's id outlives its kind: an empty group that is joined in the other protocol is taken over by a group of that
kind, which shares the lock and the offsets with its predecessor, so that a commit on its way to the disk still arrives.

Thread rule: everything under the group's own lock, taken by `changing()`; methods ending in `_locked` need it. Answers
are collected in an outbox and delivered when the lock is given back.
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
"""Bytes of the largest record that `__consumer_offsets` takes by Kafka's default of max.message.bytes."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What all groups share."""

    clock: Clock
    timers: TimerQueue
    write: Callable[..., None]
    """group id, records, callback(code), and perhaps a producer and a watch: see `StateLog.write`."""
    initial_delay_ms: int
    size_max: int
    pending_max: int
    record_size_max: Callable[[], int] = lambda: RECORD_SIZE_MAX
    """Bytes of the largest record that the groups' log takes."""
    memory: MemoryCeiling | None = None
    """What members are charged to; None: they are not counted."""
    home: ShardEpoch | None = None
    """In a cluster: where these groups are kept, and the one leader epoch in which `write` writes."""


_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR}
)


def is_too_large(code: int) -> bool:
    """Whether a group could not be written down because its records are larger than its log takes."""
    return code in _TOO_LARGE


def write_error(code: int) -> int:
    """What a member is told when the group could not be written down (CoordinatorOperationExceptionHelper of Kafka 4.1,
    and TransactionStateManager for transactions)."""
    if code == 0:
        return 0
    if code in _ELSEWHERE:
        return int(ErrorCode.NOT_COORDINATOR)
    return int(ErrorCode.UNKNOWN_SERVER_ERROR if code in _TOO_LARGE else ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupBase(Outbox, ABC):
    """One group and its committed offsets."""

    kind: ClassVar[str]
    """As ListGroups names it (KIP-848)."""

    def __init__(self, group_id: str, environment: Environment, predecessor: GroupBase | None = None) -> None:
        super().__init__(predecessor)
        self.group_id = group_id
        self.holder: Holder | None = None if predecessor is None else predecessor.holder
        """Who began the group, and is charged for it; None: it was read from the log."""
        self._environment = environment
        if predecessor is None:
            self._memory = MemberMemory(environment.memory)
            self.offsets = GroupOffsets()
            self.open_commits: Counter[TopicPartition] = Counter()
            """Commits handed over and not durable yet."""
        else:
            self._memory = MemberMemory(environment.memory, predecessor._memory)  # noqa: SLF001 - the same group
            self.offsets = predecessor.offsets
            self.open_commits = predecessor.open_commits

    @property
    def environment(self) -> Environment:
        """What it shares with the groups that were read or begun with it."""
        return self._environment

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """What its members speak, as clients name it: `consumer`; None: it never had members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Kafka's name for where the group is."""

    @property
    @abstractmethod
    def dead(self) -> bool:
        """Whether it is no more: deleted, or taken over by a group of the other kind."""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """Its members now."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether it lives and has no members."""

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
        """Why these may not commit now, 0 when they may. `version` is OffsetCommit's: the newer protocol wants 9.

        In a transaction (TxnOffsetCommit) those who name nobody always may.
        """

    def knows_offset_locked(self, partition: TopicPartition) -> bool:
        """Whether there is a commit of a partition: one that holds, is pending, or is being written."""
        offsets = self.offsets
        return offsets.get(*partition) is not None or partition in self.open_commits or offsets.is_pending(partition)

    @abstractmethod
    def fetch_error_locked(self, member_id: str | None, member_epoch: int) -> int:
        """Why these may not ask for offsets (OffsetFetch 9+), 0 when they may."""

    @abstractmethod
    def offset_delete_error_locked(self) -> int:
        """Why no offset may be deleted by an administrator, 0 when those of topics nobody reads may."""

    @abstractmethod
    def subscribes_locked(self, topic: str) -> bool:
        """Whether members read a topic, or may read it."""

    @abstractmethod
    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        """When the retention of a commit begins, in ms; None while it has to stay."""

    @property
    @abstractmethod
    def expendable(self) -> bool:
        """Whether it may go when it has no offsets left: nobody is in it, and nobody is about to be."""

    @abstractmethod
    def tombstones_locked(self) -> list[Record]:
        """What erases the group, but for its offsets, from the log."""

    @abstractmethod
    def bury_locked(self) -> None:
        """The group is no more; what still arrives is told to look again."""

    @abstractmethod
    def exhume_locked(self) -> None:
        """The end of the group could not be written down: it lives, empty."""

    @abstractmethod
    def wake(self) -> None:
        """Members of a loaded group have a session timeout to be heard of."""

    @abstractmethod
    def stop(self) -> None:
        """The broker stops: everybody who waits is told to look for another coordinator."""
