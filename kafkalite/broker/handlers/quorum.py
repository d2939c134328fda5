"""DescribeQuorum 0-2, UnregisterBroker 0: who keeps the cluster's metadata, and who is in the cluster.

This broker is the quorum's one voter, its metadata log the journal: the high watermark is the number of changes that
the journal holds (a start may write it anew, shorter), the leader's epoch rises with each unclean start.

    v1   when a replica last fetched and caught up: the leader now
    v2   texts of errors, ids of data directories, and where the voters listen: the listener that was asked

A broker that is unregistered is forgotten until it comes again. This one is its own controller and comes again at once,
so that nothing changes; nobody else is registered. (Apache Kafka of one node serves nobody until it is restarted.)
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
    """What is asked about is not the one partition that a quorum keeps."""
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
    if request.broker_id == context.broker.cluster.node_id:
        return UnregisterBrokerResponse()
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=f"broker {request.broker_id} is not registered"
    )
