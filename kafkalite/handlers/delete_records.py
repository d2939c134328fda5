"""DeleteRecords 0-2: moves the start of partitions up, so that older records are gone.

Offset -1 means the high watermark. An offset below the log start changes nothing and is no error; one above the high
watermark is OFFSET_OUT_OF_RANGE. A topic that is only compacted refuses (POLICY_VIOLATION), and so do the internal
topics (INVALID_TOPIC_EXCEPTION). The answer is the new log start, -1 with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.handlers.permissions import DELETE, TOPIC, allowed_names
from kafkalite.handlers.topics import find_partition
from kafkalite.model import INTERNAL_TOPICS
from kafkalite.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from kafkalite.handlers.context import RequestContext

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    allowed = allowed_names(context, DELETE, TOPIC, (topic.name for topic in request.topics))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _result(context, topic.name, item, allowed=topic.name in allowed) for item in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _result(
    context: RequestContext, topic: str, item: DeleteRecordsPartition, *, allowed: bool
) -> DeleteRecordsPartitionResult:
    low_watermark, code = NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if allowed:
        low_watermark, code = _delete(context, topic, item)
    return DeleteRecordsPartitionResult(
        partition_index=item.partition_index, low_watermark=low_watermark, error_code=code
    )


def _only_compacted(context: RequestContext, topic_name: str) -> bool:
    topic = context.broker.logs.topics.get(topic_name)  # None: deleted a moment ago, which delete_records will say
    return topic is not None and topic.config.cleanup_policy == ("compact",)


def _delete(context: RequestContext, topic_name: str, item: DeleteRecordsPartition) -> tuple[int, ErrorCode]:
    log, error = find_partition(context, topic_name, item.partition_index)
    if log is None:
        return NO_LOW_WATERMARK, error
    if topic_name in INTERNAL_TOPICS:
        return NO_LOW_WATERMARK, ErrorCode.INVALID_TOPIC_EXCEPTION
    if _only_compacted(context, topic_name):
        return NO_LOW_WATERMARK, ErrorCode.POLICY_VIOLATION
    high_watermark = log.high_watermark
    offset = high_watermark if item.offset == HIGH_WATERMARK else item.offset
    if not 0 <= offset <= high_watermark:
        return NO_LOW_WATERMARK, ErrorCode.OFFSET_OUT_OF_RANGE
    try:
        return log.delete_records(offset), ErrorCode.NONE
    except KafkaError as failure:
        return NO_LOW_WATERMARK, failure.code
