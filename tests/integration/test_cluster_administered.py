"""A broker of ours beside a Java broker in one cluster of Apache Kafka's: both answer the same of all that is the
cluster's, however it was changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.client.security import Security
from kafkalite.errors import ErrorCode
from kafkalite.settings.broker import BROKER_SETTINGS
from kafkalite.settings.topic_settings_table import TOPIC_SETTINGS
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.harness.admin_storm import Storm
from tests.kit.harness.clustered import cluster_settings, journal_operations, member_of
from tests.kit.processes.apache_kafka import ApacheKafka, run_tool
from tests.kit.processes.broker import free_port, wait_until

pytestmark = pytest.mark.slow

WAIT_S = 120
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OWN_TOPIC_SETTINGS = {"message.format", "record.validation"}
LATER_TOPIC_SETTINGS = {"remote.copy.lag.bytes", "remote.copy.lag.ms"}
"""Those that later releases of Kafka have, and 4.1 has not."""


def controllers_of(kafka: ApacheKafka) -> str:
    return f"127.0.0.1:{kafka.controller_port}"


def described(port: int, kind: int, name: str) -> dict[str, tuple[object, ...]] | int:
    """Return a resource's settings as a broker describes them, or the error code."""
    connection = Connection.connect("127.0.0.1", port, client_id="test")
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    (result,) = connection.request(api.DESCRIBE_CONFIGS, request).results
    connection.close()
    if result.error_code:
        return ErrorCode(result.error_code)
    return {
        each.name: (
            *(each.value, each.config_source, each.read_only, each.is_sensitive, each.config_type),
            tuple((synonym.name, synonym.value, synonym.source) for synonym in each.synonyms),
        )
        for each in result.configs
    }


def configure(broker: Broker, *arguments: str) -> None:
    run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--alter", *arguments)


def same_settings(kafka: ApacheKafka, broker: Broker, kind: int, name: str) -> None:
    """Both tell the same, but for what only one of them has."""
    theirs, ours = described(kafka.port, kind, name), described(broker.port, kind, name)
    if kind == TOPIC and isinstance(ours, dict):
        ours = {key: ours[key] for key in ours.keys() - OWN_TOPIC_SETTINGS - LATER_TOPIC_SETTINGS}
    if kind == GROUP and isinstance(ours, dict) and isinstance(theirs, dict):  # Kafka 4.1 names no broker settings
        theirs, ours = ({key: value[:-1] for key, value in side.items()} for side in (theirs, ours))
    assert ours == theirs, (kind, name)


