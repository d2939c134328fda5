"""Handle DescribeQuorum 0-2 and UnregisterBroker 0 of a standalone broker, which is the quorum's only voter.

DescribeQuorum describes the broker's journal as the metadata log. The high watermark is the number of changes in the
journal.

    v1   has the times of a replica's last fetch and of its last catch-up; for the leader, the current time
    v2   has error messages, ids of data directories, and the voters' addresses on the request's listener
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from kafkalite.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext

METADATA_TOPIC: Final = "__cluster_metadata"


def describe(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Handle DescribeQuorum. A start may compact the journal, which lowers the high watermark. The leader epoch rises
    with each unclean start."""
    asked = [
        (topic.topic_name, [part.partition_index for part in checkpointed(topic.partitions)])
        for topic in checkpointed(request.topics)
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        return _unknown(request)
    cluster = context.broker.cluster
    high_watermark, epoch = context.broker.logs.metadata.position()
    now_ms = context.broker.clock.time_ms()
    voter = ReplicaState(
        replica_id=cluster.node_id,
        log_end_offset=high_watermark,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = DescribeQuorumResponsePartitionData(
        leader_id=cluster.controller_id,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        current_voters=[voter],
    )
    endpoint = context.endpoint
    listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[Node(node_id=cluster.node_id, listeners=[listener])],
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return the error response for a request that names partitions other than the metadata log."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=part.partition_index, error_code=code, error_message=code.text
                    )
                    for part in checkpointed(topic.partitions)
                ],
            )
            for topic in checkpointed(request.topics)
        ]
    )


def unregister(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Handle UnregisterBroker: for this broker, it succeeds without effect.

    A removed broker is back when it registers again, and this broker would do so at once. A single Apache Kafka node,
    in contrast, serves no client until it restarts.
    """
    if request.broker_id == context.broker.cluster.node_id:
        return UnregisterBrokerResponse()
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=f"broker {request.broker_id} is not registered"
    )
