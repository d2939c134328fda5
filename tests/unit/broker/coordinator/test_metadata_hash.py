"""The metadata hash of a KIP-848 group, against hashes captured from Apache Kafka; and when it is computed again."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.broker.cluster.image import BrokerState, Image, PartitionState, TopicState
from kafkalite.broker.cluster.racks import ReplicaRacks
from kafkalite.broker.coordinator.metadata_hash import MetadataHashes, OwnRack, group_hash, topic_hash
from tests.kit.oracles.metadata_hashes import CASES, GROUP_HASH, RACKS, TopicCase

ORDERS = CASES[0]


def topic(case: TopicCase) -> Any:
    """As the broker has it."""
    return SimpleNamespace(name=case.name, id=case.id, partitions=(None,) * len(case.replicas))


def broker(node_id: int, rack: str | None) -> BrokerState:
    return BrokerState(node_id, b"", 0, {}, {}, rack, False, False, ())


def partition(replicas: list[int]) -> PartitionState:
    return PartitionState(tuple(replicas), (), (), (), (), -1, 0, 0, 0, (), ())


def image_of(*cases: TopicCase, racks: dict[int, str | None] = RACKS) -> Image:
    topics = {
        case.id: TopicState(case.name, case.id, {n: partition(nodes) for n, nodes in enumerate(case.replicas)})
        for case in cases
    }
    return Image(topics=topics, brokers={node: broker(node, rack) for node, rack in racks.items()})


@pytest.mark.parametrize("case", CASES, ids=[case.name[:16] for case in CASES])
def test_a_topic_has_the_hash_of_apache_kafka(case: TopicCase) -> None:
    assert topic_hash(case.name, case.id, case.racks) == case.hash


def test_a_group_has_the_hash_of_apache_kafka_in_any_order_of_its_topics() -> None:
    hashes = MetadataHashes(ReplicaRacks(lambda: image_of(*CASES)))
    topics = {case.name: topic(case) for case in reversed(CASES)}
    names = frozenset(topics)
    in_kafkas_order = [case.hash for case in sorted(CASES, key=lambda case: case.name)]
    assert hashes.of_topics(names, topics) == group_hash(in_kafkas_order) == GROUP_HASH


def test_topics_that_do_not_exist_or_are_not_read_do_not_count() -> None:
    hashes = MetadataHashes(OwnRack(None))
    topics = {case.name: topic(case) for case in CASES[:2]}
    assert hashes.of_topics(frozenset(), topics) == 0
    assert hashes.of_topics(frozenset({"missing"}), topics) == 0
    assert hashes.of_topics(frozenset({"missing", ORDERS.name}), topics) == group_hash([ORDERS.hash])


def test_a_broker_outside_a_cluster_has_every_replica_in_its_rack() -> None:
    case = CASES[3]
    assert case.racks == [["a"], ["a"], ["a"]]
    names, topics = frozenset({case.name}), {case.name: topic(case)}
    assert MetadataHashes(OwnRack("a")).of_topics(names, topics) == group_hash([case.hash])
    assert MetadataHashes(OwnRack(None)).of_topics(names, topics) != group_hash([case.hash])


def test_a_topic_is_hashed_again_only_once_its_partitions_have_changed() -> None:
    images = [image_of(ORDERS)]
    hashes = MetadataHashes(ReplicaRacks(lambda: images[-1]))
    names, topics = frozenset({ORDERS.name}), {ORDERS.name: topic(ORDERS)}
    before = hashes.of_topics(names, topics)
    moved = ORDERS._replace(replicas=[[1]])
    changed = image_of(moved)
    images.append(Image(topics=images[0].topics, brokers=image_of(racks={2: "b"}).brokers))
    assert hashes.of_topics(names, topics) == before  # as in Kafka: a broker in another rack alone changes no topic
    images.append(changed)
    after = hashes.of_topics(names, topics)
    assert after == group_hash([topic_hash(moved.name, moved.id, [["a"]])]) != before


def test_a_topic_that_is_being_deleted_still_has_a_hash() -> None:
    hashes = MetadataHashes(ReplicaRacks(image_of))
    topics = {ORDERS.name: topic(ORDERS)}
    assert hashes.of_topics(frozenset(topics), topics) == group_hash([topic_hash(ORDERS.name, ORDERS.id, [[]])])


def test_the_library_is_not_loaded_before_a_group_needs_it() -> None:
    program = "import sys, kafkalite.broker, kafkalite.broker.coordinator.groups; assert 'xxhash' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
