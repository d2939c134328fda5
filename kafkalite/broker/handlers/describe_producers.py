"""Handle DescribeProducers 0: show the producers of partitions, to find a hanging transaction (KIP-664).

A producer of idempotent batches, transactional batches or markers is shown until it expires
(producer.id.expiration.ms). Followers serve the request, too.

Thread rule: runs on the I/O pool, since a partition's producer state may have to be loaded first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.handlers.permissions import READ, TOPIC, allows, refusal
from kafkalite.broker.handlers.topics import find_partition
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=_partitions(context, topic.name, topic.partition_indexes),
            )
            for topic in checkpointed(request.topics)
        ]
    )


def _partitions(context: RequestContext, topic: str, indexes: list[int]) -> list[PartitionResponse]:
    if not allows(context, READ, TOPIC, topic):
        return [_failure(index, refusal(TOPIC).code, whole_topic=True) for index in checkpointed(indexes)]
    if topic not in context.broker.logs.topics:
        return [
            _failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, whole_topic=True) for index in checkpointed(indexes)
        ]
    return [_partition(context, topic, index) for index in checkpointed(indexes)]


def _partition(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    """Return the producers of a partition. Without an open transaction, the start offset is -1.

    A follower's partition is shown, too: `kafka-transactions.sh find-hanging --broker-id` asks one broker for all of
    its replicas.
    """
    log, error = find_partition(context, topic, index, followed=True)
    if log is None:
        return _failure(index, error)
    try:
        rows = log.producer_rows()
    except KafkaError as failure:
        return _failure(index, failure.code)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=row.producer_id,
                producer_epoch=row.epoch,
                last_sequence=row.last_sequence,
                last_timestamp=row.last_timestamp,
                coordinator_epoch=row.coordinator_epoch,
                current_txn_start_offset=row.transaction_offset,
            )
            for row in checkpointed(rows)
        ],
    )


def _failure(index: int, code: ErrorCode, *, whole_topic: bool = False) -> PartitionResponse:
    """Return the response entry for an error. If `whole_topic`, the error concerns the whole topic and has a
    message."""
    text = code.text if whole_topic else None
    return PartitionResponse(partition_index=index, error_code=code, error_message=text, active_producers=[])
