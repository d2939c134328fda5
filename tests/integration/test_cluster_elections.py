"""Elections with too few in-sync replicas (KIP-966): a broker that stopped cleanly is elected, one that crashed is not;
and, with unclean election, one that lacks records, to which the others truncate.

The controller is Apache Kafka's, the clients are librdkafka's.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kafkalite.client.connection import Connection
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.cluster import replicas
from tests.kit.harness.load import quiet
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.kit.processes.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.slow

WAIT_S = 120


@pytest.fixture(scope="module")
def cluster(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    assert kafka_jars
    with KafkaCluster(
        tmp_path_factory.mktemp("cluster"), controller_settings={"auto.leader.rebalance.enable": "false"}
    ) as running:
        yield running


@pytest.fixture
def topic(cluster: KafkaCluster) -> Iterator[str]:
    """One partition with three replicas, which broker 1 prefers to lead; all brokers run before."""
    for process in cluster.processes:
        if not process.alive:
            process.start(timeout_s=WAIT_S)
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet)
    wanted = NewTopic(name, replica_assignment=[[1, 2, 3]], num_partitions=1, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[name].result(WAIT_S)
    wait_for(cluster.processes[0], name, leader=1, isr=[1, 2, 3])
    yield name
    for process in cluster.processes:
        if not process.alive:
            process.start(timeout_s=WAIT_S)


def state(process: BrokerProcess, name: str) -> dict[str, object]:
    """The partition as a broker describes it."""
    with contextlib.closing(Connection.connect("127.0.0.1", process.port, client_id="test")) as connection:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        found = connection.request(api.DESCRIBE_TOPIC_PARTITIONS, request).topics[0].partitions
    if not found:
        return {}
    return {
        "leader": found[0].leader_id,
        "isr": sorted(found[0].isr_nodes),
        "elr": sorted(found[0].eligible_leader_replicas or ()),
        "last_known": sorted(found[0].last_known_elr or ()),
    }


def wait_for(process: BrokerProcess, name: str, **wanted: object) -> None:
    wait_until(
        lambda: state(process, name).items() >= wanted.items(), WAIT_S, f"{wanted}, where {process.port} is asked"
    )


def send(processes: list[BrokerProcess], name: str, values: list[str], acks: str) -> int:
    """How many were acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": ",".join(each.bootstrap for each in processes),
            "acks": acks,
            "message.timeout.ms": 8000,
            "topic.metadata.refresh.interval.ms": 500,
        },
        logger=quiet,
    )
    done: list[object] = []
    for value in values:
        producer.produce(name, partition=0, value=value, on_delivery=lambda error, _: done.append(error))
    producer.flush(WAIT_S)
    return sum(error is None for error in done)


def read(process: BrokerProcess, name: str) -> list[str]:
    """All there is."""
    consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "none"}, logger=quiet)
    place = TopicPartition(name, 0, 0)
    consumer.assign([place])
    _, end = wait_until(lambda: consumer.get_watermark_offsets(place, WAIT_S), WAIT_S, "the end")
    found: list[str] = []

    def more() -> bool:
        given = consumer.consume(100, 0.5)
        found.extend((message.value() or b"").decode() for message in given if message.error() is None)
        return len(found) >= end

    wait_until(more, WAIT_S, f"{end} records")
    consumer.close()
    return found


def test_who_stopped_cleanly_may_lead_and_who_crashed_may_not(cluster: KafkaCluster, topic: str) -> None:
    one, two, three = cluster.processes
    first = [f"a{number}" for number in range(50)]
    assert send(cluster.processes, topic, first, "all") == 50
    one.stop()
    two.stop()
    wait_for(three, topic, leader=3, isr=[3], elr=[2], last_known=[])
    assert send([three], topic, ["lonely"], "all") == 0, "one is not enough"
    three.kill()
    one.start(timeout_s=WAIT_S)
    wait_for(one, topic, leader=-1, isr=[], elr=[2, 3])
    three.start(timeout_s=WAIT_S)
    wait_for(three, topic, leader=-1, isr=[], elr=[2])
    two.start(timeout_s=WAIT_S)
    wait_for(two, topic, leader=2, isr=[1, 2, 3], elr=[])
    second = [f"b{number}" for number in range(50)]
    assert send(cluster.processes, topic, second, "all") == 50
    assert read(two, topic) == first + second
    wait_agreed(cluster, topic)


def test_who_comes_back_after_an_unclean_election_is_cut_to_what_its_leader_has(
    cluster: KafkaCluster, topic: str
) -> None:
    one, two, three = cluster.processes
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=quiet)
    entry = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    kept = [f"kept-{number}" for number in range(40)]
    assert send(cluster.processes, topic, kept, "all") == 40
    two.stop()
    three.stop()
    wait_for(one, topic, leader=1, isr=[1])
    assert send([one], topic, [f"lost-{number}" for number in range(30)], "1") == 30
    one.kill()
    two.start(timeout_s=WAIT_S)
    three.start(timeout_s=WAIT_S)
    wait_for(two, topic, leader=-1)
    place = TopicPartition(topic, 0)
    asked = AdminClient({"bootstrap.servers": two.bootstrap}, logger=quiet)

    def elected() -> bool:
        with contextlib.suppress(KafkaException):
            asked.elect_leaders(ElectionType.UNCLEAN, [place]).result(WAIT_S)
        return state(two, topic)["leader"] in (2, 3)

    wait_until(elected, WAIT_S, "one that lacks records leads")
    new = [f"new-{number}" for number in range(20)]
    assert send([two, three], topic, new, "all") == 20
    one.start(timeout_s=WAIT_S)
    wait_for(two, topic, isr=[1, 2, 3])
    assert read(two, topic) == kept + new
    wait_agreed(cluster, topic)


def wait_agreed(cluster: KafkaCluster, name: str) -> None:
    """All replicas have the same bytes."""

    def agree() -> bool:
        found = [replicas.read(process.data_dir / f"{name}-0").data for process in cluster.processes]
        return bool(found[0]) and found[0] == found[1] == found[2]

    wait_until(agree, WAIT_S, "all replicas have the same bytes")
