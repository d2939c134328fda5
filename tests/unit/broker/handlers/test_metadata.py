"""Metadata and DescribeTopicPartitions: brokers, topics, and auto-created topics."""

import pytest

from kafkalite.base.acls import OPERATIONS_NOT_ASKED
from kafkalite.broker.handlers import metadata
from kafkalite.broker.handlers.describe_topic_partitions import PAGE_PARTITIONS_MAX
from kafkalite.errors import ErrorCode, TopicAlreadyExists, error_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.schema import ZERO_UUID
from tests.kit.harness.handler_calls import NODE_ID, HandlerCalls, versions

EVERY_VERSION = versions(api.METADATA)


def ask(broker, version, *names, **flags):
    topics = [MetadataRequestTopic(name=name) for name in names]
    return broker.call(api.METADATA, version, MetadataRequest(topics=topics, **flags))


def ask_all(broker, version):
    return broker.call(api.METADATA, version, MetadataRequest(topics=None if version else []))


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_this_broker_is_listed_with_its_advertised_address(broker, version):
    response = ask_all(broker, version)
    (node,) = response.brokers
    assert (node.node_id, node.host, node.port) == (NODE_ID, "broker.example", 19092)
    assert node.rack == ("r1" if version >= 1 else None)
    assert response.controller_id == (NODE_ID if version >= 1 else -1)
    assert response.cluster_id == ("the-cluster" if version >= 2 else None)
    assert response.error_code == response.throttle_time_ms == 0


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_all_topics(broker, version):
    response = ask_all(broker, version)
    assert {topic.name: len(topic.partitions) for topic in response.topics} == {"orders": 3, "logs": 1}


@pytest.mark.parametrize("version", EVERY_VERSION[1:])
def test_no_topics_when_the_list_is_empty(broker, version):
    assert ask(broker, version).topics == []


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_topic_by_name(broker, version):
    broker.logs.topics["orders"].partitions[1].leader_epoch = 4
    (topic,) = ask(broker, version, "orders").topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert topic.topic_id == (broker.logs.topics["orders"].id if version >= 10 else ZERO_UUID)
    assert [(row.error_code, row.partition_index, row.leader_id) for row in topic.partitions] == [
        (0, 0, NODE_ID),
        (0, 1, NODE_ID),
        (0, 2, NODE_ID),
    ]
    assert [row.leader_epoch for row in topic.partitions] == ([0, 4, 0] if version >= 7 else [-1, -1, -1])
    assert all(row.replica_nodes == row.isr_nodes == [NODE_ID] for row in topic.partitions)
    assert all(row.offline_replicas == [] for row in topic.partitions)
    assert not broker.blocked


@pytest.mark.parametrize("version", [12, 13])
def test_topic_by_id(broker, version):
    orders = broker.logs.topics["orders"]
    known = MetadataRequestTopic(topic_id=orders.id, name=None)
    unknown = MetadataRequestTopic(topic_id=b"\1" * 16, name=None)
    first, second = broker.call(api.METADATA, version, MetadataRequest(topics=[known, unknown])).topics
    assert (first.error_code, first.name, first.topic_id) == (0, "orders", orders.id)
    assert (second.error_code, second.name, second.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"\1" * 16)
    assert second.partitions == []


def test_unknown_id_before_null_names_were_allowed(broker):
    unknown = MetadataRequestTopic(topic_id=b"\1" * 16, name=None)
    (topic,) = broker.call(api.METADATA, 10, MetadataRequest(topics=[unknown])).topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_ID, "")


def test_neither_name_nor_id(broker):
    (topic,) = broker.call(api.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=None)])).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, None)


def test_topic_named_twice_is_answered_once(broker):
    assert [topic.name for topic in ask(broker, 9, "orders", "logs", "orders").topics] == ["orders", "logs"]


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_missing_topic_is_created_and_answered_finished(broker, version):
    (topic,) = ask(broker, version, "new").topics
    assert broker.blocked
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "new", 1)
    assert topic.partitions[0].leader_id == NODE_ID
    assert len(broker.logs.topics["new"].partitions) == 1


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_topic_that_was_deleted_is_unknown_first_and_created_for_the_next_question(broker, version):
    ask(broker, version, "old")
    broker.logs.delete_topic("old")
    assert [topic.error_code for topic in ask(broker, version, "old", "new").topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    (again,) = ask(broker, version, "old").topics
    assert (again.error_code, len(again.partitions)) == (0, 1)


def test_created_topic_has_the_brokers_default_partitions():
    broker = HandlerCalls(num_partitions="5")
    assert len(ask(broker, 9, "new").topics[0].partitions) == 5


@pytest.mark.parametrize("version", EVERY_VERSION[4:])
def test_request_may_forbid_creation(broker, version):
    (topic,) = ask(broker, version, "new", allow_auto_topic_creation=False).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.blocked
    assert "new" not in broker.logs.topics


def test_broker_may_forbid_creation():
    broker = HandlerCalls(auto_create_topics_enable="false")
    (topic,) = ask(broker, 9, "new").topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.blocked


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ä", "a/b"])
def test_bad_names_are_refused_and_never_created(broker, name):
    (topic,) = ask(broker, 9, name).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)


