"""What Apache Kafka 4.1 answers, kafkalite answers: topics, settings, offsets, the cluster.

A story is played on both: topics made, written to, changed, deleted, and everything a client can get wrong asked on the
way, in every version both serve. What differs on purpose is listed in DIFFERENT with the reason. Slow: Kafka takes
seconds to start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import alter_configs as ac
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
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
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kafkalite.wire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.wire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.checkers.side_by_side import Make, Side, Step, comparable, differences, two_brokers, versions
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODE = 1
TOPIC, BROKER, LOGGER = 2, 4, 8
UNCOMPARED_FEATURES = {"share.version", "streams.version", "kraft.version"}
"""The first two are not served; kraft.version is 0 in a cluster with controller.quorum.voters, and 1 here."""
DIFFERENT = {
    "create validated": "Kafka tells a random id of a topic that is not there",
    "metadata by no name": "Kafka fails altogether, with UNKNOWN_SERVER_ERROR",
    "change unknown operation": "Kafka answers UNKNOWN_SERVER_ERROR",
    "change broker append unknown": "the same",
    "change broker subtract unknown": "the same",
}
"""Step → why the answers differ on purpose."""


def create(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in more.pop("configs", {}).items()]
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in more.pop("assigned", [])
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs, assignments=assignments
    )


def create_steps() -> Iterator[Step]:
    every = versions(api.CREATE_TOPICS)

    def step(label: str, *make: Callable[[str], CreatableTopic], validate_only: bool = False) -> Step:
        def request(version: int, side: Side) -> CreateTopicsRequest:
            topics = [one(f"{label}-{version}") for one in make]
            return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=validate_only)

        return f"create {label}", api.CREATE_TOPICS, every, request

    yield step("plain", lambda name: create(name, 2))
    yield step("exists", lambda name: create("orders"))
    yield step("defaults", lambda name: create(name, -1, -1))
    yield step("validated", create, validate_only=True)
    yield step("validated-exists", lambda name: create("orders"), validate_only=True)
    yield step("settings", lambda name: create(name, configs={"retention.ms": "1000", "cleanup.policy": "compact"}))
    for label, bad in {
        "empty": "",
        "dot": ".",
        "dots": "..",
        "long": "x" * 250,
        "blank": "a b",
        "slash": "a/b",
    }.items():
        yield step(f"name-{label}", lambda name, bad=bad: create(bad))
    yield step("collide", lambda name: create(name + ".x_y"), lambda name: create(name + "_x.z"))
    yield step("collides", lambda name: create(name.replace("collides", "collide") + "_x.y"))
    yield step("no-partitions", lambda name: create(name, 0))
    yield step("negative-partitions", lambda name: create(name, -2))
    yield step("no-replicas", lambda name: create(name, 1, 0))
    yield step("negative-replicas", lambda name: create(name, 1, -2))
    yield step("three-replicas", lambda name: create(name, 1, 3))
    yield step("both-bad", lambda name: create(name, 0, 0))
    yield step("unknown-setting", lambda name: create(name, configs={"no.such": "1"}))
    yield step("bad-setting", lambda name: create(name, configs={"retention.ms": "soon"}))
    yield step("null-setting", lambda name: create(name, configs={"retention.ms": None}))
    yield step("bad-setting-of-existing", lambda name: create("orders", configs={"retention.ms": "soon"}))
    yield step("bad-setting-and-partitions", lambda name: create(name, 0, configs={"retention.ms": "soon"}))
    yield step("twice", create, create)
    yield step("twice-and-another", create, create, lambda name: create(name + "-other"))
    yield step("assigned", lambda name: create(name, -1, -1, assigned=[(1, [NODE]), (0, [NODE])]))
    yield step("assigned-and-count", lambda name: create(name, 1, -1, assigned=[(0, [NODE])]))
    yield step("assigned-and-replicas", lambda name: create(name, -1, 1, assigned=[(0, [NODE])]))
    yield step("assigned-gap", lambda name: create(name, -1, -1, assigned=[(0, [NODE]), (2, [NODE])]))
    yield step("assigned-not-0", lambda name: create(name, -1, -1, assigned=[(1, [NODE])]))
    yield step("assigned-nobody", lambda name: create(name, -1, -1, assigned=[(0, [])]))
    yield step("assigned-twice", lambda name: create(name, -1, -1, assigned=[(0, [NODE, NODE])]))
    yield step("assigned-stranger", lambda name: create(name, -1, -1, assigned=[(0, [99])]))


def metadata_steps() -> Iterator[Step]:
    every = versions(api.METADATA)

    def by_name(*names: str | None, create: bool = False) -> Make:
        topics = [MetadataRequestTopic(name=name) for name in names]
        return lambda version, side: (
            MetadataRequest(topics=topics, allow_auto_topic_creation=create)
            if version >= 4
            else MetadataRequest(topics=topics)
        )

    def by_id(version: int, side: Side) -> MetadataRequest:
        known = MetadataRequestTopic(topic_id=side.ids["orders"], name=None)
        return MetadataRequest(topics=[known, MetadataRequestTopic(topic_id=b"\1" * 16, name=None)])

    def flags(version: int, side: Side) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name="orders")],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=version <= 10,
        )

    yield "metadata known", api.METADATA, every, by_name("orders")
    yield "metadata unknown", api.METADATA, versions(api.METADATA, 4), by_name("missing")
    yield "metadata twice", api.METADATA, every, by_name("orders", "orders")
    yield "metadata none", api.METADATA, versions(api.METADATA, 1), by_name()
    for bad in ("", ".", "a b", "x" * 250):
        yield f"metadata bad {bad[:3]!r}", api.METADATA, every, by_name(bad)
    yield "metadata by id", api.METADATA, versions(api.METADATA, 12), by_id
    yield "metadata operations", api.METADATA, versions(api.METADATA, 8), flags
    yield "metadata by no name", api.METADATA, versions(api.METADATA, 12), by_name(None)


def offset_steps() -> Iterator[Step]:
    def ask(timestamp: int, topic: str = "orders", partition: int = 0, isolation: int = 0, epoch: int = -1) -> Make:
        def request(version: int, side: Side) -> ListOffsetsRequest:
            item = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
            topics = [ListOffsetsTopic(name=topic, partitions=[item])]
            return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)

        return request

    key = api.LIST_OFFSETS
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 1001, 2500, 4000, 4001, 2**62):
        yield f"list offsets {timestamp}", key, versions(key), ask(timestamp)
        yield f"list offsets {timestamp} of empty", key, versions(key), ask(timestamp, "empty")
    yield "list offsets committed", key, versions(key, 2), ask(-1, isolation=1)
    yield "list offsets unknown topic", key, versions(key), ask(-1, "missing")
    yield "list offsets unknown partition", key, versions(key), ask(-1, partition=9)
    yield "list offsets negative partition", key, versions(key), ask(-1, partition=-1)
    yield "list offsets later epoch", key, versions(key, 4), ask(-1, epoch=50)

    def twice(version: int, side: Side) -> ListOffsetsRequest:
        item = ListOffsetsPartition(partition_index=0, timestamp=-1)
        return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[item, item])])

    yield "list offsets twice", key, versions(key), twice

    def epoch(leader_epoch: int, current: int = -1, topic: str = "orders", partition: int = 0) -> Make:
        item = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[item])]
        )
        return lambda version, side: request

    key = api.OFFSET_FOR_LEADER_EPOCH
    for label, make in {
        "current": epoch(0),
        "later": epoch(50),
        "negative": epoch(-1),
        "unknown topic": epoch(0, topic="missing"),
        "unknown partition": epoch(0, partition=7),
        "unknown current": epoch(0, current=50),
    }.items():
        yield f"epoch {label}", key, versions(key, 3), make


def record_steps() -> Iterator[Step]:
    def delete(offset: int, topic: str = "orders", partition: int = 0) -> Make:
        item = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[item])], timeout_ms=10_000)
        return lambda version, side: request

    key = api.DELETE_RECORDS
    for label, make in {
        "above": delete(99),
        "negative": delete(-2),
        "none": delete(0),
        "some": delete(2),
        "below start": delete(1),
        "unknown topic": delete(1, "missing"),
        "unknown partition": delete(1, partition=9),
        "compacted": delete(0, "compacted"),
        "all of empty": delete(-1, "empty"),
        "all": delete(-1),
    }.items():
        yield f"delete records {label}", key, versions(key), make
    yield from (step for step in offset_steps() if step[0] in ("list offsets -2", "list offsets -1", "list offsets 0"))


INHERITED = [
    *("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", "flush.messages", "delete.retention.ms"),
    *("min.insync.replicas", "compression.type", "retention.bytes"),
]
BROKERS = [
    *("log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.roll.ms", "log.roll.hours"),
    *("log.flush.interval.ms", "min.insync.replicas", "log.retention.bytes"),
]
SETTINGS = ["segment.bytes", "cleanup.policy", "max.message.bytes", "no.such"]


def describe(kind: int, name: str, keys: list[str] | None = None) -> Make:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return lambda version, side: DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def config_steps() -> Iterator[Step]:
    key = api.DESCRIBE_CONFIGS
    for label, make in {
        "topic": describe(TOPIC, "set", SETTINGS),
        "inherited": describe(TOPIC, "empty", INHERITED),
        "inherited of broker": describe(BROKER, str(NODE), BROKERS),
        "written default": describe(BROKER, "", ["min.insync.replicas"]),
        "unknown topic": describe(TOPIC, "missing"),
        "bad topic": describe(TOPIC, "a b"),
        "no topic": describe(TOPIC, ""),
        "broker": describe(BROKER, str(NODE), ["num.partitions", "no.such"]),
        "other broker": describe(BROKER, "99"),
        "broker name": describe(BROKER, "me"),
        "all brokers": describe(BROKER, "", ["log.retention.ms"]),
        "loggers of all": describe(LOGGER, ""),
        "loggers of other": describe(LOGGER, "99"),
        "unknown type": describe(3, "x"),
    }.items():
        yield f"describe {label}", key, versions(key), make
    yield from replace_steps()
    yield from change_steps()
    yield "describe changed", key, versions(key), describe(TOPIC, "set", SETTINGS)


def replace_steps() -> Iterator[Step]:
    def replace(kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False) -> Make:
        items = [ac.AlterableConfig(name=key, value=value) for key, value in configs]
        resource = ac.AlterConfigsResource(resource_type=kind, resource_name=name, configs=items)
        return lambda version, side: ac.AlterConfigsRequest(resources=[resource], validate_only=validate_only)

    key = api.ALTER_CONFIGS
    for label, make in {
        "topic": replace(TOPIC, "set", ("segment.ms", "5000")),
        "unknown topic": replace(TOPIC, "missing", ("segment.ms", "5000")),
        "bad topic": replace(TOPIC, "a b", ("segment.ms", "5000")),
        "unknown key": replace(TOPIC, "set", ("no.such", "1")),
        "bad value": replace(TOPIC, "set", ("segment.ms", "x")),
        "null value": replace(TOPIC, "set", ("segment.ms", None)),
        "key twice": replace(TOPIC, "set", ("segment.ms", "1"), ("segment.ms", "2")),
        "other broker": replace(BROKER, "99", ("log.retention.ms", "5")),
        "read-only": replace(BROKER, str(NODE), ("num.partitions", "5")),
        "bad broker value": replace(BROKER, str(NODE), ("log.retention.ms", "x")),
        "unknown type": replace(3, "x", ("a", "b")),
        "loggers": replace(LOGGER, str(NODE), ("kafka", "INFO")),
    }.items():
        yield f"replace {label}", key, versions(key), make


def change_steps() -> Iterator[Step]:
    def change(kind: int, name: str, *configs: tuple[str, int, str | None], validate_only: bool = False) -> Make:
        items = [iac.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs]
        resource = iac.AlterConfigsResource(resource_type=kind, resource_name=name, configs=items)
        return lambda version, side: iac.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )

    key = api.INCREMENTAL_ALTER_CONFIGS
    for label, make in {
        "topic": change(TOPIC, "set", ("retention.ms", 0, "7000")),
        "delete": change(TOPIC, "set", ("retention.ms", 1, None)),
        "delete unknown": change(TOPIC, "set", ("no.such", 1, None)),
        "append": change(TOPIC, "set", ("cleanup.policy", 2, "compact")),
        "subtract": change(TOPIC, "set", ("cleanup.policy", 3, "delete")),
        "append to number": change(TOPIC, "set", ("segment.ms", 2, "1")),
        "append unknown": change(TOPIC, "set", ("no.such", 2, "1")),
        "append null": change(TOPIC, "set", ("cleanup.policy", 2, None)),
        "set null": change(TOPIC, "set", ("segment.ms", 0, None)),
        "unknown operation": change(TOPIC, "set", ("segment.ms", 4, "1")),
        "unknown topic": change(TOPIC, "missing", ("segment.ms", 0, "1")),
        "bad topic": change(TOPIC, "a b", ("segment.ms", 0, "1")),
        "no topic": change(TOPIC, "", ("segment.ms", 0, "1")),
        "unknown key": change(TOPIC, "set", ("no.such", 0, "1")),
        "bad value": change(TOPIC, "set", ("segment.ms", 0, "x")),
        "key twice": change(TOPIC, "set", ("segment.ms", 0, "1"), ("segment.ms", 0, "2")),
        "validated": change(TOPIC, "set", ("segment.ms", 0, "1"), validate_only=True),
        "other broker": change(BROKER, "99", ("log.retention.ms", 0, "5")),
        "read-only": change(BROKER, str(NODE), ("num.partitions", 0, "5")),
        "bad broker value": change(BROKER, str(NODE), ("log.retention.ms", 0, "x")),
        "broker": change(BROKER, "", ("log.retention.ms", 0, "600000")),
        "broker back": change(BROKER, "", ("log.retention.ms", 1, None)),
        "broker append": change(BROKER, "", ("log.cleanup.policy", 2, "compact"), validate_only=True),
        "broker append to number": change(BROKER, "", ("log.retention.ms", 2, "1")),
        "broker append unknown": change(BROKER, "", ("no.such", 2, "1")),
        "broker subtract unknown": change(BROKER, str(NODE), ("no.such", 3, "1")),
        "cluster replicas": change(BROKER, "", ("min.insync.replicas", 0, "1")),
        "cluster replicas removed": change(BROKER, "", ("min.insync.replicas", 1, None)),
        "broker replicas": change(BROKER, str(NODE), ("min.insync.replicas", 0, "1")),
        "broker replicas removed": change(BROKER, str(NODE), ("min.insync.replicas", 1, None)),
        "logger unknown": change(LOGGER, str(NODE), ("no.such.logger.at.all", 0, "INFO")),
        "logger of other": change(LOGGER, "99", ("kafka", 0, "INFO")),
        "unknown type": change(3, "x", ("a", 0, "b")),
    }.items():
        yield f"change {label}", key, versions(key), make


def growth_steps() -> Iterator[Step]:
    def grow(name: str, count: int, assigned: list[list[int]] | None = None, *, validate_only: bool = False) -> Make:
        assignments = None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        return lambda version, side: CreatePartitionsRequest(
            topics=[topic], timeout_ms=10_000, validate_only=validate_only
        )

    key = api.CREATE_PARTITIONS
    for label, make in {
        "same": grow("orders", 3),
        "fewer": grow("orders", 1),
        "none": grow("orders", 0),
        "negative": grow("orders", -1),
        "unknown": grow("missing", 4),
        "validated": grow("orders", 4, validate_only=True),
        "assigned too few": grow("orders", 5, [[NODE]]),
        "assigned too many": grow("orders", 4, [[NODE], [NODE]]),
        "assigned nobody": grow("orders", 4, [[]]),
        "assigned stranger": grow("orders", 4, [[99]]),
        "assigned twice": grow("orders", 4, [[NODE, NODE]]),
    }.items():
        yield f"grow {label}", key, versions(key), make
    yield "grow", key, versions(key, 3), grow("orders", 4)
    twice = CreatePartitionsTopic(name="orders", count=6, assignments=None)
    yield "grow twice", key, versions(key), lambda version, side: CreatePartitionsRequest(topics=[twice, twice])


def other_steps() -> Iterator[Step]:
    key = api.DESCRIBE_CLUSTER
    yield (
        "cluster",
        key,
        versions(key),
        lambda version, side: DescribeClusterRequest(include_cluster_authorized_operations=True),
    )
    for kind in (2, 3):
        yield (
            f"cluster of type {kind}",
            key,
            versions(key, 1),
            lambda version, side, kind=kind: DescribeClusterRequest(endpoint_type=kind),
        )
    key = api.INIT_PRODUCER_ID
    for producer_id, epoch in ((-1, -1), (5, 3), (5, -1), (-1, 3)):
        yield (
            f"producer {producer_id} {epoch}",
            key,
            versions(key, 3),
            lambda version, side, producer_id=producer_id, epoch=epoch: InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            ),
        )
    yield "producer empty", key, versions(key), lambda version, side: InitProducerIdRequest(transactional_id="")
    yield from acl_steps()
    yield from sign_in_steps()
    yield (
        "reassignments",
        api.LIST_PARTITION_REASSIGNMENTS,
        range(1),
        lambda version, side: ListPartitionReassignmentsRequest(topics=None),
    )
    asked = [
        DescribableLogDirTopic(topic="orders", partitions=[0, 9]),
        DescribableLogDirTopic(topic="missing", partitions=[0]),
    ]
    yield (
        "log dirs",
        api.DESCRIBE_LOG_DIRS,
        versions(api.DESCRIBE_LOG_DIRS),
        lambda version, side: DescribeLogDirsRequest(topics=asked),
    )


def coordinator_steps() -> Iterator[Step]:
    key = api.FIND_COORDINATOR
    for kind in (0, 9):
        yield (
            f"coordinator of type {kind}",
            key,
            versions(key, 1, 3),
            lambda version, side, kind=kind: FindCoordinatorRequest(key="g", key_type=kind),
        )
        yield (
            f"coordinators of type {kind}",
            key,
            versions(key, 4),
            lambda version, side, kind=kind: FindCoordinatorRequest(coordinator_keys=["g"], key_type=kind),
        )


def acl_steps() -> Iterator[Step]:
    yield (
        "acls",
        api.DESCRIBE_ACLS,
        versions(api.DESCRIBE_ACLS),
        lambda version, side: DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
    )
    acl = AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    yield (
        "acl create",
        api.CREATE_ACLS,
        versions(api.CREATE_ACLS),
        lambda version, side: CreateAclsRequest(creations=[acl]),
    )
    acl_filter = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    yield (
        "acl delete",
        api.DELETE_ACLS,
        versions(api.DELETE_ACLS),
        lambda version, side: DeleteAclsRequest(filters=[acl_filter]),
    )


def sign_in_steps() -> Iterator[Step]:
    """Yield the steps on a listener without authentication, and the users for those with it."""

    def step(label: str, key: int, request: object) -> Step:
        return label, key, versions(key), lambda version, side: request

    yield step("handshake", api.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
    yield step("authenticate", api.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"x"))
    yield step("token create", api.CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequest(max_lifetime_ms=-1))
    yield step("token renew", api.RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest(hmac=b"x"))
    yield step("token expire", api.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest(hmac=b"x"))
    yield step("token describe", api.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest(owners=None))

    def add(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(32)
        )

    def delete(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
        return ScramCredentialDeletion(name=name, mechanism=mechanism)

    def alter(label: str, *items: ScramCredentialUpsertion | ScramCredentialDeletion) -> Step:
        request = AlterUserScramCredentialsRequest(
            upsertions=[item for item in items if isinstance(item, ScramCredentialUpsertion)],
            deletions=[item for item in items if isinstance(item, ScramCredentialDeletion)],
        )
        return step(f"users {label}", api.ALTER_USER_SCRAM_CREDENTIALS, request)

    def describe(label: str, *names: str) -> Step:
        users = [UserName(name=name) for name in names] or None
        request = DescribeUserScramCredentialsRequest(users=users)
        return step(f"users {label}", api.DESCRIBE_USER_SCRAM_CREDENTIALS, request)

    yield describe("before there are any")
    yield alter("one", add("alice"))
    yield alter("both mechanisms at once", add("bob"), add("bob", 2))
    yield alter("one more mechanism", add("alice", 2, 16384))
    yield alter("empty name", add(""))
    yield alter("empty name to delete", delete(""))
    yield alter("mechanism 0", add("carol", 0))
    yield alter("mechanism 3", delete("carol", 3))
    yield alter("too few", add("carol", 1, 4095))
    yield alter("too many", add("carol", 1, 16385))
    yield alter("absent", delete("carol"))
    yield alter("deleted and added", add("alice"), delete("alice"))
    yield alter("deleted twice", delete("alice"), delete("alice", 2))
    yield alter("bad and then good", delete("carol"), add("carol"))
    yield describe("all")
    yield describe("one", "alice")
    yield describe("absent", "carol")
    yield describe("twice", "alice", "alice")
    yield alter("deleted", delete("alice"))
    yield describe("left", "alice")


def page_steps() -> Iterator[Step]:
    def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Make:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        return lambda version, side: request

    for label, make in {
        "two": page("orders", "empty"),
        "unknown": page("orders", "missing"),
        "bad": page("a b"),
        "limited": page("orders", "empty", limit=2),
        "limited to the topic": page("orders", "empty", limit=1),
        "from the middle": page("orders", "empty", cursor=("orders", 1)),
        "from behind": page("orders", "empty", cursor=("zzz", 0)),
        "from past the end": page("orders", "empty", cursor=("orders", 99)),
        "no limit": page("orders", limit=0),
    }.items():
        yield f"page {label}", api.DESCRIBE_TOPIC_PARTITIONS, range(1), make


def delete_steps() -> Iterator[Step]:
    def by_name(*names: str) -> Make:
        def request(version: int, side: Side) -> DeleteTopicsRequest:
            wanted = [name.format(version) for name in names]
            if version < 6:
                return DeleteTopicsRequest(topic_names=wanted, timeout_ms=30_000)
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in wanted], timeout_ms=30_000)

        return request

    def by_id(version: int, side: Side) -> DeleteTopicsRequest:
        states = [DeleteTopicState(topic_id=side.ids["orders"]), DeleteTopicState(topic_id=b"\1" * 16)]
        return DeleteTopicsRequest(topics=states, timeout_ms=30_000)

    def both(version: int, side: Side) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name="empty", topic_id=side.ids["orders"])])

    key = api.DELETE_TOPICS
    yield "delete", key, versions(key, 2), by_name("plain-{}")
    yield "delete unknown", key, versions(key), by_name("missing")
    yield "delete twice", key, versions(key), by_name("empty", "empty")
    yield "delete both ways", key, versions(key, 6), both
    yield (
        "delete neither way",
        key,
        versions(key, 6),
        lambda version, side: DeleteTopicsRequest(topics=[DeleteTopicState()]),
    )
    yield "delete by id", key, versions(key, 6), by_id


def story() -> list[Step]:
    return [
        *create_steps(),
        *metadata_steps(),
        *offset_steps(),
        *page_steps(),
        *record_steps(),
        *config_steps(),
        *growth_steps(),
        *other_steps(),
        *coordinator_steps(),
        *delete_steps(),
    ]


def find_coordinator(side: Side) -> bool:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    return side.ask(api.FIND_COORDINATOR, 4, request).coordinators[0].error_code == 0


def is_written(side: Side, request: ProduceRequest) -> bool:
    """Return whether the broker leads the topic: Kafka's metadata names a leader before that."""
    answer = side.ask(api.PRODUCE, 9, request)
    return bool(answer.responses[0].partition_responses[0].error_code == 0)


