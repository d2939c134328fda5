"""Refuse the four delegation token APIs (Create, Renew, Expire, Describe): this broker has no delegation tokens.

The errors are those of a Kafka broker without delegation.token.secret.key:

    client not authenticated   DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64)
    client authenticated       DELEGATION_TOKEN_AUTH_DISABLED (61)

In a cluster the controllers may have tokens for other brokers, so Create, Renew and Expire requests of authenticated
clients are forwarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import ErrorCode
from kafkalite.model import ANONYMOUS
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkalite.wire.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafkalite.wire.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kafkalite.wire.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.handlers.forwarding import Forwarded


def _code(context: RequestContext) -> ErrorCode:
    known = context.principal != ANONYMOUS
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED if known else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def _no_time(context: RequestContext) -> int:
    """Return the timestamp in an error response: 0 for the error of Kafka's controllers, -1 for that of its brokers."""
    return 0 if _code(context) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1


def create(context: RequestContext, _request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    kind, _, name = context.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=_code(context),
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=_no_time(context),
        expiry_timestamp_ms=_no_time(context),
        max_timestamp_ms=_no_time(context),
    )


def renew(context: RequestContext, _request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=_code(context), expiry_timestamp_ms=_no_time(context))


def expire(context: RequestContext, _request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=_code(context), expiry_timestamp_ms=_no_time(context))


def describe(context: RequestContext, _request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_code(context))


_HERE: Final[dict[int, Callable[[RequestContext, Any], Any]]] = {
    api.CREATE_DELEGATION_TOKEN: create,
    api.RENEW_DELEGATION_TOKEN: renew,
    api.EXPIRE_DELEGATION_TOKEN: expire,
}


def pass_on(context: RequestContext, request: Forwarded) -> Any:
    """Forward an authenticated client's request to the controller, and refuse any other request. The controller cannot
    see whether a client is authenticated."""
    if context.principal == ANONYMOUS:
        return _HERE[context.api_key](context, request.message)
    from kafkalite.broker.handlers import forwarding

    return forwarding.handle(context, request)
