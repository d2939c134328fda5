"""A consumer group that becomes a classic one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.consumer_state import spoken_by
from kafkalite.broker.coordinator.conversion import downgraded, erasing_records
from kafkalite.broker.coordinator.staged_changes import Successor
from kafkalite.broker.coordinator.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Collection


class Downgrade(Subscriptions):
    """See the module."""

    def _may_become_classic(self, gone: Collection[str]) -> bool:
        """Whether a group without some of its members is one of classic members alone, and may be a classic one."""
        left = [member for member_id, member in self._staged.members.items() if member_id not in gone]
        if not left or any(member.classic is None for member in left) or not spoken_by(left):
            return False
        return self._consumers.downgrades and len(left) <= self._environment.size_max

    def _become_classic(self, gone: Collection[str], generation: int, rebalances: str | None) -> None:
        """Ends the turn: all that comes is for the successor."""
        state, topics = self._staged, self._consumers.topics()
        group = downgraded(state, gone, generation, self, self._environment, topics)
        self._records += [*erasing_records(self.group_id, state), group.inherited_record_locked()]
        self._successor = Successor(group, rebalances)