def test_settings_changed_through_us_are_described_by_a_java_broker(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with (
        ApacheKafka(tmp_path / "kafka") as kafka,
        Broker(cluster_settings(controllers_of(kafka), tmp_path / "broker")) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        client.admin.create_topic("orders", partitions=2, configs={"retention.ms": "5000"})
        add = "--add-config"
        configure(broker, *("--entity-type", "topics", "--entity-name", "orders", add, "cleanup.policy=compact"))
        configure(broker, *("--entity-type", "brokers", "--entity-default", add, "log.retention.ms=7000,un.known=x"))
        configure(broker, *("--entity-type", "brokers", "--entity-name", "7", add, "log.cleaner.threads=2"))
        configure(broker, *("--entity-type", "groups", "--entity-name", "g", add, "consumer.session.timeout.ms=50000"))
        configure(broker, *("--entity-type", "client-metrics", "--entity-name", "m", add, "interval.ms=2000"))
        with pytest.raises(RuntimeError, match=r"(?i)unknown topic config"):  # the controller's own words
            configure(broker, *("--entity-type", "topics", "--entity-name", "orders", add, "message.format=classic"))
        image = lambda: member_of(broker).image  # noqa: E731  # the present one
        wait_until(lambda: len(image().configs) == 5, WAIT_S, "all five are known")
        client.admin.alter_broker_configs(7, {"log.segment.bytes": "2000000"})
        wait_until(lambda: image().configs[BROKER, "7"].get("log.segment.bytes"), WAIT_S, "one more of this broker")
        assert broker.logs.config.log_cleaner_threads == 2
        assert described(broker.port, BROKER, "7")["log.segment.bytes"][:2] == ("2000000", 2)  # dynamic, this broker's
        # A topic's settings, where the two brokers' own defaults differ.
        theirs, ours = described(kafka.port, TOPIC, "orders"), described(broker.port, TOPIC, "orders")
        assert ours["segment.bytes"][0] == "2000000" != theirs["segment.bytes"][0]
        client.admin.alter_broker_configs(7, {"log.segment.bytes": None})
        wait_until(lambda: "log.segment.bytes" not in image().configs[BROKER, "7"], WAIT_S, "it is gone")
        others = ((TOPIC, "none"), (BROKER, ""), (GROUP, "g"), (GROUP, "h"), (CLIENT_METRICS, "m"))
        for kind, name in ((TOPIC, "orders"), *others, (CLIENT_METRICS, "n"), (BROKER, "x"), (TOPIC, "a/b")):
            same_settings(kafka, broker, kind, name)
        theirs, ours = described(kafka.port, BROKER, "1"), described(broker.port, BROKER, "7")
        assert ours["log.retention.ms"] == theirs["log.retention.ms"]
        assert ours["log.retention.ms"][5][0] == ("log.retention.ms", "7000", 3)
        assert ours.keys() - theirs.keys() <= BROKER_SETTINGS.keys()
    assert TOPIC_SETTINGS.keys() >= OWN_TOPIC_SETTINGS
    assert journal_operations(tmp_path / "broker") == {"format"}


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}


def test_rules_and_users_made_through_us_hold_at_both_brokers(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    signed_in = {
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    kafka, sasl_port = ApacheKafka(tmp_path / "kafka"), free_port()
    clients = f"SASL://127.0.0.1:{sasl_port},PLAINTEXT://{kafka.bootstrap}"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    kafka.settings = {
        **AUTHORIZER,
        **signed_in,
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
        "listeners": f"{clients},CONTROLLER://{controllers_of(kafka)}",
        "advertised.listeners": clients,
        "inter.broker.listener.name": "PLAINTEXT",
    }
    with kafka:
        ours = {**cluster_settings(controllers_of(kafka), tmp_path / "broker"), **AUTHORIZER, **signed_in}
        ours |= {"listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "inter.broker.listener.name": "PLAINTEXT"}
        with Broker(ours) as broker, Client(broker.bootstrap_servers) as client:
            for name in ("orders", "secrets", "t1", "t2"):
                client.admin.create_topic(name, partitions=1)
            client.users.set_password("ann", "secret", "SCRAM-SHA-256", 4096)
            acls = ("org.apache.kafka.tools.AclCommand", "--bootstrap-server", broker.bootstrap_servers)
            run_tool(*acls, "--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "orders")
            prefixed = ("--resource-pattern-type", "prefixed")
            run_tool(*acls, "--add", "--allow-principal", "User:ann", "--operation", "All", "--topic", "t", *prefixed)
            described = ("--operation", "Describe", "--topic", "t2")
            run_tool(*acls, "--add", "--deny-principal", "User:ann", *described)
            image = lambda: member_of(broker).image  # noqa: E731  # the present one
            wait_until(lambda: len(image().acls) == 3 and image().credentials, WAIT_S, "rules and the user are known")
            with Client(kafka.bootstrap) as other:
                assert set(client.acls.find()) == set(other.acls.find())
                assert len(client.acls.find()) == 3
            addresses = (sasl_port, broker.endpoints["SASL"].port)
            seen = [what_ann_sees(port) for port in addresses]
            assert seen[0] == seen[1]
            assert seen[1]["orders"] == ErrorCode.NONE
            assert seen[1]["t2"] == seen[1]["secrets"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            run_tool(*acls, "--remove", "--force", "--deny-principal", "User:ann", *described)
            wait_until(lambda: len(image().acls) == 2, WAIT_S, "the rule is gone")
            seen = [what_ann_sees(port) for port in addresses]
            assert seen[0] == seen[1]
            assert seen[1]["t2"] == ErrorCode.NONE
    assert journal_operations(tmp_path / "broker") <= {"format", "secret"}


def what_ann_sees(port: int) -> dict[str, int]:
    """Topic → code, of those that are named, those in the list of all, and what she asks to be made."""
    security = Security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "ann",
            "sasl.password": "secret",
        }
    )
    connection = Connection.connect("127.0.0.1", port, client_id="test", security=security)
    asked = [MetadataRequestTopic(name=name) for name in ("orders", "secrets", "t1", "t2", "none", "tnone")]
    named = connection.request(api.METADATA, MetadataRequest(topics=asked, allow_auto_topic_creation=False)).topics
    listed = connection.request(api.METADATA, MetadataRequest(topics=None)).topics
    wanted = CreateTopicsRequest(topics=[CreatableTopic(name="other", num_partitions=1, replication_factor=1)])
    (made,) = connection.request(api.CREATE_TOPICS, wanted).topics
    all_rules = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    all_rules.resource_name_filter = all_rules.principal_filter = all_rules.host_filter = None
    of_rules = connection.request(api.DESCRIBE_ACLS, all_rules).error_code
    connection.close()
    return {
        **{each.name: each.error_code for each in named},
        **{f"listed {each.name}": each.error_code for each in listed},
        "made": made.error_code,
        "rules": of_rules,
    }


def test_no_producer_id_is_given_twice_in_a_cluster(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    given: list[int] = []
    with ApacheKafka(tmp_path / "kafka") as kafka:
        connection = Connection.connect("127.0.0.1", kafka.port, client_id="test")

        def theirs() -> int | None:
            answer = connection.request(api.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
            return None if answer.error_code else answer.producer_id + 1  # 0 is one of them, and no None

        for crash in (True, True, False):
            broker = Broker(cluster_settings(controllers_of(kafka), tmp_path / "broker")).start()
            assert broker._parts.transactions is not None
            ids = broker._parts.transactions.producer_ids
            for _ in range(1500):  # one block and a half
                given.append(wait_until(ids.take, WAIT_S, "an id of ours"))
                given.append(wait_until(theirs, WAIT_S, "an id of the Java broker's") - 1)
            broker._stop_parts(crash=crash)
        connection.close()
    assert len(set(given)) == len(given) == 9000


SEED = int(os.environ.get("KAFKALITE_SEED", "20261123"))
STORM_STEPS = 200


def test_both_brokers_answer_the_same_after_a_storm(kafka_jars: Path, tmp_path: Path) -> None:
    """Half of the changes come in at the Java broker, half at ours."""
    assert kafka_jars
    quick_snapshots = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
    with (
        ApacheKafka(tmp_path / "kafka", settings=AUTHORIZER | quick_snapshots) as kafka,
        Client(kafka.bootstrap) as other,
    ):
        ours = cluster_settings(controllers_of(kafka), tmp_path / "broker") | AUTHORIZER
        # Fenced, so that it gets no partitions, and topics can be created in any state.
        with Broker(ours) as broker, Client(broker.bootstrap_servers) as client:
            storms = Storm(client, broker.bootstrap_servers, SEED), Storm(other, kafka.bootstrap, SEED + 1)
            storms[0].node_id = 7
            for storm in storms:
                storm.run(STORM_STEPS)
                assert len(storm.done) >= 12, storm.done
            same_everywhere(kafka, broker, (other, client))
            epoch = member_of(broker).epoch
        with Broker(ours) as broker, Client(broker.bootstrap_servers) as client:  # by a snapshot, this time
            assert member_of(broker).epoch > epoch
            same_everywhere(kafka, broker, (other, client))
    assert journal_operations(tmp_path / "broker") == {"format"}


def same_everywhere(kafka: ApacheKafka, broker: Broker, clients: tuple[Client, Client]) -> None:
    """Once ours has all that the Java broker has, both tell the same of everything."""
    member = member_of(broker)
    theirs, ours = clients
    theirs.admin.create_topic(f"last{member.epoch}", partitions=1)
    wait_until(lambda: member.image.topic(f"last{member.epoch}"), WAIT_S, "ours has it all")
    assert set(ours.acls.find()) == set(theirs.acls.find())
    assert ours.users.list_all() == theirs.users.list_all()
    assert ours.quotas.list_all() == theirs.quotas.list_all()
    listed = [resources(port) for port in (kafka.port, broker.port)]
    # A Java broker keeps listing groups that had settings since it started.
    former = {each for each in listed[0] if each[0] == GROUP and each not in member.image.configs}
    assert listed[0] - former == listed[1]
    assert {kind for kind, _ in listed[1]} == {TOPIC, BROKER, 8, CLIENT_METRICS, GROUP}
    for kind, name in sorted(listed[0] | {(BROKER, "")}):
        if kind in (TOPIC, CLIENT_METRICS, GROUP) or name == "":
            same_settings(kafka, broker, kind, name)


def resources(port: int) -> set[tuple[int, str]]:
    connection = Connection.connect("127.0.0.1", port, client_id="test")
    found = connection.request(api.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest()).config_resources
    connection.close()
    return {(each.resource_type, each.resource_name) for each in found}
