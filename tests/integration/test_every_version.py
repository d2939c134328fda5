"""Every API in every version served, over a socket: asked in our bytes, the answer read by kio as well as by us.

One embedded broker, one connection per version. Answers are read by somebody else's decoder too, so that what a handler
fills is not only what our own codec likes to see.
"""

import socket
from importlib import import_module

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader
from kio.static.constants import EntityType

from kafkalite import Broker
from kafkalite.broker.handlers import table
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
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
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkalite.wire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.wire.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafkalite.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from kafkalite.wire.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkalite.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.wire.protocol.messages.incremental_alter_configs import AlterableConfig as Change
from kafkalite.wire.protocol.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from kafkalite.wire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkalite.wire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkalite.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafkalite.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.wire.protocol.messages.push_telemetry import PushTelemetryRequest
from kafkalite.wire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkalite.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kafkalite.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.kit.harness import wire

pytestmark = pytest.mark.integration

TIMEOUT_S = 10
CASES = [(row.key, version) for row in table.ROWS for version in range(row.oldest, row.newest + 1)]


def case_id(case):
    return f"{api.APIS[case[0]].name}-v{case[1]}"


IDS = {}
"""Topic ids by name, once the broker runs."""


@pytest.fixture(scope="module")
def broker():
    with Broker() as started:
        started.create_topic("orders", 2)
        request = protocol.encode_request_frame(api.METADATA, 12, 1, "test", MetadataRequest(topics=None))
        answer = ask(started.port, request)
        _, position = header.decode_response_header(api.METADATA, 12, answer)
        topics = protocol.decode_response(api.METADATA, 12, answer[position:]).topics
        IDS.update((topic.name, topic.topic_id) for topic in topics)
        yield started


def produce(version):
    batch = wire.batch_of([wire.Record(value=b"hello")])
    partition = PartitionProduceData(index=0, records=batch)
    data = [TopicProduceData(name="orders", topic_id=IDS.get("orders", bytes(16)), partition_data=[partition])]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)


def fetch(version):
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    session = {"session_id": 0, "session_epoch": -1} if version >= 7 else {}
    topic = FetchTopic(topic="orders", topic_id=IDS.get("orders", bytes(16)), partitions=[partition])
    return FetchRequest(replica_id=-1, max_wait_ms=0, topics=[topic], **session)


def list_offsets(version):
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1 - index) for index in range(2)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=partitions)])


def create_topics(version):
    topic = CreatableTopic(name=f"created-{version}", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def delete_topics(version):
    name = f"created-{version}"
    if version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    return DeleteTopicsRequest(topic_names=[name])


def create_partitions(version):
    topic = CreatePartitionsTopic(name="orders", count=9, assignments=None)
    return CreatePartitionsRequest(topics=[topic], validate_only=True)


def delete_records(version):
    partition = DeleteRecordsPartition(partition_index=1, offset=0)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[partition])])


def describe_configs(version):
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "orders"), (4, "1"), (8, "1"))
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True)


def alter_configs(version):
    resource = AlterConfigsResource(
        resource_type=2, resource_name="orders", configs=[AlterableConfig(name="retention.ms", value="600000")]
    )
    return AlterConfigsRequest(resources=[resource])


def incremental_alter_configs(version):
    change = Change(name="cleanup.policy", config_operation=2, value="delete")
    return IncrementalAlterConfigsRequest(
        resources=[ChangedResource(resource_type=2, resource_name="orders", configs=[change])]
    )


def find_coordinator(version):
    return FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")


def offset_for_leader_epoch(version):
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=[partition])])


def offset_commit(version):
    topic_id = IDS.get("orders", bytes(16))
    topic = OffsetCommitRequestTopic(
        name="orders", topic_id=topic_id, partitions=[OffsetCommitRequestPartition(committed_offset=5)]
    )
    return OffsetCommitRequest(group_id="commits", topics=[topic])


