"""Handle CreatePartitions 0-3: add partitions to topics.

The new partitions are durable before the response. The request's `count` is the new total and must be higher than the
current total. A manual assignment names the replicas of each new partition; the only possible replica is this broker. A
topic that is named twice gets one result, INVALID_REQUEST. From v3 on partitions above the client's quota are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.broker.handlers.create_topics import check_replicas
from kafkalite.broker.handlers.permissions import ALTER, TOPIC, check
from kafkalite.broker.handlers.topics import charge, check_room
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kafkalite.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.quotas.mutations import Mutations

_STRICT_SINCE: Final = 3


def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in checkpointed(request.topics))
    unique = {topic.name: topic for topic in checkpointed(request.topics)}
    mutations = context.mutations(strict_since=_STRICT_SINCE)
    results = [
        _grow(context, topic, mutations, count=named[name], validate_only=request.validate_only)
        for name, topic in checkpointed(unique.items())
    ]
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=results)


def _grow(
    context: RequestContext, topic: CreatePartitionsTopic, mutations: Mutations, *, count: int, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        if count > 1:
            raise InvalidRequest("the request names the topic more than once")
        check(context, ALTER, TOPIC, topic.name)
        added = _check(context, topic)
        mutations.record(added)
        if not validate_only:
            context.broker.logs.add_partitions(topic.name, topic.count)
            charge(context, topic.name, added)
    except (UnknownTopicOrPartition, TopicAuthorizationFailed) as error:
        return CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=None)  # as in Kafka
    except KafkaError as error:
        return CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
    return CreatePartitionsTopicResult(name=topic.name)


def _check(context: RequestContext, topic: CreatePartitionsTopic) -> int:
    """Return the number of partitions to add; KafkaError if they cannot be added."""
    found = context.broker.logs.topics.get(topic.name)
    if found is None:
        raise UnknownTopicOrPartition
    if found.internal:
        raise InvalidRequest(
            f"the partition count of internal topic {topic.name} cannot change, because keys are placed by that count"
        )
    present = len(found.partitions)
    if topic.count == present:
        raise InvalidPartitions(f"the topic already has {present} partitions")
    if topic.count < present:
        raise InvalidPartitions(f"the topic has {present} partitions, which cannot be reduced to {topic.count}")
    added = topic.count - present
    check_room(context, added, assigned=topic.assignments is not None)
    if topic.assignments is not None:
        if len(topic.assignments) != added:
            raise InvalidReplicaAssignment(
                f"{added} partitions are to be added, but the request assigns replicas for {len(topic.assignments)}"
            )
        for assignment in checkpointed(topic.assignments):
            check_replicas(context, assignment.broker_ids)
    return added
