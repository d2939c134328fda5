"""Manage one group of the classic protocol: members, rebalances and assignment (KIP-62, 134, 345, 394, 814).

    Empty                ─▶ PreparingRebalance     a client joins
    PreparingRebalance   ─▶ CompletingRebalance    all members have joined, or the time for it is over
    PreparingRebalance   ─▶ Empty                  no member is left
    CompletingRebalance  ─▶ Stable                 the leader's assignment is durable
    CompletingRebalance  ─▶ PreparingRebalance     a client joins, a member leaves or times out, or the write fails
    Stable               ─▶ PreparingRebalance     a client joins, or a member leaves or times out
    any state            ─▶ Dead                   the group is deleted, replaced or unloaded

    Group ─┬─ Joins ── StaticMembers        JoinGroup
           ├─ Syncs                         SyncGroup
           ├─ Rebalance                     from the first join to the next generation
           ├─ PendingMembers                issued ids that have not joined
           ├─ MemberSessions                members' sessions, waiting requests and memory
           ├─ MemberAnswers                 responses to joins and syncs
           └─ ClassicState                  the state that all of these read and change

Thread rule: as in `base`. Writes are queued under the lock, so they are in the order of the changes. Callbacks of
writes take the lock again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL, GroupBase
from kafkalite.broker.coordinator.classic_parts import ClassicParts
from kafkalite.broker.coordinator.classic_state import ClassicState, State
from kafkalite.broker.coordinator.joins import Joins
from kafkalite.broker.coordinator.member_answers import MemberAnswers
from kafkalite.broker.coordinator.member_memory import classic_size
from kafkalite.broker.coordinator.member_sessions import MemberSessions
from kafkalite.broker.coordinator.pending_members import PendingMembers
from kafkalite.broker.coordinator.rebalance import Rebalance
from kafkalite.broker.coordinator.records import group_record
from kafkalite.broker.coordinator.syncs import Syncs
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.base import Environment
    from kafkalite.broker.coordinator.group_offsets import Committed
    from kafkalite.broker.coordinator.members import Caller, Member, Protocols
    from kafkalite.broker.coordinator.records import GroupMetadataValue, Record
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Inherited(NamedTuple):
    """A member of the consumer group that became this classic group. Timeouts in ms."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols


class Group(GroupBase):
    """One group of the classic protocol and its committed offsets."""

    kind: ClassVar[str] = "classic"

    def __init__(self, group_id: str, environment: Environment, predecessor: GroupBase | None = None) -> None:
        super().__init__(group_id, environment, predecessor)
        memory, changing = self._memory, self.changing
        classic = self._classic = ClassicState(group_id, environment.clock)
        answers = MemberAnswers(classic, self.later_locked)
        self._sessions = MemberSessions(classic, answers, memory, environment.timers, changing, self._timed_out_locked)
        self.pending = PendingMembers(environment, self.forget_pending)
        """Ids that were issued and have not joined yet."""
        parts = ClassicParts(classic, answers, self._sessions, self.pending, memory, environment, changing)
        self._rebalance = Rebalance(parts)
        self._joins = Joins(parts, self._rebalance)
        self._syncs = Syncs(parts, self._rebalance)

    def _timed_out_locked(self, member: Member) -> None:
        self._rebalance.member_gone_locked(member, "timed out")

    def __repr__(self) -> str:
        return f"<Group {self.group_id!r} {self.state.value}, {len(self.members)} members, gen. {self.generation}>"

    @property
    def state_name(self) -> str:
        return self._classic.state.value

    @property
    def dead(self) -> bool:
        return self._classic.state is State.DEAD

    @property
    def member_count(self) -> int:
        return len(self._classic.members)

    @property
    def empty(self) -> bool:
        return self._classic.state is State.EMPTY

    @property
    def expendable(self) -> bool:
        return self.empty and not self.pending

    @property
    def state(self) -> State:
        """The group's state, as listed in the module's docstring."""
        return self._classic.state

    @property
    def generation(self) -> int:
        """The number of the group's last rebalance; 0 before the first."""
        return self._classic.generation

    @property
    def protocol_type(self) -> str | None:
        return self._classic.protocol_type

    @property
    def protocol(self) -> str | None:
        """The protocol that the members chose. For protocol type `consumer` it is the name of an assignor."""
        return self._classic.protocol

    @property
    def leader(self) -> str | None:
        """The member id of the leader, which assigns the partitions."""
        return self._classic.leader

    @property
    def members(self) -> dict[str, Member]:
        """Members by id."""
        return self._classic.members

    @property
    def static_ids(self) -> dict[str, str]:
        """Member ids by group.instance.id."""
        return self._classic.static_ids

    # --- requests -----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller) -> Deferred[JoinGroupResponse]:
        """Handle JoinGroup. During a rebalance, the response waits for the next generation."""
        return self._joins.join(request, caller)

    def sync(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """Handle SyncGroup; the response waits until the leader's assignment is durable."""
        return self._syncs.request(request)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle Heartbeat: extend the session. Return a code, which may ask the member to rejoin."""
        with self.changing():
            code = self._classic.member_error(member_id, instance_id, generation)
            if code:
                return code
            if self.state is State.EMPTY:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._sessions.heard_locked(member_id, one_at_a_time=True)
            return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else 0

    def leave(self, member_id: str, instance_id: str | None) -> int:
        """Handle LeaveGroup for one member, which is identified by its member id, its instance id, or both."""
        with self.changing():
            if self.state is State.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if instance_id is None and member_id in self.pending:
                self._forget_pending_locked(member_id)
                return 0
            if instance_id is not None and not member_id:
                member_id = self.static_ids.get(instance_id, "")
            code = self._classic.identity_error(member_id, instance_id)
            if code == 0:
                self._rebalance.member_gone_locked(self.members[member_id], "left")
            return code

    def forget_pending(self, member_id: str) -> None:
        """Drop a member id that was issued and whose client has not joined."""
        with self.changing():
            self._forget_pending_locked(member_id)

    def _forget_pending_locked(self, member_id: str) -> None:
        if self.pending.remove(member_id):
            self._rebalance.try_complete_locked()

    # --- checks -------------------------------------------------------------------------------------------------------

    def commit_error_locked(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int = 9,  # noqa: ARG002 - any will do in this protocol
        *,
        transactional: bool = False,
    ) -> int:
        """Return the error code if this member may not commit now, else 0. A commit extends the session like a
        heartbeat.

        A commit without generation, member id and instance id comes from an administrator, or from a consumer that is
        not a member. It is allowed while the group is empty.

        In a transaction, a live group always allows such a commit, since older producers do not send the member id. A
        transactional commit is also allowed in CompletingRebalance, and does not extend the session.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return 0
        if generation < 0 and not member_id and instance_id is None:
            return 0 if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        code = self._classic.member_error(member_id, instance_id, generation)
        if code or transactional:
            return code
        if self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._sessions.heard_locked(member_id, one_at_a_time=False)
        return 0

    def fetch_error_locked(self, member_id: str | None, member_epoch: int) -> int:  # noqa: ARG002 - see below
        """Return 0: in the classic protocol every client may fetch offsets."""
        return 0

    def offset_delete_error_locked(self) -> int:
        if self.dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return 0 if self.empty or self.protocol_type == CONSUMER_PROTOCOL else ErrorCode.NON_EMPTY_GROUP

    def subscribes_locked(self, topic: str) -> bool:
        """Return whether members subscribe to a topic, whose offsets then do not expire.

        True for every topic if the subscriptions cannot be decoded.
        """
        if self.empty:
            return False
        if self._classic.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self._classic.subscribed

    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        if self.protocol_type is None:
            return committed.commit_ms
        if self.empty:
            return max(self._classic.state_ms, committed.commit_ms)
        if self.state is State.STABLE and self.protocol_type == CONSUMER_PROTOCOL and not self.subscribes_locked(topic):
            return committed.commit_ms
        return None

    # --- what outlives the broker -------------------------------------------------------------------------------------

    def inherit_locked(self, generation: int, members: Iterable[Inherited]) -> None:
        """Add the members of the consumer group that this group replaces. Call this before the group is in the table.

        The state becomes Stable. The caller sets the assignments; `begin_locked` starts the sessions.
        """
        self._classic.generation = generation
        self._classic.protocol_type = CONSUMER_PROTOCOL
        for one in members:
            self._classic.enlist(
                self._sessions.make(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    rebalance_timeout_ms=one.rebalance_timeout_ms,
                    session_timeout_ms=one.session_timeout_ms,
                    protocols=one.protocols,
                )
            )
        self._classic.protocol = self._classic.select_protocol()
        self._classic.read_subscriptions()
        self._classic.enter(State.STABLE)

    def inherited_record_locked(self) -> Record:
        """Return the group's record with the members from the consumer group."""
        return self._classic.record({member.member_id: member.assignment for member in self.members.values()})

    def begin_locked(self, rebalances: str | None) -> None:
        """Start the members' sessions, because the group's record is durable now.

        If `rebalances` has a reason, also start a rebalance.
        """
        if self.dead:
            return  # it was dropped meanwhile
        for member in self.members.values():
            self._sessions.touch_locked(member)
        if rebalances is not None:
            self._rebalance.start_locked(rebalances)

    def hand_over_locked(self) -> None:
        """Ask waiting members to rejoin, because a consumer group replaces this group."""
        for member in self.members.values():
            self._sessions.end_waits_locked(member, ErrorCode.REBALANCE_IN_PROGRESS)

    def restore(self, value: GroupMetadataValue) -> None:
        """Set the state that was read from the log, before the group is in the table. `wake` starts the sessions."""
        with self.changing():
            self._classic.generation = value.generation
            self._classic.protocol_type = value.protocol_type or None
            self._classic.protocol = value.protocol
            self._classic.leader = value.leader
            for stored in value.members:
                member = self._sessions.make(
                    stored.member_id,
                    stored.group_instance_id,
                    stored.client_id,
                    stored.client_host,
                    rebalance_timeout_ms=max(stored.rebalance_timeout, 0) or stored.session_timeout,
                    session_timeout_ms=stored.session_timeout,
                    protocols=((value.protocol or "", stored.subscription),),
                )
                member.assignment = stored.assignment
                self._memory.put(member.member_id, classic_size(member))
                self._classic.enlist(member)
            self._classic.state = State.STABLE if self.members else State.EMPTY
            if value.current_state_timestamp >= 0:
                self._classic.state_ms = value.current_state_timestamp
            self._classic.read_subscriptions()

    def wake(self) -> None:
        with self.changing():
            for member in () if self.dead else self.members.values():
                self._sessions.touch_locked(member)

    def tombstones_locked(self) -> list[Record]:
        return [group_record(self.group_id, None)] if self.generation > 0 else []

    def exhume_locked(self) -> None:
        self._classic.state = State.EMPTY

    def bury_locked(self) -> None:
        self._classic.enter(State.DEAD)
        self._rebalance.cancel_locked()
        self.pending.clear()
        for member in list(self.members.values()):
            self._sessions.drop_locked(member)

    def stop(self) -> None:
        with self.changing():
            self._rebalance.cancel_locked()
            for member in self.members.values():
                member.session_timer.cancel()
                self._sessions.end_waits_locked(member, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.pending.clear()
            self._classic.state = State.DEAD
