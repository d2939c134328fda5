"""Requests for every API in every version about resources the user may and may not use, existing or not.

Names that begin with `mine` are bob's; of each kind one exists and one does not. A request that would change something
only validates, or fails for a reason other than permission when it is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kafkalite.base.acls import AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker.handlers import table
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import alter_configs as ac
from kafkalite.wire.protocol.messages import describe_topic_partitions as dtp
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
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
    ScramCredentialDeletion,
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
from kafkalite.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kafkalite.wire.protocol.messages.heartbeat import HeartbeatRequest
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
from tests.kit.harness.acl_broker import CLUSTER, DENY, GROUP, PREFIXED, TOPIC, TRANSACTIONAL_ID, creation, rule

ALL, DESCRIBE, READ, WRITE = AclOperation.ALL, AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE

TOPICS = ("mine", "theirs", "mine.absent", "theirs.absent")
PRESENT_TOPICS = TOPICS[:2]
GROUPS = ("mine.g", "theirs.g", "mine.absent", "theirs.absent")
TRANSACTIONS = ("mine.t", "theirs.t", "mine.absent", "theirs.absent")
INTERNAL = "__consumer_offsets"
UNKNOWN_ID = b"\x07" * 16
WAIT_MS = 10_000
TRANSACTIONAL = 0x10
TIME_MS = time.time_ns() // 1_000_000

RULES = (
    rule("bob", ALL, TOPIC, "mine", pattern=PREFIXED),
    rule("bob", ALL, GROUP, "mine", pattern=PREFIXED),
    rule("bob", ALL, TRANSACTIONAL_ID, "mine", pattern=PREFIXED),
    rule("carol", ALL, CLUSTER),
    rule("dave", DESCRIBE, TOPIC, "*"),
    rule("dave", DESCRIBE, GROUP, "*"),
    rule("dave", DESCRIBE, TRANSACTIONAL_ID, "*"),
    rule("eve", ALL, TOPIC, "*"),
    rule("eve", ALL, GROUP, "*"),
    rule("eve", ALL, TRANSACTIONAL_ID, "*"),
    rule("eve", READ, TOPIC, "theirs", permission=DENY, pattern=PREFIXED),
    rule("eve", WRITE, TOPIC, "theirs", permission=DENY),
    rule("eve", AclOperation.ALTER_CONFIGS, TOPIC, "theirs", permission=DENY),
    rule("eve", AclOperation.DELETE, TOPIC, "theirs", permission=DENY, pattern=PREFIXED),
    rule("eve", READ, GROUP, "theirs", permission=DENY, pattern=PREFIXED),
    rule("eve", AclOperation.CREATE, TOPIC, "theirs.new", permission=DENY),
    rule("eve", AclOperation.DESCRIBE_CONFIGS, TOPIC, "mine", permission=DENY, pattern=PREFIXED),
)
ASKERS = ("bob", "carol", "dave", "eve", "mallory")
"""Of his own, of the cluster, sees everything, everything but what is denied, nothing."""

Ids = dict[str, bytes]
"""Topic → id, of those that there are."""
Make = Callable[[int, Ids], Any]
Question = tuple[str, int, Make]
"""(label, API key, version and ids → request)"""


def versions(key: int) -> range:
    row = table.find(key)
    assert row is not None
    return range(row.oldest, row.newest + 1)


def every() -> Iterator[tuple[str, int, int, Make]]:
    """(label, API key, version, make) of every question in every version it can be asked in."""
    for label, key, make in [
        *_topic_questions(),
        *_group_questions(),
        *_transaction_questions(),
        *_cluster_questions(),
    ]:
        for version in versions(key):
            if make(version, {}) is not None:
                yield label, key, version, make


def _plain(request: object) -> Make:
    return lambda _version, _ids: request


def _topic_questions() -> Iterator[Question]:
    yield "produce", api.PRODUCE, partial(_produce, None)
    yield "fetch", api.FETCH, partial(_fetch, -1)
    yield "fetch as a replica", api.FETCH, partial(_fetch, 1)
    offsets = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)]) for name in TOPICS]
    yield "offsets", api.LIST_OFFSETS, _plain(ListOffsetsRequest(topics=offsets))
    yield "all topics", api.METADATA, partial(_metadata, None)
    yield "topics", api.METADATA, partial(_metadata, (*TOPICS, INTERNAL, "not a name"))
    yield "topics by id", api.METADATA, _metadata_by_id
    yield "topics to make", api.METADATA, partial(_metadata, ("theirs.new",), create=True)
    epochs = [
        OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(leader_epoch=0)]) for name in TOPICS
    ]
    yield "epochs", api.OFFSET_FOR_LEADER_EPOCH, _plain(OffsetForLeaderEpochRequest(replica_id=-1, topics=epochs))
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
    yield (
        "new topics",
        api.CREATE_TOPICS,
        _plain(CreateTopicsRequest(topics=wanted, timeout_ms=WAIT_MS, validate_only=True)),
    )
    records = [DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(offset=0)]) for name in TOPICS]
    yield "records to delete", api.DELETE_RECORDS, _plain(DeleteRecordsRequest(topics=records, timeout_ms=5000))
    more = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in TOPICS]
    yield (
        "partitions",
        api.CREATE_PARTITIONS,
        _plain(CreatePartitionsRequest(topics=more, timeout_ms=WAIT_MS, validate_only=True)),
    )
    producers = [TopicRequest(name=name, partition_indexes=[0]) for name in TOPICS]
    yield "producers", api.DESCRIBE_PRODUCERS, _plain(DescribeProducersRequest(topics=producers))
    named = [dtp.TopicRequest(name=name) for name in TOPICS]
    for label, asked in (("named partitions", named), ("all partitions", [])):
        request = dtp.DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=100)
        yield label, api.DESCRIBE_TOPIC_PARTITIONS, _plain(request)
        cursor = dtp.DescribeTopicPartitionsRequestCursor(topic_name="theirs", partition_index=0)
        request = dtp.DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=100, cursor=cursor)
        yield f"{label} from theirs", api.DESCRIBE_TOPIC_PARTITIONS, _plain(request)
    yield "topics to delete", api.DELETE_TOPICS, _delete_topics


def _produce(transactional_id: str | None, version: int, ids: Ids) -> ProduceRequest:
    attributes = TRANSACTIONAL if transactional_id else 0
    batch = wire.batch_of([wire.Record(None, b"v")], attributes=attributes, base_timestamp=TIME_MS)
    data = [PartitionProduceData(index=0, records=batch)]
    if version < 13:
        topics = [TopicProduceData(name=name, partition_data=data) for name in TOPICS]
    else:
        known = [ids.get(name, UNKNOWN_ID) for name in PRESENT_TOPICS]
        topics = [TopicProduceData(topic_id=topic_id, partition_data=data) for topic_id in (*known, UNKNOWN_ID)]
    return ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=5000, topic_data=topics)


def _fetch(replica_id: int, version: int, ids: Ids) -> FetchRequest:
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0)]
    if version < 13:
        topics = [FetchTopic(topic=name, partitions=parts) for name in TOPICS]
    else:
        known = [ids.get(name, UNKNOWN_ID) for name in PRESENT_TOPICS]
        topics = [FetchTopic(topic_id=topic_id, partitions=parts) for topic_id in (*known, UNKNOWN_ID)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1, topics=topics)
    if version < 15:
        request.replica_id = replica_id
    else:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=-1)
    return request


def _metadata(names: tuple[str, ...] | None, version: int, _ids: Ids, *, create: bool = False) -> MetadataRequest:
    """Before version 4 a metadata request creates missing topics, so it names existing ones only."""
    if version < 4 and names is not None and not create:
        names = tuple(name for name in names if name in PRESENT_TOPICS)
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    if version == 0 and topics is None:
        topics = []
    request = MetadataRequest(topics=topics)
    if version >= 4:
        request.allow_auto_topic_creation = create
    request.include_topic_authorized_operations = version >= 8
    request.include_cluster_authorized_operations = 8 <= version <= 10
    return request


def _metadata_by_id(version: int, ids: Ids) -> MetadataRequest | None:
    if version < 12:
        return None
    wanted = [ids.get(name, UNKNOWN_ID) for name in PRESENT_TOPICS]
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (*wanted, UNKNOWN_ID)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)


def _delete_topics(version: int, _ids: Ids) -> DeleteTopicsRequest:
    """Topics whose names are asked about, and that are not there, or are not the asker's to delete."""
    names = ["mine.absent", "theirs.absent"]
    if version < 6:
        return DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
    states = [*(DeleteTopicState(name=name) for name in names), DeleteTopicState(name=None, topic_id=UNKNOWN_ID)]
    return DeleteTopicsRequest(topics=states, timeout_ms=5000)


