"""Keep the state of a classic group: its members, leader, generation and protocol.

Thread rule: belongs to its group and is guarded by the group's lock.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL
from kafkalite.broker.coordinator.members import subscribed_topics
from kafkalite.broker.coordinator.records import GroupMetadataValue, group_record
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kafkalite.base.clock import Clock
    from kafkalite.broker.coordinator.members import Member, Protocols
    from kafkalite.broker.coordinator.records import Record


class State(Enum):
    """A group's state; the values are Kafka's names, as clients see them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicState:
    """The state of one group, shared by all parts of a `Group`."""

    __slots__ = (
        "_clock",
        "generation",
        "group_id",
        "leader",
        "members",
        "protocol",
        "protocol_type",
        "state",
        "state_ms",
        "static_ids",
        "subscribed",
        "unsynced",
    )

    def __init__(self, group_id: str, clock: Clock) -> None:
        self.group_id = group_id
        self._clock = clock
        self.state = State.EMPTY
        self.state_ms = clock.time_ms()
        """When the group entered its state."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        """The member id of the leader."""
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """group.instance.id → member id."""
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not synced yet. A dict, because an empty set takes 152 bytes more."""
        self.subscribed: AbstractSet[str] | None = None
        """Topics that the members subscribe to; None if unknown."""

    def enter(self, state: State) -> None:
        """Change to another state, and note the time."""
        self.state = state
        self.state_ms = self._clock.time_ms()

    def enlist(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether all members would still have a common protocol if a member with `protocols` joined."""
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(name in self.candidates() for name, _ in protocols)

    def candidates(self) -> set[str]:
        """Return the protocols that all members support."""
        members = iter(self.members.values())
        candidates = {name for name, _ in next(members).protocols}
        for member in members:
            candidates.intersection_update(name for name, _ in member.protocols)
        return candidates

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined the rebalance; else elect another member that has. Return False if no member
        has.
        """
        leader = self.members.get(self.leader or "")
        if leader is None or leader.awaiting_join is None:
            leader = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def select_protocol(self) -> str:
        """Return the common protocol with the most votes.

        Each member votes for the first common protocol in its list. A tie goes to the alphabetically first name.
        """
        candidates = self.candidates()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], name))

    def read_subscriptions(self) -> None:
        """Set the subscribed topics from the members' metadata, if it can be decoded."""
        self.subscribed = None
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return
            topics |= found
        self.subscribed = topics

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of all members in ms, 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def identity_error(self, member_id: str, instance_id: str | None) -> int:
        """Return 0 if the group has this member, with this instance id (None: any). Else return the error code."""
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def member_error(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Return 0 for a member in the current generation of a live group, else the error code."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self.identity_error(member_id, instance_id)
        if code == 0 and generation != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        return code

    def record(self, assignments: dict[str, bytes]) -> Record:
        """Return the group's record for `__consumer_offsets`."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_ms,
            members=[
                member.stored(self.protocol, assignments.get(member.member_id, b"")) for member in self.members.values()
            ],
        )
        return group_record(self.group_id, value)
