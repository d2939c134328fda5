"""A broker in a cluster of Apache Kafka's controllers: what Kafka's tools see of it, what it knows of the cluster."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.base.acls import Acl
from kafkalite.base.clock import SystemClock
from kafkalite.broker import Broker
from kafkalite.broker.cluster.image import Address as ListenerAddress
from kafkalite.broker.cluster.image import Image
from kafkalite.broker.cluster.lifecycle import Node, Phase, Times
from kafkalite.broker.cluster.member import Controllers, Member
from kafkalite.broker.cluster.quorum import Address
from kafkalite.broker.cluster.records import CONTROL_TYPES, RECORD_TYPES, encode_value, read_batches
from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.errors import StartupError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from tests.kit.harness.admin_storm import Storm
from tests.kit.harness.clustered import membership
from tests.kit.processes.apache_kafka import (
    ApacheKafka,
    KafkaController,
    NotAvailable,
    jars,
    run_tool,
    topic_id_text,
)
from tests.kit.processes.broker import running, wait_until
from tools.generate_metadata_records import generate

pytestmark = pytest.mark.slow

WAIT_S = 120
SESSION_MS = "3000"
NEWEST = "4.4.0"
"""Of the releases whose records are known."""
QUICK_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
SEED = int(os.environ.get("KAFKALITE_SEED", "20261122"))
STORM_STEPS = 250


def settings(controller: KafkaController, directory: Path, **more: object) -> dict[str, object]:
    return {
        **membership(controller.address, 7),
        "broker.rack": "here",
        "log.dirs": str(directory),
        **{key.replace("_", "."): value for key, value in more.items()},
    }


@pytest.fixture
def controller(kafka_jars: Path, tmp_path: Path) -> Iterator[KafkaController]:
    assert kafka_jars
    with KafkaController(tmp_path / "controller") as running_controller:
        yield running_controller


def test_generated_records_are_those_of_the_newest_jars() -> None:
    try:
        found = jars(NEWEST)
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA {NEWEST}: {missing}")
    for path, text in generate(found).items():
        assert path.read_text() == text


@pytest.mark.parametrize("voters", [False, True], ids=["dynamic", "static"])
def test_kafkas_tools_see_a_broker(kafka_jars: Path, tmp_path: Path, voters: bool) -> None:
    assert kafka_jars
    with KafkaController(tmp_path / "controller", voters=voters) as controller:
        quorum = {"controller.quorum.voters": f"3000@{controller.address}"} if voters else {}
        given = settings(controller, tmp_path / "broker") | quorum
        with Broker(given) as broker:
            replicas = run_tool(
                "org.apache.kafka.tools.MetadataQuorumCommand",
                "--bootstrap-controller",
                controller.address,
                *("describe", "--replication"),
            )
            (own,) = [line.split() for line in replicas.splitlines() if line.split()[:1] == ["7"]]
            assert own[1] in (tmp_path / "broker" / "meta.properties").read_text()
            assert own[-1] == "Observer"
            assert int(own[3]) <= 2  # what it has not fetched yet: the controller writes twice a second
            known = run_tool(
                "org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server", broker.bootstrap_servers
            )
            (line,) = [line.split() for line in known.splitlines() if line.split()[:1] == ["7"]]
            assert line == ["7", "127.0.0.1", str(broker.port), "here", "unfenced", "broker"]
            versions = run_tool(
                "org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", broker.bootstrap_servers
            )
            assert f"127.0.0.1:{broker.port} (id: 7 rack: here isFenced: false)" in versions
            assert "Metadata(3): 0 to 13" in versions
            features = run_tool(
                "org.apache.kafka.tools.FeatureCommand", "--bootstrap-controller", controller.address, "describe"
            )
            connection = Connection.connect("127.0.0.1", broker.port, client_id="test")
            finalized = connection.features
            connection.close()
        told = {line.split("\t")[0].split()[1]: line for line in features.splitlines() if line.startswith("Feature:")}
        assert finalized["metadata.version"] == 27
        assert "FinalizedVersionLevel: 4.1-IV1" in told["metadata.version"]
        for name in finalized.keys() - {"metadata.version"}:
            assert f"FinalizedVersionLevel: {finalized[name]}\t" in told[name]


def run_topics(broker: Broker, *arguments: str) -> str:
    return run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap_servers, *arguments)


def test_kafkas_tools_reach_the_controller_through_a_broker(controller: KafkaController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path / "broker")) as broker:
        image = lambda: member_of(broker).image  # noqa: E731  # the present one
        run_topics(broker, *("--create", "--topic", "orders", "--partitions", "3"), *("--config", "retention.ms=5000"))
        wait_until(lambda: image().topic("orders"), WAIT_S, "the topic is known")
        assert [(each.leader, each.replicas) for each in image().topic("orders").partitions.values()] == [(7, (7,))] * 3
        assert image().configs[2, "orders"] == {"retention.ms": "5000"}
        run_topics(broker, *("--alter", "--topic", "orders", "--partitions", "5"))
        wait_until(lambda: len(image().topic("orders").partitions) == 5, WAIT_S, "five partitions")
        assert run_topics(broker, "--list").split() == ["orders"]
        configs = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers)
        quota = ("--entity-type", "clients", "--entity-name", "c")
        run_tool(*configs, "--alter", *quota, *("--add-config", "producer_byte_rate=5000"))
        user = ("--entity-type", "users", "--entity-name", "u")
        run_tool(*configs, "--alter", *user, *("--add-config", "SCRAM-SHA-256=[password=x]"))
        wait_until(lambda: image().quotas and image().credentials, WAIT_S, "a quota and a user")
        assert "producer_byte_rate=5000.0" in run_tool(*configs, "--describe", *quota)
        assert "SCRAM-SHA-256=iterations=4096" in run_tool(*configs, "--describe", *user)
        refused = run_topics_refused(broker, "--create", "--topic", "orders")
        assert "already exists" in refused
        quorum = run_tool(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            *("--bootstrap-server", broker.bootstrap_servers),
            *("describe", "--status"),
        )
        assert re.search(r"^LeaderId:\s+3000$", quorum, re.MULTILINE), quorum
        run_topics(broker, "--delete", "--topic", "orders")
        wait_until(lambda: not image().topics, WAIT_S, "the topic is gone")


def run_topics_refused(broker: Broker, *arguments: str) -> str:
    with pytest.raises(RuntimeError) as refused:
        run_topics(broker, *arguments)
    return str(refused.value)


def test_broker_outlives_its_controllers_restart(controller: KafkaController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path / "broker")) as broker:
        member = member_of(broker)
        epoch = member.epoch
        before = member.image
        controller.stop()
        controller.start()
        wait_until(lambda: member.image.epoch > before.epoch, WAIT_S, "metadata of the new quorum epoch")
        wait_until(lambda: not member.image.brokers[7].fenced and not member.fenced, WAIT_S, "let in again")
        assert (member.epoch, member.phase) == (epoch, Phase.IN_SERVICE)
        controller.close()  # kill -9
        controller.start()
        later = member.image
        wait_until(lambda: member.image.epoch > later.epoch, WAIT_S, "metadata after a kill")
        wait_until(lambda: not member.image.brokers[7].fenced and not member.fenced, WAIT_S, "let in again")


def member_of(broker: Broker) -> Member:
    assert broker._parts.cluster.member is not None
    return broker._parts.cluster.member


def test_killed_broker_waits_for_its_old_session_to_end(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    session = {"broker.session.timeout.ms": "20000"}  # in which a slow machine, too, starts a process again
    with (
        KafkaController(tmp_path / "controller", settings=session) as controller,
        running(tmp_path / "broker", settings=settings(controller, tmp_path / "unused")) as process,
    ):
        process.kill()
        process.start()
        assert process.log().count("refused this broker's BrokerRegistration") >= 1
        process.stop()


def test_cluster_that_a_broker_cannot_be_in_is_refused_by_name(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    share = ("--feature", "share.version=1")
    with KafkaController(tmp_path / "controller", format_options=share) as controller:
        given = settings(controller, tmp_path / "broker", initial_broker_registration_timeout_ms=WAIT_S * 1000)
        with pytest.raises(StartupError, match=r"--feature share\.version=0"):
            Broker(given).start()


# --- the whole of the metadata ----------------------------------------------------------------------------------------


def observer(kafka: ApacheKafka, node_id: int) -> Member:
    """A member that follows, and asks for nothing."""
    node = Node(
        node_id=node_id,
        cluster_id=kafka.cluster_id,
        incarnation=uuid.uuid4().bytes,
        addresses=(ListenerAddress("PLAINTEXT", "127.0.0.1", 1),),
        rack=None,
        directory_id=uuid.uuid4().bytes,
    )
    controllers = Controllers(voters={}, servers=(Address("127.0.0.1", kafka.controller_port),), listener="CONTROLLER")
    times = Times(registration_max=WAIT_S, beat=1.0, session=9.0, start_max=600)
    member = Member(node, controllers, times, SystemClock(), serves=False, on_fatal=lambda _error: None)
    member.start()
    member.wait_caught_up()
    return member


def contents(image: Image) -> dict[str, Any]:
    """All sections, offset and epoch left out; brokers without those that only observe."""
    sections = {each.name: getattr(image, each.name) for each in dataclasses.fields(image)}
    sections["topics"] = {key: (each.name, each.partitions) for key, each in image.topics.items()}
    sections["brokers"] = {key: each for key, each in image.brokers.items() if key == 1}
    return {name: value for name, value in sections.items() if name not in ("offset", "epoch")}


def test_image_is_what_a_java_broker_knows_after_a_storm(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ApacheKafka(tmp_path / "kafka", settings=QUICK_SNAPSHOTS | authorizer) as kafka:
        follower = observer(kafka, 7)
        snapshots_at_start = snapshots(kafka)
        with Client(kafka.bootstrap) as client:
            storm = Storm(client, kafka.bootstrap, SEED)
            storm.run(STORM_STEPS)
            assert len(storm.done) >= 12, storm.done
            assert len(snapshots(kafka) - snapshots_at_start) >= 3
            late = observer(kafka, 8)  # by a snapshot, and the records after it
            assert late.image.topics
            wait_until(
                lambda: contents(follower.image) == contents(late.image), WAIT_S, "two that followed see the same"
            )
            held_against_java(kafka, client, late.image)
        for member in (follower, late):
            member.stop()
        kafka.stop()
    compare_with_dump(kafka)


def snapshots(kafka: ApacheKafka) -> set[str]:
    return {path.name for path in (kafka.data_dir / "__cluster_metadata-0").glob("*.checkpoint")}


def held_against_java(kafka: ApacheKafka, client: Client, image: Image) -> None:
    connection = Connection.connect("127.0.0.1", kafka.port, client_id="test")
    answer = connection.request(api.METADATA, MetadataRequest(topics=None))
    connection.close()
    told = {
        (topic.name, topic.topic_id): {
            each.partition_index: (each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
            for each in topic.partitions
        }
        for topic in answer.topics
    }
    assert told == {
        (topic.name, topic.id): {
            index: (each.leader, each.leader_epoch, list(each.replicas), list(each.isr))
            for index, each in topic.partitions.items()
        }
        for topic in image.topics.values()
    }
    for topic in image.topics.values():
        entries = client.admin.describe_topic_configs(topic.name)
        own = {each.name: each.value for each in entries if each.source == "topic"}
        assert own == image.configs.get((2, topic.name), {})
    assert set(client.acls.find()) == {Acl(*each) for each in image.acls.values()}
    mechanisms = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
    users: dict[str, dict[str, int]] = {}
    for (mechanism, user), credential in image.credentials.items():
        users.setdefault(user, {})[mechanisms[mechanism]] = credential.iterations
    assert client.users.list_all() == users
    assert client.quotas.list_all() == image.quotas


def compare_with_dump(kafka: ApacheKafka) -> None:
    """Every record that the controller wrote, in log and snapshots, is read as Kafka's own tool reads it, and written
    back byte by byte."""
    directory = kafka.data_dir / "__cluster_metadata-0"
    kinds: Counter[str] = Counter()
    for path in [*sorted(directory.glob("*.log")), max(directory.glob("*.checkpoint"))]:
        data = path.read_bytes()
        ours = [(offset, record) for batch in read_batches(data) for offset, record in batch.records]
        dumped = run_tool(
            "kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(path)
        )
        theirs = [json.loads(line[line.index("{") :]) for line in dumped.splitlines() if '"type":"' in line]
        metadata = [record for _, record in ours if type(record) in KEYS]
        assert [type(record).__name__ for record in metadata] == [spelled(each["type"]) for each in theirs]
        for record, each in zip(metadata, theirs, strict=True):
            assert encode_value(record, each["version"]) in data
            assert_equal(record, each["data"])
            kinds[each["type"]] += 1
    assert len(kinds) >= 14, kinds


KEYS = {row[0] for row in RECORD_TYPES.values()}
assert not KEYS & {row[0] for row in CONTROL_TYPES.values()}


def spelled(name: str) -> str:
    """REGISTER_BROKER_RECORD is RegisterBrokerRecord."""
    words = "".join(word.capitalize() for word in name.split("_"))
    known = {each.__name__.lower(): each.__name__ for each in KEYS}
    return known[words.lower()]


def assert_equal(record: Any, told: dict[str, Any]) -> None:
    """A record and what Kafka's tool has of it; fields that are not told have their defaults."""
    fields = {name.replace("_", "").lower(): value for name, value in told.items()}
    for name, kind, *_ in record.FIELDS:
        key = name.replace("_", "")
        value = getattr(record, name)
        if key not in fields:
            assert value == getattr(type(record)(), name), (record, name)
        elif kind.startswith("[]") and kind[2].isupper():
            for inner, other in zip(value, fields[key], strict=True):
                assert_equal(inner, other)
        else:
            assert as_told(value, kind) == fields[key], (record, name)


def as_told(value: Any, kind: str) -> Any:
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "uuid":
        return topic_id_text(value)
    if kind == "[]uuid" and value is not None:
        return [topic_id_text(each) for each in value]
    return value
