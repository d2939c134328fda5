"""Track the members of a classic group from the first JoinGroup until they leave.

A member has an id, a session timeout, waiting requests and charged memory.

Thread rule: `make` and methods ending in `_locked` need the group's lock; the sessions' timers take it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.member_memory import classic_size
from kafkalite.broker.coordinator.members import Member, rebalance_timeout_ms
from kafkalite.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.classic_state import ClassicState
    from kafkalite.broker.coordinator.member_answers import MemberAnswers
    from kafkalite.broker.coordinator.member_memory import MemberMemory
    from kafkalite.broker.coordinator.members import Protocols
    from kafkalite.broker.coordinator.timer_queue import TimerQueue
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)


class MemberSessions:
    """Creates, renames and removes the members of one group, which `ClassicState` keeps. Runs their session timers."""

    __slots__ = ("_answers", "_changing", "_classic", "_memory", "_timed_out", "_timers")

    def __init__(
        self,
        classic: ClassicState,
        answers: MemberAnswers,
        memory: MemberMemory,
        timers: TimerQueue,
        changing: Callable[[], AbstractContextManager[None]],
        timed_out: Callable[[Member], None],
    ) -> None:
        """Begin without members. `timed_out` is called under the lock with a member whose session has ended."""
        self._classic = classic
        self._answers = answers
        self._memory = memory
        self._timers = timers
        self._changing = changing
        self._timed_out = timed_out

    def make(
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
        """Return a new member whose memory is charged to `holder`. Its session has not begun.

        `ClassicState.enlist` adds it to the group.
        """
        member = Member(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocols=protocols,
            session_timer=self._timers.timer(lambda: self._session_due(member), awaits_client=True),
        )
        self._memory.put(member_id, classic_size(member), holder)
        return member

    def await_join_locked(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, answer: Deferred[JoinGroupResponse]
    ) -> None:
        """Let a member's JoinGroup wait, and store its new metadata. An earlier JoinGroup of the member is refused."""
        if member.awaiting_join is not None:
            self._answers.refuse_join(member.awaiting_join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.protocols = protocols
        self._memory.put(member.member_id, classic_size(member))
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = answer

    def rename_locked(self, old_id: str, new_id: str) -> Member:
        """Give a static member another id, and fence requests that wait under the old id."""
        member = self._classic.members.pop(old_id)
        self.end_waits_locked(member, ErrorCode.FENCED_INSTANCE_ID)
        self._classic.unsynced.pop(old_id, None)
        member.member_id = new_id
        self._memory.rename(old_id, new_id)
        assert member.instance_id is not None, "only static members get another id"
        self._classic.members[new_id] = member
        self._classic.static_ids[member.instance_id] = new_id
        if self._classic.leader == old_id:
            self._classic.leader = new_id
        return member

    def drop_locked(self, member: Member) -> None:
        """Remove a member, without a rebalance."""
        member.session_timer.cancel()
        self.end_waits_locked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._classic.unsynced.pop(member.member_id, None)
        del self._classic.members[member.member_id]
        self._memory.drop(member.member_id)
        if member.instance_id is not None and self._classic.static_ids.get(member.instance_id) == member.member_id:
            del self._classic.static_ids[member.instance_id]
        if self._classic.leader == member.member_id:
            self._classic.leader = next(iter(self._classic.members), None)

    def end_waits_locked(self, member: Member, code: int) -> None:
        """Answer a member's waiting JoinGroup and SyncGroup with an error."""
        join, member.awaiting_join = member.awaiting_join, None
        sync, member.awaiting_sync = member.awaiting_sync, None
        if join is not None:
            self._answers.refuse_join(join, code, member.member_id)
        if sync is not None:
            self._answers.answer_sync(sync, code, b"")

    def end_syncs_locked(self, code: int) -> None:
        """Refuse all waiting SyncGroups and drop all assignments."""
        for member in self._classic.members.values():
            member.assignment = b""
            answer, member.awaiting_sync = member.awaiting_sync, None
            if answer is not None:
                self.touch_locked(member)
                self._answers.answer_sync(answer, code, b"")

    def touch_locked(self, member: Member) -> None:
        """Restart a member's session timeout."""
        member.session_timer.set(member.session_timeout_ms / 1000)

    def heard_locked(self, member_id: str, *, one_at_a_time: bool) -> None:
        """Restart a member's session timeout after a request, as `Timer.heard` describes."""
        member = self._classic.members[member_id]
        member.session_timer.heard(member.session_timeout_ms / 1000, one_at_a_time=one_at_a_time)

    def _session_due(self, member: Member) -> None:
        with self._changing():
            if member.session_timer.armed or self._classic.members.get(member.member_id) is not member:
                return
            if not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
                return  # its request waits here; the response restarts the timeout
            logger.info(
                "member's session timed out", extra=fields(group=self._classic.group_id, member=member.member_id)
            )
            self._timed_out(member)
