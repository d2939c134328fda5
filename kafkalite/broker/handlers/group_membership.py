"""Handle JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4 and LeaveGroup 0-5: membership in groups of the classic protocol.

    JoinGroup   v1 has a rebalance timeout. From v4 on a new member without an instance id first gets MEMBER_ID_REQUIRED
                with an id (KIP-394). v5 has static members (KIP-345). v7 returns the protocol type. v9 returns
                skip_assignment (KIP-814).
    SyncGroup   v3 has static members. v5 requires protocol type and name, and checks them (KIP-559).
    LeaveGroup  v0-2 remove one member. v3 removes several members, each with its own result; administrators use it
                for groups of the consumer protocol, too.

JoinGroup and SyncGroup may wait for other members, but no thread waits: the responses are Deferred. In a group of the
consumer protocol (KIP-848) they do not wait, since the broker computes the assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.deferred import completed
from kafkalite.broker.coordinator.members import Caller
from kafkalite.broker.handlers.permissions import GROUP, READ, allows
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatResponse
from kafkalite.wire.protocol.messages.join_group import JoinGroupResponse
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kafkalite.wire.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest

_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_MEMBER_ID_FIRST_SINCE: Final = 4
_NO_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9
_MANY_LEAVE_SINCE: Final = 3
_PROTOCOL_NEEDED_SINCE: Final = 5


def needs_blocking(context: RequestContext, request: JoinGroupRequest) -> bool:
    """Return whether the group uses the consumer protocol (KIP-848): then the broker computes an assignment at a
    join."""
    return context.broker.groups.is_of_newer_protocol(request.group_id)


def join(context: RequestContext, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
    if not allows(context, READ, GROUP, request.group_id):
        name = None if context.api_version >= _NO_PROTOCOL_SINCE else ""
        return completed(JoinGroupResponse(error_code=_DENIED, protocol_name=name))
    caller = Caller(
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # in Java's format, which Kafka's tools show
        takes_member_id=context.api_version >= _MEMBER_ID_FIRST_SINCE,
        skips_assignment=context.api_version >= _SKIP_ASSIGNMENT_SINCE,
        holder=context.holder,
    )
    joined = context.broker.groups.join(request, caller, context.connection)
    return joined if context.api_version < _NO_PROTOCOL_SINCE else joined.map(_without_empty_protocol)


def _without_empty_protocol(response: JoinGroupResponse) -> JoinGroupResponse:
    """Replace an empty protocol name by null, in versions that allow it."""
    response.protocol_name = response.protocol_name or None
    return response


def sync(context: RequestContext, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
    # Kafka checks this first, before permissions and the group (KafkaApis.handleSyncGroupRequest).
    if context.api_version >= _PROTOCOL_NEEDED_SINCE and None in (request.protocol_type, request.protocol_name):
        return completed(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not allows(context, READ, GROUP, request.group_id):
        return completed(SyncGroupResponse(error_code=_DENIED))
    return context.broker.groups.sync(request)


def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if not allows(context, READ, GROUP, request.group_id):
        return HeartbeatResponse(error_code=_DENIED)
    code = context.broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)


def leave(context: RequestContext, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
    if not allows(context, READ, GROUP, request.group_id):
        return completed(LeaveGroupResponse(error_code=_DENIED))
    groups = context.broker.groups
    code = groups.error_of(request.group_id)
    if code:
        return completed(LeaveGroupResponse(error_code=code))
    if context.api_version < _MANY_LEAVE_SINCE:
        done = groups.leave(request.group_id, [(request.member_id, None)])
        return done.map(lambda codes: LeaveGroupResponse(error_code=codes[0]))
    leaving = request.members
    names = [(member.member_id, member.group_instance_id) for member in checkpointed(leaving)]
    left = groups.leave(request.group_id, names)
    return left.map(
        lambda codes: LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error_code
                )
                for member, error_code in checkpointed(zip(leaving, codes, strict=True))
            ]
        )
    )
