"""Handle OffsetCommit 2-10, OffsetFetch 1-10 and OffsetDelete 0: commit, fetch and delete a group's offsets.

    OffsetCommit  v2-4   has a retention time, set by the client
                  v6     has leader epochs
                  v7     has static members
                  v9     has member epochs (KIP-848). A commit with a generation to a missing group gets
                         GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
                  v10    names topics by id; an unknown id gets UNKNOWN_TOPIC_ID
    OffsetFetch   v1     has errors per partition, and cannot request all offsets
                  v2     has an error for the whole request. Null topics request all committed offsets, an empty list
                         requests none
                  v7     has require_stable: UNSTABLE_OFFSET_COMMIT while a transaction may replace an offset (KIP-447)
                  v8     has several groups, each with its error
                  v9     has member id and epoch (KIP-848)
                  v10    names topics by id. A request for all offsets leaves out deleted topics, which have no id

A commit is durable before the response.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalite.base.deferred import completed
from kafkalite.broker.coordinator.group_offsets import UNSTABLE
from kafkalite.broker.coordinator.offset_requests import Offset
from kafkalite.broker.handlers.permissions import DELETE, DESCRIBE, GROUP, READ, TOPIC, allowed_names, allows
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkalite.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafkalite.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkalite.wire.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.coordinator.group_offsets import Committed
    from kafkalite.broker.handlers.context import RequestContext

T = TypeVar("T")

NO_OFFSET: Final = -1
_TOPIC_IDS_SINCE: Final = 10
_MANY_GROUPS_SINCE: Final = 8
_ERROR_FOR_ALL_SINCE: Final = 2
_AT_ONCE: Final = 500
"""Maximum number of partitions per look-up."""


def commit(context: RequestContext, request: OffsetCommitRequest) -> Deferred[OffsetCommitResponse]:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    offsets: list[Offset] = []
    denied: list[int] = []
    member = allows(context, READ, GROUP, request.group_id)
    for topic in checkpointed(request.topics):
        name = name_of(context, topic.topic_id) if by_id else topic.name
        code = ErrorCode.NONE
        if not member:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not allows(context, READ, TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied += [int(code)] * len(topic.partitions)
        for partition in checkpointed(() if code else topic.partitions):
            offset = Offset(
                TopicPartition(name or "", partition.partition_index),
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
            )
            offsets.append(offset)
    if not member:
        return completed(_commit_response(request, denied))
    done = context.broker.groups.offsets.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        retention_ms=request.retention_time_ms,
        version=context.api_version,
        holder=context.holder,
    )
    return done.map(lambda codes: _commit_response(request, merged(denied, codes)))


def merged(denied: list[int], codes: list[int]) -> list[int]:
    """Return the codes of all partitions of a commit, in the order of the request.

    `denied` has a code for each partition, 0 for an allowed one. `codes` has the results of the allowed partitions.
    """
    found = iter(codes)
    return [code or next(found) for code in denied]


def name_of(context: RequestContext, topic_id: bytes) -> str | None:
    topic = context.broker.logs.topics_by_id.get(topic_id)
    return None if topic is None else topic.name


def committed_topics(topics: list[Any], codes: list[int], of_topic: Callable[..., T], of_partition: type) -> list[T]:
    """Return the topics of an OffsetCommit or TxnOffsetCommit response; `codes` are in the order of the partitions."""
    results = iter(codes)
    return [
        of_topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                of_partition(partition_index=partition.partition_index, error_code=code)
                for partition, code in checkpointed(zip(topic.partitions, results, strict=False))
            ],
        )
        for topic in checkpointed(topics)
    ]


def _commit_response(request: OffsetCommitRequest, codes: list[int]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=committed_topics(request.topics, codes, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    )


def fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= _MANY_GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                _of_one_coordinator(context, group.group_id, partial(_fetch_group, context, request, group))
                for group in checkpointed(request.groups)
            ]
        )
    return _of_one_coordinator(context, request.group_id, partial(_fetch_only_group, context, request))


def _of_one_coordinator(context: RequestContext, group_id: str, fetch: Callable[[], T]) -> T:
    """Return the result of `fetch`, computed within one leader epoch of the group's partition.

    This broker forgets a group when the epoch ends. Without this check a forgotten group would look like a group
    without commits.
    """
    groups = context.broker.groups
    while True:
        home = groups.shards.home_of(group_id)
        answer = fetch()
        if home == groups.shards.home_of(group_id):
            return answer


def _fetch_only_group(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    described = allows(context, DESCRIBE, GROUP, request.group_id)
    if described:
        code = context.broker.groups.error_of(request.group_id, may_be_empty=True)
    else:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if request.topics is None:
        asked = _all_committed(context, request.group_id) if described else []
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in checkpointed(request.topics)]
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(**_fields(number, found, topic_code))
                for number, found in _found(context, request, request.group_id, name, numbers, topic_code)
            ],
        )
        for name, numbers in checkpointed(asked)
        for topic_code in (code or _topic_code(context, name),)
        if not code or context.api_version < _ERROR_FOR_ALL_SINCE
    ]
    return OffsetFetchResponse(error_code=code, topics=topics)


def _fetch_group(
    context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    if not allows(context, DESCRIBE, GROUP, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    code = context.broker.groups.offsets.fetch_error(group.group_id, group.member_id, group.member_epoch)
    topics = (
        [] if code else [_fetch_topic(context, request, group.group_id, *asked) for asked in _asked(context, group)]
    )
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code, topics=topics)


def _asked(context: RequestContext, group: OffsetFetchRequestGroup) -> list[tuple[str | None, bytes, list[int]]]:
    """Return (topic, topic id, partitions) of each requested topic. Null topics mean all topics with committed offsets.

    In a request by name the id is zero. In a request by id the name is None if no topic has this id.
    """
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    if group.topics is not None:
        return [
            (name_of(context, topic.topic_id) if by_id else topic.name, topic.topic_id, topic.partition_indexes)
            for topic in checkpointed(group.topics)
        ]
    committed = _all_committed(context, group.group_id)
    if not by_id:
        return [(name, ZERO_UUID, numbers) for name, numbers in committed]
    topics = context.broker.logs.topics
    return [(name, topics[name].id, numbers) for name, numbers in committed if name in topics]


def _all_committed(context: RequestContext, group_id: str) -> list[tuple[str, list[int]]]:
    """Return (topic, partitions with committed offsets) for each topic that the client may describe."""
    committed = context.broker.groups.offsets.committed_partitions(group_id)
    return [
        (name, numbers) for name, numbers in checkpointed(committed.items()) if allows(context, DESCRIBE, TOPIC, name)
    ]


def _topic_code(context: RequestContext, name: str) -> int:
    """Return the error code if the client may not describe the topic, or 0."""
    return 0 if allows(context, DESCRIBE, TOPIC, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _fetch_topic(
    context: RequestContext,
    request: OffsetFetchRequest,
    group_id: str,
    name: str | None,
    topic_id: bytes,
    numbers: list[int],
) -> OffsetFetchResponseTopics:
    code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else _topic_code(context, name)
    return OffsetFetchResponseTopics(
        name=name or "",
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(**_fields(number, found, code))
            for number, found in _found(context, request, group_id, name or "", numbers, code)
        ],
    )


def _found(
    context: RequestContext, request: OffsetFetchRequest, group_id: str, topic: str, numbers: list[int], code: int
) -> Iterable[tuple[int, Committed | None]]:
    """Return each partition with its committed offset. As in Kafka, the offset may be outside the log."""
    if code:
        return [(number, None) for number in checkpointed(numbers)]
    found: list[Committed | None] = []
    for start in checkpointed(range(0, len(numbers), _AT_ONCE)):  # each look-up holds the group's lock
        some = numbers[start : start + _AT_ONCE]
        found += context.broker.groups.offsets.fetch(group_id, topic, some, stable=request.require_stable)
    return checkpointed(zip(numbers, found, strict=True))


def _fields(number: int, found: Committed | None, code: int) -> dict[str, Any]:
    if found is None:
        return {"partition_index": number, "committed_offset": NO_OFFSET, "error_code": code}
    if found is UNSTABLE:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return {"partition_index": number, "committed_offset": NO_OFFSET, "error_code": code}
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
    }


def delete(context: RequestContext, request: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
    if not allows(context, DELETE, GROUP, request.group_id):
        return completed(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    topics = context.broker.logs.topics
    allowed = allowed_names(context, READ, TOPIC, (topic.name for topic in checkpointed(request.topics)))
    partitions = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in checkpointed(request.topics)
        if topic.name in allowed
        for partition in checkpointed(topic.partitions)
    ]
    present = [
        p for p in checkpointed(partitions) if p.topic in topics and 0 <= p.partition < len(topics[p.topic].partitions)
    ]
    unknown = set(partitions).difference(present)
    done = context.broker.groups.offsets.delete(request.group_id, present)
    return done.map(lambda result: _delete_response(request, allowed, unknown, *result))


def _delete_response(
    request: OffsetDeleteRequest,
    allowed: frozenset[str],
    unknown: set[TopicPartition],
    code: int,
    codes: dict[str, int],
) -> OffsetDeleteResponse:
    if code:
        return OffsetDeleteResponse(error_code=code)

    def code_of(topic: str, partition: int) -> int:
        if topic not in allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if (topic, partition) in unknown:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return codes.get(topic, 0)

    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code_of(topic.name, partition.partition_index),
                    )
                    for partition in checkpointed(topic.partitions)
                ],
            )
            for topic in checkpointed(request.topics)
        ]
    )
