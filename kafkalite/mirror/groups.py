"""Copy committed offsets of consumer groups to the target, translated to its offsets (KIP-545's `sync.group.offsets`).

    the source's groups ─▶ their offsets in mirrored topics ─▶ OffsetMap ─▶ OffsetCommit in the target

A group's offsets in the target are changed only while the group has no members there. An offset moves backward only if
this mirror committed it since it started. So a group that has advanced in the target is not set back, even if it has
reached the source's offset. MirrorMaker 2 never moves an offset backward.

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
"""Groups excluded by default: Kafka's default of `groups.exclude`."""
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
"""Errors for a commit without a member id if the group has members."""


class GroupFilter:
    """Selects names that match `include` completely and not `exclude`."""

    def __init__(self, include: str = ".*", exclude: str = EXCLUDE) -> None:
        """Raises ValueError for an invalid pattern."""
        self._include = compiled(include)
        self._exclude = compiled(exclude)

    def takes(self, group_id: str) -> bool:
        """Return whether this group's offsets are copied."""
        return self._include.fullmatch(group_id) is not None and self._exclude.fullmatch(group_id) is None


class GroupOffsets:
    """Copies group offsets to the target; see the module.

    Both group protocols (classic, KIP-848) are supported. A group's members in the target determine its protocol there.
    """

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
        """`note` is called with messages for the operator; `named` returns the target's name of a topic."""
        self._source = source
        self._target = target
        self._offsets = offsets
        self._filter = wanted
        self._note = note
        self._named = named
        self._put: dict[tuple[str, TopicPartition], int] = {}
        """The last offset that this mirror committed in the target, by group and partition of the source."""
        self.carried: dict[str, dict[TopicPartition, int]] = {}
        """The target offsets that equal the source's, by group."""

    def sync(self) -> None:
        """Copy the offsets of the selected groups. A KafkaError of one group is reported, and the next group follows.

        Other errors are raised. The remaining groups then wait for the next call.
        """
        lowest: dict[TopicPartition, int] = {}
        starts = self._starts()
        for listing in self._source.groups.list():
            if listing.kind not in {CLASSIC, CONSUMER} or not self._filter.takes(listing.group_id):
                continue
            if listing.kind == CLASSIC and listing.protocol_type not in {"", "consumer"}:
                continue  # a group of Connect or a registry, which has no offsets of records
            try:
                for key, offset in self._carry(listing.group_id, starts).items():
                    lowest[key] = min(offset, lowest.get(key, offset))
            except KafkaError as error:  # only this group fails, for example for lack of permission
                self._note(f"group {listing.group_id}: offsets not synchronized: {error}")
        self._offsets.thin(lowest)

    def _starts(self) -> dict[TopicPartition, int]:
        """Return the log start offsets of the target's partitions. A lower committed offset would be out of range."""
        known = self._offsets.partitions
        names = {self._named(key.topic) for key in known}
        counts = self._target.with_retries(lambda: self._target.partition_counts(names))
        there = [key for key in known if key.partition < counts.get(self._named(key.topic), 0)]  # others were deleted
        rows = self._target.list_offsets({self._in_target(key): OFFSET_EARLIEST for key in there})
        return {key: rows[self._in_target(key)].offset for key in there}

    def _in_target(self, key: TopicPartition) -> TopicPartition:
        """Return the target's partition for a source partition."""
        return TopicPartition(self._named(key.topic), key.partition)

    def _carry(self, group_id: str, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Copy a group's offsets. Return its source offsets in mirrored partitions."""
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
                return  # a member joined meanwhile: from now on the target owns the group's offsets
            raise
        for key, row in wanted.items():
            if key in moved:
                self._put[group_id, key] = row.offset
            if key in moved or there[key].offset == row.offset:
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
