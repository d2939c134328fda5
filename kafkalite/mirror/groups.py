"""Synchronize committed offsets of consumer groups to the target (KIP-545's `sync.group.offsets`), exactly.

    the source's groups ─▶ their positions in topics that are mirrored ─▶ OffsetMap ─▶ OffsetCommit in the target

A group moves in the target only while it has no members there, and only forward, unless it still stands where this
mirror has put it: who has read in the target is never set back, and nobody beyond what he has read in the source.
Groups of both protocols (classic, KIP-848) are carried; in the target each is of the one that its members come with.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.client.admin.groups import CLASSIC, CONSUMER, DEAD
from kafkalite.client.committed import CommittedOffset
from kafkalite.errors import ErrorCode, GroupIdNotFound, KafkaError
from kafkalite.mirror.topics import compiled
from kafkalite.model import OFFSET_EARLIEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.client import Client
    from kafkalite.mirror.offsets import OffsetMap

EXCLUDE: Final = "console-consumer-.*|connect-.*|__.*"
"""Groups that are left out unless somebody wants them: Kafka's default of `groups.exclude`."""
EMPTY: Final = "Empty"
HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""A commit without a member's id is refused so where there are members."""


class GroupFilter:
    """Names that match `include` as a whole and not `exclude`."""

    def __init__(self, include: str = ".*", exclude: str = EXCLUDE) -> None:
        """ValueError for a pattern that is none."""
        self._include = compiled(include)
        self._exclude = compiled(exclude)

    def takes(self, group_id: str) -> bool:
        """Whether this group's offsets are carried."""
        return self._include.fullmatch(group_id) is not None and self._exclude.fullmatch(group_id) is None


class GroupOffsets:
    """See the module."""

    def __init__(
        self,
        source: Client,
        target: Client,
        offsets: OffsetMap,
        wanted: GroupFilter,
        note: Callable[[str], object],
        *,
        named: Callable[[str], str],
    ) -> None:
        """`note` is told what an operator should know; `named` is the target's name of a topic."""
        self._source = source
        self._target = target
        self._offsets = offsets
        self._filter = wanted
        self._note = note
        self._named = named
        self._put: dict[tuple[str, TopicPartition], int] = {}
        """Where groups were put in the target."""
        self.carried: dict[str, dict[TopicPartition, int]] = {}
        """Positions in the target, by group, that say what those in the source do."""

    def sync(self) -> None:
        """Brings the groups' positions over. KafkaError, ClientError: the rest is left for the next time."""
        lowest: dict[TopicPartition, int] = {}
        starts = self._starts()
        for listing in self._source.groups.list():
            if listing.kind not in {CLASSIC, CONSUMER} or not self._filter.takes(listing.group_id):
                continue
            if listing.kind == CLASSIC and listing.protocol_type not in {"", "consumer"}:
                continue  # of Connect or a registry: what it keeps are no positions
            try:
                for key, offset in self._carry(listing.group_id, starts).items():
                    lowest[key] = min(offset, lowest.get(key, offset))
            except KafkaError as error:  # of this group alone, one that we may not see for instance
                self._note(f"group {listing.group_id}: offsets not synchronized: {error}")
        self._offsets.thin(lowest)

    def _starts(self) -> dict[TopicPartition, int]:
        """Where the target's partitions begin: a position before that would be out of range."""
        known = self._offsets.partitions
        names = {self._named(key.topic) for key in known}
        counts = self._target.with_retries(lambda: self._target.partition_counts(names))
        there = [key for key in known if key.partition < counts.get(self._named(key.topic), 0)]  # others were deleted
        rows = self._target.list_offsets({self._in_target(key): OFFSET_EARLIEST for key in there})
        return {key: rows[self._in_target(key)].offset for key in there}

    def _in_target(self, key: TopicPartition) -> TopicPartition:
        """The target's partition of one of the source."""
        return TopicPartition(self._named(key.topic), key.partition)

    def _carry(self, group_id: str, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Brings a group's positions over; where it stands in the source, in partitions that are mirrored."""
        positions = {
            key: row
            for key, row in self._source.groups.committed(group_id).items()
            if key in self._offsets.partitions and key in starts
        }
        if positions:
            self._put_over(group_id, positions, starts)
        return {key: row.offset for key, row in positions.items()}

    def _put_over(
        self, group_id: str, positions: dict[TopicPartition, CommittedOffset], starts: dict[TopicPartition, int]
    ) -> None:
        wanted: dict[TopicPartition, CommittedOffset] = {}
        for key, row in positions.items():
            offset = self._offsets.partitions[key].translate(row.offset)
            if offset is None:
                self._note(
                    f"group {group_id}, {key}: offset not synchronized, because no offset mapping exists for its record"
                )
            else:
                wanted[key] = CommittedOffset(max(offset, starts[key]), metadata=row.metadata)
        if not wanted or self._has_members(group_id):
            return
        committed = self._target.groups.committed(group_id)
        there = {key: committed[self._in_target(key)] for key in wanted if self._in_target(key) in committed}
        moved = {key: row for key, row in wanted.items() if self._may_move(group_id, key, row, there.get(key))}
        try:
            if moved:
                self._target.groups.commit(group_id, {self._in_target(key): row for key, row in moved.items()})
        except KafkaError as error:
            if error.code in HAS_MEMBERS:
                return  # somebody came meanwhile: from now on the group is the target's own
            raise
        for key, row in wanted.items():
            if key in moved or there[key].offset == row.offset:
                self._put[group_id, key] = row.offset
                self.carried.setdefault(group_id, {})[key] = row.offset

    def _may_move(
        self, group_id: str, key: TopicPartition, row: CommittedOffset, there: CommittedOffset | None
    ) -> bool:
        if there is None or row.offset > there.offset:
            return True
        return row.offset < there.offset and there.offset == self._put.get((group_id, key))

    def _has_members(self, group_id: str) -> bool:
        try:
            return self._target.groups.describe(group_id).state not in {EMPTY, DEAD}
        except GroupIdNotFound:
            return False
