"""A cluster of one: elections, reassignments, data directories, the quorum, features, and who is registered."""

import pytest

from kafkalite.broker.features import EPOCH
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.wire.protocol import api
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
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkalite.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkalite.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kit.harness.handler_calls import NODE_ID, versions

UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def topics(broker):
    return broker.logs.topics


def elected(broker, version, topic_partitions, election=0):
    request = ElectLeadersRequest(topic_partitions=topic_partitions)
    if version:
        request.election_type = election
    response = broker.call(api.ELECT_LEADERS, version, request)
    rows = {
        (result.topic, row.partition_id): row.error_code
        for result in response.replica_election_results
        for row in result.partition_result
    }
    return response.error_code, rows


@pytest.mark.parametrize("version", versions(api.ELECT_LEADERS))
def test_a_leader_is_the_preferred_one(broker, topics, version):
    asked = [TopicPartitions(topic="logs", partitions=[0, 5]), TopicPartitions(topic="missing", partitions=[-1])]
    assert elected(broker, version, asked) == (0, {("logs", 0): 84, ("logs", 5): 3, ("missing", -1): 3})
    assert elected(broker, version, None) == (0, {})
    assert elected(broker, version, []) == (0, {})


@pytest.mark.parametrize(
    ("election", "code"), [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]
)
def test_nobody_else_has_a_copy_of_an_offline_partition(broker, topics, election, code):
    topics["logs"].partitions[0].offline = True
    assert elected(broker, 2, [TopicPartitions(topic="logs", partitions=[0])], election) == (0, {("logs", 0): code})
    assert elected(broker, 2, None, election) == (0, {("logs", 0): code})


@pytest.mark.parametrize("version", [1, 2])
def test_an_election_of_no_known_type_is_refused(broker, topics, version):
    asked = [TopicPartitions(topic="logs", partitions=[0])]
    assert elected(broker, version, asked, 2) == (42, {("logs", 0): 42})


@pytest.mark.parametrize("version", versions(api.ALTER_PARTITION_REASSIGNMENTS))
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        pytest.param("logs", 0, [NODE_ID], 0, id="where-it-is"),
        pytest.param("logs", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, id="cancelled"),
        pytest.param("logs", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="nowhere"),
        pytest.param("logs", 0, [NODE_ID, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="to-a-stranger"),
        pytest.param("logs", 0, [NODE_ID, NODE_ID], ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="twice"),
        pytest.param("logs", 1, [NODE_ID], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no-partition"),
        pytest.param("logs", -1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="negative-partition"),
        pytest.param("missing", 0, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no-topic"),
    ],
)
def test_a_partition_is_where_it_can_be(broker, topics, version, topic, index, replicas, code):
    wanted = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[wanted])
    response = broker.call(api.ALTER_PARTITION_REASSIGNMENTS, version, request)
    (result,) = response.responses
    (row,) = result.partitions
    assert (response.error_code, response.error_message) == (0, None)
    assert (result.name, row.partition_index, row.error_code) == (topic, index, code)
    assert (row.error_message is None) == (code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))


@pytest.mark.parametrize("version", versions(api.ALTER_REPLICA_LOG_DIRS))
def test_a_partition_is_in_the_one_directory(broker, topics, version):
    own = str(broker.config.data_directory.absolute())
    topics["orders"].partitions[1].offline = True
    long = "x" * 230
    dirs = [
        AlterReplicaLogDir(
            path=own,
            topics=[
                AlterReplicaLogDirTopic(name="orders", partitions=[0, 1, 3]),
                AlterReplicaLogDirTopic(name="missing", partitions=[0]),
                AlterReplicaLogDirTopic(name=long, partitions=[0]),
            ],
        ),
        AlterReplicaLogDir(path=f"{own}/.", topics=[AlterReplicaLogDirTopic(name="logs", partitions=[0])]),
    ]
    response = broker.call(api.ALTER_REPLICA_LOG_DIRS, version, AlterReplicaLogDirsRequest(dirs=dirs))
    found = {
        (result.topic_name, row.partition_index): row.error_code
        for result in response.results
        for row in result.partitions
    }
    assert found == {
        ("orders", 0): 0,
        ("orders", 1): ErrorCode.KAFKA_STORAGE_ERROR,
        ("orders", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (long, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("logs", 0): ErrorCode.LOG_DIR_NOT_FOUND,
    }


def quorum_request(topic="__cluster_metadata", *indexes):
    parts = [DescribeQuorumRequestPartitionData(partition_index=index) for index in indexes or (0,)]
    return DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=topic, partitions=parts)])


