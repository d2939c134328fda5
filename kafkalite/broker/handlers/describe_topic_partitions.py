"""Handle DescribeTopicPartitions 0: describe topics in pages, for tools that describe very many topics (KIP-966).

Topics are in the order of their names; requested topics that the client may not describe are at the end. A page ends
after `response_partition_limit` partitions (at most PAGE_PARTITIONS_MAX). Its cursor is the start of the next page.

A request without names is for all topics. The API never creates topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.broker.handlers.metadata import partition_rows
from kafkalite.broker.handlers.permissions import DESCRIBE, TOPIC, allows, operations
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.model import INTERNAL_TOPICS, topic_name_error
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.wire.protocol.messages.metadata import MetadataResponsePartition

PAGE_PARTITIONS_MAX: Final = 2000


Described = tuple[list[DescribeTopicPartitionsResponsePartition], bool]
"""A page of a topic's partitions, and whether more partitions follow."""


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    topics = context.broker.logs.topics

    def describe(name: str, start: int, room: int) -> tuple[bytes, Described] | None:
        topic = topics.get(name)
        if topic is None:
            return None
        rows = partition_rows(context, topic)
        return topic.id, ([_partition(row) for row in rows[start : start + room]], start + room < len(rows))

    return answer(context, request, topics, describe)


def answer(
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    known: Iterable[str],
    describe: Callable[[str, int, int], tuple[bytes, Described] | None],
) -> DescribeTopicPartitionsResponse:
    """Return a page of the `known` topics, or of the topics that the request names.

    A cursor with a negative partition, or with a topic that the request does not name, gets INVALID_REQUEST for all
    topics.

    `describe(name, first partition, maximum count)` returns a topic's id and partitions; None if the topic does not
    exist.
    """
    cursor = request.cursor
    named = {item.name for item in checkpointed(request.topics)}
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        return DescribeTopicPartitionsResponse(
            topics=[
                _failure(
                    item.name, ErrorCode.INVALID_REQUEST, OPERATIONS_NOT_ASKED, internal=item.name in INTERNAL_TOPICS
                )
                for item in checkpointed(request.topics)
            ]
        )
    names = []
    denied = []
    for name in sorted(named or known):
        if cursor is not None and name < cursor.topic_name:
            continue
        if allows(context, DESCRIBE, TOPIC, name, probe=not named):
            names.append(name)
        elif named:
            denied.append(name)
    room = min(max(request.response_partition_limit, 1), PAGE_PARTITIONS_MAX)
    response = DescribeTopicPartitionsResponse()
    for name in checkpointed(names):
        start = 0
        if cursor is not None:
            start = cursor.partition_index if name == cursor.topic_name else 0
        if room == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=start)
            break
        topic, more = _topic(context, name, describe(name, start, room))
        response.topics.append(topic)
        room -= len(topic.partitions)
        if more:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=start + len(topic.partitions)
            )
            break
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for name in denied:
        response.topics.append(_failure(name, code, OPERATIONS_NOT_ASKED, internal=False))
    return response


def _topic(
    context: RequestContext, name: str, described: tuple[bytes, Described] | None
) -> tuple[DescribeTopicPartitionsResponseTopic, bool]:
    """Return (the response's entry for a topic, whether more partitions of the topic follow)."""
    if described is None:
        invalid = topic_name_error(name) is not None
        code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _failure(name, code, operations(context, TOPIC, name), internal=name in INTERNAL_TOPICS), False
    topic_id, (partitions, more) = described
    found = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations(context, TOPIC, name),
    )
    return found, more


def _failure(
    name: str, code: ErrorCode, authorized_operations: int, *, internal: bool
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=internal,
        topic_authorized_operations=authorized_operations,
    )


def _partition(row: MetadataResponsePartition) -> DescribeTopicPartitionsResponsePartition:
    """Return the entry of a partition of a standalone broker, which has no eligible leader replicas.

    Their lists are empty: the schema allows null, but Java's Admin fails on null.
    """
    return DescribeTopicPartitionsResponsePartition(
        error_code=row.error_code,
        partition_index=row.partition_index,
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        replica_nodes=row.replica_nodes,
        isr_nodes=row.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=row.offline_replicas,
    )
