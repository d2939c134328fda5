"""A cluster's settings at one of its brokers: precedence, descriptions, forwarding. The controller is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api, decode_request, header
from kafkalite.wire.protocol.messages import alter_configs
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkalite.wire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.kit.fakes.controller import BLOCK_SIZE, ScriptedController
from tests.kit.harness.clustered import cluster_settings, journal_operations
from tests.kit.processes.broker import wait_until

WAIT_S = 60
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC, DEFAULT = 1, 2, 3, 4, 5
TOPIC_ID = bytes(range(16))


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController("aaaaaaaaaaaaaaaaaaaaaQ") as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        yield scripted


@pytest.fixture
def broker(controller: ScriptedController, tmp_path: Path) -> Iterator[Broker]:
    controller.append(
        config(BROKER, "", "log.retention.ms", "777000"),
        config(BROKER, "", "num.io.threads", "0"),  # which no broker can go by
        config(BROKER, "", "unheard.of", "x"),
        config(BROKER, "7", "log.cleaner.threads", "2"),
        config(BROKER, "8", "log.cleaner.threads", "3"),
        types.TopicRecord(name="orders", topic_id=TOPIC_ID),
        config(TOPIC, "orders", "segment.bytes", "1048576"),
        config(TOPIC, "orders", "of.a.later.release", "x"),
        config(GROUP, "readers", "consumer.session.timeout.ms", "50000"),
        config(GROUP, "refused", "consumer.session.timeout.ms", "1"),
        config(CLIENT_METRICS, "some", "interval.ms", "1000"),
        config(CLIENT_METRICS, "some", "metrics", "org.apache"),
    )
    given = cluster_settings(controller.address, tmp_path, metrics_listeners="http://127.0.0.1:0")
    with Broker(given) as running:
        yield running


def config(kind: int, name: str, key: str, value: str | None) -> types.ConfigRecord:
    return types.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    opened = Connection.connect("127.0.0.1", broker.port, client_id="test")
    yield opened
    opened.close()


def described(connection: Connection, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Setting → value and source."""
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)])
    (result,) = connection.request(api.DESCRIBE_CONFIGS, asked).results
    assert result.error_code == 0, result.error_message
    return {each.name: (each.value, each.config_source) for each in result.configs}


def test_settings_of_brokers_are_those_of_the_cluster(
    controller: ScriptedController, broker: Broker, connection: Connection
) -> None:
    own = described(connection, BROKER, "7")
    assert own["log.retention.ms"] == ("777000", DYNAMIC_DEFAULT_BROKER)
    assert own["log.cleaner.threads"] == ("2", DYNAMIC_BROKER)
    assert own["num.io.threads"][1] == DEFAULT
    assert (broker.logs.config.log_retention_ms, broker.logs.config.log_cleaner_threads) == (777_000, 2)
    assert described(connection, BROKER, "") == {
        "log.retention.ms": ("777000", DYNAMIC_DEFAULT_BROKER),
        "unheard.of": (None, DYNAMIC_DEFAULT_BROKER),  # unknown settings count as secret
    }
    controller.append(
        config(BROKER, "", "log.retention.ms", None),
        config(BROKER, "7", "log.cleaner.threads", None),
        config(BROKER, "7", "num.network.threads", "3"),
    )
    wait_until(lambda: len(broker._parts.workers) == 3, WAIT_S, "the network workers follow")
    own = described(connection, BROKER, "7")
    assert own["log.cleaner.threads"][1] == own["log.retention.ms"][1] == DEFAULT
    assert own["num.network.threads"] == ("3", DYNAMIC_BROKER)


def test_topic_settings_are_described_on_any_broker(
    controller: ScriptedController, broker: Broker, connection: Connection
) -> None:
    topic = described(connection, TOPIC, "orders")
    assert topic["segment.bytes"] == ("1048576", DYNAMIC_TOPIC)
    assert topic["retention.ms"] == ("777000", DYNAMIC_DEFAULT_BROKER)
    assert "of.a.later.release" not in topic
    controller.append(config(TOPIC, "orders", "segment.bytes", None))
    wait_until(lambda: described(connection, TOPIC, "orders")["segment.bytes"][1] == DEFAULT, WAIT_S, "it is gone")
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="none")])
    (missing,) = connection.request(api.DESCRIBE_CONFIGS, asked).results
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_groups_and_subscriptions_to_client_metrics_are_those_of_the_cluster(
    controller: ScriptedController, broker: Broker, connection: Connection
) -> None:
    assert described(connection, GROUP, "readers")["consumer.session.timeout.ms"][0] == "50000"
    assert broker.logs.metadata.group_configs.keys() == {"readers"}
    assert described(connection, CLIENT_METRICS, "some")["interval.ms"][0] == "1000"
    told = connection.request(api.GET_TELEMETRY_SUBSCRIPTIONS, GetTelemetrySubscriptionsRequest())
    assert (told.error_code, told.push_interval_ms, told.requested_metrics) == (0, 1000, ["org.apache"])
    listed = connection.request(api.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest()).config_resources
    assert {(each.resource_type, each.resource_name) for each in listed} == {
        *((TOPIC, "orders"), (GROUP, "readers"), (CLIENT_METRICS, "some")),
        *((BROKER, "7"), (LOGGER, "7")),
    }
    controller.append(
        config(GROUP, "readers", "consumer.session.timeout.ms", None),
        config(CLIENT_METRICS, "some", "interval.ms", None),
        config(CLIENT_METRICS, "some", "metrics", None),
    )
    wait_until(
        lambda: not broker.logs.metadata.group_configs and not broker.logs.metadata.client_metrics,
        WAIT_S,
        "both are gone",
    )


