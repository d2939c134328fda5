"""Handle JoinGroup in a classic group: admit members, issue member ids, and start rebalances.

Thread rule: methods ending in `_locked` need the group's lock; `join` takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base import randomness
from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.base import write_error
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.broker.coordinator.member_memory import MEMBER_SIZE, protocols_size
from kafkalite.broker.coordinator.members import rebalance_timeout_ms
from kafkalite.broker.coordinator.static_members import StaticMembers
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.classic_parts import ClassicParts
    from kafkalite.broker.coordinator.members import Caller, Member, Protocols
    from kafkalite.broker.coordinator.rebalance import Rebalance
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""Time in seconds for which a member stays whose first join is waiting: without a member id it cannot send heartbeats
(Kafka's value)."""


class Joins:
    """Handles the joins of one group."""

    __slots__ = ("_classic", "_parts", "_rebalance", "_static")

    def __init__(self, parts: ClassicParts, rebalance: Rebalance) -> None:
        self._parts = parts
        self._classic = parts.classic
        self._rebalance = rebalance
        self._static = StaticMembers(parts, rebalance)

    def join(self, request: JoinGroupRequest, caller: Caller) -> Deferred[JoinGroupResponse]:
        """Handle JoinGroup. During a rebalance, the response waits for the next generation."""
        answer: Deferred[JoinGroupResponse] = Deferred()
        with self._parts.changing():
            code = self._join_locked(request, caller, answer)
            if code:
                self._parts.answers.refuse_join(answer, code, request.member_id)
            self._rebalance.try_complete_locked()
        return answer

    def _join_locked(self, request: JoinGroupRequest, caller: Caller, answer: Deferred[JoinGroupResponse]) -> int:
        """Handle JoinGroup; return 0, or the error code with which to answer it."""
        if self._classic.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room_locked(request.member_id):
            member = self._classic.members.get(request.member_id)
            if member is not None:
                self._parts.sessions.drop_locked(member)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        if not self._classic.supports(request.protocol_type, protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not self._fits_locked(request, protocols):
            return write_error(ErrorCode.MESSAGE_TOO_LARGE)
        if not self._admits_locked(request, protocols, caller):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not request.member_id:
            return self._first_join_locked(request, caller, protocols, answer)
        if request.member_id in self._parts.pending and request.group_instance_id is None:
            self._add_locked(request.member_id, request, caller, protocols, answer)
            return 0
        code = self._classic.identity_error(request.member_id, request.group_instance_id)
        if code:
            return code
        return self._rejoin_locked(self._classic.members[request.member_id], request, protocols, answer)

    def _has_room_locked(self, member_id: str) -> bool:
        size_max = self._parts.environment.size_max
        if self._classic.state is State.EMPTY:
            return True
        member = self._classic.members.get(member_id)
        if self._classic.state is State.PREPARING:
            awaiting = sum(other.awaiting_join is not None for other in self._classic.members.values())
            return (member is not None and member.awaiting_join is not None) or awaiting < size_max
        return member is not None or len(self._classic.members) < size_max

    def _admits_locked(self, request: JoinGroupRequest, protocols: Protocols, caller: Caller) -> bool:
        """Return whether there is enough memory for the metadata of a joining member."""
        member_id = request.member_id or self._classic.static_ids.get(request.group_instance_id or "", "")
        return self._parts.memory.admits(member_id, MEMBER_SIZE + protocols_size(protocols), caller.holder)

    def _fits_locked(self, request: JoinGroupRequest, protocols: Protocols) -> bool:
        """Return whether the group, with the joining member, would fit in one record.

        It is assumed that each member uses its smallest metadata.
        """
        replaced = request.member_id or self._classic.static_ids.get(request.group_instance_id or "")
        others = (member.protocols for member in self._classic.members.values() if member.member_id != replaced)
        size = sum(min(len(metadata) for _, metadata in each) for each in (protocols, *others))
        return size <= self._parts.environment.record_size_max()

    def _first_join_locked(
        self, request: JoinGroupRequest, caller: Caller, protocols: Protocols, answer: Deferred[JoinGroupResponse]
    ) -> int:
        instance_id = request.group_instance_id
        member_id = f"{caller.client_id if instance_id is None else instance_id}-{randomness.uuid4()}"
        if instance_id is not None and instance_id in self._classic.static_ids:
            self._static.replace_locked(member_id, request, caller, protocols, answer)
            return 0
        if instance_id is None and caller.takes_member_id:
            if not self._parts.pending.admits(caller.holder):
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            self._parts.pending.add(member_id, request.session_timeout_ms, caller.holder)
            promised = caller.promised
            if promised is not None:
                self._parts.answers.defer(lambda: promised(member_id))
            self._parts.answers.refuse_join(answer, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return 0
        self._add_locked(member_id, request, caller, protocols, answer)
        return 0

    def _add_locked(
        self,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        protocols: Protocols,
        answer: Deferred[JoinGroupResponse],
    ) -> None:
        member = self._parts.sessions.make(
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
        self._parts.pending.remove(member_id)
        if not self._classic.members:
            self._classic.protocol_type = request.protocol_type
        self._classic.enlist(member)
        self._rebalance.member_came_locked()
        member.session_timer.set(NEW_MEMBER_TIMEOUT_S)
        self._rebalance.start_locked(f"{member_id} joins")

    def _rejoin_locked(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, answer: Deferred[JoinGroupResponse]
    ) -> int:
        same = member.protocols == protocols
        follows = member.member_id != self._classic.leader
        if same and (self._classic.state is State.COMPLETING or (self._classic.state is State.STABLE and follows)):
            self._parts.answers.answer_join(answer, member)
        elif self._classic.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        else:
            self._parts.sessions.await_join_locked(member, request, protocols, answer)
            self._rebalance.start_locked(f"{member.member_id} rejoins")
        return 0
