"""Handle Metadata 0-13: list brokers, topics and partitions, and create missing topics (auto-creation, KIP-361).

    v0      an empty list means all topics; from v1 on null means all, and an empty list means none
    v4      the request may forbid auto-creation; before v4 it is always allowed
    v8      authorized operations of topics; up to v10 also of the cluster
    v10     topic ids; from v12 on the request may name a topic by id, with a null name

A missing topic is created before the response, so that a client can write to it at once. (Kafka responds with
UNKNOWN_TOPIC_OR_PARTITION, and clients retry.)

Thread rule: a request that creates topics runs on the I/O pool.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.base.logging import RepeatLogger
from kafkalite.broker.handlers.permissions import (
    CLUSTER,
    CREATE,
    DESCRIBE,
    TOPIC,
    allows,
    cluster_operations,
    operations,
)
from kafkalite.broker.handlers.topics import (
    USE_DEFAULT,
    charge,
    check_new_name,
    check_replication_factor,
    partition_count,
)
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.model import INTERNAL_TOPICS, topic_name_error
from kafkalite.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkalite.wire.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.broker.log.partition_log import PartitionLog

logger = RepeatLogger(logging.getLogger(__name__))

NO_LEADER: Final = -1
_NULL_NAMES_SINCE: Final = 12
_NULL_TOPICS_SINCE: Final = 1
_ROWS_MAX: Final = 100_000

_rows: dict[tuple[int, int, int], MetadataResponsePartition] = {}
"""(Node id, partition index, leader epoch) → response row. Partitions of all topics share these few rows, so a response
with 10,000 partitions creates no objects for partitions. Rows are never changed. Any thread may add a row."""


def needs_blocking(context: RequestContext, request: MetadataRequest) -> bool:
    """Return whether the request creates a topic, which waits for the disk."""
    topics = context.broker.logs.topics
    if not _may_create(context, request):
        return False
    return any(
        topic.name not in topics and topic.topic_id == ZERO_UUID and may_describe(context, topic.name or "", probe=True)
        for topic in checkpointed(request.topics or ())
    )


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    cluster = context.broker.cluster
    return MetadataResponse(
        brokers=[this_broker(context)],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=[
            _answer(context, item, with_operations=request.include_topic_authorized_operations)
            for item in _asked(context, request)
        ],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def this_broker(context: RequestContext) -> MetadataResponseBroker:
    """Return the response's entry for this broker, the only one, with its address on the client's listener."""
    endpoint = context.endpoint
    cluster = context.broker.cluster
    return MetadataResponseBroker(node_id=cluster.node_id, host=endpoint.host, port=endpoint.port, rack=cluster.rack)


def partition_rows(context: RequestContext, topic: Topic) -> list[MetadataResponsePartition]:
    """Return the response rows of a topic's partitions."""
    node_id = context.broker.cluster.node_id
    return [_partition_row(node_id, index, log) for index, log in enumerate(topic.partitions)]


def _partition_row(node_id: int, index: int, log: PartitionLog) -> MetadataResponsePartition:
    """Return a partition's row. As in Kafka, an offline partition has no leader."""
    if log.offline:
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=NO_LEADER,
            leader_epoch=log.leader_epoch,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
            offline_replicas=[node_id],
        )
    key = (node_id, index, log.leader_epoch)
    row = _rows.get(key)
    if row is None:
        if len(_rows) >= _ROWS_MAX:
            _rows.clear()
        row = _rows[key] = MetadataResponsePartition(
            partition_index=index,
            leader_id=node_id,
            leader_epoch=log.leader_epoch,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
        )
    return row


def _may_create(context: RequestContext, request: MetadataRequest) -> bool:
    return request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable


def _asked(context: RequestContext, request: MetadataRequest) -> list[Topic | MetadataResponseTopic]:
    """Return the requested topics without duplicates, in the order of the request. A failed topic is replaced by its
    error entry.

    A list of all topics leaves out the topics that the client may not describe.
    """
    if request.topics is None or (not request.topics and context.api_version < _NULL_TOPICS_SINCE):
        every = context.broker.logs.topics.values()
        return [topic for topic in checkpointed(every) if may_describe(context, topic.name, probe=True)]
    may_create = _may_create(context, request)
    unique = {(item.topic_id, item.name): item for item in checkpointed(request.topics)}
    return [_find(context, item, may_create=may_create) for item in checkpointed(unique.values())]


def _find(context: RequestContext, item: MetadataRequestTopic, *, may_create: bool) -> Topic | MetadataResponseTopic:
    """Return a requested topic, or its error entry. If `may_create`, a missing topic is created.

    Internal topics are not created. The first request after a topic's deletion gets Kafka's error, so that a client
    that waits for the deletion sees it. The next request finds the new topic.

    A topic that the client may not describe gets TOPIC_AUTHORIZATION_FAILED. This entry has no id if the topic was
    requested by name, and no name if it was requested by id.
    """
    logs = context.broker.logs
    if item.topic_id != ZERO_UUID:
        found = logs.topics_by_id.get(item.topic_id)
        if found is None:
            return _failure(context, ErrorCode.UNKNOWN_TOPIC_ID, None, item.topic_id)
        if not may_describe(context, found.name):
            return _failure(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, item.topic_id)
        return found
    name = item.name
    if name is None:
        return _failure(context, ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    if not may_describe(context, name):
        denied = _failure(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        denied.is_internal = False
        return denied
    found = logs.topics.get(name)
    if found is not None:
        return found
    if may_create and not may_make(context, name):
        return _failure(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if topic_name_error(name) is not None:
        return _failure(context, ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if not may_create or name in INTERNAL_TOPICS:
        return _failure(context, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    deleted = name in logs.deleted_names
    try:
        created = _create(context, name)
        return created if not deleted else _failure(context, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    except KafkaError as error:
        if error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            return _failure(context, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)  # clients retry until the quota allows
        logger.warning("could not auto-create topic %s: %s", name, error)
        return _failure(context, error.code, name)


def may_describe(context: RequestContext, name: str, *, probe: bool = False) -> bool:
    """Return whether the client may describe a topic of this name. The topic need not exist."""
    return allows(context, DESCRIBE, TOPIC, name, probe=probe)


def may_make(context: RequestContext, name: str) -> bool:
    """Return whether the client may create a topic of this name by auto-creation."""
    return allows(context, CREATE, CLUSTER, probe=True) or allows(context, CREATE, TOPIC, name)


def _create(context: RequestContext, name: str) -> Topic:
    services = context.broker
    try:
        check_new_name(services, name)
        check_replication_factor(services, USE_DEFAULT)
        count = partition_count(context, USE_DEFAULT)
        context.mutations(strict_since=0).record(count)
        created = services.logs.create_topic(name, count, {})
    except TopicAlreadyExists:  # another request created it meanwhile
        found = services.logs.topics.get(name)
        if found is None:  # and a third one deleted it
            raise UnknownTopicOrPartition from None
        return found
    charge(context, name, count)
    return created


def _answer(
    context: RequestContext, item: Topic | MetadataResponseTopic, *, with_operations: bool
) -> MetadataResponseTopic:
    """Return the response's entry for a topic.

    If `with_operations`, the entry has the client's authorized operations, even for a missing topic that is requested
    by name.
    """
    if isinstance(item, MetadataResponseTopic):
        if with_operations and item.name and item.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            item.topic_authorized_operations = operations(context, TOPIC, item.name)
        return item
    return MetadataResponseTopic(
        name=item.name,
        topic_id=item.id,
        is_internal=item.internal,
        partitions=partition_rows(context, item),
        topic_authorized_operations=operations(context, TOPIC, item.name) if with_operations else OPERATIONS_NOT_ASKED,
    )


def _failure(
    context: RequestContext, code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    if name is None and context.api_version < _NULL_NAMES_SINCE:
        name = ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)
