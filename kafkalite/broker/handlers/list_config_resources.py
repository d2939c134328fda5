"""Handle ListConfigResources 0-1: list the names of resources that DescribeConfigs describes.

Version 0 is the older API ListClientMetricsResources, which lists client metrics subscriptions only. Version 1 lists
the requested types, or all types if the request names none. An unknown type gets UNSUPPORTED_VERSION. Only groups with
their own settings are listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.broker.handlers.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.broker.handlers.context import RequestContext

_KNOWN: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})
_TYPES_SINCE: Final = 1


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    return listed(context.api_version, request, lambda kind: _names(context, kind))


def listed(
    version: int, request: ListConfigResourcesRequest, names: Callable[[int], Iterable[str]]
) -> ListConfigResourcesResponse:
    """Return the response. The function `names` returns the names of all resources of a type."""
    older = version < _TYPES_SINCE
    wanted = frozenset({CLIENT_METRICS} if older else request.resource_types) or _KNOWN
    if not wanted <= _KNOWN:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in checkpointed(names(kind))
        ]
    )


def _names(context: RequestContext, kind: int) -> Iterator[str]:
    if kind == TOPIC:
        yield from sorted(context.broker.logs.topics)
    elif kind == GROUP:
        yield from sorted(context.broker.logs.metadata.group_configs)
    elif kind == CLIENT_METRICS:
        yield from sorted(context.broker.logs.metadata.client_metrics)
    elif kind in (BROKER, BROKER_LOGGER):
        yield str(context.broker.cluster.node_id)
