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
from kafkalite.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkalite.wire.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
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
from kafkalite.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kit.checkers.side_by_side import Side, comparable, two_brokers
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    given = {
        "group_consumer_session_timeout_ms": "50000",
        "message_max_bytes": "200000000",
        "socket_request_max_bytes": "100000000",
    }
    with two_brokers(tmp_path_factory.mktemp("kafka"), format_options=(), **given) as both:
        for side in both:
            assert create(side, "orders") == ErrorCode.NONE
            for kind in (GROUP_COORDINATOR, TRANSACTION_COORDINATOR):  # has Kafka create its topic
                found = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
                until(lambda side=side, asked=found: side.ask(api.FIND_COORDINATOR, 4, asked).coordinators[0])
            assert alter(side, GROUP, "g", "consumer.session.timeout.ms", SET, "55000") == ErrorCode.NONE
            # Kafka answers before it has applied the change.
            wait_until(lambda side=side: own_timeout(side) == "55000", 30, "the setting")
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


def own_timeout(side: Side) -> object:
    return described(side, GROUP, "g")["consumer.session.timeout.ms"][0]


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


@pytest.fixture
def at_newest(sides: tuple[Side, Side]) -> None:
    """Both at the metadata of 4.4."""
    updates = [FeatureUpdateKey(feature="metadata.version", max_version_level=33, upgrade_type=1)]
    answer = sides[1].ask(api.UPDATE_FEATURES, 2, UpdateFeaturesRequest(feature_updates=updates))
    assert answer.error_code == ErrorCode.NONE
    asked = software()
    for side in sides:
        levels = {row.name: row.max_version_level for row in side.ask(api.API_VERSIONS, 4, asked).finalized_features}
        assert levels["metadata.version"] == 33


def cordon(side: Side, value: str) -> None:
    node = str(side.ask(api.METADATA, 13, MetadataRequest(topics=[])).brokers[0].node_id)
    assert alter(side, BROKER, node, "cordoned.log.dirs", SET, value) == ErrorCode.NONE
    wait_until(lambda: log_dir(side).is_cordoned == bool(value), 30, "the setting takes effect")


def log_dir(side: Side, version: int = 5) -> Any:
    (result,) = side.ask(api.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=[])).results
    return result


@pytest.mark.usefixtures("at_newest")
def test_a_cordoned_directory_gets_no_new_partitions(sides: tuple[Side, Side]) -> None:
    for side in sides:
        cordon(side, "*")
    try:
        # Kafka's controller hears of it with the broker's next heartbeat.
        wait_until(lambda: not created_and_deleted(sides[0]), 30, "a heartbeat")
        kafka, ours = (refused_while_cordoned(side) for side in sides)
    finally:
        for side in sides:
            cordon(side, "")
    assert ours == kafka
    assert set(ours.values()) == {ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    for side in sides:
        wait_until(
            lambda side=side: create(side, "later") in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}, 30, "room"
        )


def created_and_deleted(side: Side) -> bool:
    """Whether a topic could be created, which is deleted again."""
    if create(side, "tried") != ErrorCode.NONE:
        return False
    answer = side.ask(api.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[DeleteTopicState(name="tried")]))
    assert answer.responses[0].error_code == ErrorCode.NONE
    return True


def refused_while_cordoned(side: Side) -> dict[str, int]:
    node = int(side.ask(api.METADATA, 13, MetadataRequest(topics=[])).brokers[0].node_id)
    by_hand = [CreatableReplicaAssignment(partition_index=0, broker_ids=[node])]
    assigned = CreatableTopic(name="by-hand", num_partitions=-1, replication_factor=-1, assignments=by_hand)
    more = CreatePartitionsTopic(name="orders", count=2, assignments=None)
    named = CreatePartitionsTopic(name="orders", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[node])])
    moved = ReassignableTopic(name="orders", partitions=[ReassignablePartition(partition_index=0, replicas=[node])])
    where = AlterReplicaLogDir(
        path=log_dir(side).log_dir, topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])]
    )

    def grow(topic: CreatePartitionsTopic) -> int:
        return int(
            side.ask(api.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[topic], timeout_ms=30_000))
            .results[0]
            .error_code
        )

    reassigned = side.ask(api.ALTER_PARTITION_REASSIGNMENTS, 0, AlterPartitionReassignmentsRequest(topics=[moved]))
    altered = side.ask(api.ALTER_REPLICA_LOG_DIRS, 2, AlterReplicaLogDirsRequest(dirs=[where]))
    return {
        "create": create(side, "new"),
        "create by hand": int(
            side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[assigned])).topics[0].error_code
        ),
        "grow": grow(more),
        "grow by hand": grow(named),
        "reassign": int(reassigned.responses[0].partitions[0].error_code),
        "move": int(altered.results[0].partitions[0].error_code),
    }


@pytest.mark.usefixtures("at_newest")
@pytest.mark.parametrize("value", ["*,/nowhere", "/nowhere", "*,*"])
def test_what_cannot_be_cordoned_is_refused(sides: tuple[Side, Side], value: str) -> None:
    codes = [alter(side, BROKER, "1", "cordoned.log.dirs", SET, value) for side in sides]
    assert codes[0] == codes[1] != ErrorCode.NONE


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
