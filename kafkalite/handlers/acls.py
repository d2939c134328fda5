"""DescribeAcls, CreateAcls, DeleteAcls 1-3: there is no authoriser, so each is SECURITY_DISABLED, as in Kafka.

They are served rather than left out because tools ask them as a matter of course and take this answer for "none".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode
from kafkalite.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kafkalite.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from kafkalite.handlers.context import RequestContext

_CODE: Final = ErrorCode.SECURITY_DISABLED
_MESSAGE: Final = "this broker has no authoriser"


def describe(_context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=_CODE, error_message=_MESSAGE)


def create(_context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=_CODE, error_message=_MESSAGE) for _ in request.creations]
    )


def delete(_context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=_CODE, error_message=_MESSAGE) for _ in request.filters]
    )
