"""DescribeLogDirs 1-4: the data directory, how large each partition in it is, and how full its file system is (v4).

Null topics mean all; topics and partitions that do not exist are left out, as in Kafka. There is one directory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalite.errors import ErrorCode
from kafkalite.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.handlers.context import RequestContext


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
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
    )
    return DescribeLogDirsResponse(results=[result])


def _asked(context: RequestContext, request: DescribeLogDirsRequest) -> Iterator[tuple[Topic, Iterable[int]]]:
    topics = context.broker.logs.topics
    if request.topics is None:
        for topic in topics.values():
            yield topic, range(len(topic.partitions))
        return
    for item in request.topics:
        found = topics.get(item.topic)
        if found is not None:
            yield found, [index for index in item.partitions if 0 <= index < len(found.partitions)]


def _topic(topic: Topic, indexes: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(partition_index=index, partition_size=topic.partitions[index].size_bytes)
            for index in indexes
        ],
    )