def _group_questions() -> Iterator[Question]:
    for group in GROUPS:
        yield f"commit for {group}", api.OFFSET_COMMIT, partial(_commit, group)
        yield f"committed of {group}", api.OFFSET_FETCH, partial(_committed, group, TOPICS)
        yield f"all committed of {group}", api.OFFSET_FETCH, partial(_committed, group, None)
        yield f"join {group}", api.JOIN_GROUP, partial(_join, group)
        beat = HeartbeatRequest(group_id=group, generation_id=9, member_id="nobody")
        yield f"heartbeat of {group}", api.HEARTBEAT, _plain(beat)
        yield f"leave {group}", api.LEAVE_GROUP, partial(_leave, group)
        yield f"sync of {group}", api.SYNC_GROUP, partial(_sync, group)
        wanted = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=7)])
            for name in TOPICS
        ]
        yield (
            f"offsets to delete of {group}",
            api.OFFSET_DELETE,
            _plain(OffsetDeleteRequest(group_id=group, topics=wanted)),
        )
        for names in (["mine"], ["theirs"], ["mine", "theirs.absent"]):
            yield f"beat of {group} for {names}", api.CONSUMER_GROUP_HEARTBEAT, partial(_beat, group, names)
    for version_flag in (False, True):
        describe = DescribeGroupsRequest(groups=list(GROUPS), include_authorized_operations=version_flag)
        yield f"groups {version_flag}", api.DESCRIBE_GROUPS, partial(_from, 3 if version_flag else 0, describe)
        newer = ConsumerGroupDescribeRequest(
            group_ids=[*GROUPS, "mine.new", "theirs.new"], include_authorized_operations=version_flag
        )
        yield f"newer groups {version_flag}", api.CONSUMER_GROUP_DESCRIBE, _plain(newer)
    yield "all groups", api.LIST_GROUPS, _plain(ListGroupsRequest())
    yield (
        "groups to delete",
        api.DELETE_GROUPS,
        _plain(DeleteGroupsRequest(groups_names=["mine.absent", "theirs.absent"])),
    )