def offset_fetch(version):
    if version >= 8:
        topic_id = IDS.get("orders", bytes(16))
        asked = OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=[0, 1])
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="commits", topics=[asked])])
    return OffsetFetchRequest(
        group_id="commits", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    )


def join_group(version):
    return JoinGroupRequest(
        group_id=f"joined-{version}",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def leave_group(version):
    if version >= 3:
        return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="nobody")])
    return LeaveGroupRequest(group_id="g", member_id="nobody")


def offset_delete(version):
    partition = OffsetDeleteRequestPartition(partition_index=2)
    topic = OffsetDeleteRequestTopic(name="orders", partitions=[partition])
    return OffsetDeleteRequest(group_id="commits", topics=[topic])


def add_partitions_to_txn(version):
    topic = AddPartitionsToTxnTopic(name="orders", partitions=[0])
    return AddPartitionsToTxnRequest(v3_and_below_transactional_id="nobody", v3_and_below_topics=[topic])


def txn_offset_commit(version):
    topic = TxnOffsetCommitRequestTopic(
        name="orders",
        topic_id=IDS.get("orders", bytes(16)),
        partitions=[TxnOffsetCommitRequestPartition(committed_offset=1)],
    )
    return TxnOffsetCommitRequest(transactional_id="nobody", group_id="commits", topics=[topic])


def write_txn_markers(version):
    topic = WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=5, topics=[topic])])


