"""Handle ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1: groups of the consumer protocol (KIP-848).

    ConsumerGroupHeartbeat  Epoch 0 joins, and -1 leaves. A static member that leaves with -2 can return within its
                            session timeout. A null field is unchanged. In v0 the broker may generate the member id.
                            v1 requires the client to generate it (KIP-1082), and allows subscriptions by regular
                            expression.
    ConsumerGroupDescribe   A missing or classic group gets GROUP_ID_NOT_FOUND; clients then send DescribeGroups.
                            v1 returns which protocol a member uses (KIP-1099).

While the feature group.version is 0, both APIs return UNSUPPORTED_VERSION.

Thread rule: heartbeats that may match all topic names or compute a target assignment run on the I/O pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.base.deferred import Deferred, completed
from kafkalite.broker.coordinator import topic_regex
from kafkalite.broker.coordinator.consumer_group import ConsumerGroup
from kafkalite.broker.coordinator.consumer_heartbeats import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatCaller
from kafkalite.broker.coordinator.consumer_heartbeats import refusal as refused
from kafkalite.broker.coordinator.consumer_state import AWAY_EPOCH
from kafkalite.broker.features import GROUP_VERSION
from kafkalite.broker.handlers.permissions import (
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    allowed_names,
    allows,
    describer,
    operations,
    refusal,
)
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, InvalidRegularExpression
from kafkalite.wire.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.coordinator.assignors import Assignment as Assigned
    from kafkalite.broker.coordinator.consumer_state import ConsumerMember
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.errors import KafkaError
    from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_CLIENT_MAKES_ID_SINCE: Final = 1
_MEMBER_TYPE_SINCE: Final = 1
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def needs_blocking(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a heartbeat joins, leaves or subscribes, or whether an assignment is due."""
    return (
        request.member_epoch <= JOIN_EPOCH
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or context.broker.groups.assigns_next(request.group_id)
    )


def heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    if _off(context):
        return completed(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    denied = _denial(context, request)
    if denied is not None:
        return completed(ConsumerGroupHeartbeatResponse(error_code=denied.code))
    problem = _contradiction(request, context.api_version)
    if problem is not None:
        return completed(refused(ErrorCode.INVALID_REQUEST, problem))
    known = context.broker.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        text = f"unsupported assignor {request.server_assignor!r}; expected one of {', '.join(known)}"
        return completed(refused(ErrorCode.UNSUPPORTED_ASSIGNOR, text))
    if request.member_epoch >= JOIN_EPOCH and request.subscribed_topic_regex:
        try:  # before a group is created for it, or waits for it
            topic_regex.prepare(request.subscribed_topic_regex, context.broker.logs.topics)
        except InvalidRegularExpression as error:
            if request.member_epoch == JOIN_EPOCH:
                return completed(refused(error.code, str(error)))
    caller = HeartbeatCaller(
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # in Java's format, which Kafka's tools show
        describes=describer(context, TOPIC),
        holder=context.holder,
    )
    return context.broker.groups.consumer_heartbeat(request, caller)


def _off(context: RequestContext) -> bool:
    """Return whether the cluster's features disable this protocol."""
    return context.broker.feature_level(GROUP_VERSION) == 0


def _denial(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> KafkaError | None:
    """Return the error if the client may not be a member of the group or subscribe to its topics."""
    if not allows(context, READ, GROUP, request.group_id):
        return refusal(GROUP)
    names = frozenset(request.subscribed_topic_names or ())
    return None if allowed_names(context, DESCRIBE, TOPIC, names) == names else refusal(TOPIC)


def _contradiction(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """Return a message about contradictory or invalid fields of a heartbeat, or None. The error is INVALID_REQUEST,
    whether or not the group exists."""
    epoch = request.member_epoch
    named = version >= _CLIENT_MAKES_ID_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    problems = {
        "the member id is empty": named and not request.member_id.strip(),
        "the group id is empty": not request.group_id.strip(),
        "the instance id is empty": request.instance_id is not None and not request.instance_id.strip(),
        "the rack id is empty": request.rack_id is not None and not request.rack_id.strip(),
        f"invalid member epoch {epoch}": epoch < AWAY_EPOCH,
    }
    if epoch == JOIN_EPOCH:
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        problems |= {
            "a joining member must give its rebalance timeout": request.rebalance_timeout_ms == -1,
            "a joining member must give an empty list of owned partitions": request.topic_partitions != [],
            "a joining member must subscribe to topics or to a regular expression": not subscribes,
        }
    elif epoch == AWAY_EPOCH:
        problems["only a member with an instance id can leave temporarily (epoch -2)"] = request.instance_id is None
    return next((text for text, wrong in problems.items() if wrong), None)


def describe(context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    with_operations = request.include_authorized_operations
    if _off(context):
        off = [
            DescribedGroup(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION)
            for name in checkpointed(request.group_ids)
        ]
        return ConsumerGroupDescribeResponse(groups=off)
    return ConsumerGroupDescribeResponse(
        groups=[
            _visible(context, _describe(context, group_id, with_operations=with_operations))
            for group_id in checkpointed(request.group_ids)
        ]
    )


def _visible(context: RequestContext, group: DescribedGroup) -> DescribedGroup:
    """Return the described group, or an error if its assignments have topics that the client may not describe."""
    names = {
        topic.topic_name
        for member in checkpointed(group.members)
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if allowed_names(context, DESCRIBE, TOPIC, names) == names:
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=refusal(TOPIC).code,
        error_message="the group reads topics that the client is not authorized to describe",
    )


def _describe(context: RequestContext, group_id: str, *, with_operations: bool) -> DescribedGroup:
    """Return a group's description. If `with_operations`, it includes the client's authorized operations."""
    if not allows(context, DESCRIBE, GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=refusal(GROUP).code)
    group, code = context.broker.groups.lookup(group_id)
    if code:
        return DescribedGroup(group_id=group_id, error_code=code)
    if not isinstance(group, ConsumerGroup) or group.dead:
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"there is no consumer group {group_id}",
        )
    by_id = context.broker.logs.topics_by_id
    with group.changing():
        state = group.state
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch,
            assignor_name=group.assignor_locked(),
            members=[
                _member(context, member, state.targets.get(member.member_id, {}), by_id)
                for member in state.members.values()
            ],
            authorized_operations=operations(context, GROUP, group_id) if with_operations else OPERATIONS_NOT_ASKED,
        )


def _member(context: RequestContext, member: ConsumerMember, target: Assigned, by_id: dict[bytes, Topic]) -> Member:
    described = Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.expression,
        assignment=_named(member.assigned, by_id),
        target_assignment=_named(target, by_id),
    )
    if context.api_version >= _MEMBER_TYPE_SINCE:
        described.member_type = _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER
    return described


def _named(assignment: Assigned, by_id: dict[bytes, Topic]) -> Assignment:
    """Return the assignment with topic names. Deleted topics are left out, as in Kafka."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in sorted(assignment.items())
            if topic_id in by_id
        ]
    )
