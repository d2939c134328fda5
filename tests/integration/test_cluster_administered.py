"""A broker of ours beside a Java broker in one cluster of Apache Kafka's: both answer the same of all that is the
cluster's, however it was changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.protocol import api
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.settings.broker import BROKER_SETTINGS
from kafkalite.settings.topic_rows import TOPIC_SETTINGS
from tests.kit.harness.clustered import ServingBroker, cluster_settings, journal_operations, member_of
from tests.kit.processes.apache_kafka import ApacheKafka, run_tool
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker import Broker

pytestmark = pytest.mark.slow

WAIT_S = 120
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OWN_TOPIC_SETTINGS = {"message.format", "record.validation"}
FORMER_TOPIC_SETTINGS = {
    *("message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"),
    *("remote.copy.lag.bytes", "remote.copy.lag.ms"),
}
"""Those that other releases of Kafka have, and 4.1 has not."""


def controllers_of(kafka: ApacheKafka) -> str:
    return f"127.0.0.1:{kafka.controller_port}"


def described(port: int, kind: int, name: str) -> dict[str, tuple[object, ...]] | int:
    """What a broker tells of a resource's settings; a code where it tells nothing."""
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
        ours = {key: ours[key] for key in ours.keys() - OWN_TOPIC_SETTINGS - FORMER_TOPIC_SETTINGS}
    assert ours == theirs, (kind, name)


def test_settings_changed_through_us_are_what_a_java_broker_tells(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with (
        ApacheKafka(tmp_path / "kafka") as kafka,
        ServingBroker(cluster_settings(controllers_of(kafka), tmp_path / "broker")) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        client.admin.create_topic("orders", partitions=2, configs={"retention.ms": "5000"})
        add = "--add-config"
        configure(broker, *("--entity-type", "topics", "--entity-name", "orders", add, "cleanup.policy=compact"))
        configure(broker, *("--entity-type", "brokers", "--entity-default", add, "log.retention.ms=7000,un.known=x"))
        configure(broker, *("--entity-type", "brokers", "--entity-name", "7", add, "log.cleaner.threads=2"))
        configure(broker, *("--entity-type", "groups", "--entity-name", "g", add, "consumer.session.timeout.ms=50000"))
        configure(broker, *("--entity-type", "client-metrics", "--entity-name", "m", add, "interval.ms=2000"))
        with pytest.raises(RuntimeError, match="nknown topic config"):  # the controller's own words
            configure(broker, *("--entity-type", "topics", "--entity-name", "orders", add, "message.format=classic"))
        image = lambda: member_of(broker).image  # noqa: E731  # the present one
        wait_until(lambda: len(image().configs) == 5, WAIT_S, "all five are known")
        client.admin.alter_broker_configs(7, {"log.segment.bytes": "2000000"})
        wait_until(lambda: image().configs[BROKER, "7"].get("log.segment.bytes"), WAIT_S, "one more of this broker")
        assert broker.logs.config.log_cleaner_threads == 2
        assert described(broker.port, BROKER, "7")["log.segment.bytes"][:2] == ("2000000", 2)  # dynamic, this broker's
        # A topic's, where a broker's own settings do not stand behind them.
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