def _from(oldest: int, request: object, version: int, _ids: Ids) -> object | None:
    return request if version >= oldest else None


def _commit(group: str, version: int, ids: Ids) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    if version < 10:
        topics = [OffsetCommitRequestTopic(name=name, partitions=parts) for name in TOPICS]
    else:
        known = [ids.get(name, UNKNOWN_ID) for name in PRESENT_TOPICS]
        topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=parts) for topic_id in (*known, UNKNOWN_ID)]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=5, member_id="nobody", topics=topics)


def _committed(group: str, names: tuple[str, ...] | None, version: int, ids: Ids) -> OffsetFetchRequest | None:
    if version < 8:
        if names is None and version < 2:
            return None
        topics = None
        if names is not None:
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
        return OffsetFetchRequest(group_id=group, topics=topics)
    wanted: list[OffsetFetchRequestTopics] | None = None
    if names is not None and version < 10:
        wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
    elif names is not None:
        known = [ids.get(name, UNKNOWN_ID) for name in PRESENT_TOPICS]
        wanted = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (*known, UNKNOWN_ID)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])


def _join(group: str, _version: int, _ids: Ids) -> JoinGroupRequest:
    """A request of an unknown member: an authorised client gets that error."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _sync(group: str, version: int, _ids: Ids) -> SyncGroupRequest:
    request = SyncGroupRequest(group_id=group, generation_id=9, member_id="nobody")
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def _leave(group: str, version: int, _ids: Ids) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id="nobody")
    return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="nobody")])


def _beat(group: str, names: list[str], _version: int, _ids: Ids) -> ConsumerGroupHeartbeatRequest:
    """Of a member that is not there."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="nobody", member_epoch=3, subscribed_topic_names=names, topic_partitions=[]
    )