@pytest.mark.parametrize("version", versions(api.DESCRIBE_QUORUM))
def test_this_broker_is_the_one_voter(broker, version):
    response = broker.call(api.DESCRIBE_QUORUM, version, quorum_request())
    ((partition,),) = (topic.partitions for topic in response.topics)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (NODE_ID, 3, 17)
    (voter,) = partition.current_voters
    now = broker.clock.time_ms() if version else -1
    assert (voter.replica_id, voter.log_end_offset, voter.last_caught_up_timestamp) == (NODE_ID, 17, now)
    assert partition.observers == []
    nodes = [(node.node_id, row.name, row.host, row.port) for node in response.nodes for row in node.listeners]
    assert nodes == ([(NODE_ID, "PLAINTEXT", "broker.example", 19092)] if version >= 2 else [])


@pytest.mark.parametrize("asked", [("orders",), ("__cluster_metadata", 1), ("__cluster_metadata", 0, 0)])
def test_a_quorum_keeps_one_partition(broker, asked):
    response = broker.call(api.DESCRIBE_QUORUM, 2, quorum_request(*asked))
    assert {row.error_code for topic in response.topics for row in topic.partitions} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert (response.error_code, response.nodes) == (0, [])


def test_only_this_broker_is_registered(broker):
    codes = {}
    for broker_id in (NODE_ID, 99, -1):
        response = broker.call(api.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=broker_id))
        codes[broker_id] = response.error_code
    assert codes == {NODE_ID: 0, 99: ErrorCode.BROKER_ID_NOT_REGISTERED, -1: ErrorCode.BROKER_ID_NOT_REGISTERED}


def update(broker, *updates, version=2, validate_only=False):
    """Updates are (name, level, type); the error code."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, **({"upgrade_type": kind} if version else {}))
            for name, level, kind in updates
        ]
    )
    if version:
        request.validate_only = validate_only
    return broker.call(api.UPDATE_FEATURES, version, request)


def in_force(broker):
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = broker.call(api.API_VERSIONS, 4, request)
    return {row.name: row.max_version_level for row in response.finalized_features}, response.finalized_features_epoch


ALL = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 27,
    "transaction.version": 2,
}


@pytest.mark.parametrize("version", versions(api.UPDATE_FEATURES))
def test_a_feature_that_is_updated_to_where_it_is(broker, version):
    response = update(broker, ("group.version", 1, UPGRADE), version=version)
    results = [(row.feature, row.error_code) for row in response.results]
    assert (response.error_code, response.error_message) == (0, None)
    assert results == ([("group.version", 0)] if version < 2 else [])
    assert in_force(broker) == (ALL, EPOCH + 1)


def test_features_go_down_and_up_again(broker):
    assert update(broker, ("transaction.version", 0, SAFE), ("metadata.version", 23, SAFE)).error_code == 0
    assert in_force(broker) == (
        {"eligible.leader.replicas.version": 1, "group.version": 1, "kraft.version": 1, "metadata.version": 23},
        EPOCH + 1,
    )
    assert update(broker, ("transaction.version", 2, UPGRADE), ("metadata.version", 27, UPGRADE)).error_code == 0
    assert in_force(broker) == (ALL, EPOCH + 2)


@pytest.mark.parametrize(
    ("level", "lower", "code"),
    [
        (27, 23, 0),
        (29, 23, 0),
        (30, 29, ErrorCode.INVALID_UPDATE_VERSION),
        (31, 30, 0),
        (31, 29, ErrorCode.INVALID_UPDATE_VERSION),
        (33, 32, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_metadata_goes_back_as_far_as_it_stays_the_same(broker, level, lower, code):
    assert update(broker, ("metadata.version", level, UPGRADE)).error_code == 0
    assert update(broker, ("metadata.version", lower, SAFE)).error_code == code
    assert in_force(broker)[0]["metadata.version"] == (level if code else lower)


@pytest.fixture
def cordoned(broker, tmp_path, monkeypatch):
    """A broker at 4.4 whose one directory is cordoned."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert update(broker, ("metadata.version", 33, UPGRADE)).error_code == 0
    return use(broker, "*")


def use(broker, value):
    broker.services.config = broker.config.with_dynamic({"cordoned.log.dirs": value})
    return broker


def is_cordoned(broker, version=5):
    broker.config.data_directory.mkdir(parents=True, exist_ok=True)
    (result,) = broker.call(api.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=[])).results
    return result.is_cordoned


def test_a_directory_is_cordoned_by_star_and_by_name(cordoned):
    assert is_cordoned(cordoned)
    assert not is_cordoned(cordoned, version=4), "there is no room for it"
    assert is_cordoned(use(cordoned, str(cordoned.config.data_directory)))
    assert not is_cordoned(use(cordoned, ""))


