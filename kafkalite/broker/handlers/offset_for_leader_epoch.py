"""Handle OffsetForLeaderEpoch 2-4: return a leader epoch's end offset, so that consumers detect truncation (KIP-320).

Each partition has its own leader epoch; a standalone broker raises it only at an unclean start. The current epoch ends
at the log end. For an epoch that the log does not know, epoch and offset are -1. librdkafka supports only v2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.handlers.permissions import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC, allows
from kafkalite.broker.handlers.topics import find_partition
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    follows = allows(context, CLUSTER_ACTION, CLUSTER, probe=True)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_partition(context, topic.topic, partition) for partition in checkpointed(topic.partitions)]
                if follows or allows(context, DESCRIBE, TOPIC, topic.topic)
                else [_denied(partition) for partition in checkpointed(topic.partitions)],
            )
            for topic in checkpointed(request.topics)
        ]
    )


def _partition(context: RequestContext, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    log, error = find_partition(context, topic, partition.partition, partition.current_leader_epoch)
    epoch, end_offset = (-1, -1) if log is None else log.epoch_end(partition.leader_epoch)
    return EpochEndOffset(error_code=error, partition=partition.partition, leader_epoch=epoch, end_offset=end_offset)


def _denied(partition: OffsetForLeaderPartition) -> EpochEndOffset:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return EpochEndOffset(error_code=code, partition=partition.partition, leader_epoch=-1, end_offset=-1)