def _transaction_questions() -> Iterator[Question]:
    for name in TRANSACTIONS:
        add = [AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in (*TOPICS, INTERNAL)]
        for label, topics in (("mixed", add), ("mine", add[:1])):
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=77,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=topics,
            )
            yield f"{label} partitions in {name}", api.ADD_PARTITIONS_TO_TXN, _plain(request)
        for group in GROUPS[:2]:
            request_ = AddOffsetsToTxnRequest(transactional_id=name, producer_id=77, producer_epoch=0, group_id=group)
            yield f"offsets of {group} in {name}", api.ADD_OFFSETS_TO_TXN, _plain(request_)
            yield f"commit of {group} in {name}", api.TXN_OFFSET_COMMIT, partial(_commit_in, name, group)
        end = EndTxnRequest(transactional_id=name, producer_id=77, producer_epoch=0, committed=True)
        yield f"end of {name}", api.END_TXN, _plain(end)
        yield f"produce in {name}", api.PRODUCE, partial(_produce, name)
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=-5)
        yield f"producer of {name}", api.INIT_PRODUCER_ID, _plain(init)
    yield "a producer", api.INIT_PRODUCER_ID, _plain(InitProducerIdRequest(transactional_id=None))
    marker = WritableTxnMarker(
        producer_id=77,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in TOPICS[2:]],
    )
    yield "markers", api.WRITE_TXN_MARKERS, _plain(WriteTxnMarkersRequest(markers=[marker]))
    yield (
        "transactions",
        api.DESCRIBE_TRANSACTIONS,
        _plain(DescribeTransactionsRequest(transactional_ids=list(TRANSACTIONS))),
    )
    yield "all transactions", api.LIST_TRANSACTIONS, _plain(ListTransactionsRequest())


def _commit_in(name: str, group: str, version: int, ids: Ids) -> TxnOffsetCommitRequest:
    parts = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    if version >= 6:
        known = [ids.get(name, UNKNOWN_ID) for name in PRESENT_TOPICS]
        topics = [TxnOffsetCommitRequestTopic(topic_id=each, partitions=parts) for each in (*known, UNKNOWN_ID)]
    else:
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=parts) for topic in TOPICS]
    return TxnOffsetCommitRequest(
        transactional_id=name, group_id=group, producer_id=77, producer_epoch=0, topics=topics
    )


def _cluster_questions() -> Iterator[Question]:
    yield (
        "versions",
        api.API_VERSIONS,
        _plain(ApiVersionsRequest(client_software_name="a", client_software_version="1")),
    )
    for kind, name in ((1, "t"), (0, "g")):
        for key in TOPICS:
            yield f"coordinator {name} of {key}", api.FIND_COORDINATOR, partial(_coordinator, kind, key)
    every_rule = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    yield "rules", api.DESCRIBE_ACLS, _plain(every_rule)
    yield "new rules", api.CREATE_ACLS, _plain(CreateAclsRequest(creations=_odd_rules()))
    yield "rules of no kind", api.CREATE_ACLS, _plain(CreateAclsRequest(creations=_rules_of_no_kind()))
    unknown = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="nothing",
        pattern_type_filter=2,
        principal_filter="User:nobody",
        host_filter=None,
        operation=3,
        permission_type=3,
    )
    yield "rules to delete", api.DELETE_ACLS, _plain(DeleteAclsRequest(filters=[unknown, unknown]))
    yield "settings", api.DESCRIBE_CONFIGS, _plain(DescribeConfigsRequest(resources=_config_resources()))
    yield "settings to replace", api.ALTER_CONFIGS, _plain(_altered())
    yield "settings to change", api.INCREMENTAL_ALTER_CONFIGS, _plain(_changed())
    yield "log directories", api.DESCRIBE_LOG_DIRS, _plain(DescribeLogDirsRequest(topics=[]))
    yield (
        "reassignments",
        api.LIST_PARTITION_REASSIGNMENTS,
        _plain(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)),
    )
    yield from _one_node_questions()
    for asked in (False, True):
        request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
        yield f"cluster {asked}", api.DESCRIBE_CLUSTER, _plain(request)
    yield "mechanisms", api.SASL_HANDSHAKE, _plain(SaslHandshakeRequest(mechanism="PLAIN"))
    yield "a sign-in", api.SASL_AUTHENTICATE, _plain(SaslAuthenticateRequest(auth_bytes=b"x"))
    yield "quotas", api.DESCRIBE_CLIENT_QUOTAS, _plain(DescribeClientQuotasRequest(components=[], strict=False))
    quota = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name="nobody")],
        ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)],
    )
    yield "quotas to set", api.ALTER_CLIENT_QUOTAS, _plain(AlterClientQuotasRequest(entries=[quota]))
    yield "users", api.DESCRIBE_USER_SCRAM_CREDENTIALS, _plain(DescribeUserScramCredentialsRequest(users=None))
    gone = ScramCredentialDeletion(name="nobody", mechanism=1)
    deletion = AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[])
    yield "users to delete", api.ALTER_USER_SCRAM_CREDENTIALS, _plain(deletion)
    yield "a token", api.CREATE_DELEGATION_TOKEN, _plain(CreateDelegationTokenRequest(max_lifetime_ms=1000))
    yield "a token to renew", api.RENEW_DELEGATION_TOKEN, _plain(RenewDelegationTokenRequest(hmac=b"x"))
    yield "a token to end", api.EXPIRE_DELEGATION_TOKEN, _plain(ExpireDelegationTokenRequest(hmac=b"x"))
    yield "tokens", api.DESCRIBE_DELEGATION_TOKEN, _plain(DescribeDelegationTokenRequest(owners=None))
    yield "what to push", api.GET_TELEMETRY_SUBSCRIPTIONS, _plain(GetTelemetrySubscriptionsRequest())
    yield "a push", api.PUSH_TELEMETRY, _plain(PushTelemetryRequest())
    yield "names of settings", api.LIST_CONFIG_RESOURCES, _named_settings


