"""Handle AlterConfigs 0-2, IncrementalAlterConfigs 0-1 and ListConfigResources 0-1 of a broker in a cluster.

The broker checks each resource of a change first (`alter_configs.settled_here`). It changes the levels of its own
loggers itself, and forwards all other valid resources to the controller.

A broker accepts changes of its own settings and of the settings of all brokers. It refuses changes of another broker's
settings, since it cannot check them.

Source: ConfigAdminManager of Kafka 4.1.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.broker.handlers import alter_configs, forwarding, in_cluster, list_config_resources
from kafkalite.broker.handlers.cluster_table import find
from kafkalite.broker.handlers.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, InvalidRequest, KafkaError
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from kafkalite.wire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.handlers.forwarding import Forwarded
    from kafkalite.wire.protocol.messages.list_config_resources import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )

_MESSAGES: Final[dict[int, tuple[Any, Any]]] = {
    api.ALTER_CONFIGS: (AlterConfigsResponse, AlterConfigsResourceResponse),
    api.INCREMENTAL_ALTER_CONFIGS: (IncrementalAlterConfigsResponse, IncrementalResourceResponse),
}


def alter(context: RequestContext, request: Forwarded) -> Any:
    """Handle AlterConfigs and IncrementalAlterConfigs. If no part of a request is handled here, the request is
    forwarded unchanged."""
    resources = request.message.resources
    settled: dict[int, KafkaError | None] = {}  # position in the request → result
    named = Counter((each.resource_type, each.resource_name) for each in checkpointed(resources))
    for place, resource in enumerate(resources):
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("the request names the resource more than once")
            incremental = context.api_key == api.INCREMENTAL_ALTER_CONFIGS
            validate_only = request.message.validate_only
            if alter_configs.settled_here(context, resource, incremental=incremental, validate_only=validate_only):
                settled[place] = None
        except KafkaError as error:
            settled[place] = error
    if not settled:
        return forwarding.handle(context, request)
    rest = copy.copy(request.message)
    rest.resources = [each for place, each in enumerate(resources) if place not in settled]
    if not rest.resources:
        return _joined(context, resources, settled, ())
    key, version = context.api_key, context.api_version
    asked = forwarding.Forwarded(rest, protocol.encode_request(key, version, rest))
    row = find(key)
    assert row is not None, "served by this row"

    def join(answer: object) -> Any:
        message: Any = row.message(version, answer)
        return _joined(context, resources, settled, message.responses)

    return forwarding.handle(context, asked).map(join)


def _joined(
    context: RequestContext, resources: list[Any], settled: dict[int, KafkaError | None], others: Iterable[Any]
) -> Any:
    """Return the response, in the order of the request, from the results of this broker and of the controller.

    `settled` has this broker's results by position in the request. `others` are the controller's results.
    """
    make, make_one = _MESSAGES[context.api_key]
    found = {(each.resource_type, each.resource_name): each for each in others}
    responses = []
    for place, resource in enumerate(resources):
        kind, name = resource.resource_type, resource.resource_name
        own = make_one(error_message=None, resource_type=kind, resource_name=name)
        if place in settled:
            error = settled[place]
            if error is not None:
                own.error_code, own.error_message = error.code, error.message
        elif (kind, name) in found:
            own = found[kind, name]
        else:
            own.error_code, own.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.text
        responses.append(own)
    return make(responses=responses)


def list_resources(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Handle ListConfigResources. Topics and brokers are those of the whole cluster, including fenced brokers."""
    view, logs = in_cluster.view_of(context), context.broker.logs

    def names(kind: int) -> Iterable[str]:
        if kind in (BROKER, BROKER_LOGGER):
            return [str(number) for number in sorted(view.image.brokers) if view.address(number) is not None]
        return sorted(
            {
                TOPIC: view.image.topic_ids,
                GROUP: logs.metadata.group_configs,
                CLIENT_METRICS: logs.metadata.client_metrics,
            }[kind]
        )

    return list_config_resources.listed(context.api_version, request, names)