def prepare(side: Side) -> None:
    """Topics `orders` (3 partitions, 6 records in the first), `empty`, `set` (has settings) and `compacted`."""
    topics = [
        create("orders", 3),
        create("empty", 1),
        create("set", 1, configs={"segment.bytes": "2097152"}),
        create("compacted", 1, configs={"cleanup.policy": "compact"}),
    ]
    created = side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    side.ids = {topic.name: topic.topic_id for topic in created.topics}
    for times in ((1000, 3000, 2000), (4000, 4000, 3500)):
        records = [wire.Record(value=b"v", timestamp_delta=time - times[0]) for time in times]
        batch = wire.batch_of(records, base_timestamp=times[0], max_timestamp=max(times))
        data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)
        wait_until(partial(is_written, side, request), 60, "a topic that can be written to")
    wait_until(partial(find_coordinator, side), 60, "a coordinator")  # Kafka makes its topic for that


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_brokers(tmp_path_factory.mktemp("kafka")) as both:
        for side in both:
            prepare(side)
        yield both


def features(side: Side, version: int) -> tuple[set[tuple[str, int, int]], set[tuple[str, int, int]]]:
    """Supported and finalized features that are served here."""
    answer = side.ask(
        api.API_VERSIONS, version, ApiVersionsRequest(client_software_name="a", client_software_version="1")
    )
    supported = {(row.name, row.min_version, row.max_version) for row in answer.supported_features}
    finalized = {(row.name, row.min_version_level, row.max_version_level) for row in answer.finalized_features}
    return (
        {row for row in supported if row[0] not in UNCOMPARED_FEATURES},
        {row for row in finalized if row[0] not in UNCOMPARED_FEATURES},
    )


