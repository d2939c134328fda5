"""Handle DescribeGroups 0-6, ListGroups 0-5 and DeleteGroups 0-3: administer groups.

DescribeGroups  A missing group, or a group of the consumer protocol (KIP-848), has the state Dead without an error;
                from v6 on it gets GROUP_ID_NOT_FOUND. Members' metadata is shown only while the group is Stable,
                their assignments always.
ListGroups      v4 may filter by state (KIP-518), v5 by type: `classic` or `consumer` (KIP-848).
DeleteGroups    A group with members gets NON_EMPTY_GROUP, a missing one GROUP_ID_NOT_FOUND. The deletion is durable
                before the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.base.deferred import Deferred, completed, gathered
from kafkalite.broker.coordinator.classic_state import State
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.handlers.permissions import CLUSTER, DELETE, DESCRIBE, GROUP, allows, operations
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kafkalite.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafkalite.wire.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext

_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NOT_FOUND_SINCE: Final = 6


def describe(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    with_operations = request.include_authorized_operations
    return DescribeGroupsResponse(
        groups=[
            _describe(context, group_id, with_operations=with_operations) for group_id in checkpointed(request.groups)
        ]
    )


def _describe(context: RequestContext, group_id: str, *, with_operations: bool) -> DescribedGroup:
    """Return a group's description. If `with_operations`, it includes the client's authorized operations."""
    if not allows(context, DESCRIBE, GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=_DENIED)
    groups = context.broker.groups
    group, code = groups.lookup(group_id, may_be_empty=True)
    if code:
        return DescribedGroup(group_id=group_id, error_code=code)
    if not isinstance(group, Group):
        described = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if context.api_version >= _NOT_FOUND_SINCE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"there is no classic group {group_id}"
            return described
    else:
        with group.changing():
            described = _described(group)
    if context.api_version >= 3:
        described.authorized_operations = (
            operations(context, GROUP, group_id) if with_operations else OPERATIONS_NOT_ASKED
        )
    return described


def _described(group: Group) -> DescribedGroup:
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    code = context.broker.groups.shards.loading_error
    if code:
        return ListGroupsResponse(error_code=code)
    states = {state.casefold() for state in checkpointed(request.states_filter)}
    types = {kind.casefold() for kind in checkpointed(request.types_filter)}
    listed = []
    describes_all = allows(context, DESCRIBE, CLUSTER, probe=True)
    for group in checkpointed(context.broker.groups.groups()):
        if not describes_all and not allows(context, DESCRIBE, GROUP, group.group_id, probe=True):
            continue
        state = group.state_name
        if (states and state.casefold() not in states) or (types and group.kind not in types):
            continue
        listed.append(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=state,
                group_type=group.kind,
            )
        )
    return ListGroupsResponse(groups=listed)


def delete(context: RequestContext, request: DeleteGroupsRequest) -> Deferred[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    return gathered([_delete(context, name) for name in checkpointed(names)]).map(
        lambda codes: DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=code)
                for name, code in checkpointed(zip(names, codes, strict=True))
            ]
        )
    )


def _delete(context: RequestContext, name: str) -> Deferred[int]:
    if not allows(context, DELETE, GROUP, name):
        return completed(int(_DENIED))
    return context.broker.groups.delete(name)
