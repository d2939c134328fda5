"""Handle ListOffsets 1-11: return the first or last offset of partitions, or the first offset at or after a timestamp.

    -1 latest (v1)                the readable end: high watermark, or the last stable offset for read_committed (v2)
    -2 earliest (v1)              the log start offset
    -3 max timestamp (v7)         the record's offset and timestamp; as in Kafka, none if it is above the readable end
    -4 earliest local (v8)        the log start offset, since there is no tiered storage
    -5 latest tiered (v9)         offset -1, since there is no tiered storage
    -6 earliest to upload (v11)   offset -1, for the same reason
    >= 0 a timestamp in ms        the first record (not batch) at or after this time, below the readable end

If no record is found, the offset is -1 without an error. An unknown special timestamp, or one that the request's
version does not support, gets UNSUPPORTED_VERSION. A partition that is named twice gets one result, INVALID_REQUEST.

Thread rule: look-ups by time read batches, so they run on the I/O pool.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.broker.handlers.permissions import DESCRIBE, TOPIC, allowed_names
from kafkalite.broker.handlers.topics import NO_LEADER_EPOCH, find_partition
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.model import (
    OFFSET_EARLIEST,
    OFFSET_EARLIEST_LOCAL,
    OFFSET_LATEST,
    OFFSET_LATEST_TIERED,
    OFFSET_MAX_TIMESTAMP,
)
from kafkalite.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.log.partition_log import PartitionLog

OFFSET_EARLIEST_PENDING_UPLOAD: Final = -6
READ_COMMITTED: Final = 1
_CONSUMER: Final = -1
_LEADER_EPOCH_SINCE: Final = 4
_NOT_AVAILABLE_SINCE: Final = 5
_SINCE: Final = {
    OFFSET_LATEST: 1,
    OFFSET_EARLIEST: 1,
    OFFSET_MAX_TIMESTAMP: 7,
    OFFSET_EARLIEST_LOCAL: 8,
    OFFSET_LATEST_TIERED: 9,
    OFFSET_EARLIEST_PENDING_UPLOAD: 11,
}
"""Special timestamp → the first version that supports it."""


def needs_blocking(context: RequestContext, request: ListOffsetsRequest) -> bool:
    """Return whether the request reads the disk: to search a log by time, or to load a log's last stable offset."""
    committed = request.isolation_level == READ_COMMITTED
    return any(
        partition.timestamp >= 0
        or partition.timestamp == OFFSET_MAX_TIMESTAMP
        or (committed and partition.timestamp == OFFSET_LATEST and _is_cold(context, topic.name, partition))
        for topic in checkpointed(request.topics)
        for partition in checkpointed(topic.partitions)
    )


def _is_cold(context: RequestContext, topic: str, partition: ListOffsetsPartition) -> bool:
    log, _ = find_partition(context, topic, partition.partition_index)
    return log is not None and log.producers is None


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    named = Counter(
        (topic.name, partition.partition_index)
        for topic in checkpointed(request.topics)
        for partition in checkpointed(topic.partitions)
    )
    committed = request.isolation_level == READ_COMMITTED
    allowed = allowed_names(context, DESCRIBE, TOPIC, (topic.name for topic in checkpointed(request.topics)))
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _failure(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if topic.name not in allowed
                    else _failure(partition, ErrorCode.INVALID_REQUEST)
                    if named[topic.name, index] > 1
                    else _partition(context, topic.name, partition, _Reader(request.replica_id, committed))
                    for index, partition in {
                        item.partition_index: item for item in checkpointed(topic.partitions)
                    }.items()
                ],
            )
            for topic in checkpointed(request.topics)
        ]
    )


class _Reader(NamedTuple):
    """The client that sent the request: a consumer with its isolation level, or a follower.

    A follower's request has a replica id other than -1. Its latest offset is the log end offset.
    """

    replica_id: int
    """-1 for a consumer."""
    committed: bool
    """Whether the client reads only below the last stable offset (read_committed)."""

    @property
    def consumes(self) -> bool:
        return self.replica_id == _CONSUMER

    def end(self, log: PartitionLog) -> int:
        """Return the offset below which the client may read."""
        if not self.consumes:
            return log.log_end_offset
        return log.last_stable_offset if self.committed else log.high_watermark


def _partition(
    context: RequestContext, topic: str, partition: ListOffsetsPartition, reader: _Reader
) -> ListOffsetsPartitionResponse:
    timestamp = partition.timestamp
    if timestamp < 0 and context.api_version < _SINCE.get(timestamp, context.api_version + 1):
        return _failure(partition, ErrorCode.UNSUPPORTED_VERSION)
    log, error = find_partition(context, topic, partition.partition_index, partition.current_leader_epoch)
    if log is None:
        return _failure(partition, error)
    try:
        found, offset, epoch = _look_up(log, timestamp, reader)
    except KafkaError as error:
        late = error.code == ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < _NOT_AVAILABLE_SINCE
        return _failure(partition, ErrorCode.LEADER_NOT_AVAILABLE if late else error.code)
    if context.api_version < _LEADER_EPOCH_SINCE:
        epoch = NO_LEADER_EPOCH
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index, timestamp=found, offset=offset, leader_epoch=epoch
    )


def _look_up(log: PartitionLog, timestamp: int, reader: _Reader) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch), with -1 for a value that does not exist.

    Raise OFFSET_NOT_AVAILABLE if a new leader cannot know the result yet.
    """
    if timestamp in (OFFSET_EARLIEST, OFFSET_EARLIEST_LOCAL):
        start = log.log_start_offset
        return -1, start, log.epoch_at(start)
    if timestamp in (OFFSET_LATEST_TIERED, OFFSET_EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    if reader.committed:
        log.ensure_producers()  # see needs_blocking
    readable_end = reader.end(log)
    if timestamp == OFFSET_LATEST:
        _check_known(log, reader)
        return -1, readable_end, log.leader_epoch
    search_end = log.log_end_offset if log.core.followers is not None else readable_end
    found = log.max_timestamp() if timestamp == OFFSET_MAX_TIMESTAMP else log.find_timestamp(timestamp, search_end)
    if found is None:
        return -1, -1, -1
    if found.offset >= readable_end:
        _check_known(log, reader)
        return -1, -1, -1
    return found.timestamp, found.offset, found.leader_epoch


def _check_known(log: PartitionLog, reader: _Reader) -> None:
    """Raise OFFSET_NOT_AVAILABLE until a new leader knows its high watermark (KIP-207).

    In a cluster, a consumer gets this error until the high watermark has reached the leader's epoch.
    """
    followers = log.core.followers
    if reader.consumes and followers is not None and log.high_watermark < followers.epoch_start:
        raise error_for(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"{log.name} has a new leader, whose high watermark is not known yet"
        )


def _failure(partition: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )
