"""Let a static member (group.instance.id, KIP-345) return to a classic group and continue as the same member.

A Stable group needs no rebalance for this, unless its protocol changes. An older client with the same instance id is
fenced.

Thread rule: methods ending in `_locked` need the group's lock; callbacks of writes take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.base import write_error
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.broker.coordinator.member_memory import classic_size

if TYPE_CHECKING:
    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.classic_parts import ClassicParts
    from kafkalite.broker.coordinator.members import Caller, Member, Protocols
    from kafkalite.broker.coordinator.rebalance import Rebalance
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


class StaticMembers:
    """Handles the static members that return to one group."""

    __slots__ = ("_classic", "_parts", "_rebalance")

    def __init__(self, parts: ClassicParts, rebalance: Rebalance) -> None:
        self._parts = parts
        self._classic = parts.classic
        self._rebalance = rebalance

    def replace_locked(
        self,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        protocols: Protocols,
        answer: Deferred[JoinGroupResponse],
    ) -> None:
        """Give a returning static member its new member id. A Stable group does this without a rebalance, unless it
        needs another protocol.
        """
        assert request.group_instance_id is not None, "only static members are replaced"
        old_id = self._classic.static_ids[request.group_instance_id]
        old_leader = self._classic.leader
        member = self._parts.sessions.rename_locked(old_id, member_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._parts.sessions.await_join_locked(member, request, protocols, answer)
        member.client_id, member.client_host = caller.client_id, caller.client_host
        self._parts.sessions.touch_locked(member)
        if self._classic.state is not State.STABLE or self._classic.select_protocol() != self._classic.protocol:
            self._rebalance.start_locked(f"static member {member.instance_id} rejoins")
            return

        def stored(code: int) -> None:
            with self._parts.changing():
                self._stored_locked(code, member, old_id, before, caller, answer, old_leader or "")

        assignments = {other.member_id: other.assignment for other in self._classic.members.values()}
        self._parts.environment.write(self._classic.group_id, [self._classic.record(assignments)], stored)

    def _stored_locked(
        self,
        code: int,
        member: Member,
        old_id: str,
        before: tuple[Protocols, int, int],
        caller: Caller,
        answer: Deferred[JoinGroupResponse],
        old_leader: str,
    ) -> None:
        if member.awaiting_join is not answer or self._classic.state is not State.STABLE:
            return  # a rebalance or another client with the instance id was faster and answers
        member.awaiting_join = None
        member_id = member.member_id
        if code:
            self._parts.sessions.rename_locked(member_id, old_id)
            member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
            self._parts.memory.put(old_id, classic_size(member))
            self._parts.answers.refuse_join(answer, write_error(code), member_id)
            return
        is_leader = member_id == self._classic.leader
        answers_as_leader = is_leader and caller.skips_assignment
        response = self._parts.answers.generation(member, with_members=answers_as_leader)
        response.skip_assignment = answers_as_leader
        if not caller.skips_assignment:
            response.leader = old_leader
        self._parts.answers.defer(lambda: answer.complete(response))
