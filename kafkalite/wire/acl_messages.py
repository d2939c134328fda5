"""Convert ACLs and ACL filters to and from the fields of DescribeAcls, CreateAcls and DeleteAcls.

The three APIs name these fields differently. Pure functions; any thread.
"""

from __future__ import annotations

from typing import Any

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.wire.protocol.messages.create_acls import AclCreation


def creation_of(acl: Acl) -> AclCreation:
    """Return the part of CreateAcls that creates an ACL."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def filter_fields(wanted: Acl | AclFilter) -> dict[str, Any]:
    """Return the fields of a filter for DescribeAcls and DeleteAcls. Given an ACL, the filter matches only that ACL."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def acl_of(resource: Any, row: Any) -> Acl:
    """Return the ACL in a response; `resource` is the object with the ACL's resource, which may be `row` itself."""
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        row.principal,
        row.host,
        AclOperation(row.operation),
        AclPermission(row.permission_type),
    )
