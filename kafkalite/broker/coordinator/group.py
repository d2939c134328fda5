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

Thread rule: everything under the group's own lock, taken by `changing()`; methods ending in `_locked` need it. Answers
are collected in an outbox and delivered when the lock is given back. Writes are handed over under the lock, so their
order is that of the changes; their callbacks take the lock again.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kafkalite.base import randomness
from kafkalite.base.dataclass import dataclass
from kafkalite.base.deferred import Deferred
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL, GroupBase, write_error
from kafkalite.broker.coordinator.member_memory import MEMBER_SIZE, classic_size, protocols_size
from kafkalite.broker.coordinator.members import Member, Protocols, subscribed_topics
from kafkalite.broker.coordinator.records import GroupMetadataValue, group_record
from kafkalite.broker.limits.shares import Shares, note_refusal
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.broker.coordinator.base import Environment
    from kafkalite.broker.coordinator.offsets import Committed
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.coordinator.timers import Timer
    from kafkalite.broker.limits.holder import Holder

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""How long a member that waits in its first join is kept: it has no id to send heartbeats with (Kafka's own value)."""
GENERATION_MAX: Final = (1 << 31) - 1


class State(Enum):
    """Where a group is; the values are Kafka's names for clients to see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks to join, and what its version of JoinGroup understands."""

    client_id: str
    client_host: str
    takes_member_id: bool
    """v4+: a first join without an id is answered with one (KIP-394)."""
    skips_assignment: bool
    """v9+: a returning static leader is told to assign nothing (KIP-814)."""
    promised: Callable[[Group, str], object] | None = None
    """Told of an id that was promised and is pending now."""
    holder: Holder | None = None
    """Whom a group or a pending id that this begins is charged to."""


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
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        self.pending: dict[str, tuple[Timer, Holder | None]] = {}
        self._pending_shares = Shares()
        self.subscribed: set[str] | None = None
        self._pending_sync: set[str] = set()
        self._initial_left_ms: int | None = None
        self._more_came = False
        timers = environment.timers
        self._rebalance_timer = timers.timer(self._rebalance_due, awaits_client=True)
        self._sync_timer = timers.timer(self._sync_due, awaits_client=True)

    def __repr__(self) -> str:
        return f"<Group {self.group_id!r} {self.state.value}, {len(self.members)} members, gen. {self.generation}>"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def dead(self) -> bool:
        return self.state is State.DEAD

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def expendable(self) -> bool:
        return self.empty and not self.pending

    # --- join ---------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller) -> Deferred[JoinGroupResponse]:
        """JoinGroup: answered when the rebalance it belongs to has everybody."""
        answer: Deferred[JoinGroupResponse] = Deferred()
        with self.changing():
            code = self._join_locked(request, caller, answer)
            if code:
                self._answer_join_locked(answer, code, request.member_id)
            self._try_complete_join_locked()
        return answer

    def _join_locked(self, request: JoinGroupRequest, caller: Caller, answer: Deferred[JoinGroupResponse]) -> int:
        """0, or the code to answer with."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room_locked(request.member_id):
            member = self.members.get(request.member_id)
            if member is not None:
                self._drop_member_locked(member)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        if not self._supports_locked(request.protocol_type, protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not self._fits_locked(request, protocols):
            return write_error(ErrorCode.MESSAGE_TOO_LARGE)
        if not self._admits_locked(request, protocols, caller):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not request.member_id:
            return self._first_join_locked(request, caller, protocols, answer)
        if request.member_id in self.pending and request.group_instance_id is None:
            self._add_member_locked(request.member_id, request, caller, protocols, answer)
            return 0
        code = self._identity_error_locked(request.member_id, request.group_instance_id)
        if code:
            return code
        return self._rejoin_locked(self.members[request.member_id], request, protocols, answer)

    def _has_room_locked(self, member_id: str) -> bool:
        size_max = self._environment.size_max
        if self.state is State.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            awaiting = sum(other.awaiting_join is not None for other in self.members.values())
            return (member is not None and member.awaiting_join is not None) or awaiting < size_max
        return member is not None or len(self.members) < size_max

    def _admits_locked(self, request: JoinGroupRequest, protocols: Protocols, caller: Caller) -> bool:
        """Whether there is memory for what a member says of itself."""
        member_id = request.member_id or self.static_ids.get(request.group_instance_id or "", "")
        return self._memory.admits(member_id, MEMBER_SIZE + protocols_size(protocols), caller.holder)

    def _supports_locked(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that speaks these would leave the group with a protocol that all speak."""
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(name in self._candidates_locked() for name, _ in protocols)

    def _fits_locked(self, request: JoinGroupRequest, protocols: Protocols) -> bool:
        """Whether the group with this member could be written down, by the protocol in which each says least."""
        replaced = request.member_id or self.static_ids.get(request.group_instance_id or "")
        others = (member.protocols for member in self.members.values() if member.member_id != replaced)
        size = sum(min(len(metadata) for _, metadata in each) for each in (protocols, *others))
        return size <= self._environment.record_size_max()

    def _candidates_locked(self) -> set[str]:
        """Protocols that every member has."""
        members = iter(self.members.values())
        candidates = {name for name, _ in next(members).protocols}
        for member in members:
            candidates.intersection_update(name for name, _ in member.protocols)
        return candidates

    def _first_join_locked(
        self, request: JoinGroupRequest, caller: Caller, protocols: Protocols, answer: Deferred[JoinGroupResponse]
    ) -> int:
        instance_id = request.group_instance_id
        member_id = f"{caller.client_id if instance_id is None else instance_id}-{randomness.uuid4()}"
        if instance_id is not None and instance_id in self.static_ids:
            self._replace_static_locked(member_id, request, caller, protocols, answer)
            return 0
        if instance_id is None and caller.takes_member_id:
            limit = self._environment.pending_max
            if not self._pending_shares.admits(caller.holder, len(self.pending), limit):
                held = self._pending_shares.of(caller.holder)
                note_refusal(caller.holder, "group.max.pending.members", limit, held)
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            timer = self._environment.timers.timer(lambda: self.forget_pending(member_id), awaits_client=True)
            timer.set(request.session_timeout_ms / 1000)
            self.pending[member_id] = timer, caller.holder
            self._pending_shares.add(caller.holder)
            promised = caller.promised
            if promised is not None:
                self._outbox.append(lambda: promised(self, member_id))
            self._answer_join_locked(answer, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return 0
        self._add_member_locked(member_id, request, caller, protocols, answer)
        return 0

    def _add_member_locked(
        self,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        protocols: Protocols,
        answer: Deferred[JoinGroupResponse],
    ) -> None:
        member = self._make_member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
            holder=caller.holder,
        )
        member.is_new = True
        member.awaiting_join = answer
        self._end_pending_locked(member_id)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._enlist_locked(member)
        self._more_came = self._initial_left_ms is not None
        member.session_timer.set(NEW_MEMBER_TIMEOUT_S)
        self._start_rebalance_locked(f"{member_id} joins")

    def _make_member(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        holder: Holder | None = None,
    ) -> Member:
        member = Member(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocols=protocols,
            session_timer=self._environment.timers.timer(lambda: self._session_due(member), awaits_client=True),
        )
        self._memory.put(member_id, classic_size(member), holder)
        return member

    def _enlist_locked(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _rejoin_locked(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, answer: Deferred[JoinGroupResponse]
    ) -> int:
        same = member.protocols == protocols
        follows = member.member_id != self.leader
        if same and (self.state is State.COMPLETING or (self.state is State.STABLE and follows)):
            self._answer_generation_locked(answer, member)
        elif self.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        else:
            self._update_locked(member, request, protocols, answer)
            self._start_rebalance_locked(f"{member.member_id} joins again")
        return 0

    def _update_locked(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, answer: Deferred[JoinGroupResponse]
    ) -> None:
        """A member waits in a join, with what it says of itself now; an earlier join of its own is ended."""
        if member.awaiting_join is not None:
            self._answer_join_locked(member.awaiting_join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.protocols = protocols
        self._memory.put(member.member_id, classic_size(member))
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = answer

    # --- static members -----------------------------------------------------------------------------------------------

    def _replace_static_locked(
        self,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        protocols: Protocols,
        answer: Deferred[JoinGroupResponse],
    ) -> None:
        """A static member is back under a new id. In a stable group nobody else notices."""
        assert request.group_instance_id is not None, "only static members are replaced"
        old_id = self.static_ids[request.group_instance_id]
        old_leader = self.leader
        member = self._rename_locked(old_id, member_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update_locked(member, request, protocols, answer)
        member.client_id, member.client_host = caller.client_id, caller.client_host
        self._touch_locked(member)
        if self.state is not State.STABLE or self._select_protocol_locked() != self.protocol:
            self._start_rebalance_locked(f"static member {member.instance_id} returns")
            return

        def stored(code: int) -> None:
            with self.changing():
                self._replacement_stored_locked(code, member, old_id, before, caller, answer, old_leader or "")

        self._write_locked({other.member_id: other.assignment for other in self.members.values()}, stored)

    def _replacement_stored_locked(
        self,
        code: int,
        member: Member,
        old_id: str,
        before: tuple[Protocols, int, int],
        caller: Caller,
        answer: Deferred[JoinGroupResponse],
        old_leader: str,
    ) -> None:
        if member.awaiting_join is not answer or self.state is not State.STABLE:
            return  # overtaken by a rebalance, which answers; or by the next holder of the id
        member.awaiting_join = None
        member_id = member.member_id
        if code:
            self._rename_locked(member_id, old_id)
            member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
            self._memory.put(old_id, classic_size(member))
            self._answer_join_locked(answer, write_error(code), member_id)
            return
        is_leader = member_id == self.leader
        answers_as_leader = is_leader and caller.skips_assignment
        response = self._generation_locked(member, with_members=answers_as_leader)
        response.skip_assignment = answers_as_leader
        if not caller.skips_assignment:
            response.leader = old_leader
        self._outbox.append(lambda: answer.complete(response))

    def _rename_locked(self, old_id: str, new_id: str) -> Member:
        """Gives a static member another id; whoever waits under the old one is fenced."""
        member = self.members.pop(old_id)
        self._end_waits_locked(member, ErrorCode.FENCED_INSTANCE_ID)
        self._pending_sync.discard(old_id)
        member.member_id = new_id
        self._memory.rename(old_id, new_id)
        assert member.instance_id is not None, "only static members get another id"
        self.members[new_id] = member
        self.static_ids[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    # --- rebalance ----------------------------------------------------------------------------------------------------

    def _start_rebalance_locked(self, reason: str) -> None:
        """Everybody has to join again; nothing to do when they are asked to already."""
        if self.state not in {State.EMPTY, State.COMPLETING, State.STABLE}:
            return
        if self.state is State.COMPLETING:
            self._end_syncs_locked(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_timer.cancel()
        self._pending_sync.clear()
        delay_ms = self._rebalance_timeout_locked()
        if self.state is State.EMPTY:
            self._initial_left_ms = max(delay_ms - self._environment.initial_delay_ms, 0)
            self._more_came = False
            delay_ms = self._environment.initial_delay_ms
        self._rebalance_timer.set(delay_ms / 1000)
        self._enter_locked(State.PREPARING)
        logger.info("group rebalances", extra=fields(group=self.group_id, generation=self.generation, why=reason))

    def _rebalance_timeout_locked(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _try_complete_join_locked(self) -> None:
        """Ends the waiting when nobody is missing; a group that was empty waits for its initial delay."""
        if self.state is not State.PREPARING:
            return
        if self._initial_left_ms is not None:
            if self._environment.initial_delay_ms == 0:
                self._complete_join_locked()
        elif not self.pending and all(member.awaiting_join for member in self.members.values()):
            self._complete_join_locked()

    def _rebalance_due(self) -> None:
        with self.changing():
            if self._rebalance_timer.armed or self.state is not State.PREPARING:
                return
            if self._initial_left_ms and self._more_came:
                delay_ms = min(self._environment.initial_delay_ms, self._initial_left_ms)
                self._initial_left_ms -= delay_ms
                self._more_came = False
                self._rebalance_timer.set(delay_ms / 1000)
                return
            self._complete_join_locked()

    def _complete_join_locked(self) -> None:
        """The next generation: whoever has joined, and static members who have not."""
        self._rebalance_timer.cancel()
        self._initial_left_ms = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self._drop_member_locked(member)
        if self.members and not self._elect_leader_locked():
            # Static members all, none of them back yet: there is nobody to lead, so wait on.
            self._rebalance_timer.set(max(self._rebalance_timeout_locked(), 1) / 1000)
            return
        self.generation = self.generation % GENERATION_MAX + 1
        if not self.members:
            self.protocol = None
            self.subscribed = set()
            self._enter_locked(State.EMPTY)
            self._write_locked({}, self._empty_stored)
            return
        self.protocol = self._select_protocol_locked()
        self._read_subscriptions_locked()
        self._enter_locked(State.COMPLETING)
        self._sync_timer.set(self._rebalance_timeout_locked() / 1000)
        for member in self.members.values():
            self._pending_sync.add(member.member_id)
            answer, member.awaiting_join = member.awaiting_join, None
            member.is_new = False
            self._touch_locked(member)
            if answer is not None:
                self._answer_generation_locked(answer, member)

    def _elect_leader_locked(self) -> bool:
        """Keeps the leader if it has joined, else takes any member that has; False when none has."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.awaiting_join is None:
            leader = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def _select_protocol_locked(self) -> str:
        """The one with most votes among those that all have; each member votes for its first. Ties: the first name."""
        candidates = self._candidates_locked()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], name))

    def _read_subscriptions_locked(self) -> None:
        """Which topics the members read, where that can be told."""
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

    def _empty_stored(self, code: int) -> None:
        if code:
            logger.warning("an empty group could not be written down", extra=fields(group=self.group_id, error=code))

    # --- sync ---------------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """SyncGroup: answered when the leader's assignment is durable."""
        answer: Deferred[SyncGroupResponse] = Deferred()
        with self.changing():
            code = self._sync_error_locked(request)
            if code:
                self._answer_sync_locked(answer, code, b"")
            else:
                self._sync_locked(request, answer)
        return answer

    def _sync_error_locked(self, request: SyncGroupRequest) -> int:
        code = self._member_error_locked(request.member_id, request.group_instance_id, request.generation_id)
        if code:
            return code
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else 0

    def _sync_locked(self, request: SyncGroupRequest, answer: Deferred[SyncGroupResponse]) -> None:
        member = self.members[request.member_id]
        self._pending_sync.discard(member.member_id)
        self._touch_locked(member)
        if self.state is State.STABLE:
            self._answer_sync_locked(answer, 0, member.assignment)
            return
        if member.awaiting_sync is not None:
            self._answer_sync_locked(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS, b"")
        member.awaiting_sync = answer
        if member.member_id != self.leader:
            return
        given = {item.member_id: item.assignment for item in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in self.members}
        generation = self.generation

        def stored(code: int) -> None:
            with self.changing():
                self._assignment_stored_locked(code, generation, assignments)

        self._write_locked(assignments, stored)

    def _assignment_stored_locked(self, code: int, generation: int, assignments: dict[str, bytes]) -> None:
        if self.state is not State.COMPLETING or self.generation != generation:
            return  # the next rebalance began meanwhile and has told them
        if code:
            self._end_syncs_locked(write_error(code))
            self._start_rebalance_locked("the assignment could not be written down")
            return
        self._enter_locked(State.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._memory.put(member.member_id, classic_size(member))
            answer, member.awaiting_sync = member.awaiting_sync, None
            if answer is not None:
                self._touch_locked(member)
                self._answer_sync_locked(answer, 0, member.assignment)

    def _end_syncs_locked(self, code: int) -> None:
        """Answers all who wait in a sync with an error; nobody has an assignment."""
        for member in self.members.values():
            member.assignment = b""
            answer, member.awaiting_sync = member.awaiting_sync, None
            if answer is not None:
                self._touch_locked(member)
                self._answer_sync_locked(answer, code, b"")

    def _sync_due(self) -> None:
        """Members that joined and never asked for their assignment are taken out."""
        with self.changing():
            if self._sync_timer.armed or self.state not in {State.COMPLETING, State.STABLE}:
                return
            late = [self.members[member_id] for member_id in self._pending_sync if member_id in self.members]
            self._pending_sync.clear()
            for member in late:
                self._drop_member_locked(member)
            if late:
                self._start_rebalance_locked(f"{len(late)} members did not sync")
                self._try_complete_join_locked()

    # --- heartbeat, leave, timeouts -----------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Heartbeat: keeps the member; the code tells it whether to join again."""
        with self.changing():
            code = self._member_error_locked(member_id, instance_id, generation)
            if code:
                return code
            if self.state is State.EMPTY:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._heard_locked(member_id, one_at_a_time=True)
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
            code = self._identity_error_locked(member_id, instance_id)
            if code == 0:
                self._member_gone_locked(self.members[member_id], "left")
            return code

    def forget_pending(self, member_id: str) -> None:
        """An id that was promised is not used any more."""
        with self.changing():
            self._forget_pending_locked(member_id)

    def _forget_pending_locked(self, member_id: str) -> None:
        if self._end_pending_locked(member_id):
            self._try_complete_join_locked()

    def _end_pending_locked(self, member_id: str) -> bool:
        """Takes an id out of the pending ones; whether it was one."""
        found = self.pending.pop(member_id, None)
        if found is not None:
            self._pending_shares.remove(found[1])
        return found is not None

    def _session_due(self, member: Member) -> None:
        with self.changing():
            if member.session_timer.armed or self.members.get(member.member_id) is not member:
                return
            if not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
                return  # it waits for us; its time begins again with the answer
            logger.info("member's session ended", extra=fields(group=self.group_id, member=member.member_id))
            self._member_gone_locked(member, "timed out")

    def _member_gone_locked(self, member: Member, why: str) -> None:
        self._drop_member_locked(member)
        if self.state in {State.STABLE, State.COMPLETING}:
            self._start_rebalance_locked(f"{member.member_id} {why}")
        self._try_complete_join_locked()

    def _drop_member_locked(self, member: Member) -> None:
        """Takes a member out, without thinking of the others."""
        member.session_timer.cancel()
        self._end_waits_locked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._pending_sync.discard(member.member_id)
        del self.members[member.member_id]
        self._memory.drop(member.member_id)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member.member_id:
            del self.static_ids[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _end_waits_locked(self, member: Member, code: int) -> None:
        join, member.awaiting_join = member.awaiting_join, None
        sync, member.awaiting_sync = member.awaiting_sync, None
        if join is not None:
            self._answer_join_locked(join, code, member.member_id)
        if sync is not None:
            self._answer_sync_locked(sync, code, b"")

    def _touch_locked(self, member: Member) -> None:
        member.session_timer.set(member.session_timeout_ms / 1000)

    def _heard_locked(self, member_id: str, *, one_at_a_time: bool) -> None:
        """See Timer.heard."""
        member = self.members[member_id]
        member.session_timer.heard(member.session_timeout_ms / 1000, one_at_a_time=one_at_a_time)

    # --- who may ------------------------------------------------------------------------------------------------------

    def _identity_error_locked(self, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _member_error_locked(self, member_id: str, instance_id: str | None, generation: int) -> int:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self._identity_error_locked(member_id, instance_id)
        if code == 0 and generation != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        return code

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
        code = self._member_error_locked(member_id, instance_id, generation)
        if code or transactional:
            return code
        if self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._heard_locked(member_id, one_at_a_time=False)
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
        if self.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed

    def kept_since_locked(self, topic: str, committed: Committed) -> int | None:
        if self.protocol_type is None:
            return committed.commit_ms
        if self.empty:
            return max(self.state_ms, committed.commit_ms)
        if self.state is State.STABLE and self.protocol_type == CONSUMER_PROTOCOL and not self.subscribes_locked(topic):
            return committed.commit_ms
        return None

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer_join_locked(self, answer: Deferred[JoinGroupResponse], code: int, member_id: str) -> None:
        response = JoinGroupResponse(error_code=code, member_id=member_id)
        self._outbox.append(lambda: answer.complete(response))

    def _answer_generation_locked(self, answer: Deferred[JoinGroupResponse], member: Member) -> None:
        response = self._generation_locked(member, with_members=member.member_id == self.leader)
        self._outbox.append(lambda: answer.complete(response))

    def _generation_locked(self, member: Member, *, with_members: bool) -> JoinGroupResponse:
        """The present generation as a member sees it; the leader gets to see the members."""
        listed = self.members.values() if with_members and self.state is not State.EMPTY else ()
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol or "",
            leader=self.leader or "",
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.instance_id,
                    metadata=other.metadata(self.protocol),
                )
                for other in listed
            ],
        )

    def _answer_sync_locked(self, answer: Deferred[SyncGroupResponse], code: int, assignment: bytes) -> None:
        response = SyncGroupResponse(error_code=code, assignment=assignment)
        if code == 0:
            response.protocol_type, response.protocol_name = self.protocol_type, self.protocol
        self._outbox.append(lambda: answer.complete(response))

    # --- what outlives the broker -------------------------------------------------------------------------------------

    def _enter_locked(self, state: State) -> None:
        self.state = state
        self.state_ms = self._environment.clock.time_ms()

    def _write_locked(self, assignments: dict[str, bytes], callback: Callable[[int], None]) -> None:
        self._environment.write(self.group_id, [self._record_locked(assignments)], callback)

    def _record_locked(self, assignments: dict[str, bytes]) -> Record:
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

    def inherit_locked(self, generation: int, members: Iterable[Inherited]) -> None:
        """Takes over the members of a group of the newer protocol, before anybody knows this one: it is stable.

        Assignments are for the caller to fill in. Sessions begin with `begin_locked`.
        """
        self.generation = generation
        self.protocol_type = CONSUMER_PROTOCOL
        for one in members:
            self._enlist_locked(
                self._make_member(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    rebalance_timeout_ms=one.rebalance_timeout_ms,
                    session_timeout_ms=one.session_timeout_ms,
                    protocols=one.protocols,
                )
            )
        self.protocol = self._select_protocol_locked()
        self._read_subscriptions_locked()
        self._enter_locked(State.STABLE)

    def inherited_record_locked(self) -> Record:
        """What says all that was inherited."""
        return self._record_locked({member.member_id: member.assignment for member in self.members.values()})

    def begin_locked(self, rebalances: str | None) -> None:
        """What was inherited is durable: sessions begin, and a rebalance if there is a reason for one."""
        if self.dead:
            return  # it was dropped meanwhile
        for member in self.members.values():
            self._touch_locked(member)
        if rebalances is not None:
            self._start_rebalance_locked(rebalances)

    def hand_over_locked(self) -> None:
        """A group of the newer protocol goes on with these members: who waits is told to join again."""
        for member in self.members.values():
            self._end_waits_locked(member, ErrorCode.REBALANCE_IN_PROGRESS)

    def restore(self, value: GroupMetadataValue) -> None:
        """Takes over what the log says, before anybody knows the group. Sessions begin with `wake`."""
        with self.changing():
            self.generation = value.generation
            self.protocol_type = value.protocol_type or None
            self.protocol = value.protocol
            self.leader = value.leader
            for stored in value.members:
                member = self._make_member(
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
                self._enlist_locked(member)
            self.state = State.STABLE if self.members else State.EMPTY
            if value.current_state_timestamp >= 0:
                self.state_ms = value.current_state_timestamp
            self._read_subscriptions_locked()

    def wake(self) -> None:
        with self.changing():
            for member in () if self.dead else self.members.values():
                self._touch_locked(member)

    def tombstones_locked(self) -> list[Record]:
        return [group_record(self.group_id, None)] if self.generation > 0 else []

    def exhume_locked(self) -> None:
        self.state = State.EMPTY

    def bury_locked(self) -> None:
        self._enter_locked(State.DEAD)
        self._rebalance_timer.cancel()
        self._sync_timer.cancel()
        for member_id in list(self.pending):
            self._end_pending_locked(member_id)
        for member in list(self.members.values()):
            self._drop_member_locked(member)

    def stop(self) -> None:
        with self.changing():
            self._rebalance_timer.cancel()
            self._sync_timer.cancel()
            for member in self.members.values():
                member.session_timer.cancel()
                self._end_waits_locked(member, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.pending.clear()
            self.state = State.DEAD


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """v0 has none: the session's is meant."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
