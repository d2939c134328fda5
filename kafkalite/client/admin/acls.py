"""Find, create and delete ACLs.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.acls import OPERATIONS, OPERATIONS_NOT_ASKED, Acl, AclFilter, AclOperation, ResourceType
from kafkalite.client.cluster import raise_for
from kafkalite.errors import ErrorCode
from kafkalite.wire.acl_messages import acl_of, creation_of, filter_fields
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_acls import CreateAclsRequest
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
        """Return the ACLs that match the filter `wanted`, or all ACLs without a filter.

        Raises SecurityDisabled if the cluster has no authorizer.
        """
        request = DescribeAclsRequest(**filter_fields(wanted or AclFilter()))
        answer = self._client.controller().request(api.DESCRIBE_ACLS, request)
        raise_for(answer.error_code, "rules", answer.error_message)
        return sorted(acl_of(resource, row) for resource in answer.resources for row in resource.acls)

    def my_operations(self, topics: Iterable[str]) -> dict[str, frozenset[AclOperation]]:
        """Return this client's allowed operations (READ to ALTER_CONFIGS) on each topic (KIP-430).

        A topic that this client is not allowed to describe gets an empty set. The result leaves out a topic that does
        not exist, and a topic whose broker does not report operations.
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
        """Create ACLs. Existing ACLs are kept. Raises InvalidRequest for the first invalid ACL."""
        request = CreateAclsRequest(creations=[creation_of(acl) for acl in acls])
        answer = self._client.controller().request(api.CREATE_ACLS, request)
        for acl, result in zip(acls, answer.results, strict=True):
            raise_for(result.error_code, " ".join(("rule", *acl.texts())), result.error_message)

    def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the ACLs that match any of the filters, and return them."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields(wanted)) for wanted in filters])
        answer = self._client.controller().request(api.DELETE_ACLS, request)
        gone = set()
        for result in answer.filter_results:
            raise_for(result.error_code, "rules", result.error_message)
            gone |= {acl_of(row, row) for row in result.matching_acls}
        return sorted(gone)
