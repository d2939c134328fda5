"""Handle DescribeCluster 0-2 of a standalone broker: list the brokers, as Metadata does, without topics.

From v1 on the request is for brokers or controllers. This broker's listeners are not a controller's, so a request for
controllers gets MISMATCHED_ENDPOINT_TYPE, as from a Kafka broker. From v2 on the request may ask for fenced brokers,
too; a standalone broker has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.broker.handlers.permissions import cluster_operations
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return _failure(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this listener belongs to a broker, not to a controller")
    if request.endpoint_type != BROKERS:
        return _failure(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unsupported endpoint type {request.endpoint_type}")
    cluster = context.broker.cluster
    endpoint = context.endpoint
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=cluster.node_id, host=endpoint.host, port=endpoint.port, rack=cluster.rack)
        ],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _failure(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)
