"""Handle DescribeLogDirs 1-5 and AlterReplicaLogDirs 1-2 for the one data directory.

    DescribeLogDirs       returns the partitions' sizes, size and free space of the file system (v4), and whether the
                          directory is cordoned (v5). Null topics mean all topics. As in Kafka, missing topics and
                          partitions are left out.
    AlterReplicaLogDirs   moves nothing. A move to the data directory succeeds without effect, unless the directory is
                          cordoned: INVALID_REPLICA_ASSIGNMENT. As in Kafka, the setting counts here even before
                          metadata.version 4.3-IV0. Any other path gets LOG_DIR_NOT_FOUND.

Source: ReplicaManager.alterReplicaLogDirs and describeLogDirs of Kafka 4.4.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kafkalite.wire.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.handlers.context import RequestContext


_NAME_SIZE_MAX: Final = 255
_MOVING_SUFFIX_SIZE: Final = len(".-future") + 32
"""Length of the suffix of a partition's directory while Kafka moves it to another data directory."""


def describe(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    directory = context.broker.config.data_directory.absolute()
    try:
        space = os.statvfs(directory)
    except OSError:
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory))
        return DescribeLogDirsResponse(results=[failed])
    result = DescribeLogDirsResult(
        log_dir=str(directory),
        topics=[_topic(topic, indexes) for topic, indexes in _asked(context, request)],
        total_bytes=space.f_blocks * space.f_frsize,
        usable_bytes=space.f_bavail * space.f_frsize,
        is_cordoned=context.broker.cordoned,
    )
    return DescribeLogDirsResponse(results=[result])


def alter(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    own = str(context.broker.config.data_directory.absolute())
    rows: dict[str, dict[int, AlterReplicaLogDirPartitionResult]] = {}  # if a partition is named twice, the last wins
    for directory in checkpointed(request.dirs):
        for item in checkpointed(directory.topics):
            for index in checkpointed(item.partitions):
                rows.setdefault(item.name, {})[index] = _result(context, item.name, index, known=directory.path == own)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=list(parts.values()))
            for name, parts in rows.items()
        ]
    )


def _result(context: RequestContext, name: str, index: int, *, known: bool) -> AlterReplicaLogDirPartitionResult:
    return AlterReplicaLogDirPartitionResult(
        partition_index=index, error_code=_moved(context, name, index, known=known)
    )


def _moved(context: RequestContext, name: str, index: int, *, known: bool) -> ErrorCode:
    if len(f"{name}-{index}") + _MOVING_SUFFIX_SIZE > _NAME_SIZE_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not known:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if context.broker.config.cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    topic = context.broker.logs.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not topic.partitions[index].segments:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.KAFKA_STORAGE_ERROR if topic.partitions[index].offline else ErrorCode.NONE


def _asked(context: RequestContext, request: DescribeLogDirsRequest) -> Iterator[tuple[Topic, Iterable[int]]]:
    topics = context.broker.logs.topics
    if request.topics is None:
        for topic in checkpointed(topics.values()):
            yield topic, range(len(topic.partitions))
        return
    for item in checkpointed(request.topics):
        found = topics.get(item.topic)
        if found is not None:
            yield found, [index for index in checkpointed(item.partitions) if 0 <= index < len(found.partitions)]


def _topic(topic: Topic, indexes: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(partition_index=index, partition_size=topic.partitions[index].size_bytes)
            for index in checkpointed(indexes)
            if topic.partitions[index].segments
        ],
    )
