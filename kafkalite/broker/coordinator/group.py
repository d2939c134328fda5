"""One group of the classic protocol: who is in it and how they agree on who reads what (KIP-62, 134, 345, 394, 814).

              join                 all joined, or timeout              leader's sync is durable
    Empty ─────────▶ PreparingRebalance ─────────▶ CompletingRebalance ─────────▶ Stable
      ▲                 │    ▲ ▲                        │ join, leave, timeout       │
      └── nobody left ──┘    │ └────────────────────────┘                            │
      │                      └───────────────────────────────────────────────────────┘
      └─▶ Dead (deleted, or nothing left to keep)

Metadata and assignments are bytes that only the clients understand; only for protocol type `consumer` the subscribed
topics are read out of them, so that their offsets are kept.

A member is *dynamic*, or *static* when it has a group.instance.id: a static one that comes back takes its old place
without a rebalance, and the older holder of the id is fenced. An id that was promised (MEMBER_ID_REQUIRED) and not used
yet is *pending*; it goes after a session timeout, or with the connection it was promised to.

    Group ─┬─ Joins ── StaticMembers        JoinGroup
           ├─ Syncs                         SyncGroup
           ├─ Rebalance                     from the first join to the next generation
           ├─ PendingMembers                ids that were promised
           ├─ MemberSessions                members' sessions, waits and memory
           ├─ MemberAnswers                 answers to joins and syncs
           └─ ClassicState                  what all of these read and change

Thread rule: everything under the group's own lock, taken by `changing()`; methods ending in `_locked` need it. Answers
are collected in an outbox and delivered when the lock is given back. Writes are handed over under the lock, so their
order is that of the changes; their callbacks take the lock again.
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
    """A member of a group that was of the newer protocol. Timeouts in ms."""

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
        """Ids that were promised and are not used yet."""
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
        """Its state in the drawing above."""
        return self._classic.state

    @property
    def generation(self) -> int:
        """The number of its last rebalance; 0 before the first."""
        return self._classic.generation

    @property
    def protocol_type(self) -> str | None:
        return self._classic.protocol_type

    @property
    def protocol(self) -> str | None:
        """What the members chose: with protocol type `consumer`, an assignor."""
        return self._classic.protocol

    @property
    def leader(self) -> str | None:
        """The member id of the one that assigns."""
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
        """JoinGroup: answered when the rebalance it belongs to has everybody."""
        return self._joins.join(request, caller)

    def sync(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """SyncGroup: answered when the leader's assignment is durable."""
        return self._syncs.request(request)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Heartbeat: keeps the member; the code tells it whether to join again."""
        with self.changing():
            code = self._classic.member_error(member_id, instance_id, generation)
            if code:
                return code
            if self.state is State.EMPTY:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._sessions.heard_locked(member_id, one_at_a_time=True)
            return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else 0

    def leave(self, member_id: str, instance_id: str | None) -> int:
        """LeaveGroup of one member, by member id, or by instance id alone."""
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
        """An id that was promised is not used any more."""
        with self.changing():
            self._forget_pending_locked(member_id)

    def _forget_pending_locked(self, member_id: str) -> None:
        if self.pending.remove(member_id):
            self._rebalance.try_complete_locked()

    # --- who may ------------------------------------------------------------------------------------------------------

    def commit_error_locked(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int = 9,  # noqa: ARG002 - any will do in this protocol
        *,
        transactional: bool = False,
    ) -> int:
        """Why these may not commit now, 0 when they may; a commit keeps the member as a heartbeat does.

        Without generation, member and instance it is an administrator or a consumer outside the group protocol: fine
        as long as nobody is in the group. In a transaction it is always fine, since older producers do not say for
        whom they commit; and neither does a rebalance keep a producer from committing, nor its commit the member.
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
        """0: in this protocol anybody may ask."""
        return 0

    def offset_delete_error_locked(self) -> int:
        if self.dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return 0 if self.empty or self.protocol_type == CONSUMER_PROTOCOL else ErrorCode.NON_EMPTY_GROUP

    def subscribes_locked(self, topic: str) -> bool:
        """Whether members read a topic; a consumer group whose subscriptions cannot be read may read any."""
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
        """Takes over the members of a group of the newer protocol, before anybody knows this one: it is stable.

        Assignments are for the caller to fill in. Sessions begin with `begin_locked`.
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
        """What says all that was inherited."""
        return self._classic.record({member.member_id: member.assignment for member in self.members.values()})

    def begin_locked(self, rebalances: str | None) -> None:
        """What was inherited is durable: sessions begin, and a rebalance if there is a reason for one."""
        if self.dead:
            return  # it was dropped meanwhile
        for member in self.members.values():
            self._sessions.touch_locked(member)
        if rebalances is not None:
            self._rebalance.start_locked(rebalances)

    def hand_over_locked(self) -> None:
        """A group of the newer protocol goes on with these members: who waits is told to join again."""
        for member in self.members.values():
            self._sessions.end_waits_locked(member, ErrorCode.REBALANCE_IN_PROGRESS)

    def restore(self, value: GroupMetadataValue) -> None:
        """Takes over what the log says, before anybody knows the group. Sessions begin with `wake`."""
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
