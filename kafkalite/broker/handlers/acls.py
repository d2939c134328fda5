"""Handle DescribeAcls, CreateAcls and DeleteAcls 1-3: list, add and remove ACLs.

A change is durable before the response, and applies to every later request. An invalid ACL gets INVALID_REQUEST; the
other ACLs of the request are applied.

Without an authorizer the response is SECURITY_DISABLED, as in Kafka. Tools understand this error as "no ACLs". So
ApiVersions reports the APIs even then.

Thread rule: with an authorizer, changes run on the I/O pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker.handlers.permissions import ALTER, CLUSTER, allows, refusal
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError, MalformedRequest, error_for
from kafkalite.wire.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kafkalite.wire.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kafkalite.wire.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.handlers.context import RequestContext

_DISABLED: Final = "the broker has no authorizer; set authorizer.class.name"
_UNKNOWN: Final = 0


def changes(context: RequestContext, _request: object) -> bool:
    """Return whether the request may block: True if the broker has an authorizer, since a change waits for the disk."""
    return context.broker.authorizer is not None


def describe(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = _filter(request)
    authorizer = context.broker.authorizer
    if authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in checkpointed(authorizer.acls(wanted)):
        key = (acl.resource_type, acl.name, acl.pattern_type)
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type
            )
        resources[key].acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


def create(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    acls = [_rule(creation) for creation in checkpointed(request.creations)]
    authorizer = context.broker.authorizer
    results: Iterable[KafkaError | None]
    if not allows(context, ALTER, CLUSTER):
        results = [refusal(CLUSTER)] * len(acls)
    elif authorizer is None:
        results = [error_for(ErrorCode.SECURITY_DISABLED, _DISABLED)] * len(acls)
    else:
        results = authorizer.create(acls)
    return CreateAclsResponse(
        results=[
            AclCreationResult()
            if error is None
            else AclCreationResult(error_code=error.code, error_message=error.message)
            for error in checkpointed(results)
        ]
    )


def delete(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = [_filter(asked) for asked in checkpointed(request.filters)]
    authorizer = context.broker.authorizer
    results: Iterable[list[Acl] | KafkaError]
    if not allows(context, ALTER, CLUSTER):
        results = [refusal(CLUSTER)] * len(filters)
    elif authorizer is None:
        results = [error_for(ErrorCode.SECURITY_DISABLED, _DISABLED)] * len(filters)
    else:
        results = authorizer.delete(filters)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=found.code, error_message=found.message)
            if isinstance(found, KafkaError)
            else DeleteAclsFilterResult(error_message=None, matching_acls=[_deleted(acl) for acl in found])
            for found in checkpointed(results)
        ]
    )


def _rule(creation: AclCreation) -> Acl:
    """Return the ACL to create. A type, operation or permission with the number 0 (unknown) makes the request
    malformed: the broker closes the connection, as Kafka does."""
    kind = ResourceType(creation.resource_type)
    pattern = PatternType(creation.resource_pattern_type)
    operation = AclOperation(creation.operation)
    permission = AclPermission(creation.permission_type)
    if _UNKNOWN in {
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    }:
        raise MalformedRequest("the ACL has an unknown resource type, pattern type, operation or permission type")
    return Acl(kind, creation.resource_name, pattern, creation.principal, creation.host, operation, permission)


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request. As in `_rule`, the number 0 (unknown) makes the request malformed."""
    kind, pattern = asked.resource_type_filter, asked.pattern_type_filter
    operation, permission = asked.operation, asked.permission_type
    if _UNKNOWN in {kind, pattern, operation, permission}:
        raise MalformedRequest(
            "the ACL filter has an unknown resource type, pattern type, operation or permission type"
        )
    return AclFilter(
        ResourceType(kind),
        asked.resource_name_filter,
        PatternType(pattern),
        asked.principal_filter,
        asked.host_filter,
        AclOperation(operation),
        AclPermission(permission),
    )


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
