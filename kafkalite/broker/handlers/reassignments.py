"""Handle AlterPartitionReassignments 0-1 and ListPartitionReassignments 0 of a standalone broker.

The broker never moves a partition. The APIs exist because kafka-reassign-partitions and `kafka-topics --describe` call
them.

    requested replicas        result
    this broker               success without effect; INVALID_REPLICA_ASSIGNMENT if its data directory is cordoned
    any other list            INVALID_REPLICA_ASSIGNMENT
    no list (a cancellation)  NO_REASSIGNMENT_IN_PROGRESS

Source: ReplicationControlManager of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from kafkalite.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkalite.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext


def alter(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(context, topic.name, partition) for partition in checkpointed(topic.partitions)],
            )
            for topic in checkpointed(request.topics)
        ],
    )


def list_all(
    _context: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def _result(context: RequestContext, topic: str, partition: ReassignablePartition) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
    try:
        _check(context, topic, partition)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = None if error.message == error.code.text else error.message  # as in Kafka
    return answer


def _check(context: RequestContext, name: str, partition: ReassignablePartition) -> None:
    topic = context.broker.logs.topics.get(name)
    if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
        raise UnknownTopicOrPartition(f"topic {name!r} has no partition {partition.partition_index}")
    if partition.replicas is None:
        raise NoReassignmentInProgress
    node_id = context.broker.cluster.node_id
    if not partition.replicas:
        raise InvalidReplicaAssignment("the replica list is empty")
    unknown = sorted(set(partition.replicas) - {node_id})
    if unknown:
        raise InvalidReplicaAssignment(f"unknown broker {unknown[0]}; the only broker is {node_id}")
    if len(partition.replicas) > 1:
        raise InvalidReplicaAssignment(f"broker {node_id} is listed more than once")
    if context.broker.cordoned:
        raise InvalidReplicaAssignment(f"the data directory of broker {node_id} is cordoned (cordoned.log.dirs)")
