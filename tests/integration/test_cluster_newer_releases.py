"""Controllers of each Apache Kafka release at its own metadata version: a broker joins their cluster, next to a Java
one. A default feature that this release does not support is refused with a message, and following that message helps.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kafkalite.broker.cluster.records import METADATA_LEVELS
from kafkalite.client.connection import Connection
from tests.kit.harness.clustered import membership
from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import KAFKA_VERSION, KafkaBroker, KafkaController, NotAvailable, jars, run_tool
from tests.kit.processes.broker import BrokerDidNotStart, running, wait_until
from tests.kit.processes.mixed_cluster import JAVA, OURS, START_S, MixedCluster

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.slow

NEWEST = "4.4.0"
LEVELS = {"4.0.0": 25, "4.2.0": 29, "4.3.1": 30, NEWEST: 33}
"""Release → its newest metadata.version; all other tests of a cluster run on 4.1."""
SHARES_BY_DEFAULT = ("4.2.0", NEWEST)
ADVICE = re.compile(
    r"when the controllers are formatted \((?P<format>--feature .*?)\),"
    r" or switch it off \(kafka-features\.sh (?P<off>.*?)\)"
)
TOPIC = "orders"
RECORDS = 300


def available(version: str) -> str:
    try:
        jars(version)
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA {version}: {missing}")
    return version


@pytest.mark.parametrize("release", SHARES_BY_DEFAULT)
def test_a_broker_that_is_refused_names_what_has_it_let_in(release: str, tmp_path: Path) -> None:
    with KafkaController(tmp_path / "controller", version=available(release)) as controller:
        settings = membership(controller.address, 1)
        with pytest.raises(BrokerDidNotStart) as ended, running(tmp_path / "broker", settings=settings):
            pass
        assert ended.value.status == 2  # systemd does not start it again: nothing but a change helps
        advised = [found for line in ended.value.log.splitlines() if (found := ADVICE.search(line))]
        assert advised, ended.value.log
        assert advised[-1]["format"] == "--feature share.version=0 --feature streams.version=0"
        tool = "org.apache.kafka.tools.FeatureCommand"
        run_tool(tool, "--bootstrap-controller", controller.address, *advised[-1]["off"].split())
        with running(tmp_path / "broker", settings=settings):
            assert controller.alive


@pytest.mark.parametrize("release", LEVELS)
def test_a_broker_is_in_a_cluster_at_the_metadata_of_a_release(release: str, tmp_path: Path) -> None:
    off = ["--feature", "share.version=0", "--feature", "streams.version=0"] if LEVELS[release] > 27 else []
    with MixedCluster(tmp_path, (OURS, JAVA), format_options=off, version=available(release)) as cluster:
        assert {level_at(port) for port in cluster.ports.values()} == {LEVELS[release]}
        lead_and_follow(cluster)


def test_a_cluster_is_upgraded_from_release_to_release_while_a_broker_serves(kafka_jars: Path, tmp_path: Path) -> None:
    """The controller's and the Java broker's software, then the level; kafkalite is never restarted."""
    assert kafka_jars
    releases = ("4.2.0", NEWEST)
    for release in releases:
        available(release)
    features = "org.apache.kafka.tools.FeatureCommand"
    with MixedCluster(tmp_path, (OURS, JAVA)) as cluster:
        ours, theirs, controller = cluster.brokers[1], cluster.brokers[2], cluster.controller
        assert isinstance(theirs, KafkaBroker)
        server = ("--bootstrap-controller", controller.address)
        process = ours.process
        create(cluster)
        write(cluster, KAFKA_VERSION)
        for release in releases:
            controller.stop()
            controller.version = release
            controller.start(START_S)
            theirs.stop()
            theirs.version = release
            cluster.start(2)
            cluster.wait_in_sync(TOPIC)
            write(cluster, f"{release} at the level before")
            run_tool(features, *server, "upgrade", "--feature", f"metadata.version={LEVELS[release]}")
            wait_until(
                lambda level=LEVELS[release]: {level_at(port) for port in cluster.ports.values()} == {level},
                *(START_S, "both know the level"),
            )
            write(cluster, release, **{"transactional.id": release})
            # A feature of that release cannot be enabled while a broker does not support it.
            with pytest.raises(RuntimeError, match=r"share\.version"):
                run_tool(features, *server, "upgrade", "--feature", "share.version=1")
            cluster.wait_in_sync(TOPIC)
        wanted = [KAFKA_VERSION, *(what for each in releases for what in (f"{each} at the level before", each))]
        assert sorted(read(cluster, len(wanted))) == sorted(f"{what} {n}" for what in wanted for n in range(RECORDS))
        cluster.brokers[2].stop()
        wait_until(lambda: leaders(cluster) == {1}, START_S, "kafkalite leads")
        cluster.start(2)
        cluster.wait_in_sync(TOPIC)
        assert ours.alive
        assert ours.process is process


def test_a_cordoned_broker_gets_no_new_partitions(tmp_path: Path) -> None:
    """The controllers hear of it in heartbeats (KIP-1066); by name, by `*`, and no longer."""
    off = ["--feature", "share.version=0", "--feature", "streams.version=0"]
    with MixedCluster(tmp_path, (OURS, JAVA), format_options=off, version=available(NEWEST)) as cluster:
        admin = cluster.admin()
        ours = ConfigResource(ConfigResource.Type.BROKER, "1")
        for number, value in enumerate(("*", str(cluster.brokers[1].data_dir))):
            cordon(admin, ours, value)
            wait_until(lambda number=number: placed(admin, f"tried-{number}") == {2}, START_S, "a heartbeat")
            with pytest.raises(KafkaException) as refused:
                admin.create_topics([NewTopic("by-hand", 1, replica_assignment=[[1]])])["by-hand"].result(START_S)
            assert refused.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
            cordon(admin, ours, "")
            wait_until(lambda number=number: placed(admin, f"again-{number}") == {1, 2}, START_S, "a heartbeat")
        assert cluster.brokers[1].alive


def cordon(admin: AdminClient, broker: ConfigResource, value: str) -> None:
    entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(broker.restype, broker.name, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([wanted]).values():
        done.result(START_S)


def placed(admin: AdminClient, name: str) -> set[int]:
    """The brokers that got one of six partitions of a new topic, which is deleted again."""
    admin.create_topics([NewTopic(name, 6, 1)])[name].result(START_S)
    wait_until(lambda: name in admin.list_topics().topics, START_S, "the topic is known")
    found = admin.list_topics(name).topics[name]
    admin.delete_topics([name])[name].result(START_S)
    wait_until(lambda: name not in admin.list_topics().topics, START_S, "the topic is gone")
    return {replica for partition in found.partitions.values() for replica in partition.replicas}


def test_no_release_has_metadata_that_is_not_known() -> None:
    assert METADATA_LEVELS[1] == max(LEVELS.values())


def create(cluster: MixedCluster) -> None:
    """Each of two brokers leads a partition that the other one follows; both have to have what is written."""
    wanted = NewTopic(TOPIC, 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"})
    admin = cluster.admin()
    admin.create_topics([wanted])[TOPIC].result(START_S)
    cluster.wait_in_sync(TOPIC)
    assert [leader for leader, _, _ in cluster.isr(TOPIC).values()] == [1, 2]


def level_at(port: int) -> int:
    """The metadata.version that a broker tells."""
    connection = Connection.connect("127.0.0.1", port, client_id="test")
    level = connection.features["metadata.version"]
    connection.close()
    return level


def leaders(cluster: MixedCluster) -> set[int]:
    return {leader for leader, _, _ in cluster.isr(TOPIC).values()}


def lead_and_follow(cluster: MixedCluster) -> None:
    """Check that both have each acknowledged record, and that each can lead every partition."""
    create(cluster)
    write(cluster, "plain")
    write(cluster, "in transactions", **{"transactional.id": "story"})
    wanted = [f"{what} {number}" for what in ("plain", "in transactions") for number in range(RECORDS)]
    assert sorted(read(cluster, 2)) == sorted(wanted)
    for stopped, other in ((1, 2), (2, 1)):
        cluster.brokers[stopped].stop()
        wait_until(lambda other=other: leaders(cluster) == {other}, START_S, f"{other} leads")
        cluster.start(stopped)
        cluster.wait_in_sync(TOPIC)


def read(cluster: MixedCluster, times: int) -> list[str]:
    """Return the records written that number of times; the reader commits."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"}, logger=quiet)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(2)])
    seen: list[str] = []

    def enough() -> bool:
        seen.extend(
            (message.value() or b"").decode() for message in consumer.consume(RECORDS, 1) if not message.error()
        )
        return len(seen) >= times * RECORDS

    wait_until(enough, START_S, "all records")
    consumer.commit(
        offsets=[TopicPartition(TOPIC, partition, RECORDS // 2) for partition in range(2)], asynchronous=False
    )
    consumer.close()
    return seen


def write(cluster: MixedCluster, what: str, **settings: str) -> None:
    """Records that both have; over brokers of both kinds, so that its markers go from one to the other."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **settings}, logger=quiet)
    if settings:
        producer.init_transactions(START_S)
        producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            f"{what} {number}",
            partition=number % 2,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(START_S) == 0
    if settings:
        producer.commit_transaction(START_S)
    assert not failures
