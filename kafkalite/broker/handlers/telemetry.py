"""Handle GetTelemetrySubscriptions 0 and PushTelemetry 0: receive metrics from clients (KIP-714).

ApiVersions reports the two APIs only if the broker serves metrics (`metrics.listeners`). Otherwise requests get
UNSUPPORTED_VERSION, and clients stop sending them. The APIs need no permission, as in Kafka.
`kafkalite.broker.telemetry.clients` checks and stores the metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.telemetry.clients import CODECS, Client
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kafkalite.wire.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext


def subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Handle GetTelemetrySubscriptions."""
    clients = context.broker.client_metrics
    if clients is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        asked = clients.subscription(request.client_instance_id, _client(context))
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=asked.instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=[int(codec) for codec in CODECS],
        push_interval_ms=asked.interval_ms,
        telemetry_max_bytes=clients.size_max,
        delta_temporality=True,
        requested_metrics=list(asked.metrics),
    )


def push(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Handle PushTelemetry. Thread rule: runs on the I/O pool, since it decompresses the metrics."""
    clients = context.broker.client_metrics
    if clients is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        clients.push(
            request.client_instance_id,
            _client(context),
            request.subscription_id,
            request.compression_type,
            request.metrics,
            terminating=request.terminating,
        )
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


def _client(context: RequestContext) -> Client:
    connection = context.connection
    return Client(
        context.client_id,
        connection.software_name,
        connection.software_version,
        connection.client_host,
        connection.client_port,
        context.principal,
    )