def _one_node_questions() -> Iterator[Question]:
    """What moves nothing on a cluster of one."""
    parts = [ReassignablePartition(partition_index=0, replicas=[1]), ReassignablePartition(partition_index=7)]
    moves = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=parts) for name in TOPICS]
    )
    yield "reassignments to make", api.ALTER_PARTITION_REASSIGNMENTS, _plain(moves)
    paths = [AlterReplicaLogDirTopic(name=name, partitions=[0, 7]) for name in TOPICS]
    nowhere = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=paths)])
    yield "directories to use", api.ALTER_REPLICA_LOG_DIRS, _plain(nowhere)
    for label, wanted in (
        ("leaders", [TopicPartitions(topic=name, partitions=[0, 7]) for name in TOPICS]),
        ("none", []),
    ):
        yield f"{label} to elect", api.ELECT_LEADERS, _plain(ElectLeadersRequest(topic_partitions=wanted))
    voters = DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()]
    )
    yield "quorum", api.DESCRIBE_QUORUM, _plain(DescribeQuorumRequest(topics=[voters]))
    change = FeatureUpdateKey(feature="group.version", max_version_level=9)
    yield "features", api.UPDATE_FEATURES, _plain(UpdateFeaturesRequest(feature_updates=[change]))
    yield "a broker to forget", api.UNREGISTER_BROKER, _plain(UnregisterBrokerRequest(broker_id=99))


def _named_settings(version: int, _ids: Ids) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=[2, 4] if version else [])


def _coordinator(kind: int, key: str, version: int, _ids: Ids) -> FindCoordinatorRequest | None:
    if version == 0 and kind != 0:
        return None
    return FindCoordinatorRequest(key_type=kind, **({"coordinator_keys": [key]} if version >= 4 else {"key": key}))


def _odd_rules() -> list[AclCreation]:
    """Rules that cannot be, and one that is there already."""
    good = RULES[0]
    nameless, elsewhere = good._replace(name=""), good._replace(resource_type=ResourceType.CLUSTER, name="other")
    return [creation(acl) for acl in (nameless, elsewhere, good._replace(principal="bob"), good)]


def _rules_of_no_kind() -> list[AclCreation]:
    """Rules with what only filters may have."""
    good = RULES[0]
    return [
        creation(acl)
        for acl in (
            good._replace(resource_type=ResourceType.ANY),
            good._replace(pattern_type=PatternType.MATCH),
            good._replace(operation=AclOperation.ANY),
            good._replace(permission=AclPermission.ANY),
        )
    ]


def _config_resources() -> list[DescribeConfigsResource]:
    keys = ["cleanup.policy"]
    named = [DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=keys) for name in TOPICS]
    return [*named, DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["node.id"])]


def _altered() -> ac.AlterConfigsRequest:
    configs = [ac.AlterableConfig(name="retention.ms", value="100000")]
    own = [ac.AlterableConfig(name="min.insync.replicas", value="1")]
    return ac.AlterConfigsRequest(
        resources=[
            *(ac.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs) for name in TOPICS),
            ac.AlterConfigsResource(resource_type=4, resource_name="", configs=own),
        ],
        validate_only=True,
    )


def _changed() -> iac.IncrementalAlterConfigsRequest:
    configs = [iac.AlterableConfig(name="retention.ms", config_operation=0, value="100000")]
    return iac.IncrementalAlterConfigsRequest(
        resources=[
            *(iac.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs) for name in TOPICS),
            iac.AlterConfigsResource(resource_type=4, resource_name="", configs=[]),
        ],
        validate_only=True,
    )
