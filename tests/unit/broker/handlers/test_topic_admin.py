"""CreateTopics, DeleteTopics, CreatePartitions: each check with its code, in every version."""

import pytest

from kafkalite.errors import ErrorCode, error_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.schema import ZERO_UUID
from tests.kit.harness.handler_calls import NODE_ID, HandlerCalls, versions

CREATE_VERSIONS = versions(api.CREATE_TOPICS)
DELETE_VERSIONS = versions(api.DELETE_TOPICS)
GROW_VERSIONS = versions(api.CREATE_PARTITIONS)


def create_all(broker, version, *topics, validate_only=False):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    results = broker.call(api.CREATE_TOPICS, version, request).topics
    assert broker.blocked
    return results


def new_topic(name="new", *, partitions=2, replicas=1, assigned=None, **configs):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in (assigned or [])
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(broker, version, *args, **kwargs):
    (result,) = create_all(broker, version, new_topic(*args, **kwargs))
    return result


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_topic_is_created_and_described(broker, version):
    result = create(broker, version, partitions=4, retention_ms="1000")
    assert (result.name, result.error_code, result.error_message) == ("new", 0, None)
    topic = broker.logs.topics["new"]
    assert (len(topic.partitions), topic.overrides) == (4, {"retention.ms": "1000"})
    assert result.topic_id == (topic.id if version >= 7 else ZERO_UUID)
    if version < 5:
        return
    assert (result.num_partitions, result.replication_factor) == (4, 1)
    told = {config.name: config for config in result.configs}
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", 1)
    assert (told["cleanup.policy"].value, told["cleanup.policy"].config_source) == ("delete", 5)


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_defaults_are_the_brokers(version):
    broker = HandlerCalls(num_partitions="6")
    result = create(broker, version, partitions=-1, replicas=-1)
    assert result.error_code == ErrorCode.NONE
    assert len(broker.logs.topics["new"].partitions) == 6


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_validate_only_creates_nothing(broker, version):
    (result,) = create_all(broker, version, new_topic(), validate_only=True)
    assert (result.error_code, result.topic_id) == (0, ZERO_UUID)
    assert "new" not in broker.logs.topics
    (result,) = create_all(broker, version, new_topic("orders"), validate_only=True)
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