def change(*resources: tuple[int, str, str, str | None], validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value=value)]
            )
            for kind, name, key, value in resources
        ],
        validate_only=validate_only,
    )


def test_changes_are_checked_here_and_decided_by_the_controller(
    controller: ScriptedController, broker: Broker, connection: Connection
) -> None:
    whole = change((TOPIC, "orders", "retention.ms", "5"), (BROKER, "", "log.retention.ms", "5"))
    answers = connection.request(api.INCREMENTAL_ALTER_CONFIGS, whole).responses
    assert [each.error_code for each in answers] == [0, 0]
    mixed = change(
        (LOGGER, "7", "kafkalite.broker.cluster", "ERROR"),
        (TOPIC, "orders", "retention.ms", "6"),
        (BROKER, "8", "log.retention.ms", "5"),
        (BROKER, "7", "log.cleaner.threads", "many"),
        (BROKER, "7", "log.cleaner.threads", "1"),
        (GROUP, "readers", "consumer.session.timeout.ms", None),
        (BROKER, "", "node.id", "9"),
        (GROUP, "others", "consumer.session.timeout.ms", "60000"),
        (1, "x", "y", "z"),
    )
    answers = connection.request(api.INCREMENTAL_ALTER_CONFIGS, mixed).responses
    refused = ErrorCode.INVALID_REQUEST
    assert [(each.resource_name, each.error_code) for each in answers] == [
        *(("7", 0), ("orders", 0), ("8", refused), ("7", refused), ("7", refused), ("readers", refused)),
        *(("", refused), ("others", 0), ("x", refused)),
    ]
    alone = change((LOGGER, "7", "kafkalite.broker.cluster", None))
    alone.resources[0].configs[0].config_operation = 1  # DELETE: it follows its parent again
    assert [each.error_code for each in connection.request(api.INCREMENTAL_ALTER_CONFIGS, alone).responses] == [0]
    older = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(resource_type=LOGGER, resource_name="7", configs=[]),
            alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=[]),
        ]
    )
    answers = connection.request(api.ALTER_CONFIGS, older).responses
    assert [each.error_code for each in answers] == [refused, 0]
    passed = [forwarded(each) for each in controller.requests(api.ENVELOPE)]
    assert passed == [
        [(TOPIC, "orders"), (BROKER, "")],
        [(TOPIC, "orders"), (GROUP, "others")],
        [(TOPIC, "orders")],
    ]


def forwarded(envelope: object) -> list[tuple[int, str]]:
    head = header.decode_request_header(envelope.request_data)
    message = decode_request(head.api_key, head.api_version, envelope.request_data[head.body_position :])
    return [(each.resource_type, each.resource_name) for each in message.resources]


def test_journal_has_nothing_of_the_cluster(broker: Broker, connection: Connection, tmp_path: Path) -> None:
    assert described(connection, BROKER, "7")["log.cleaner.threads"] == ("2", DYNAMIC_BROKER)
    broker.stop()
    assert journal_operations(tmp_path) == {"format"}


def test_producer_ids_come_in_blocks_from_the_controller(controller: ScriptedController, tmp_path: Path) -> None:
    given: list[int] = []
    for crash in (True, False):
        broker = Broker(cluster_settings(controller.address, tmp_path)).start()
        assert broker._parts.transactions is not None
        ids = broker._parts.transactions.producer_ids
        given += [wait_until(ids.take, WAIT_S, "an id is there") for _ in range(2 * BLOCK_SIZE)]
        broker._stop_parts(crash=crash)
    assert len(set(given)) == len(given) == 4 * BLOCK_SIZE
    assert all(request.broker_id == 7 for request in controller.requests(api.ALLOCATE_PRODUCER_IDS))
    assert "producer_ids" not in journal_operations(tmp_path)


def test_levels_of_features_are_those_of_the_cluster(controller: ScriptedController, broker: Broker) -> None:
    services = broker._parts.services
    assert services is not None
    assert (services.feature_level("group.version"), services.feature_level("metadata.version")) == (0, 27)
    controller.append(types.FeatureLevelRecord(name="group.version", feature_level=1))
    wait_until(lambda: services.feature_level("group.version") == 1, WAIT_S, "it is switched on")
    controller.append(types.FeatureLevelRecord(name="group.version", feature_level=0))
    wait_until(lambda: services.feature_level("group.version") == 0, WAIT_S, "it is switched off")
