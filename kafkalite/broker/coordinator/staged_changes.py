"""A group's states, and the changes of the staged one, each with its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.broker.coordinator.base import Environment, GroupBase
from kafkalite.broker.coordinator.consumer_state import ConsumerMember, ConsumerState
from kafkalite.broker.coordinator.member_memory import consumer_size
from kafkalite.errors import GroupMaxSizeReached

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment, Describes, Move
    from kafkalite.broker.coordinator.group import Group
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.limits.holder import Holder


class Successor(NamedTuple):
    """The classic group that this one becomes once that is durable, and why its members have to join again."""

    group: Group
    rebalances: str | None


class StagedChanges(GroupBase):
    """A group's states, what waits for its next turn, and the changes that a turn may make."""

    def __init__(
        self,
        group_id: str,
        environment: Environment,
        consumers: ConsumerEnvironment,
        predecessor: GroupBase | None = None,
        preface: list[Record] | None = None,
    ) -> None:
        """`preface`: records that erase the predecessor, to be written with the first change."""
        super().__init__(group_id, environment, predecessor)
        self._consumers = consumers
        self._dead = False
        self._durable = ConsumerState()
        self._staged = self._durable
        self._records: list[Record] = []
        self._preface = preface or []
        self._queue: list[Move] = []
        self._writing: list[Move] | None = None
        self._successor: Successor | None = None
        self._describers: dict[str, Describes] = {}  # of expressions, as far as a member was heard of

    def _check_memory(self, member: ConsumerMember, holder: Holder | None) -> None:
        """Charges what a member says of itself, before it is durable; raises where there is no memory for it."""
        size = consumer_size(member)
        if not self._memory.admits(member.member_id, size, holder):
            raise GroupMaxSizeReached(f"the client of {member.member_id} holds too much memory (broker.memory.max)")
        self._memory.put(member.member_id, size, holder)

    def _count_again_locked(self) -> None:
        """What was staged is thrown away: what is durable is charged."""
        members = self._durable.members
        self._memory.keep(members)
        for member in members.values():
            self._memory.put(member.member_id, consumer_size(member))

    def _edit(self) -> ConsumerState:
        if self._staged is self._durable:
            self._staged = self._durable.copy()
        return self._staged

    def _write(self, member_id: str, value: stored.Value) -> None:
        self._records.append(stored.record(self.group_id, member_id, value))

    def _erase(self, kind: int, member_id: str) -> None:
        self._records.append(stored.tombstone(kind, self.group_id, member_id))

    def _put(self, member: ConsumerMember) -> None:
        before = self._staged.members.get(member.member_id)
        self._edit().put(member)
        if before is None or before.identity() != member.identity():
            self._write(member.member_id, member.identity())

    def _move_on(self, member: ConsumerMember) -> None:
        """Writes where a member is now."""
        self._edit().put(member)
        self._write(member.member_id, member.position())

    def _remove(self, member: ConsumerMember) -> None:
        for kind in (stored.CURRENT, stored.TARGET_MEMBER, stored.MEMBER):
            self._erase(kind, member.member_id)
        self._edit().remove(member.member_id)
