"""A broker coordinates groups and transactions whose partitions others follow, by hand: what it tells, they have."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import (
    fetch,
    heartbeat,
    init_producer_id,
    offset_commit,
    offset_fetch,
    sync_group,
    write_txn_markers,
)
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import cluster_settings
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from kafkalite.broker.coordinator.groups import GroupCoordinator

WAIT_S = 60
OWN, TWO = 7, 2
BROKER_EPOCH = 12
OFFSETS, TRANSACTIONS, ORDERS = bytes(range(16)), bytes(range(1, 17)), bytes(range(2, 18))
NAMES = {"__consumer_offsets": OFFSETS, "__transaction_state": TRANSACTIONS, "orders": ORDERS}
TOPIC = 2


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController("aaaaaaaaaaaaaaaaaaaaaQ") as scripted:
        scripted.append(
            types.FeatureLevelRecord(name="metadata.version", feature_level=27),
            types.RegisterBrokerRecord(
                broker_id=TWO,
                broker_epoch=BROKER_EPOCH,
                end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)],
                fenced=False,
            ),
        )
        yield scripted


def give(controller: ScriptedController, *in_sync: int, minimum: int = 1) -> None:
    """One partition of each topic, that this broker leads in epoch 0 and broker 2 follows."""
    for name, topic_id in NAMES.items():
        controller.append(
            types.TopicRecord(name=name, topic_id=topic_id),
            types.PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[OWN, TWO],
                isr=list(in_sync),
                leader=OWN,
                leader_epoch=0,
                partition_epoch=0,
            ),
            types.ConfigRecord(resource_type=TOPIC, resource_name=name, name="min.insync.replicas", value=str(minimum)),
        )


def elect(controller: ScriptedController, topic_id: bytes, leader: int) -> None:
    controller.append(types.PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=leader))


@contextmanager
def coordinating(controller: ScriptedController, directory: Path, **settings: object) -> Iterator[Broker]:
    quick = {"broker.heartbeat.interval.ms": 100, "broker.session.timeout.ms": 1000}
    with Broker(cluster_settings(controller.address, directory, **settings) | quick) as broker:
        groups, transactions = broker._parts.groups, broker._parts.transactions
        assert groups is not None
        assert transactions is not None
        wait_until(lambda: groups.error_of("g") == 0 and transactions.error_of("t") == 0, WAIT_S, "it coordinates")
        wait_until(lambda: has_producer_ids(broker), WAIT_S, "the controllers have given it producer ids")
        yield broker


def has_producer_ids(broker: Broker) -> bool:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    with connect(broker) as connection:
        return bool(connection.request(api.INIT_PRODUCER_ID, request).error_code == 0)


def connect(broker: Broker) -> closing[Connection]:
    return closing(Connection.connect("127.0.0.1", broker.port, client_id="test"))


def is_answered(connection: Connection) -> bool:
    """Whether there is something to receive."""
    return bool(select.select([connection], [], [], 0)[0])


def core_of(broker: Broker, name: str) -> Any:
    return broker.logs.topics[name].partitions[0].core


def wait_end(broker: Broker, name: str, offset: int) -> None:
    wait_until(lambda: core_of(broker, name).log_end_offset == offset, WAIT_S, f"{name} ends at {offset}")


def follow(broker: Broker, topic_id: bytes, offset: int, epoch: int = 0) -> None:
    """Broker 2 asks for what is behind an offset: it has what is before."""
    part = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    request = fetch.FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[part])],
        replica_state=fetch.ReplicaState(replica_id=TWO, replica_epoch=BROKER_EPOCH),
    )
    with connect(broker) as connection:
        assert connection.request(api.FETCH, request).responses[0].partitions[0].error_code == 0


def send_commit(connection: Connection, offset: int) -> None:
    """Of partition 0 of orders, by somebody who is in no group."""
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    connection.send(api.OFFSET_COMMIT, request, version_max=8)


def code_of_commit(connection: Connection) -> int:
    return int(connection.receive()[1].topics[0].partitions[0].error_code)


def committed(connection: Connection) -> tuple[int, int]:
    """(error code, offset), -1 for none."""
    topic = offset_fetch.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    (answer,) = connection.request(
        api.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=[group]), version_max=8
    ).groups
    if answer.error_code:
        return answer.error_code, -1
    return 0, answer.topics[0].partitions[0].committed_offset


def send_init(connection: Connection) -> None:
    request = init_producer_id.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    connection.send(api.INIT_PRODUCER_ID, request)


def send_marker(connection: Connection) -> None:
    topic = write_txn_markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=5, transaction_result=True, topics=[topic])
    connection.send(api.WRITE_TXN_MARKERS, write_txn_markers.WriteTxnMarkersRequest(markers=[marker]))


def code_of_marker(connection: Connection) -> int:
    return int(connection.receive()[1].markers[0].topics[0].partitions[0].error_code)


def test_a_commit_is_answered_and_told_when_all_in_sync_have_it(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, OWN, TWO)
    with coordinating(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as other:
        send_commit(client, 42)
        wait_end(broker, "__consumer_offsets", 1)
        follow(broker, OFFSETS, 0)
        assert committed(other) == (0, -1)
        assert not is_answered(client)
        follow(broker, OFFSETS, 1)
        assert code_of_commit(client) == 0
        assert committed(other) == (0, 42)


def test_a_commit_that_takes_long_is_to_be_tried_again_and_holds_later(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, OWN, TWO)
    quick = {"offsets_commit_timeout_ms": 100}
    with coordinating(controller, tmp_path, **quick) as broker, connect(broker) as client:
        send_commit(client, 42)
        assert code_of_commit(client) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(client) == (0, -1)
        follow(broker, OFFSETS, 1)
        assert committed(client) == (0, 42)


def test_who_leads_no_more_tells_that_another_coordinates(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, OWN, TWO)
    with coordinating(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as producer:
        send_commit(client, 42)
        send_init(producer)
        wait_end(broker, "__consumer_offsets", 1)
        wait_end(broker, "__transaction_state", 1)
        elect(controller, OFFSETS, TWO)
        elect(controller, TRANSACTIONS, TWO)
        assert code_of_commit(client) == ErrorCode.NOT_COORDINATOR
        assert producer.receive()[1].error_code == ErrorCode.NOT_COORDINATOR
        gone = (ErrorCode.NOT_COORDINATOR, -1)
        wait_until(lambda: committed(client) == gone, WAIT_S, "its groups are another's")


def groups_that_are_read_again(controller: ScriptedController, broker: Broker, client: Connection) -> GroupCoordinator:
    """The leader goes and comes back: what was committed meanwhile is in its log, and not on all in sync yet."""
    send_commit(client, 42)
    wait_end(broker, "__consumer_offsets", 1)
    elect(controller, OFFSETS, TWO)
    assert code_of_commit(client) == ErrorCode.NOT_COORDINATOR
    elect(controller, OFFSETS, OWN)
    groups = broker._parts.groups
    assert groups is not None
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    wait_until(lambda: groups.error_of("g") == loading, WAIT_S, "it leads again")
    return groups


def test_the_previous_leaders_last_commit_is_served_when_all_in_sync_replicas_have_it(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, OWN, TWO)
    with coordinating(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as other:
        groups = groups_that_are_read_again(controller, broker, client)
        follow(broker, OFFSETS, 0, epoch=2)
        assert committed(other) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        follow(broker, OFFSETS, 1, epoch=2)
        wait_until(lambda: groups.error_of("g") == 0, WAIT_S, "it coordinates again")
        assert committed(other) == (0, 42)


def test_members_of_a_group_that_is_being_read_stay_and_begin_anew(
    controller: ScriptedController, tmp_path: Path
) -> None:
    """aiokafka ends a consumer whose heartbeat is answered COORDINATOR_LOAD_IN_PROGRESS; Kafka answers none so."""
    give(controller, OWN, TWO)
    with coordinating(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as other:
        groups = groups_that_are_read_again(controller, broker, client)
        beat = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        synced = sync_group.SyncGroupRequest(
            group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        )
        assert other.request(api.HEARTBEAT, beat).error_code == 0
        assert other.request(api.SYNC_GROUP, synced).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        follow(broker, OFFSETS, 1, epoch=2)
        wait_until(lambda: groups.error_of("g") == 0, WAIT_S, "it coordinates again")
        assert other.request(api.HEARTBEAT, beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_with_too_few_in_sync_no_transaction_begins_and_no_marker_is_written(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, OWN, minimum=2)
    with coordinating(controller, tmp_path) as broker, connect(broker) as client:
        send_init(client)
        assert client.receive()[1].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        send_marker(client)
        assert code_of_marker(client) == ErrorCode.NOT_ENOUGH_REPLICAS
        ends = [core_of(broker, name).log_end_offset for name in ("__transaction_state", "orders")]
        assert ends == [0, 0]


def test_a_transaction_begins_and_a_marker_counts_when_all_in_sync_have_it(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, OWN, TWO, minimum=2)
    with coordinating(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as peer:
        send_init(client)
        send_marker(peer)
        wait_end(broker, "__transaction_state", 1)
        wait_end(broker, "orders", 1)
        assert not is_answered(client)
        assert not is_answered(peer)
        follow(broker, TRANSACTIONS, 1)
        assert client.receive()[1].error_code == 0
        follow(broker, ORDERS, 1)
        assert code_of_marker(peer) == 0
