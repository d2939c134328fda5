"""What Apache Kafka 4.4 of one node answers, kafkalite answers, where 4.4 and 4.1 differ or where both were missed.

Settings of groups with their synonyms, topic settings that Kafka 4 refuses, and batches larger than requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.kit.checkers.side_by_side import Side, two_brokers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC, GROUP = 2, 32
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    given = {
        "group_consumer_session_timeout_ms": "50000",
        "message_max_bytes": "200000000",
        "socket_request_max_bytes": "100000000",
    }
    with two_brokers(tmp_path_factory.mktemp("kafka"), version="4.4.0", **given) as both:
        for side in both:
            assert create(side, "orders") == ErrorCode.NONE
            assert alter(side, GROUP, "g", "consumer.session.timeout.ms", SET, "55000") == ErrorCode.NONE
        yield both


def create(side: Side, name: str, **configs: str) -> int:
    given = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=given)
    return int(side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics[0].error_code)


def alter(side: Side, kind: int, name: str, key: str, operation: int, value: str | None) -> int:
    config = iac.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = iac.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    request = iac.IncrementalAlterConfigsRequest(resources=[resource])
    return int(side.ask(api.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code)


def described(side: Side, kind: int, name: str) -> dict[str, tuple[object, ...]]:
    """Setting → value, source, and the synonyms as (name, value, source)."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    (result,) = side.ask(api.DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == ErrorCode.NONE
    return {
        config.name: (
            config.value,
            config.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
        )
        for config in result.configs
    }


@pytest.mark.parametrize("group", ["g", "nobody"])
def test_group_settings_name_the_broker_settings_behind_them(sides: tuple[Side, Side], group: str) -> None:
    kafka, ours = (described(side, GROUP, group) for side in sides)
    assert ours.keys() <= kafka.keys()
    assert ours == {key: kafka[key] for key in ours}
    own = [("consumer.session.timeout.ms", "55000", 8)] if group == "g" else []
    assert ours["consumer.session.timeout.ms"][2] == [
        *own,
        ("group.consumer.session.timeout.ms", "50000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


REFUSED = {
    "remote.storage.enable": "true",
    "message.downconversion.enable": "true",
    "message.format.version": "3.0",
    "message.timestamp.difference.max.ms": "5",
}
TAKEN = {"remote.storage.enable": "false", "remote.log.copy.disable": "true", "remote.copy.lag.ms": "5"}


@pytest.mark.parametrize(("key", "value"), [*REFUSED.items(), *TAKEN.items()])
def test_topic_settings_are_taken_and_refused_alike(sides: tuple[Side, Side], key: str, value: str) -> None:
    expected = ErrorCode.INVALID_CONFIG if REFUSED.get(key) == value else ErrorCode.NONE
    assert [create(side, f"{key}.{value}", **{key: value}) for side in sides] == [expected] * 2
    assert [alter(side, TOPIC, "orders", key, SET, value) for side in sides] == [expected] * 2
    assert [alter(side, TOPIC, "orders", key, DELETE, None) for side in sides] == [ErrorCode.NONE] * 2


def test_topic_settings_that_kafka_removed_are_not_shown(sides: tuple[Side, Side]) -> None:
    kafka, ours = (described(side, TOPIC, "orders") for side in sides)
    assert ours.keys() - kafka.keys() == {"message.format", "record.validation"}, "our own alone"
    assert ours["max.message.bytes"][0] == kafka["max.message.bytes"][0] == "200000000"