def consumer_group_heartbeat(version):
    """Joins; from version 1 on the client makes the member's id."""
    return ConsumerGroupHeartbeatRequest(
        group_id="newer",
        member_id="AAAAAAAAAAAAAAAAAAAAAQ" if version >= 1 else "",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


REQUESTS = {
    api.PRODUCE: produce,
    api.FETCH: fetch,
    api.LIST_OFFSETS: list_offsets,
    api.METADATA: lambda version: MetadataRequest(topics=[MetadataRequestTopic(name="orders")]),
    api.OFFSET_COMMIT: offset_commit,
    api.OFFSET_FETCH: offset_fetch,
    api.FIND_COORDINATOR: find_coordinator,
    api.JOIN_GROUP: join_group,
    api.HEARTBEAT: lambda version: HeartbeatRequest(group_id="g", member_id="nobody"),
    api.LEAVE_GROUP: leave_group,
    api.SYNC_GROUP: lambda version: SyncGroupRequest(
        group_id="g",
        member_id="nobody",
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
    ),
    api.DESCRIBE_GROUPS: lambda version: DescribeGroupsRequest(groups=["commits", "nothing"]),
    api.LIST_GROUPS: lambda version: ListGroupsRequest(),
    api.DELETE_GROUPS: lambda version: DeleteGroupsRequest(groups_names=["nothing"]),
    api.OFFSET_DELETE: offset_delete,
    api.API_VERSIONS: lambda version: (
        ApiVersionsRequest(client_software_name="test", client_software_version="1")
        if version >= 3
        else ApiVersionsRequest()
    ),
    api.CREATE_TOPICS: create_topics,
    api.DELETE_TOPICS: delete_topics,
    api.DELETE_RECORDS: delete_records,
    api.INIT_PRODUCER_ID: lambda version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    api.ADD_OFFSETS_TO_TXN: lambda version: AddOffsetsToTxnRequest(transactional_id="nobody", group_id="g"),
    api.END_TXN: lambda version: EndTxnRequest(transactional_id="nobody"),
    api.WRITE_TXN_MARKERS: write_txn_markers,
    api.TXN_OFFSET_COMMIT: txn_offset_commit,
    api.DESCRIBE_TRANSACTIONS: lambda version: DescribeTransactionsRequest(transactional_ids=["nobody"]),
    api.LIST_TRANSACTIONS: lambda version: ListTransactionsRequest(),
    api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    api.CONSUMER_GROUP_DESCRIBE: lambda version: ConsumerGroupDescribeRequest(group_ids=["newer", "nothing"]),
    api.DESCRIBE_ACLS: lambda version: DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    ),
    api.CREATE_ACLS: lambda version: CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2,
                resource_name="orders",
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    ),
    api.SASL_HANDSHAKE: lambda version: SaslHandshakeRequest(mechanism="PLAIN"),
    api.SASL_AUTHENTICATE: lambda version: SaslAuthenticateRequest(auth_bytes=b"\0a\0b"),
    api.CREATE_DELEGATION_TOKEN: lambda version: CreateDelegationTokenRequest(),
    api.RENEW_DELEGATION_TOKEN: lambda version: RenewDelegationTokenRequest(hmac=b"x"),
    api.EXPIRE_DELEGATION_TOKEN: lambda version: ExpireDelegationTokenRequest(hmac=b"x"),
    api.DESCRIBE_DELEGATION_TOKEN: lambda version: DescribeDelegationTokenRequest(owners=None),
    api.DESCRIBE_CLIENT_QUOTAS: lambda version: DescribeClientQuotasRequest(),
    api.ALTER_CLIENT_QUOTAS: lambda version: AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name="somebody")],
                ops=[OpData(key="producer_byte_rate", value=1e9)],
            )
        ]
    ),
    api.ALTER_USER_SCRAM_CREDENTIALS: lambda version: AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(name="user", mechanism=1, iterations=4096, salt=b"salt")]
    ),
    api.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda version: DescribeUserScramCredentialsRequest(users=None),
    api.DELETE_ACLS: lambda version: DeleteAclsRequest(
        filters=[DeleteAclsFilter(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1)]
    ),
    api.DESCRIBE_CONFIGS: describe_configs,
    api.ALTER_CONFIGS: alter_configs,
    api.DESCRIBE_LOG_DIRS: lambda version: DescribeLogDirsRequest(topics=None),
    api.CREATE_PARTITIONS: create_partitions,
    api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    api.ALTER_PARTITION_REASSIGNMENTS: lambda version: AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="orders", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
    ),
    api.ALTER_REPLICA_LOG_DIRS: lambda version: AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])])]
    ),
    api.ELECT_LEADERS: lambda version: ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="orders", partitions=[0])]
    ),
    api.DESCRIBE_QUORUM: lambda version: DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()]
            )
        ]
    ),
    api.UPDATE_FEATURES: lambda version: UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1)]
    ),
    api.UNREGISTER_BROKER: lambda version: UnregisterBrokerRequest(broker_id=5),
    api.LIST_PARTITION_REASSIGNMENTS: lambda version: ListPartitionReassignmentsRequest(topics=None),
    api.DESCRIBE_CLUSTER: lambda version: DescribeClusterRequest(),
    api.DESCRIBE_PRODUCERS: lambda version: DescribeProducersRequest(
        topics=[TopicRequest(name="orders", partition_indexes=[0])]
    ),
    api.GET_TELEMETRY_SUBSCRIPTIONS: lambda version: GetTelemetrySubscriptionsRequest(),
    api.PUSH_TELEMETRY: lambda version: PushTelemetryRequest(client_instance_id=bytes(range(16))),
    api.LIST_CONFIG_RESOURCES: lambda version: ListConfigResourcesRequest(),
    api.DESCRIBE_TOPIC_PARTITIONS: lambda version: DescribeTopicPartitionsRequest(),
}
REFUSED_ON_PURPOSE = {
    api.GET_TELEMETRY_SUBSCRIPTIONS: {ErrorCode.UNSUPPORTED_VERSION},  # no metrics are served
    api.PUSH_TELEMETRY: {ErrorCode.UNSUPPORTED_VERSION},
    api.ALTER_REPLICA_LOG_DIRS: {ErrorCode.LOG_DIR_NOT_FOUND},
    api.ELECT_LEADERS: {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED},
    api.UNREGISTER_BROKER: {ErrorCode.BROKER_ID_NOT_REGISTERED},
    api.ADD_OFFSETS_TO_TXN: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    api.END_TXN: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    api.TXN_OFFSET_COMMIT: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    api.DESCRIBE_TRANSACTIONS: {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    api.JOIN_GROUP: {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED},
    api.HEARTBEAT: {ErrorCode.UNKNOWN_MEMBER_ID},
    api.LEAVE_GROUP: {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID},
    api.SYNC_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    api.DESCRIBE_GROUPS: {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND},
    api.CONSUMER_GROUP_DESCRIBE: {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND},
    api.DELETE_GROUPS: {ErrorCode.GROUP_ID_NOT_FOUND},
    api.OFFSET_DELETE: {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    api.SASL_HANDSHAKE: {ErrorCode.ILLEGAL_SASL_STATE},
    api.SASL_AUTHENTICATE: {ErrorCode.ILLEGAL_SASL_STATE},
    api.CREATE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    api.RENEW_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    api.EXPIRE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    api.DESCRIBE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    api.DESCRIBE_ACLS: {ErrorCode.SECURITY_DISABLED},
    api.CREATE_ACLS: {ErrorCode.SECURITY_DISABLED},
    api.DELETE_ACLS: {ErrorCode.SECURITY_DISABLED},
    api.DELETE_TOPICS: {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},  # v1 has nothing that create made
}


UNKNOWN_TO_KIO = {(api.API_VERSIONS, 5), (api.TXN_OFFSET_COMMIT, 6), (api.DELETE_GROUPS, 3)}
"""Versions of Kafka 4.4."""
WITHOUT_TIME = {api.CREATE_DELEGATION_TOKEN, api.RENEW_DELEGATION_TOKEN, api.EXPIRE_DELEGATION_TOKEN}
"""Apache Kafka answers -1 for the times of a token that there is not, which kio does not take."""


def ask(port, frame):
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(frame)
        size = int.from_bytes(receive(connection, 4), "big")
        return receive(connection, size)


def receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def error_codes(message):
    """Every error code anywhere in a response."""
    for name, *_ in message.FIELDS:
        value = getattr(message, name)
        if name == "error_code":
            yield value
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "FIELDS"):
                yield from error_codes(item)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_answer_follows_the_schema_and_has_no_error(broker, case):
    key, version = case
    answer = ask(broker.port, protocol.encode_request_frame(key, version, 77, "test", REQUESTS[key](version)))
    correlation_id, position = header.decode_response_header(key, version, answer)
    assert correlation_id == 77
    response = protocol.decode_response(key, version, answer[position:])
    assert set(error_codes(response)) <= REFUSED_ON_PURPOSE.get(key, {ErrorCode.NONE})
    if key not in WITHOUT_TIME:
        read_by_kio(key, version, answer[position:])


def read_by_kio(key, version, body):
    if version not in schema_name_map[api_key_map[key]]:
        assert (key, version) in UNKNOWN_TO_KIO
        return
    module, _, name = schema_name_map[api_key_map[key]][version][EntityType.response].partition(":")
    _, size = entity_reader(getattr(import_module(module), name))(body, 0)
    assert size == len(body)


def test_api_versions_of_a_later_version_is_answered_in_v0(broker):
    frame = header.encode_request_header(api.API_VERSIONS, 4, 9, "test")[:-1]
    request = frame[:2] + (99).to_bytes(2, "big") + frame[4:] + b"\x01\x02\x03"
    answer = ask(broker.port, len(request).to_bytes(4, "big") + request)
    response = protocol.decode_response(api.API_VERSIONS, 0, answer[4:])
    assert (answer[:4], response.error_code) == ((9).to_bytes(4, "big"), ErrorCode.UNSUPPORTED_VERSION)
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    ("key", "version"), [(api.PRODUCE, 2), (api.METADATA, 14), (api.ADD_PARTITIONS_TO_TXN, 4), (9999, 0)]
)
def test_version_that_is_not_served_closes_the_connection(broker, key, version):
    frame = header.encode_request_header(key, version, 9, "test")
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        assert connection.recv(1) == b""
