"""The expected cost of requests, which decides whether they run on a network thread."""

from __future__ import annotations

import pytest

from kafkalite.broker.handlers import cluster_table, costs, table
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import (
    consumer_group_heartbeat,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    heartbeat,
    metadata,
    offset_commit,
)


def cost(broker, key, version, request):
    row = table.find(key)
    assert row is not None
    return row.cost_us(broker.context(key, version), request)


@pytest.mark.parametrize(
    ("key", "version", "request_"),
    [
        (api.HEARTBEAT, 4, heartbeat.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)),
        (api.METADATA, 12, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="logs")])),
        (
            api.OFFSET_COMMIT,
            9,
            offset_commit.OffsetCommitRequest(
                group_id="g",
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name="logs", partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0)]
                    )
                ],
            ),
        ),
    ],
    ids=["heartbeat", "metadata-of-one-topic", "commit-of-one-partition"],
)
def test_ordinary_requests_are_short(broker, key, version, request_):
    assert 0 < cost(broker, key, version, request_) < table.INLINE_US / 10


def names(count):
    return [f"t{number}" for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_each_item_counts(broker, count):
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name) for name in names(count)])
    assert cost(broker, api.METADATA, 12, request) >= table.ITEM_US * count


def test_dearer_items_are_fewer(broker):
    resources = [describe_configs.DescribeConfigsResource(resource_type=2, resource_name=name) for name in names(30)]
    request = describe_configs.DescribeConfigsRequest(resources=resources)
    assert cost(broker, api.DESCRIBE_CONFIGS, 4, request) > table.INLINE_US


def test_a_subscription_by_expression_costs_what_all_topics_do(broker):
    def beat(expression):
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(subscribed_topic_regex=expression)
        return cost(broker, api.CONSUMER_GROUP_HEARTBEAT, 1, request)

    before = beat(".*")
    assert before > beat(None)
    assert beat("") == beat(None)
    broker.context(api.METADATA, 12).broker.logs.create_topic("one-more", 1, {})
    assert beat(".*") >= before + costs.MATCH_US
    assert beat(None) < table.INLINE_US / 10


def test_a_null_list_and_a_large_topic_cost_what_they_stand_for(broker):
    asked = [
        (api.METADATA, 12, metadata.MetadataRequest(topics=None)),
        (api.METADATA, 0, metadata.MetadataRequest(topics=[])),
        (api.METADATA, 12, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="large")])),
        (api.DESCRIBE_LOG_DIRS, 4, describe_log_dirs.DescribeLogDirsRequest(topics=None)),
        (api.ELECT_LEADERS, 2, elect_leaders.ElectLeadersRequest(topic_partitions=None)),
        (
            api.DESCRIBE_TOPIC_PARTITIONS,
            0,
            describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000),
        ),
    ]
    before = [cost(broker, *each) for each in asked[:-1]]
    assert max(before) < table.INLINE_US
    broker.services.logs.create_topic("large", 50_000, {})
    for each in asked:
        assert cost(broker, *each) > table.INLINE_US, each


@pytest.mark.parametrize("rows", [table.ROWS, cluster_table.ROWS], ids=["alone", "in-a-cluster"])
def test_every_estimate_is_a_function_that_exists(rows):
    for row in rows:
        if isinstance(row.unnamed, table.LazyFunction):
            assert callable(row.unnamed.load()), row.name
        assert row.item_us > 0
