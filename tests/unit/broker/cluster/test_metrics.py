"""The broker's cluster metrics: counts from its metadata image, and elections between two images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.image import EMPTY, Delta, Image
from kafkalite.broker.cluster.lifecycle import Phase
from kafkalite.broker.cluster.metrics import ClusterMetrics

ORDERS = bytes(range(16))


def after(image: Image, *records: object) -> Image:
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.build(image.offset + len(records), 1)


def partition(number: int, leader: int, *isr: int) -> types.PartitionRecord:
    return types.PartitionRecord(
        partition_id=number, topic_id=ORDERS, replicas=[1, 2, 3], isr=[*isr], leader=leader, leader_epoch=0
    )


def change(number: int, **changed: Any) -> types.PartitionChangeRecord:
    return types.PartitionChangeRecord(partition_id=number, topic_id=ORDERS, **changed)


@pytest.fixture
def image() -> Image:
    topic = types.TopicRecord(name="orders", topic_id=ORDERS)
    brokers = [
        types.RegisterBrokerRecord(broker_id=number, broker_epoch=number, incarnation_id=ORDERS, fenced=number == 3)
        for number in (1, 2, 3)
    ]
    return after(EMPTY, topic, *brokers, partition(0, 1, 1, 2, 3), partition(1, 2, 2), partition(2, -1))


def told(metrics: ClusterMetrics) -> dict[str, float]:
    return {family.name: value for family in metrics.families() for _, value in family.rows}


def metrics_of(image: Image, **member: Any) -> ClusterMetrics:
    given = {
        "image": image,
        "phase": Phase.IN_SERVICE,
        "fenced": False,
        "controller_id": 101,
        "controller_seen": True,
        "metadata_end": image.offset + 1,
        "heard_seconds_ago": lambda: 1.5,
    }
    return ClusterMetrics(cast("Any", SimpleNamespace(**{**given, **member})))


def test_partitions_and_brokers_of_the_whole_cluster(image: Image) -> None:
    found = told(metrics_of(image))
    assert found["kafkalite_cluster_partitions"] == 3
    assert found["kafkalite_cluster_offline_partitions"] == 1
    assert found["kafkalite_cluster_under_replicated_partitions"] == 2
    assert (found["kafka_brokers"], found["kafkalite_cluster_fenced_brokers"]) == (3, 1)
    assert found["kafka_server_kafkaserver_brokerstate"] == 3
    assert found["kafka_server_broker_metadata_metrics_last_applied_record_offset"] == image.offset
    assert found["kafkalite_cluster_metadata_lag_records"] == 0
    assert found["kafkalite_cluster_heard_seconds_ago"] == 1.5


def test_who_is_cut_off_says_so(image: Image) -> None:
    away = metrics_of(image, fenced=True, controller_id=-1, controller_seen=False, metadata_end=image.offset + 6)
    found = told(away)
    assert (found["kafkalite_cluster_fenced"], found["kafkalite_cluster_controller_seen"]) == (1, 0)
    assert (found["kafkalite_cluster_controller_id"], found["kafkalite_cluster_metadata_lag_records"]) == (-1, 5)


def test_an_election_is_a_leader_that_is_another_one(image: Image) -> None:
    """Not one that is lost, nor what a start finds, nor a change of who is in sync."""
    metrics = metrics_of(image)
    metrics.use(EMPTY, image)
    lost = after(image, change(0, leader=-1), change(1, isr=[2, 3]))
    metrics.use(image, lost)
    assert told(metrics)["kafkalite_cluster_elections"] == 0
    found = after(lost, change(0, leader=2), change(2, leader=3, isr=[3], leader_recovery_state=1))
    metrics.use(lost, found)
    metrics.use(found, found)
    assert told(metrics)["kafkalite_cluster_elections"] == 2
    assert told(metrics)["kafkalite_cluster_unclean_elections"] == 1