def test_name_that_collides_is_refused(broker):
    broker.logs.create_topic("a.b", 1, {})
    assert ask(broker, 9, "a_b").topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_made_by_asking(broker, name):
    (topic,) = ask(broker, 9, name).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


def test_default_replication_factor_that_cannot_be_reached():
    broker = HandlerCalls(default_replication_factor="3")
    assert ask(broker, 9, "new").topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    broker = HandlerCalls(default_replication_factor="3", replication_factor_accept_any="true")
    assert ask(broker, 9, "new").topics[0].error_code == ErrorCode.NONE


def test_no_more_partitions_than_the_limit():
    broker = HandlerCalls(max_partitions="1")
    assert ask(broker, 9, "one").topics[0].error_code == ErrorCode.NONE
    assert ask(broker, 9, "two").topics[0].error_code == ErrorCode.POLICY_VIOLATION


def test_storage_failure_while_creating_is_the_topics_error(broker):
    broker.logs.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR, "disk full")
    first, second = ask(broker, 9, "new", "orders").topics
    assert (first.error_code, second.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)


def test_topic_created_by_another_client_in_the_meantime(broker, monkeypatch):
    create = broker.logs.create_topic

    def create_late(name, count, overrides):
        create(name, count, overrides)
        raise TopicAlreadyExists

    monkeypatch.setattr(broker.logs, "create_topic", create_late)
    assert ask(broker, 9, "new").topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", EVERY_VERSION[5:])
def test_offline_partition_has_no_leader(broker, version):
    broker.logs.topics["logs"].partitions[0].offline = True
    (row,) = ask(broker, version, "logs").topics[0].partitions
    assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (row.replica_nodes, row.offline_replicas) == ([NODE_ID], [NODE_ID])


@pytest.mark.parametrize("version", EVERY_VERSION[8:])
def test_authorised_operations_only_when_asked(broker, version):
    (topic,) = ask(broker, version, "logs").topics
    assert topic.topic_authorized_operations == OPERATIONS_NOT_ASKED == -2147483648
    response = ask(broker, version, "logs", include_topic_authorized_operations=True)
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == OPERATIONS_NOT_ASKED


@pytest.mark.parametrize("version", [8, 9, 10])
def test_authorised_operations_of_the_cluster(broker, version):
    response = ask(broker, version, "logs", include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == 8096


def test_shared_partition_rows_are_bounded(broker, monkeypatch):
    monkeypatch.setattr(metadata, "_rows", {})
    monkeypatch.setattr(metadata, "_ROWS_MAX", 2)
    for version in (9, 12):
        assert len(ask(broker, version, "orders").topics[0].partitions) == 3
    assert len(metadata._rows) <= 2


def describe(broker, *names, cursor=None, limit=2000):
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.call(api.DESCRIBE_TOPIC_PARTITIONS, 0, request)


def pages(broker, limit, *names):
    """Every (topic, partition) told, page by page."""
    cursor, told = None, []
    while True:
        response = describe(broker, *names, cursor=cursor, limit=limit)
        page = [(topic.name, row.partition_index) for topic in response.topics for row in topic.partitions]
        assert len(page) <= limit
        told.append(page)
        if response.next_cursor is None:
            return told
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)


def test_partitions_are_described_in_order_of_topic_names(broker):
    response = describe(broker)
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("logs", 1), ("orders", 3)]
    row = response.topics[1].partitions[2]
    assert (row.partition_index, row.leader_id, row.replica_nodes) == (2, NODE_ID, [NODE_ID])
    assert response.next_cursor is None
    assert response.topics[0].topic_authorized_operations == 3576


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_pages_tell_each_partition_once(broker, limit):
    told = pages(broker, limit)
    expected = [("logs", 0), ("orders", 0), ("orders", 1), ("orders", 2)]
    assert [item for page in told for item in page] == expected
    assert len(told) == -(-len(expected) // limit)


def test_page_limit_is_at_least_one_and_at_most_ours(broker):
    broker.logs.create_topic("wide", PAGE_PARTITIONS_MAX + 1, {})
    assert len(describe(broker, "wide", limit=0).topics[0].partitions) == 1
    response = describe(broker, "wide", limit=1_000_000)
    assert len(response.topics[0].partitions) == PAGE_PARTITIONS_MAX
    assert response.next_cursor.partition_index == PAGE_PARTITIONS_MAX


@pytest.mark.parametrize("cursor", [("orders", -1), ("missing", 0)])
def test_cursor_that_leads_nowhere_is_refused(broker, cursor):
    response = describe(broker, "orders", "logs", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("orders", ErrorCode.INVALID_REQUEST),
        ("logs", ErrorCode.INVALID_REQUEST),
    ]


def test_unknown_and_bad_topics_are_described_as_such(broker):
    response = describe(broker, "orders", "missing", "a b")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.NONE),
    ]
    assert "missing" not in broker.logs.topics