def test_nothing_but_a_move_is_refused_before_4_3(broker, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert update(broker, ("metadata.version", 29, UPGRADE)).error_code == 0
    assert not is_cordoned(use(broker, "*"))
    assert created(broker) == 0
    assert moved(broker) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "as in Kafka, which checks only the setting"


def moved(broker):
    own = str(broker.config.data_directory.absolute())
    dirs = [AlterReplicaLogDir(path=own, topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])])]
    answer = broker.call(api.ALTER_REPLICA_LOG_DIRS, 2, AlterReplicaLogDirsRequest(dirs=dirs))
    return answer.results[0].partitions[0].error_code


def created(broker, *, assigned=False, name="new"):
    count = -1 if assigned else 1
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE_ID])] if assigned else []
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=count, assignments=assignments)
    return broker.call(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics[0].error_code


def grown(broker, topics, *, assigned=False):
    asked = CreatePartitionsTopic(name="logs", count=len(topics["logs"].partitions) + 1, assignments=None)
    if assigned:
        asked.assignments = [CreatePartitionsAssignment(broker_ids=[NODE_ID])]
    return broker.call(api.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[asked])).results[0].error_code


def test_a_cordoned_directory_gets_no_new_partition(cordoned, topics):
    for assigned, code in ((False, ErrorCode.INVALID_REPLICATION_FACTOR), (True, ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
        assert created(cordoned, assigned=assigned) == grown(cordoned, topics, assigned=assigned) == code
    asked = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
    asked.validate_only = True
    assert cordoned.call(api.CREATE_TOPICS, 7, asked).topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "new" not in topics
    use(cordoned, "")
    assert (created(cordoned), grown(cordoned, topics)) == (0, 0)


def test_nothing_moves_to_a_cordoned_directory(cordoned):
    assert moved(cordoned) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    topic = ReassignableTopic(name="orders", partitions=[ReassignablePartition(partition_index=0, replicas=[NODE_ID])])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    answer = cordoned.call(api.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        pytest.param("group.version", 0, UPGRADE, id="down-as-an-upgrade"),
        pytest.param("group.version", 2, UPGRADE, id="beyond-the-newest"),
        pytest.param("group.version", -1, SAFE, id="below-zero"),
        pytest.param("group.version", 1, 4, id="no-such-type"),
        pytest.param("metadata.version", 22, SAFE, id="metadata-too-old"),
        pytest.param("metadata.version", 7, UNSAFE, id="metadata-too-old-by-force"),
        pytest.param("metadata.version", 6, UNSAFE, id="metadata-before-the-oldest"),
        pytest.param("kraft.version", 0, SAFE, id="quorum"),
        pytest.param("kraft.version", 0, UNSAFE, id="quorum-by-force"),
        pytest.param("share.version", 1, UPGRADE, id="not-here"),
        pytest.param("nonsense", 1, UPGRADE, id="nowhere"),
        pytest.param("", 1, UPGRADE, id="no-name"),
    ],
)
def test_a_level_that_cannot_be_changes_nothing(broker, name, level, kind):
    response = update(broker, ("transaction.version", 1, SAFE), (name, level, kind), version=1)
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert response.error_message
    assert in_force(broker) == (ALL, EPOCH)


def test_upgrade_to_the_release_that_is_there_succeeds(broker):
    """kafka-features upgrade --release-version 4.1 names each feature that the release has by default."""
    assert update(broker, *((name, level, UPGRADE) for name, level in ALL.items())).error_code == 0
    assert in_force(broker)[0] == ALL


def test_a_feature_that_was_down_does_not_go_up_by_a_downgrade(broker):
    assert update(broker, ("group.version", 0, UNSAFE)).error_code == 0
    assert update(broker, ("group.version", 1, SAFE)).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_an_update_that_only_asks_changes_nothing(broker):
    assert update(broker, ("group.version", 0, SAFE), validate_only=True).error_code == 0
    assert in_force(broker) == (ALL, EPOCH)


def test_an_update_that_the_disk_refuses_is_not_in_force(broker):
    broker.logs.failure = StorageError("full")
    response = update(broker, ("group.version", 0, SAFE))
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.logs.failure = None
    assert in_force(broker) == (ALL, EPOCH)


def test_groups_of_the_newer_protocol_are_switched_off(broker):
    update(broker, ("group.version", 0, SAFE))
    beat = ConsumerGroupHeartbeatRequest(group_id="g", rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    assert broker.call(api.CONSUMER_GROUP_HEARTBEAT, 0, beat).error_code == ErrorCode.UNSUPPORTED_VERSION
    asked = broker.call(api.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"]))
    assert [(row.group_id, row.error_code) for row in asked.groups] == [("g", ErrorCode.UNSUPPORTED_VERSION)]
    update(broker, ("group.version", 1, UPGRADE))
    assert broker.call(api.CONSUMER_GROUP_HEARTBEAT, 0, beat).error_code != ErrorCode.UNSUPPORTED_VERSION
