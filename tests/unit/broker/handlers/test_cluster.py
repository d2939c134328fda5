"""DescribeCluster, FindCoordinator, InitProducerId, DescribeLogDirs, reassignments and ACLs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalite.base.acls import OPERATIONS, OPERATIONS_NOT_ASKED, ResourceType, operation_bits
from kafkalite.broker.coordinator.producer_ids import BLOCK_SIZE
from kafkalite.errors import ErrorCode, error_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.kit.harness.handler_calls import NODE_ID, HandlerCalls, versions

ADDRESS = ("broker.example", 19092)
CLUSTER_OPERATIONS = operation_bits(OPERATIONS[ResourceType.CLUSTER])


@pytest.mark.parametrize("version", versions(api.DESCRIBE_CLUSTER))
@pytest.mark.parametrize("asked", [False, True])
def test_describe_cluster(broker, version, asked):
    request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
    response = broker.call(api.DESCRIBE_CLUSTER, version, request)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "the-cluster", NODE_ID)
    (node,) = response.brokers
    assert (node.broker_id, node.host, node.port, node.rack, node.is_fenced) == (NODE_ID, *ADDRESS, "r1", False)
    assert response.cluster_authorized_operations == (CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED)
    assert response.endpoint_type == 1


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_of_other_endpoints(broker, version, endpoint_type, code):
    response = broker.call(api.DESCRIBE_CLUSTER, version, DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (response.error_code, response.brokers) == (code, [])
    assert response.error_message


def find(broker, version, key_type, *keys):
    """(key, error code, node id, host, port) of each key."""
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        response = broker.call(api.FIND_COORDINATOR, version, request)
        return [(item.key, item.error_code, item.node_id, item.host, item.port) for item in response.coordinators]
    request = FindCoordinatorRequest(key=keys[0], key_type=key_type)
    response = broker.call(api.FIND_COORDINATOR, version, request)
    return [(keys[0], response.error_code, response.node_id, response.host, response.port)]


@pytest.mark.parametrize("version", versions(api.FIND_COORDINATOR))
def test_this_broker_coordinates_groups(broker, version):
    assert find(broker, version, 0, "g") == [("g", 0, NODE_ID, *ADDRESS)]


@pytest.mark.parametrize("version", versions(api.FIND_COORDINATOR)[1:])
def test_this_broker_coordinates_transactions(broker, version):
    assert find(broker, version, 1, "t") == [("t", 0, NODE_ID, *ADDRESS)]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_many_coordinators_at_once(broker, version):
    assert [row[0] for row in find(broker, version, 0, "a", "b", "")] == ["a", "b", ""]
    assert find(broker, version, 0) == []


@pytest.mark.parametrize("version", versions(api.FIND_COORDINATOR)[1:])
@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_coordinators_of_other_types_are_refused(broker, version, key_type):
    assert find(broker, version, key_type, "x") == [("x", ErrorCode.INVALID_REQUEST, -1, "", -1)]


def init(broker, version, transactional_id=None, **fields):
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000, **fields)
    response = broker.call(api.INIT_PRODUCER_ID, version, request)
    assert broker.blocked
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", versions(api.INIT_PRODUCER_ID))
def test_every_request_gets_a_fresh_producer_id(broker, version):
    assert [init(broker, version) for _ in range(3)] == [(0, 1000, 0), (0, 1001, 0), (0, 1002, 0)]


@pytest.mark.parametrize("version", versions(api.INIT_PRODUCER_ID)[3:])
def test_bringing_the_old_id_gets_a_fresh_one_too(broker, version):
    assert init(broker, version, producer_id=1000, producer_epoch=5) == (0, 1000, 0)


@pytest.mark.parametrize("version", versions(api.INIT_PRODUCER_ID)[3:])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_id_and_epoch_come_together(broker, version, producer_id, epoch):
    assert init(broker, version, producer_id=producer_id, producer_epoch=epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", versions(api.INIT_PRODUCER_ID))
def test_empty_transactional_id_is_refused(broker, version):
    assert init(broker, version, "") == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_ids_are_made_durable_in_blocks(broker):
    given = [init(broker, 4)[1] for _ in range(BLOCK_SIZE + 1)]
    assert given == list(range(1000, 1000 + BLOCK_SIZE + 1))
    assert broker.logs.next_producer_id == 1000 + 2 * BLOCK_SIZE


def test_threads_never_get_the_same_id(broker):
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: broker.transactions.producer_ids.next(), range(5000)))
    assert sorted(given) == list(range(1000, 6000))


def test_storage_failure_gives_no_producer_id(broker):
    broker.logs.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    assert init(broker, 4) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


def log_dirs(broker, version, topics=None):
    asked = topics and [DescribableLogDirTopic(topic=name, partitions=list(indexes)) for name, indexes in topics]
    response = broker.call(api.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=asked))
    assert broker.blocked
    assert response.error_code == 0
    (result,) = response.results
    sizes = {
        (topic.name, row.partition_index): row.partition_size for topic in result.topics for row in topic.partitions
    }
    return result, sizes


@pytest.mark.parametrize("version", versions(api.DESCRIBE_LOG_DIRS))
def test_log_directory(tmp_path, version):
    broker = HandlerCalls(log_dirs=str(tmp_path))
    broker.logs.create_topic("orders", 2, {}).partitions[1].size_bytes = 12345
    result, sizes = log_dirs(broker, version)
    assert (result.error_code, result.log_dir) == (0, str(tmp_path))
    assert sizes == {("orders", 0): 0, ("orders", 1): 12345}
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    else:
        assert (result.usable_bytes, result.total_bytes) == (-1, -1)


@pytest.mark.parametrize("version", versions(api.DESCRIBE_LOG_DIRS))
def test_log_directory_of_some_partitions(tmp_path, version):
    broker = HandlerCalls(log_dirs=str(tmp_path))
    broker.logs.create_topic("orders", 2, {})
    _, sizes = log_dirs(broker, version, [("orders", [1, 2, -1]), ("missing", [0])])
    assert sizes == {("orders", 1): 0}


def test_log_directory_that_is_gone(tmp_path):
    broker = HandlerCalls(log_dirs=str(tmp_path / "gone"))
    result, sizes = log_dirs(broker, 4)
    assert (result.error_code, sizes) == (ErrorCode.KAFKA_STORAGE_ERROR, {})


def test_nothing_is_ever_reassigned(broker):
    response = broker.call(api.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(topics=None))
    assert (response.error_code, response.topics) == (0, [])


ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
RULE = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "operation": 3, "permission_type": 3}


@pytest.mark.parametrize("version", versions(api.DESCRIBE_ACLS))
def test_acls_are_disabled(broker, version):
    described = broker.call(api.DESCRIBE_ACLS, version, DescribeAclsRequest(**ANY))
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    created = broker.call(
        api.CREATE_ACLS, version, CreateAclsRequest(creations=[AclCreation(**RULE), AclCreation(**RULE)])
    )
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = broker.call(api.DELETE_ACLS, version, DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY)]))
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
    assert not broker.blocked
