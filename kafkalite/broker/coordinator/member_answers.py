"""Answer JoinGroup and SyncGroup requests of a classic group's members.

Thread rule: guarded by the group's lock; responses are delivered after its release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.coordinator.classic_state import State
from kafkalite.wire.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafkalite.wire.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.classic_state import ClassicState
    from kafkalite.broker.coordinator.members import Member


class MemberAnswers:
    """Answers the joins and syncs of one group."""

    __slots__ = ("_classic", "defer")

    def __init__(self, classic: ClassicState, defer: Callable[[Callable[[], object]], None]) -> None:
        self._classic = classic
        self.defer = defer
        """Takes a call to run when the group's lock is released."""

    def refuse_join(self, answer: Deferred[JoinGroupResponse], code: int, member_id: str) -> None:
        """Answer a JoinGroup with an error, or with the member id to retry with."""
        response = JoinGroupResponse(error_code=code, member_id=member_id)
        self.defer(lambda: answer.complete(response))

    def answer_join(self, answer: Deferred[JoinGroupResponse], member: Member) -> None:
        """Answer a JoinGroup with the current generation."""
        response = self.generation(member, with_members=member.member_id == self._classic.leader)
        self.defer(lambda: answer.complete(response))

    def generation(self, member: Member, *, with_members: bool) -> JoinGroupResponse:
        """Return the response to a member's JoinGroup, with the current generation.

        With `with_members`, as for the leader, it lists all members.
        """
        listed = self._classic.members.values() if with_members and self._classic.state is not State.EMPTY else ()
        return JoinGroupResponse(
            generation_id=self._classic.generation,
            protocol_type=self._classic.protocol_type,
            protocol_name=self._classic.protocol or "",
            leader=self._classic.leader or "",
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.instance_id,
                    metadata=other.metadata(self._classic.protocol),
                )
                for other in listed
            ],
        )

    def answer_sync(self, answer: Deferred[SyncGroupResponse], code: int, assignment: bytes) -> None:
        """Answer a SyncGroup with an error, or with 0 and an assignment."""
        response = SyncGroupResponse(error_code=code, assignment=assignment)
        if code == 0:
            response.protocol_type, response.protocol_name = self._classic.protocol_type, self._classic.protocol
        self.defer(lambda: answer.complete(response))
