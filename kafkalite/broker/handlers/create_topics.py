"""Handle CreateTopics 2-7: create topics, with this broker as their only replica.

    v4   -1 partitions or replicas means the broker's default (this broker accepts -1 in every version)
    v5   the response has partitions, replication factor and settings
    v6   topics above the client's partition quota are refused, one by one; older versions are throttled (KIP-599)
    v7   the response has the topic id

Topics are durable before the response. Each topic has its own result, and is checked in Kafka's order.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import RepeatLogger
from kafkalite.broker.handlers.permissions import CLUSTER, CREATE, DESCRIBE_CONFIGS, TOPIC, allows, check
from kafkalite.broker.handlers.topics import (
    USE_DEFAULT,
    charge,
    check_new_name,
    check_replication_factor,
    check_room,
    partition_count,
)
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    ConfigError,
    ErrorCode,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
)
from kafkalite.model import INTERNAL_TOPICS
from kafkalite.settings.topic_setting_lookup import TopicConfig
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkalite.wire.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.quotas.mutations import Mutations

_STRICT_SINCE: Final = 6

_Described = dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]]
"""A topic's own settings → all of its settings."""

logger = RepeatLogger(logging.getLogger(__name__))


def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in checkpointed(request.topics))
    mutations = context.mutations(strict_since=_STRICT_SINCE)
    creates_all = allows(context, CREATE, CLUSTER, probe=True)
    unique = {topic.name: topic for topic in checkpointed(request.topics)}
    described: _Described = {}
    topics = [
        _failure(name, InvalidRequest("the request names the topic more than once"))
        if named[name] > 1
        else _create(context, topic, mutations, described, creates_all=creates_all, validate_only=request.validate_only)
        for name, topic in checkpointed(unique.items())
    ]
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms, topics=topics)


def _create(
    context: RequestContext,
    topic: CreatableTopic,
    mutations: Mutations,
    described: _Described,
    *,
    creates_all: bool,
    validate_only: bool,
) -> CreatableTopicResult:
    services = context.broker
    try:
        if not creates_all:
            check(context, CREATE, TOPIC, topic.name)
        check_new_name(services, topic.name)
        if topic.name in INTERNAL_TOPICS:
            raise InvalidRequest(f"{topic.name} is an internal topic that the broker creates itself")
        overrides = _overrides(topic)
        configs = _configs(context, overrides, described)
        count = _manual_partitions(context, topic) if topic.assignments else _numbers(context, topic)
        mutations.record(count)
        topic_id = ZERO_UUID
        if not validate_only:
            created = services.logs.create_topic(topic.name, count, overrides)
            topic_id = created.id
            charge(context, topic.name, count)
    except KafkaError as error:
        return _failure(topic.name, error)
    if not allows(context, DESCRIBE_CONFIGS, TOPIC, topic.name, probe=True):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=configs,
    )


def _overrides(topic: CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for item in checkpointed(topic.configs):
        if item.value is None:
            raise InvalidConfig(f"{item.name} has no value")
        overrides[item.name] = item.value
    return overrides


def _configs(context: RequestContext, overrides: dict[str, str], described: _Described) -> list[CreatableTopicConfigs]:
    """Return the settings of a new topic. Topics of one request with equal `overrides` share one list."""
    given = frozenset(overrides.items())
    if given not in described:
        described[given] = list(_settings(context, _resolve(context, overrides)))
    return described[given]


def _resolve(context: RequestContext, overrides: dict[str, str]) -> TopicConfig:
    try:
        return TopicConfig.requested(context.broker.config, overrides)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error


def _numbers(context: RequestContext, topic: CreatableTopic) -> int:
    """Return the number of partitions. A replication factor above 1 is an error unless replication.factor.accept.any is
    set. Even then the broker keeps and reports one replica."""
    if check_replication_factor(context.broker, topic.replication_factor):
        logger.warning(
            "topic %s requests replication factor %d, but the broker keeps one replica",
            topic.name,
            topic.replication_factor,
        )
    return partition_count(context, topic.num_partitions)


def _manual_partitions(context: RequestContext, topic: CreatableTopic) -> int:
    """Return the number of partitions in a manual assignment. KafkaError unless this broker is the only replica of
    each."""
    if topic.replication_factor != USE_DEFAULT:
        raise InvalidRequest("the replication factor must be -1 when the request assigns replicas")
    if topic.num_partitions != USE_DEFAULT:
        raise InvalidRequest("the number of partitions must be -1 when the request assigns replicas")
    indexes = sorted(assignment.partition_index for assignment in checkpointed(topic.assignments))
    if indexes != list(range(len(indexes))):
        raise InvalidReplicaAssignment(
            f"the request must assign replicas to each of the partitions 0 to {len(indexes) - 1} once"
        )
    for assignment in checkpointed(topic.assignments):
        check_replicas(context, assignment.broker_ids)
    check_room(context, len(indexes), assigned=True)
    return len(indexes)


def check_replicas(context: RequestContext, broker_ids: list[int]) -> None:
    """Raise InvalidReplicaAssignment unless this broker is the only replica."""
    node_id = context.broker.cluster.node_id
    if not broker_ids:
        raise InvalidReplicaAssignment("a partition is assigned to no broker")
    if len(set(broker_ids)) != len(broker_ids):
        raise InvalidReplicaAssignment(f"a partition is assigned to the same broker twice: {broker_ids}")
    if broker_ids != [node_id]:
        raise InvalidReplicaAssignment(
            f"a partition is assigned to brokers {broker_ids}, but the only broker is {node_id}"
        )


def _settings(context: RequestContext, config: TopicConfig) -> Iterable[CreatableTopicConfigs]:
    for entry in config.describe(context.broker.config):
        yield CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.sensitive else entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )


def _failure(name: str, error: KafkaError) -> CreatableTopicResult:
    assert error.code != ErrorCode.NONE
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
