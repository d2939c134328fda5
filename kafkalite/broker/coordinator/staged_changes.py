"""Stage the changes of a consumer group (KIP-848) until their records are durable.

    durable   the state that is in `__consumer_offsets`
    staged    the durable state with the changes that are not durable yet; without any, the same object as `durable`

Thread rule: guarded by the group's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.consumer_state import ConsumerState
from kafkalite.broker.coordinator.conversion import creation_records, erasing_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.consumer_state import ConsumerMember
    from kafkalite.broker.coordinator.group import Group
    from kafkalite.broker.coordinator.records import Record


class Successor(NamedTuple):
    """The classic group that replaces a consumer group, and the reason for its first rebalance.

    If the reason is None, it does not rebalance.
    """

    group: Group
    rebalances: str | None


class StagedChanges:
    """The durable and the staged state of one group, and the records for the difference between them."""

    __slots__ = ("_group_id", "_preface", "_records", "durable", "staged", "successor")

    def __init__(self, group_id: str, preface: Sequence[Record] = ()) -> None:
        """Begin with an empty state.

        If this group replaces another one, `preface` has the records that erase the old group. The first write begins
        with them.
        """
        self._group_id = group_id
        self._preface = list(preface)
        self._records: list[Record] = []
        self.durable = ConsumerState()
        self.staged = self.durable
        self.successor: Successor | None = None
        """The group that replaces this group once the staged records are durable."""

    # --- changes of the staged state, each with its record ------------------------------------------------------------

    def edit(self) -> ConsumerState:
        """Return a staged state that may be changed."""
        if self.staged is self.durable:
            self.staged = self.durable.copy()
        return self.staged

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member, or replace its identity and subscription. Its partitions do not change."""
        before = self.staged.members.get(member.member_id)
        self.edit().put(member)
        if before is None or before.identity() != member.identity():
            self._write(member.member_id, member.identity())

    def put_position(self, member: ConsumerMember) -> None:
        """Replace a member's epoch and partitions."""
        self.edit().put(member)
        self._write(member.member_id, member.position())

    def put_target(self, member_id: str, target: Assignment) -> None:
        """Replace a member's target assignment."""
        self.edit().targets[member_id] = target
        self._write(member_id, stored.TargetMemberValue(topic_partitions=stored.topic_partitions(target)))

    def remove_member(self, member: ConsumerMember) -> None:
        """Remove a member with its partitions and its target assignment."""
        for kind in (stored.CURRENT, stored.TARGET_MEMBER, stored.MEMBER):
            self._erase(kind, member.member_id)
        self.edit().remove(member.member_id)

    def put_expression(self, expression: str, topics: frozenset[str], now_ms: int) -> None:
        """Replace the set of topics that a regular expression matches."""
        self.edit().set_expression(expression, topics)
        self._write(expression, stored.ExpressionValue(topics=sorted(topics), timestamp=now_ms))

    def remove_expression(self, expression: str) -> None:
        """Remove a regular expression that no member subscribes to."""
        self.edit().set_expression(expression, None)
        self._erase(stored.EXPRESSION, expression)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Replace the group epoch, and the hash of the topics that are subscribed in this epoch."""
        state = self.edit()
        state.epoch, state.metadata_hash = epoch, metadata_hash
        self._write("", stored.GroupValue(epoch=epoch, metadata_hash=metadata_hash))

    def put_target_epoch(self, epoch: int) -> None:
        """Replace the epoch of the target assignment."""
        self.edit().target_epoch = epoch
        self._write("", stored.TargetValue(assignment_epoch=epoch))

    def put_successor(self, successor: Successor) -> None:
        """Replace the group itself by a classic group."""
        self._records += [
            *erasing_records(self._group_id, self.staged),
            successor.group.inherited_record_locked(),
        ]
        self.successor = successor

    def _write(self, member_id: str, value: stored.Value) -> None:
        self._records.append(stored.record(self._group_id, member_id, value))

    def _erase(self, kind: int, member_id: str) -> None:
        self._records.append(stored.tombstone(kind, self._group_id, member_id))

    # --- from staged to durable ---------------------------------------------------------------------------------------

    def take_records(self) -> list[Record]:
        """Return the records that make the staged state durable; an empty list if nothing changed.

        Each staged record is returned only once, the preface until `commit`.
        """
        records, self._records = self._records, []
        return self._preface + records if records else records

    def commit(self) -> ConsumerState:
        """Make the staged state the durable one; return the previous durable state."""
        before, self.durable = self.durable, self.staged
        self._preface = []
        return before

    def discard(self) -> None:
        """Drop the staged changes, and return to the durable state."""
        self.staged, self._records, self.successor = self.durable, [], None

    def restore(self, state: ConsumerState) -> None:
        """Begin with a state that was read from the log."""
        self.durable = self.staged = state

    def replace_classic(self, group: Group, state: ConsumerState) -> None:
        """Begin with the state of a classic group that this group replaces. This group's next write makes it
        durable.
        """
        self.restore(state)
        self._preface = [*group.tombstones_locked(), *creation_records(self._group_id, state)]

    def tombstones(self) -> list[Record]:
        """Return the records that erase this group's durable state.

        If nothing of this group is written yet, they erase the older group whose id it took.
        """
        state = self.durable
        if state.epoch == 0 and not state.members:
            return list(self._preface)
        return erasing_records(self._group_id, state)
