"""Convert ACLs and ACL filters to and from the fields of the APIs DescribeAcls, CreateAcls and DeleteAcls.

These APIs have different names for the same fields.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

from typing import Any

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.wire.protocol.messages.create_acls import AclCreation


def creation_of(acl: Acl) -> AclCreation:
    """Return an ACL as an element of a CreateAcls request."""
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
    """Return the filter fields of a DescribeAcls or DeleteAcls request. An ACL as filter matches only itself."""
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
    """Return an ACL from a response.

    `resource` is the object with the resource's fields. `row` is the object with the other fields. They may be the same
    object.
    """
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        row.principal,
        row.host,
        AclOperation(row.operation),
        AclPermission(row.permission_type),
    )
