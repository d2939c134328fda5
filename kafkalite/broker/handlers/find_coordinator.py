"""Handle FindCoordinator 0-6 of a standalone broker, which coordinates every group and transactional id.

v0      one key, always a group
v1-3    one key with its type. Without an error the error message is "NONE"
v4-6    several keys of one type. Without an error there is no message. v6 adds share groups, which this broker does
        not support: INVALID_REQUEST
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import ResourceType
from kafkalite.broker.handlers.permissions import DESCRIBE, check
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.handlers.context import RequestContext

GROUP: Final = 0
TRANSACTION: Final = 1
_KINDS: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_MANY_KEYS_SINCE: Final = 4
_SUCCESS: Final = "NONE"
"""Kafka's message for a success before v4."""


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return answered(context, request, _coordinator)


def answered(
    context: RequestContext,
    request: FindCoordinatorRequest,
    coordinator_of: Callable[[RequestContext, str, int], Coordinator],
) -> FindCoordinatorResponse:
    """Return the response in the layout of the request's version. `coordinator_of` finds the coordinator of one key."""
    many = context.api_version >= _MANY_KEYS_SINCE
    keys = request.coordinator_keys if many else [request.key]
    found = [coordinator_of(context, key, request.key_type) for key in checkpointed(keys)]
    if many:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or _SUCCESS,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def refused(context: RequestContext, key: str, key_type: int) -> Coordinator | None:
    """Return the error for an unsupported key type or a missing permission, or None."""
    if key_type not in {GROUP, TRANSACTION}:
        return failure(key, ErrorCode.INVALID_REQUEST, f"unsupported coordinator type {key_type}")
    try:
        check(context, DESCRIBE, _KINDS[key_type], key)
    except KafkaError as error:
        return failure(key, error.code, "" if context.api_version >= _MANY_KEYS_SINCE else error.message)
    return None


def _coordinator(context: RequestContext, key: str, key_type: int) -> Coordinator:
    denied = refused(context, key, key_type)
    if denied is not None:
        return denied
    endpoint = context.endpoint
    return Coordinator(key=key, node_id=context.broker.cluster.node_id, host=endpoint.host, port=endpoint.port)


def failure(key: str, code: ErrorCode, message: str) -> Coordinator:
    """Return the response's entry for a key whose coordinator was not found."""
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