REFUSED = [
    pytest.param({"name": "orders"}, ErrorCode.TOPIC_ALREADY_EXISTS, id="exists"),
    pytest.param({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION, id="empty-name"),
    pytest.param({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION, id="dots"),
    pytest.param({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION, id="long-name"),
    pytest.param({"name": "a:b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, id="bad-character"),
    pytest.param({"name": "__consumer_offsets"}, ErrorCode.INVALID_REQUEST, id="internal"),
    pytest.param({"partitions": 0}, ErrorCode.INVALID_PARTITIONS, id="no-partitions"),
    pytest.param({"partitions": -2}, ErrorCode.INVALID_PARTITIONS, id="negative-partitions"),
    pytest.param({"partitions": 2**31 - 1}, ErrorCode.POLICY_VIOLATION, id="too-many-partitions"),
    pytest.param({"replicas": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, id="no-replicas"),
    pytest.param({"replicas": -2}, ErrorCode.INVALID_REPLICATION_FACTOR, id="negative-replicas"),
    pytest.param({"replicas": 3}, ErrorCode.INVALID_REPLICATION_FACTOR, id="three-replicas"),
    pytest.param({"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG, id="bad-value"),
    pytest.param({"retention_ms": None}, ErrorCode.INVALID_CONFIG, id="null-value"),
    pytest.param({"no_such_thing": "1"}, ErrorCode.INVALID_CONFIG, id="unknown-setting"),
    pytest.param({"assigned": [(0, [NODE_ID])]}, ErrorCode.INVALID_REQUEST, id="assignment-and-numbers"),
    pytest.param(
        {"partitions": -1, "assigned": [(0, [NODE_ID])]}, ErrorCode.INVALID_REQUEST, id="assignment-and-replicas"
    ),
]
BAD_ASSIGNMENTS = [
    pytest.param([(1, [NODE_ID])], id="not-from-0"),
    pytest.param([(0, [NODE_ID]), (2, [NODE_ID])], id="gap"),
    pytest.param([(0, [NODE_ID]), (0, [NODE_ID])], id="partition-twice"),
    pytest.param([(0, [])], id="no-broker"),
    pytest.param([(0, [NODE_ID, NODE_ID])], id="broker-twice"),
    pytest.param([(0, [99])], id="unknown-broker"),
    pytest.param([(0, [NODE_ID, 99])], id="one-unknown-broker"),
]


@pytest.mark.parametrize("version", CREATE_VERSIONS)
@pytest.mark.parametrize(("topic", "code"), REFUSED)
def test_topic_that_is_refused(broker, version, topic, code):
    result = create(broker, version, **topic)
    assert (result.name, result.error_code) == (topic.get("name", "new"), code)
    assert result.error_message
    assert (result.topic_id, result.num_partitions, result.replication_factor) == (ZERO_UUID, -1, -1)
    assert sorted(broker.logs.topics) == ["logs", "orders"]


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_manual_assignment(broker, version):
    result = create(broker, version, partitions=-1, replicas=-1, assigned=[(1, [NODE_ID]), (0, [NODE_ID])])
    assert result.error_code == ErrorCode.NONE
    assert len(broker.logs.topics["new"].partitions) == 2


@pytest.mark.parametrize("assigned", BAD_ASSIGNMENTS)
def test_manual_assignment_that_is_refused(broker, assigned):
    result = create(broker, 7, partitions=-1, replicas=-1, assigned=assigned)
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_topic_named_twice_is_refused_once_and_others_are_created(broker, version):
    results = create_all(broker, version, new_topic("a"), new_topic("b"), new_topic("a"))
    assert [(result.name, result.error_code) for result in results] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]
    assert "a" not in broker.logs.topics


def test_names_that_collide(broker):
    assert create(broker, 7, "a.b_c").error_code == 0
    assert create(broker, 7, "a_b.c").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create(broker, 7, "a-b.c").error_code == 0


def test_larger_replication_factor_may_be_taken_with_a_warning(caplog):
    broker = HandlerCalls(replication_factor_accept_any="true")
    result = create(broker, 7, replicas=3)
    assert (result.error_code, result.replication_factor) == (0, 1)
    assert "replication factor 3, but the broker keeps one replica" in caplog.text
    assert create(broker, 7, "other", replicas=0).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_every_kafka_setting_of_a_topic_is_accepted(broker):
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "delete.retention.ms": "1",
        "file.delete.delay.ms": "1",
        "flush.messages": "1",
        "flush.ms": "1",
        "follower.replication.throttled.replicas": "0:1",
        "index.interval.bytes": "1024",
        "leader.replication.throttled.replicas": "*",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": "1000",
        "max.message.bytes": "1000",
        "message.timestamp.after.max.ms": "1",
        "message.timestamp.before.max.ms": "1",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.1",
        "min.compaction.lag.ms": "1",
        "min.insync.replicas": "2",
        "preallocate": "true",
        "remote.storage.enable": "false",
        "retention.bytes": "1",
        "retention.ms": "1",
        "segment.bytes": "1048576",
        "segment.index.bytes": "1048576",
        "segment.jitter.ms": "1",
        "segment.ms": "1",
        "unclean.leader.election.enable": "true",
    }
    topic = CreatableTopic(
        name="new",
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )
    (result,) = create_all(broker, 7, topic)
    assert (result.error_code, result.error_message) == (0, None)
    assert {config.name: config.value for config in result.configs if config.config_source == 1} == settings


def test_storage_failure_is_the_topics_error(broker):
    broker.logs.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR, "disk full")
    result = create(broker, 7)
    assert (result.error_code, result.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "disk full")


def delete(broker, version, *names):
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version >= 6:
        request.topics = [
            DeleteTopicState(topic_id=name) if isinstance(name, bytes) else DeleteTopicState(name=name)
            for name in names
        ]
    else:
        request.topic_names = list(names)
    results = broker.call(api.DELETE_TOPICS, version, request).responses
    assert broker.blocked
    return [(result.name, result.error_code) for result in results], results


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_topics_are_deleted_by_name(broker, version):
    topic_id = broker.logs.topics["orders"].id
    told, results = delete(broker, version, "orders", "missing", "logs")
    assert told == [("orders", 0), ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("logs", 0)]
    assert broker.logs.topics == {}
    assert results[0].topic_id == (topic_id if version >= 6 else ZERO_UUID)
    assert results[0].error_message is None


def test_topics_are_deleted_by_id(broker):
    topic_id = broker.logs.topics["orders"].id
    told, results = delete(broker, 6, topic_id, b"\1" * 16)
    assert told == [("orders", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert [result.topic_id for result in results] == [topic_id, b"\1" * 16]
    assert list(broker.logs.topics) == ["logs"]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_topic_to_delete_named_twice(broker, version):
    told, _ = delete(broker, version, "orders", "orders", "logs")
    assert told == [("orders", ErrorCode.INVALID_REQUEST), ("logs", 0)]
    assert list(broker.logs.topics) == ["orders"]


def test_topic_to_delete_named_both_ways_or_not_at_all(broker):
    both = DeleteTopicState(name="orders", topic_id=broker.logs.topics["orders"].id)
    neither = DeleteTopicState()
    results = broker.call(api.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[both, neither])).responses
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert "orders" in broker.logs.topics


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_deleting_may_be_forbidden(version):
    broker = HandlerCalls(delete_topic_enable="false")
    broker.logs.create_topic("orders", 1, {})
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert delete(broker, version, "orders")[0] == [("orders", code)]
    assert "orders" in broker.logs.topics


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_storage_failure_while_deleting(broker, version):
    broker.logs.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    assert delete(broker, version, "orders")[0] == [("orders", ErrorCode.KAFKA_STORAGE_ERROR)]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_topics_deleted_together_are_made_durable_together(broker, version):
    broker.logs.create_topic("more", 1, {})
    broker.logs.create_topic("most", 1, {})
    assert delete(broker, version, "orders", "more")[0] == [("orders", 0), ("more", 0)]
    assert broker.logs.sync_count == 1
    broker.logs.sync_failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    assert delete(broker, version, "most", "gone")[0] == [
        ("most", ErrorCode.KAFKA_STORAGE_ERROR),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def grow(broker, version, count, *, name="orders", assigned=None, validate_only=False):
    assignments = None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    (result,) = broker.call(api.CREATE_PARTITIONS, version, request).results
    assert broker.blocked
    assert result.name == name
    assert (result.error_message is None) == (result.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return result.error_code


@pytest.mark.parametrize("version", GROW_VERSIONS)
def test_partitions_are_added(broker, version):
    assert grow(broker, version, 5) == 0
    assert len(broker.logs.topics["orders"].partitions) == 5
    assert grow(broker, version, 7, assigned=[[NODE_ID], [NODE_ID]]) == 0
    assert len(broker.logs.topics["orders"].partitions) == 7


@pytest.mark.parametrize("version", GROW_VERSIONS)
def test_partitions_are_only_checked(broker, version):
    assert grow(broker, version, 5, validate_only=True) == 0
    assert grow(broker, version, 1, validate_only=True) == ErrorCode.INVALID_PARTITIONS
    assert len(broker.logs.topics["orders"].partitions) == 3


@pytest.mark.parametrize("version", GROW_VERSIONS)
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        pytest.param({"count": 3}, ErrorCode.INVALID_PARTITIONS, id="as-many"),
        pytest.param({"count": 2}, ErrorCode.INVALID_PARTITIONS, id="fewer"),
        pytest.param({"count": -1}, ErrorCode.INVALID_PARTITIONS, id="negative"),
        pytest.param({"count": 2**31 - 1}, ErrorCode.POLICY_VIOLATION, id="too-many"),
        pytest.param({"count": 4, "name": "missing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown-topic"),
        pytest.param(
            {"count": 5, "assigned": [[NODE_ID]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="too-few-assigned"
        ),
        pytest.param({"count": 4, "assigned": [[99]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown-broker"),
        pytest.param({"count": 4, "assigned": [[]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="no-broker"),
        pytest.param(
            {"count": 4, "assigned": [[NODE_ID, NODE_ID]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="broker-twice"
        ),
    ],
)
def test_partitions_that_are_refused(broker, version, wanted, code):
    assert grow(broker, version, **wanted) == code
    assert len(broker.logs.topics["orders"].partitions) == 3


def test_topic_to_grow_named_twice(broker):
    topics = [CreatePartitionsTopic(name=name, count=9, assignments=None) for name in ("orders", "logs", "orders")]
    results = broker.call(api.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=topics)).results
    assert [(result.name, result.error_code) for result in results] == [
        ("orders", ErrorCode.INVALID_REQUEST),
        ("logs", 0),
    ]


def test_partitions_beyond_the_limit():
    broker = HandlerCalls(max_partitions="4")
    broker.logs.create_topic("orders", 3, {})
    assert grow(broker, 3, 5) == ErrorCode.POLICY_VIOLATION
    assert grow(broker, 3, 4) == 0
    assert create(broker, 7, partitions=1).error_code == ErrorCode.POLICY_VIOLATION


def test_storage_failure_while_growing(broker):
    broker.logs.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    assert grow(broker, 3, 5) == ErrorCode.KAFKA_STORAGE_ERROR
