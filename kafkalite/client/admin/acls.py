"""Find, create and delete ACLs.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.acls import (
    OPERATIONS,
    OPERATIONS_NOT_ASKED,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kafkalite.client.cluster import raise_for
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.client.cluster import Cluster


class Acls:
    """ACL administration, created by `Client.acls`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def find(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return the ACLs that match a filter, or all. Raises SecurityDisabled if the cluster has no authorizer."""
        wanted = wanted or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        answer = self._client.controller().request(api.DESCRIBE_ACLS, request)
        raise_for(answer.error_code, "rules", answer.error_message)
        return sorted(
            Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                found.principal,
                found.host,
                AclOperation(found.operation),
                AclPermission(found.permission_type),
            )
            for resource in answer.resources
            for found in resource.acls
        )

    def my_operations(self, topics: Iterable[str]) -> dict[str, frozenset[AclOperation]]:
        """Return this client's allowed operations (READ to ALTER_CONFIGS) on each topic (KIP-430).

        A topic that this client may not describe has none. A topic that does not exist, or whose broker does not report
        operations, is left out.
        """
        answer = self._client.with_retries(lambda: self._client.refresh(topics, tells_operations=True))
        found = {}
        for row in answer.topics:
            bits = row.topic_authorized_operations
            if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                found[row.name] = frozenset[AclOperation]()
            elif not row.error_code and bits != OPERATIONS_NOT_ASKED:
                found[row.name] = frozenset(
                    operation for operation in OPERATIONS[ResourceType.TOPIC] if bits & 1 << operation
                )
        return found

    def create(self, acls: Sequence[Acl]) -> None:
        """Create ACLs; existing ones stay. Raises InvalidRequest for the first invalid one."""
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        answer = self._client.controller().request(api.CREATE_ACLS, CreateAclsRequest(creations=creations))
        for acl, result in zip(acls, answer.results, strict=True):
            raise_for(result.error_code, " ".join(("rule", *acl.texts())), result.error_message)

    def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the ACLs that match any of the filters, and return them."""
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=wanted.resource_type,
                    resource_name_filter=wanted.name,
                    pattern_type_filter=wanted.pattern_type,
                    principal_filter=wanted.principal,
                    host_filter=wanted.host,
                    operation=wanted.operation,
                    permission_type=wanted.permission,
                )
                for wanted in filters
            ]
        )
        answer = self._client.controller().request(api.DELETE_ACLS, request)
        gone = set()
        for result in answer.filter_results:
            raise_for(result.error_code, "rules", result.error_message)
            gone |= {
                Acl(
                    ResourceType(found.resource_type),
                    found.resource_name,
                    PatternType(found.pattern_type),
                    found.principal,
                    found.host,
                    AclOperation(found.operation),
                    AclPermission(found.permission_type),
                )
                for found in result.matching_acls
            }
        return sorted(gone)
