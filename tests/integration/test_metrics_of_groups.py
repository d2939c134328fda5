"""The lag that a broker tells is the one that others' administration clients and Kafka's own tool find."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafkalite import Broker
from tests.kit.harness.scrape import Scrape

GROUPS = {"behind": {0: 10, 1: 3}, "done": {0: 40, 1: 20}, "half": {1: 7}}
"""What each group commits, by partition of the topic."""
COUNTS = {0: 40, 1: 20}


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker with a topic and groups that have committed, without active clients."""
    with Broker(metrics_listeners="http://127.0.0.1:0") as running:
        running.create_topic("a", 2)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for partition, count in COUNTS.items():
            for _ in range(count):
                producer.produce("a", b"x", partition=partition)
        producer.flush()
        for group, offsets in GROUPS.items():
            commit(running, group, offsets)
        yield running


def commit(broker: Broker, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    wanted = [TopicPartition("a", partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def told(broker: Broker, what: str = "lag") -> dict[tuple[str, str, int], float]:
    seen = Scrape.of(broker.metrics_urls[0])
    name = f"kafka_consumergroup_{what}"
    return {
        (given["consumergroup"], given["topic"], int(given["partition"])): seen(name, **given)
        for given in seen.labels_of(name)
    }


def asked(broker: Broker) -> dict[tuple[str, str, int], int]:
    """The same by the administration client of librdkafka."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    groups = [ConsumerGroupTopicPartitions(group.group_id) for group in admin.list_consumer_groups().result().valid]
    found = {}
    for group in groups:
        (future,) = admin.list_consumer_group_offsets([group]).values()
        for place in future.result().topic_partitions:
            key = TopicPartition(place.topic, place.partition)
            (end,) = admin.list_offsets(
                {key: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
            ).values()
            found[group.group_id, place.topic, place.partition] = end.result().offset - place.offset
    return found


def test_lag_is_what_an_administration_client_finds(broker: Broker) -> None:
    expected = {
        (group, "a", partition): COUNTS[partition] - offset
        for group, offsets in GROUPS.items()
        for partition, offset in offsets.items()
    }
    assert told(broker) == expected
    assert told(broker) == asked(broker)
    seen = Scrape.of(broker.metrics_urls[0])
    for group, offsets in GROUPS.items():
        assert seen("kafka_consumergroup_lag_sum", consumergroup=group, topic="a") == sum(
            COUNTS[partition] - offset for partition, offset in offsets.items()
        )
        assert seen("kafka_consumergroup_current_offset_sum", consumergroup=group, topic="a") == sum(offsets.values())
        assert seen("kafka_consumergroup_members", consumergroup=group) == 0
    assert seen("kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 3
    assert seen("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 5


def test_offsets_of_a_recreated_topic_count_as_no_lag(broker: Broker) -> None:
    broker.delete_topic("a")
    broker.create_topic("a", 2)
    assert told(broker) == told(broker, "current_offset") == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_counted_in_both_protocols(broker: Broker, protocol: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "live", "group.protocol": protocol})
    consumer.subscribe(["a"])
    while not consumer.assignment():
        consumer.poll(0.1)
    seen = Scrape.of(broker.metrics_urls[0])
    assert seen("kafka_consumergroup_members", consumergroup="live") == 1
    assert seen("kafka_server_group_coordinator_metrics_group_count", protocol=protocol) >= 1
    consumer.close()


@pytest.mark.slow
def test_lag_is_what_kafka_consumer_groups_finds(broker: Broker, kafka_jars: Path) -> None:
    command = ["java", "-cp", f"{kafka_jars}/*", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--describe", "--all-groups"]
    found = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True, timeout=300).stdout
    rows = re.findall(r"^(\S+)\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", found, re.MULTILINE)
    assert {(group, topic, int(at)): int(lag) for group, topic, at, _, _, lag in rows} == told(broker)
