"""Handle SyncGroup in a classic group: make the leader's assignment durable, then distribute it to the members.

Thread rule: methods ending in `_locked` need the group's lock; `request` and callbacks of writes take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.base import write_error
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.broker.coordinator.member_memory import classic_size
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.classic_parts import ClassicParts
    from kafkalite.broker.coordinator.rebalance import Rebalance
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Syncs:
    """Handles the syncs of one group."""

    __slots__ = ("_classic", "_parts", "_rebalance")

    def __init__(self, parts: ClassicParts, rebalance: Rebalance) -> None:
        self._parts = parts
        self._classic = parts.classic
        self._rebalance = rebalance

    def request(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """Handle SyncGroup; the response waits until the leader's assignment is durable."""
        answer: Deferred[SyncGroupResponse] = Deferred()
        with self._parts.changing():
            code = self._error_locked(request)
            if code:
                self._parts.answers.answer_sync(answer, code, b"")
            else:
                self._sync_locked(request, answer)
        return answer

    def _error_locked(self, request: SyncGroupRequest) -> int:
        code = self._classic.member_error(request.member_id, request.group_instance_id, request.generation_id)
        if code:
            return code
        if request.protocol_type is not None and request.protocol_type != self._classic.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self._classic.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._classic.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self._classic.state is State.PREPARING else 0

    def _sync_locked(self, request: SyncGroupRequest, answer: Deferred[SyncGroupResponse]) -> None:
        member = self._classic.members[request.member_id]
        self._classic.unsynced.pop(member.member_id, None)
        self._parts.sessions.touch_locked(member)
        if self._classic.state is State.STABLE:
            self._parts.answers.answer_sync(answer, 0, member.assignment)
            return
        if member.awaiting_sync is not None:
            self._parts.answers.answer_sync(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS, b"")
        member.awaiting_sync = answer
        if member.member_id != self._classic.leader:
            return
        given = {item.member_id: item.assignment for item in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in self._classic.members}
        generation = self._classic.generation

        def stored(code: int) -> None:
            with self._parts.changing():
                self._stored_locked(code, generation, assignments)

        self._parts.environment.write(self._classic.group_id, [self._classic.record(assignments)], stored)

    def _stored_locked(self, code: int, generation: int, assignments: dict[str, bytes]) -> None:
        if self._classic.state is not State.COMPLETING or self._classic.generation != generation:
            return  # the next rebalance began meanwhile and has answered the syncs
        if code:
            self._parts.sessions.end_syncs_locked(write_error(code))
            self._rebalance.start_locked("the assignment could not be written")
            return
        self._classic.enter(State.STABLE)
        for member in self._classic.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._parts.memory.put(member.member_id, classic_size(member))
            answer, member.awaiting_sync = member.awaiting_sync, None
            if answer is not None:
                self._parts.sessions.touch_locked(member)
                self._parts.answers.answer_sync(answer, 0, member.assignment)
