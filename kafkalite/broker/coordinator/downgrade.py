"""Convert a consumer group (KIP-848) to a classic group when only classic members are left (online downgrade).

When the last member with the consumer protocol is gone, the classic group is created. Its records and the tombstones of
the consumer group are written together (`conversion`). When they are durable, the classic group replaces the consumer
group.

Thread rule: guarded by the group's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.consumer_state import spoken_by
from kafkalite.broker.coordinator.conversion import downgraded
from kafkalite.broker.coordinator.staged_changes import Successor

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment
    from kafkalite.broker.coordinator.staged_changes import StagedChanges


class Downgrade:
    """The conversion of one consumer group to a classic group."""

    __slots__ = ("_changes", "_consumers", "_group")

    def __init__(self, group: GroupBase, consumers: ConsumerEnvironment, changes: StagedChanges) -> None:
        self._group = group
        self._consumers = consumers
        self._changes = changes

    def is_possible(self, gone: Collection[str]) -> bool:
        """Return whether the group may become a classic group when the members in `gone` are removed."""
        left = [member for member_id, member in self._changes.staged.members.items() if member_id not in gone]
        if not left or any(member.classic is None for member in left) or not spoken_by(left):
            return False
        return self._consumers.downgrades and len(left) <= self._group.environment.size_max

    def stage(self, gone: Collection[str], generation: int, rebalances: str | None) -> None:
        """Stage the replacement of the group by a classic group without the members in `gone`. The batch of
        operations then ends.

        `rebalances` is the reason for the first rebalance of the classic group; None if it does not rebalance.
        """
        topics, group = self._consumers.topics(), self._group
        successor = downgraded(self._changes.staged, gone, generation, group, group.environment, topics)
        self._changes.put_successor(Successor(successor, rebalances))

    def complete_locked(self, successor: Successor) -> None:
        """Let the classic group replace the consumer group, now that its records are durable."""
        self._consumers.succeed(self._group, successor.group)
        successor.group.begin_locked(successor.rebalances)
