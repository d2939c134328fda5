"""Run ConsumerGroupHeartbeat requests (KIP-848), by which members join, stay in and leave a consumer group.

Thread rule: guarded by the group's lock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base import randomness
from kafkalite.base.dataclass import dataclass
from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.coordinator.consumer_state import AWAY_EPOCH, ConsumerMember, contains
from kafkalite.broker.coordinator.membership import Recognised
from kafkalite.errors import FencedMemberEpoch, UnknownMemberId, UnreleasedInstanceId
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import Assignment as AnsweredAssignment
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.consumer_environment import Describes
    from kafkalite.broker.coordinator.consumer_parts import ConsumerParts
    from kafkalite.broker.limits.holder import Holder

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    """The client that sends a heartbeat."""

    client_id: str
    client_host: str
    describes: Describes | None = None
    holder: Holder | None = None
    """The client that a new group is charged to."""


class ConsumerHeartbeats:
    """Handles the heartbeats of one group."""

    __slots__ = ("_changes", "_consumers", "_group_id", "_membership", "_memory", "_subscriptions")

    def __init__(self, parts: ConsumerParts) -> None:
        self._group_id = parts.group.group_id
        self._consumers = parts.consumers
        self._changes = parts.changes
        self._membership = parts.membership
        self._memory = parts.memory
        self._subscriptions = parts.subscriptions

    def run(self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller) -> ConsumerGroupHeartbeatResponse:
        """Run a heartbeat on the staged state of the group. A KafkaError means that nothing has changed."""
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._leave(request)
        owned = None
        if request.topic_partitions is not None:
            owned = {row.topic_id: frozenset(row.partitions) for row in request.topic_partitions}
        member_id = request.member_id or randomness.uuid4()
        self._membership.check_size(member_id)
        before = self._recognised(request, member_id, owned)
        after = self._described(request, caller, before)
        if after.expression and after.expression not in self._changes.staged.expressions:
            topic_regex.check(after.expression)
        if after != before.member or before.replaces is not None:
            self._memory.charge(after, caller.holder)
        # No errors are raised from here on.
        if after.expression:
            self._subscriptions.authorize(after.expression, caller.describes)
        member, _ = self._membership.update(before, after, owned)
        full = request.rebalance_timeout_ms != -1 and owned is not None
        full = full and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        tell = request.member_epoch == JOIN_EPOCH or full or member.assigned != before.member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._consumers.timing(self._group_id).heartbeat_interval_ms,
            assignment=answered(member.assigned) if tell else None,
        )

    def _recognised(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> Recognised:
        """Return the member that sent a heartbeat, in its state before the request.

        KafkaError if the member is fenced or unknown.
        """
        state = self._changes.staged
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = state.members.get(member_id)
            if member is None and not joins:
                raise UnknownMemberId(f"member {member_id} is not in group {self._group_id}")
            if member is not None:
                self._check_epoch(member, request.member_epoch, owned)
            return Recognised(member or ConsumerMember(member_id=member_id))
        if joins:
            holder = state.members.get(state.static_ids.get(request.instance_id, ""))
            if holder is None:
                return Recognised(state.members.get(member_id) or ConsumerMember(member_id=member_id))
            if holder.epoch != AWAY_EPOCH and holder.classic is None:
                raise UnreleasedInstanceId(f"instance id {request.instance_id} is in use by member {holder.member_id}")
            heir = replace(holder, member_id=member_id, epoch=0, previous_epoch=0)
            return Recognised(heir, None if member_id == holder.member_id else holder)
        holder = self._membership.find_static(state, request.instance_id, member_id)
        self._check_epoch(holder, request.member_epoch, owned)
        return Recognised(holder)

    @staticmethod
    def _check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
        """Raise FencedMemberEpoch unless the request's member epoch is valid.

        The member's current epoch and 0 (the member rejoins) are valid. So is the previous epoch if the member has all
        partitions that the client owns (the client lost a response). For a classic member 0 is invalid: its id belongs
        to another process.
        """
        if epoch == member.epoch or (epoch == JOIN_EPOCH and member.classic is None):
            return
        repeats = epoch == member.previous_epoch and owned is not None and contains(member.assigned, owned)
        if epoch > member.epoch or not repeats:
            raise FencedMemberEpoch(
                f"member epoch {epoch} is fenced; the current epoch is {member.epoch}: give up all partitions and "
                "rejoin"
            )

    def _described(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, recognised: Recognised
    ) -> ConsumerMember:
        """Return the member with the data of a heartbeat. A null field means that the member's data has not changed."""
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

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._membership.find(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == AWAY_EPOCH:
            self._changes.put_position(member.away())
        else:
            self._membership.fence([member], "it left")
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def member_of(response: ConsumerGroupHeartbeatResponse) -> str:
    """Return the member id in a heartbeat's response; empty if it has none."""
    return response.member_id or ""


def refusal(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """Return the response for an error."""
    return ConsumerGroupHeartbeatResponse(error_code=int(code), error_message=message)


def answered(assignment: Assignment) -> AnsweredAssignment:
    """Return an assignment as a response field. An empty assignment is an empty list, because null means unchanged."""
    return AnsweredAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(assignment.items())
        ]
    )
