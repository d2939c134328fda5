"""What Apache Kafka 4.4 of one node answers, kafkalite answers, where 4.4 and 4.1 differ or where both were missed.

Settings of groups with their synonyms, topic settings that Kafka 4 refuses, batches larger than requests, and the
versions of APIs that 4.4 added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.checkers.side_by_side import Side, comparable, two_brokers
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC, GROUP = 2, 32
SET, DELETE = 0, 1
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1


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
            for kind in (GROUP_COORDINATOR, TRANSACTION_COORDINATOR):  # has Kafka create its topic
                found = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
                until(lambda side=side, asked=found: side.ask(api.FIND_COORDINATOR, 4, asked).coordinators[0])
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


def software(**fields: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="story", client_software_version="1", **fields)


@pytest.mark.parametrize(
    ("means", "code"),
    [
        ("this", ErrorCode.NONE),
        ("any", ErrorCode.NONE),
        ("another node", ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another cluster", ErrorCode.REBOOTSTRAP_REQUIRED),
        ("a cluster alone", ErrorCode.INVALID_REQUEST),
        ("a node alone", ErrorCode.INVALID_REQUEST),
    ],
)
def test_clients_that_mean_another_broker_are_told(sides: tuple[Side, Side], means: str, code: int) -> None:
    for side in sides:
        who = side.ask(api.METADATA, 13, MetadataRequest(topics=[]))
        cluster, node = str(who.cluster_id), int(who.brokers[0].node_id)
        fields: dict[str, Any] = {
            "this": {"cluster_id": cluster, "node_id": node},
            "any": {},
            "another node": {"cluster_id": cluster, "node_id": node + 1},
            "another cluster": {"cluster_id": "another", "node_id": node},
            "a cluster alone": {"cluster_id": cluster},
            "a node alone": {"node_id": node},
        }[means]
        answer = side.ask(api.API_VERSIONS, 5, software(**fields))
        assert (answer.error_code, bool(answer.api_keys)) == (code, code == ErrorCode.NONE), side


@pytest.mark.parametrize("version", [4, 5, 6])
def test_offsets_in_a_transaction_by_name_and_by_id(sides: tuple[Side, Side], version: int) -> None:
    kafka, ours = (committed_in_transaction(side, version) for side in sides)
    assert ours == kafka
    assert ours["good"][1] == ours["again"][1] == ErrorCode.NONE
    assert ours["no group"][1] == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.ILLEGAL_GENERATION)
    assert ours["old epoch"][1] == (ErrorCode.STALE_MEMBER_EPOCH if version >= 6 else ErrorCode.ILLEGAL_GENERATION)


def committed_in_transaction(side: Side, version: int) -> dict[str, tuple[object, int]]:
    """Case → how the answer names the topic, and its code."""
    name, group = f"tx-{version}", f"members-{version}"
    side.ids["orders"] = (
        side.ask(api.METADATA, 13, MetadataRequest(topics=[MetadataRequestTopic(name="orders")])).topics[0].topic_id
    )
    epoch = joined(side, group)

    def begin() -> Any:
        return side.ask(
            api.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        )

    producer = until(begin)

    def commit(
        topic: str = "orders",
        *,
        partition: int = 0,
        topic_id: bytes | None = None,
        in_group: str = group,
        **member: Any,
    ) -> tuple[object, int]:
        if version < 5:
            added = AddOffsetsToTxnRequest(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id=in_group,
            )
            until(lambda: side.ask(api.ADD_OFFSETS_TO_TXN, 4, added))
        asked = TxnOffsetCommitRequestTopic(
            name=topic,
            topic_id=topic_id or side.ids.get(topic, bytes(16)),
            partitions=[TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=1)],
        )
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=in_group,
            topics=[asked],
            **member,
        )

        def ask() -> Any:
            return side.ask(api.TXN_OFFSET_COMMIT, version, request).topics[0]

        answered = until(ask, lambda topic: int(topic.partitions[0].error_code))
        return comparable(answered, side.ids), int(answered.partitions[0].error_code)

    return {
        "good": commit(),
        "no topic": commit("none"),
        "no topic id": commit(topic_id=b"\x01" * 16),
        "no partition": commit(partition=9),
        "no group": commit(in_group="nobody's", member_id="m", generation_id=1),
        "no member": commit(member_id="nobody", generation_id=epoch),
        "old epoch": commit(member_id="m", generation_id=epoch + 9),
        "again": commit(member_id="m", generation_id=epoch),
    }


def joined(side: Side, group: str) -> int:
    """The epoch of the one member of a group of the newer protocol."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    return int(until(lambda: side.ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request)).member_epoch)


NOT_YET = {
    *(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def until(ask: Callable[[], Any], code: Callable[[Any], int] = lambda answer: int(answer.error_code)) -> Any:
    """The first answer that does not say to come again."""
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(ask())
        return code(answers[-1]) not in NOT_YET

    wait_until(answered, 30, "a coordinator that answers")
    return answers[-1]


@pytest.mark.parametrize("version", [2, 3])
def test_groups_are_deleted_and_kept_alike(sides: tuple[Side, Side], version: int) -> None:
    for side in sides:
        joined(side, "kept")
        topic = OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition(committed_offset=1)])
        asked = OffsetCommitRequest(group_id="deleted", topics=[topic])
        until(lambda side=side, asked=asked: side.ask(api.OFFSET_COMMIT, 9, asked).topics[0].partitions[0])
    request = DeleteGroupsRequest(groups_names=["kept", "deleted", "deleted", "none"])
    kafka, ours = (comparable(side.ask(api.DELETE_GROUPS, version, request), side.ids) for side in sides)
    assert ours == kafka
    codes = {row["group_id"]: row["error_code"] for row in ours["results"]}
    assert codes == {"deleted": 0, "kept": ErrorCode.NON_EMPTY_GROUP, "none": ErrorCode.GROUP_ID_NOT_FOUND}


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
