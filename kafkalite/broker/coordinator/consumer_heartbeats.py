"""ConsumerGroupHeartbeat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base import randomness
from kafkalite.base.dataclass import dataclass
from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.coordinator.classic_members import ClassicMembers
from kafkalite.broker.coordinator.consumer_environment import Move
from kafkalite.broker.coordinator.consumer_state import AWAY_EPOCH, ConsumerMember, contains
from kafkalite.broker.coordinator.membership import Recognised
from kafkalite.errors import FencedMemberEpoch, GroupMaxSizeReached, UnknownMemberId, UnreleasedInstanceId
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import Assignment as AnsweredAssignment
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.consumer_environment import Describes
    from kafkalite.broker.limits.holder import Holder

JOIN_EPOCH: Final = 0

LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    """Who sends a heartbeat."""

    client_id: str
    client_host: str
    describes: Describes | None = None
    holder: Holder | None = None
    """Whom a group that this begins is charged to."""


class ConsumerHeartbeats(ClassicMembers):
    """See the module."""

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        again: Callable[[], Deferred[ConsumerGroupHeartbeatResponse]] | None = None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat, whose fields the handler has checked; answered when what it changed is durable.

        `again`: see `Move`.
        """
        answer: Deferred[ConsumerGroupHeartbeatResponse] = Deferred()
        self._ask(Move(lambda: self._play_heartbeat(request, caller), answer, refusal, _member_of, again))
        return answer

    def _play_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._play_leave(request)
        state = self._staged
        owned = None
        if request.topic_partitions is not None:
            owned = {row.topic_id: frozenset(row.partitions) for row in request.topic_partitions}
        member_id = request.member_id or randomness.uuid4()
        if member_id not in state.members and len(state.members) >= self._consumers.size_max:
            raise GroupMaxSizeReached(f"group {self.group_id} has {len(state.members)} members and takes no more")
        before = self._recognised(request, member_id, owned)
        after = self._described(request, caller, before)
        if after.expression and after.expression not in state.expressions:
            topic_regex.check(after.expression)
        if after != before.member or before.replaces:
            self._check_memory(after, caller.holder)
        # From here on nothing is refused.
        if after.expression and caller.describes is not None:
            self._show_to(after.expression, caller.describes)
        replaced = state.members.get(before.replaces) if before.replaces else None
        changed = self._change(before.member, after, replaced)
        if self._staged.epoch > self._staged.target_epoch:
            self._assign()
        member = self._step(member_id, owned, subscription_changed=changed)
        full = request.rebalance_timeout_ms != -1 and owned is not None
        full = full and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        tell = request.member_epoch == JOIN_EPOCH or full or member.assigned != before.member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._consumers.timing(self.group_id).heartbeat_interval_ms,
            assignment=answered(member.assigned) if tell else None,
        )

    def _recognised(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> Recognised:
        """The member that sent a heartbeat, as it was; raises when it may not go on as what it says it is."""
        state = self._staged
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = state.members.get(member_id)
            if member is None and not joins:
                raise UnknownMemberId(f"{member_id} is not in group {self.group_id}")
            if member is not None:
                self._check_epoch(member, request.member_epoch, owned)
            return Recognised(member or ConsumerMember(member_id=member_id))
        holder = state.members.get(state.static_ids.get(request.instance_id, ""))
        if joins:
            if holder is None:
                return Recognised(state.members.get(member_id) or ConsumerMember(member_id=member_id))
            if holder.epoch != AWAY_EPOCH and holder.classic is None:
                raise UnreleasedInstanceId(f"instance {request.instance_id} is held by member {holder.member_id}")
            heir = replace(holder, member_id=member_id, epoch=0, previous_epoch=0)
            return Recognised(heir, "" if member_id == holder.member_id else holder.member_id)
        self._check_holder(holder, request.instance_id, member_id)
        assert holder is not None, "checked"
        self._check_epoch(holder, request.member_epoch, owned)
        return Recognised(holder)

    def _check_epoch(self, member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
        """A member that joins again may; so may one whose last answer with a higher epoch got lost.

        A classic member has another process's place, and does not join in this protocol under its id.
        """
        if epoch == member.epoch or (epoch == JOIN_EPOCH and member.classic is None):
            return
        repeats = epoch == member.previous_epoch and owned is not None and contains(member.assigned, owned)
        if epoch > member.epoch or not repeats:
            raise FencedMemberEpoch(f"epoch {epoch} is not that of the member, {member.epoch}: give all up and join")

    def _described(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, recognised: Recognised
    ) -> ConsumerMember:
        """The member with what a heartbeat says of it; what is null has not changed."""
        news: dict[str, Any] = {
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "rebalance_timeout_ms": None if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms,
            "expression": request.subscribed_topic_regex,
            "assignor": request.server_assignor,
        }
        if request.subscribed_topic_names is not None:
            news["topics"] = frozenset(request.subscribed_topic_names)
        return replace(
            recognised.member,
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=None,
            **{name: value for name, value in news.items() if value is not None},
        )

    def _play_leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._leaving(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == AWAY_EPOCH:
            self._move_on(member.away())
        else:
            self._fence([member], "it left")
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _member_of(response: ConsumerGroupHeartbeatResponse) -> str:
    return response.member_id or ""


def refusal(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """The answer of an error."""
    return ConsumerGroupHeartbeatResponse(error_code=int(code), error_message=message)


def answered(assignment: Assignment) -> AnsweredAssignment:
    """An assignment as a heartbeat's answer has it; an empty one is said, which is not the same as unchanged."""
    return AnsweredAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(assignment.items())
        ]
    )
