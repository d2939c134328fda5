"""Handle DeleteTopics 1-6: delete topics with their records.

The deletion is durable before the response; the files are removed later. A topic that is named twice gets one result,
INVALID_REQUEST.

    v3   with delete.topic.enable=false, every topic gets TOPIC_DELETION_DISABLED; before v3, INVALID_REQUEST
    v5   topics with partitions above the client's quota are refused
    v6   the request has a topic's name or id, not both; the response has both
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.broker.handlers.permissions import CLUSTER, DELETE, DESCRIBE, TOPIC, allows, refusal
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    InvalidRequest,
    KafkaError,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkalite.wire.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kafkalite.wire.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.quotas.mutations import Mutations

_STATES_SINCE: Final = 6
_DISABLED_SINCE: Final = 3
_STRICT_SINCE: Final = 5


def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    states = request.topics
    if context.api_version < _STATES_SINCE:
        states = [DeleteTopicState(name=name) for name in checkpointed(request.topic_names)]
    asked = Counter((state.name, state.topic_id) for state in checkpointed(states))
    unique = {(state.name, state.topic_id): state for state in checkpointed(states)}
    deletes_all = allows(context, DELETE, CLUSTER, probe=True)
    mutations = context.mutations(strict_since=_STRICT_SINCE)
    results = [
        _delete(context, state, mutations, count=asked[key], deletes_all=deletes_all)
        for key, state in checkpointed(unique.items())
    ]
    try:
        context.broker.logs.removals.sync_renames()  # one sync for all topics
    except KafkaError as error:
        for result in checkpointed(results):
            if result.error_code == 0:
                result.error_code, result.error_message = error.code, error.message
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms, responses=results)


def _delete(
    context: RequestContext, state: DeleteTopicState, mutations: Mutations, *, count: int, deletes_all: bool
) -> DeletableTopicResult:
    name = state.name
    try:
        if not context.broker.config.delete_topic_enable:
            disabled = TopicDeletionDisabled if context.api_version >= _DISABLED_SINCE else InvalidRequest
            raise disabled("topic deletion is disabled (delete.topic.enable=false)")
        if count > 1:
            raise InvalidRequest("the request names the topic more than once")
        _check_naming(state)
        if name is not None and not deletes_all:
            _check_permission(context, name)
        topic = _find(context, state)
        if name is None and not deletes_all:
            if allows(context, DESCRIBE, TOPIC, topic.name):
                name = topic.name
            if not allows(context, DELETE, TOPIC, topic.name):
                raise refusal(TOPIC)
        if topic.internal:
            raise InvalidRequest(f"{topic.name} is an internal topic and cannot be deleted; delete its groups instead")
        mutations.record(len(topic.partitions))
        context.broker.logs.delete_topic(topic.name, durable=False)
    except KafkaError as error:
        return DeletableTopicResult(
            name=name, topic_id=state.topic_id, error_code=error.code, error_message=error.message
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


def _check_naming(state: DeleteTopicState) -> None:
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise InvalidRequest("the request must name a topic by name or by id, not both")
    if state.name is None and state.topic_id == ZERO_UUID:
        raise InvalidRequest("the request names a topic neither by name nor by id")


def _check_permission(context: RequestContext, name: str) -> None:
    """Raise the authorization error if the client may not delete a topic. If the topic does not exist and the client
    may describe it, return without an error."""
    if not allows(context, DESCRIBE, TOPIC, name):
        raise refusal(TOPIC)
    if name in context.broker.logs.topics and not allows(context, DELETE, TOPIC, name):
        raise refusal(TOPIC)


def _find(context: RequestContext, state: DeleteTopicState) -> Topic:
    logs = context.broker.logs
    if state.name is not None:
        topic = logs.topics.get(state.name)
        if topic is None:
            raise UnknownTopicOrPartition
        return topic
    topic = logs.topics_by_id.get(state.topic_id)
    if topic is None:
        raise UnknownTopicId
    return topic