@pytest.mark.parametrize("name", ["", str(NODE)])
@pytest.mark.parametrize("key", ["no.such", "no such", ""])
def test_names_that_mean_nothing_are_kept_as_kafka_keeps_them(sides: tuple[Side, Side], name: str, key: str) -> None:
    def alter(side: Side, operation: int, value: str | None) -> int:
        config = iac.AlterableConfig(name=key, config_operation=operation, value=value)
        resource = iac.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[config])
        request = iac.IncrementalAlterConfigsRequest(resources=[resource])
        return side.ask(api.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code

    def described(side: Side) -> Any:
        return comparable(side.ask(api.DESCRIBE_CONFIGS, 4, describe(BROKER, name, [key])(4, side)), {})

    assert [alter(side, 0, "secret") for side in sides] == [0, 0]
    kafka = sides[0]  # which answers before it has applied the change
    wait_until(lambda: described(kafka)["results"][0]["configs"], 30, "the name")
    assert described(sides[1]) == described(kafka)
    assert "secret" not in str(described(sides[1]))
    assert [alter(side, 1, None) for side in sides] == [0, 0]
    wait_until(lambda: not described(kafka)["results"][0]["configs"], 30, "the name to be gone")
    assert described(sides[1]) == described(kafka)


@pytest.mark.parametrize("version", [3, 4])
def test_features_have_kafkas_levels(sides: tuple[Side, Side], version: int) -> None:
    kafka, ours = (features(side, version) for side in sides)
    assert ours == kafka


def test_answers_are_kafkas(sides: tuple[Side, Side]) -> None:
    found = differences(sides, story(), DIFFERENT)
    assert not found, "\n".join(found)
