"""Partitions that a controller gives to a broker, moves, takes away and gives back, as the test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.log import checkpoints
from kafkalite.broker.log.assigned import AssignedTopics
from kafkalite.broker.log.manager import LogManager
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import (
    delete_records,
    describe_log_dirs,
    describe_producers,
    fetch,
    find_coordinator,
    list_groups,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from kafkalite.wire.protocol.messages.create_topics import CreateTopicsResponse
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import membership
from tests.kit.harness.log_harness import make_batch
from tests.kit.processes.broker import wait_until

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
ORDERS, AGAIN, OTHER = bytes(range(16)), bytes(range(1, 17)), bytes(range(2, 18))
WAIT_S = 60
OWN, ELSEWHERE = 7, 1


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController(CLUSTER) as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        scripted.append(
            types.RegisterBrokerRecord(
                broker_id=ELSEWHERE,
                broker_epoch=1,
                end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)],
                rack="r",
                fenced=False,
            )
        )
        yield scripted


def settings(controller: ScriptedController, directory: Path) -> dict[str, object]:
    return {
        **membership(controller.address, OWN),
        "log.dirs": str(directory),
        "broker.heartbeat.interval.ms": 100,
        "broker.session.timeout.ms": 1000,
    }


def partition(topic_id: bytes, number: int, leader: int, epoch: int = 0, replicas: tuple[int, ...] = ()) -> object:
    return types.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas or (leader,)),
        isr=[leader],
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
    )


def topic(name: str, topic_id: bytes, *leaders: int) -> list[object]:
    """One partition for each leader."""
    numbered = [partition(topic_id, number, leader) for number, leader in enumerate(leaders)]
    return [types.TopicRecord(name=name, topic_id=topic_id), *numbered]


def moved(topic_id: bytes, number: int, leader: int) -> object:
    return types.PartitionChangeRecord(topic_id=topic_id, partition_id=number, leader=leader)


def connect(broker: Broker) -> closing[Connection]:
    return closing(Connection.connect("127.0.0.1", broker.port, client_id="test"))


def write(connection: Connection, topic_id: bytes, number: int = 0, **fields: object) -> object:
    """The whole answer of Produce 13."""
    request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                topic_id=topic_id,
                partition_data=[produce.PartitionProduceData(index=number, records=make_batch(**fields))],
            )
        ],
    )
    return connection.request(api.PRODUCE, request)


def code_of_write(connection: Connection, topic_id: bytes, number: int = 0) -> int:
    return write(connection, topic_id, number).responses[0].partition_responses[0].error_code


def read(connection: Connection, topic_id: bytes, number: int = 0, epoch: int = -1, offset: int = 0) -> object:
    """The whole answer of Fetch 17."""
    part = fetch.FetchPartition(
        partition=number, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    request = fetch.FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[part])]
    )
    return connection.request(api.FETCH, request)


def part_of(response: object) -> fetch.PartitionData:
    return response.responses[0].partitions[0]


def wait_led(connection: Connection, topic_id: bytes, number: int = 0) -> None:
    wait_until(lambda: code_of_write(connection, topic_id, number) == 0, WAIT_S, "the partition is led")


def latest(connection: Connection, name: str, number: int = 0, epoch: int = -1) -> list_offsets.ListOffsetsPartition:
    request = list_offsets.ListOffsetsRequest(
        topics=[
            list_offsets.ListOffsetsTopic(
                name=name,
                partitions=[
                    list_offsets.ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=-1)
                ],
            )
        ]
    )
    return connection.request(api.LIST_OFFSETS, request).topics[0].partitions[0]


def test_partition_that_is_led_here_is_served(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        found = part_of(read(connection, ORDERS, epoch=0))
        assert (found.error_code, found.high_watermark) == (0, 1)
        assert found.records
        assert (latest(connection, "orders").offset, latest(connection, "orders").leader_epoch) == (1, 0)
        assert checkpoints.read_partition_topic_id(str(tmp_path / "orders-0")) == ORDERS
    journal = (tmp_path / "metadata.journal").read_text()
    assert "orders" not in journal


def test_clients_get_the_leader_on_another_broker(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN, ELSEWHERE), moved(ORDERS, 1, ELSEWHERE))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        written = write(connection, ORDERS, 1)
        (refused,) = written.responses[0].partition_responses
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (ELSEWHERE, 1)
        endpoint = (ELSEWHERE, "elsewhere", 9092, "r")
        assert [(e.node_id, e.host, e.port, e.rack) for e in written.node_endpoints] == [endpoint]
        for epoch in (-1, 0, 1, 2):
            answer = read(connection, ORDERS, 1, epoch)
            assert part_of(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = part_of(answer).current_leader
            assert (leader.leader_id, leader.leader_epoch) == (ELSEWHERE, 1)
            assert [(e.node_id, e.host, e.port, e.rack) for e in answer.node_endpoints] == [endpoint]
            assert latest(connection, "orders", 1, epoch).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        asked = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="orders", partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=1)]
                )
            ]
        )
        (ended,) = connection.request(api.OFFSET_FOR_LEADER_EPOCH, asked).topics[0].partitions
        assert ended.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        delete = delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="orders", partitions=[delete_records.DeleteRecordsPartition(partition_index=1, offset=0)]
                )
            ]
        )
        (kept,) = connection.request(api.DELETE_RECORDS, delete).topics[0].partitions
        assert kept.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (listed,) = connection.request(
            api.DESCRIBE_LOG_DIRS, describe_log_dirs.DescribeLogDirsRequest(topics=None)
        ).results
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in listed.topics] == [("orders", [0])]
        assert code_of_write(connection, ORDERS, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of_write(connection, OTHER) == ErrorCode.UNKNOWN_TOPIC_ID
    assert not (tmp_path / "orders-1").exists()


def test_refusals_of_older_clients_have_no_leader_in_them(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, ELSEWHERE))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        for version in (3, 9):
            request = produce.ProduceRequest(
                acks=1,
                topic_data=[
                    produce.TopicProduceData(
                        name="orders", partition_data=[produce.PartitionProduceData(index=0, records=make_batch())]
                    )
                ],
            )
            answer = connection.request(api.PRODUCE, request, version_max=version)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not answer.node_endpoints


def test_leadership_that_goes_and_comes_back_begins_a_new_epoch(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        controller.append(moved(ORDERS, 0, -1))
        refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        wait_until(lambda: code_of_write(connection, ORDERS) == refused, WAIT_S, "nobody leads")
        assert part_of(read(connection, ORDERS)).error_code == 0, "what is here may be read (KIP-392)"
        stale = part_of(read(connection, ORDERS, epoch=0))
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert stale.current_leader.leader_epoch == 1
        assert part_of(read(connection, ORDERS, epoch=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        end = broker.logs.topics["orders"].partitions[0].log_end_offset
        controller.append(moved(ORDERS, 0, OWN))
        wait_led(connection, ORDERS)
        assert part_of(read(connection, ORDERS, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert part_of(read(connection, ORDERS, epoch=2)).error_code == 0
        assert latest(connection, "orders").leader_epoch == 2
    epochs = checkpoints.read_epochs(str(tmp_path / "orders-0" / "leader-epoch-checkpoint"))
    assert epochs == [(0, 0), (2, end)]


def test_a_waiting_fetch_fails_when_leadership_is_lost(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        end = broker.logs.topics["orders"].partitions[0].log_end_offset
        part = fetch.FetchPartition(partition=0, fetch_offset=end, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=WAIT_S * 1000,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[fetch.FetchTopic(topic="orders", partitions=[part])],
        )
        connection.send(api.FETCH, request, version_max=10, timeout_s=WAIT_S)  # 11 may read from followers
        controller.append(moved(ORDERS, 0, ELSEWHERE))
        _, answer = connection.receive()
        assert part_of(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_topic_that_is_deleted_and_made_again_is_another_one(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        controller.append(types.RemoveTopicRecord(topic_id=ORDERS), *topic("orders", AGAIN, OWN))
        wait_led(connection, AGAIN)
        assert code_of_write(connection, ORDERS) == ErrorCode.UNKNOWN_TOPIC_ID
        assert checkpoints.read_partition_topic_id(str(tmp_path / "orders-0")) == AGAIN
        assert broker.logs.topics["orders"].partitions[0].log_start_offset == 0
        assert part_of(read(connection, AGAIN)).high_watermark == 1


def test_partitions_are_opened_again_at_a_start(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN, ELSEWHERE, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        wait_led(connection, ORDERS, 2)
    controller.append(moved(ORDERS, 0, OWN))
    controller.append(
        types.PartitionChangeRecord(topic_id=ORDERS, partition_id=2, replicas=[ELSEWHERE], leader=ELSEWHERE)
    )
    (tmp_path / "strange-0").mkdir()
    (tmp_path / "strange-0" / "00000000000000000000.log").write_bytes(b"somebody's")
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        assert part_of(read(connection, ORDERS, epoch=1)).high_watermark == 1
        assert code_of_write(connection, ORDERS, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        names = sorted(path.name.split(".")[0] for path in tmp_path.iterdir() if path.name.endswith("-stray"))
        assert names == ["orders-2", "strange-0"]
        (kept,) = tmp_path.glob("strange-0.*-stray")
        assert (kept / "00000000000000000000.log").read_bytes() == b"somebody's"


def test_directory_of_an_earlier_topic_is_set_aside(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
    controller.append(types.RemoveTopicRecord(topic_id=ORDERS), *topic("orders", AGAIN, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, AGAIN)
        assert part_of(read(connection, AGAIN)).high_watermark == 1
        (stray,) = tmp_path.glob("orders-0.*-stray")
        assert checkpoints.read_partition_topic_id(str(stray)) == ORDERS


def test_replica_that_is_taken_away_goes_and_comes_back_empty(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
        away = types.PartitionChangeRecord(topic_id=ORDERS, partition_id=0, replicas=[ELSEWHERE], leader=ELSEWHERE)
        back = types.PartitionChangeRecord(topic_id=ORDERS, partition_id=0, replicas=[OWN], leader=OWN)
        controller.append(away)
        wait_until(lambda: not (tmp_path / "orders-0").exists(), WAIT_S, "the replica's directory is out of the way")
        controller.append(back)
        wait_led(connection, ORDERS)
        assert part_of(read(connection, ORDERS)).high_watermark == 1


def test_a_follower_tells_of_its_replicas_producers_too(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(
        types.TopicRecord(name="orders", topic_id=ORDERS),
        partition(ORDERS, 0, OWN, replicas=(OWN, ELSEWHERE)),
        partition(ORDERS, 1, ELSEWHERE),
    )
    asked = describe_producers.TopicRequest(name="orders", partition_indexes=[0, 1])
    request = describe_producers.DescribeProducersRequest(topics=[asked])
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        log = broker.logs.topics["orders"].partitions[0]
        log.append(make_batch(producer_id=5, epoch=3, sequence=0))
        controller.append(moved(ORDERS, 0, ELSEWHERE))
        wait_until(lambda: not log.led, WAIT_S, "somebody else leads")
        here, elsewhere = connection.request(api.DESCRIBE_PRODUCERS, request).topics[0].partitions
        assert [(each.producer_id, each.producer_epoch) for each in here.active_producers] == [(5, 3)]
        assert (here.error_code, elsewhere.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_what_only_this_broker_has_may_be_seen_until_others_have_it_too(
    controller: ScriptedController, tmp_path: Path
) -> None:
    controller.append(
        types.TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, OWN, replicas=(OWN, ELSEWHERE))
    )
    controller.append(types.PartitionChangeRecord(topic_id=ORDERS, partition_id=0, isr=[OWN, ELSEWHERE]))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        log = broker.logs.topics["orders"].partitions[0]
        assert log.append(make_batch()).end_offset == 1
        assert log.high_watermark == 0
        controller.append(types.PartitionChangeRecord(topic_id=ORDERS, partition_id=0, replicas=[OWN], isr=[OWN]))
        wait_until(lambda: log.high_watermark == 1, WAIT_S, "nobody else has to have it")
        assert part_of(read(connection, ORDERS)).high_watermark == 1


def test_stop_before_the_partitions_are_known_loses_nothing(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(*topic("orders", ORDERS, OWN))
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        wait_led(connection, ORDERS)
    points = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert "orders 0 1" in points
    config = BrokerConfig.load(overrides=settings(controller, tmp_path))
    logs = LogManager(
        config, SystemClock(), on_fatal=lambda error: pytest.fail(str(error)), cluster_id="", topics_of=AssignedTopics
    )
    logs.open()
    logs.checkpoints.write_recovery_points()
    assert logs.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == points
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        assert part_of(read(connection, ORDERS)).high_watermark == 1


def coordinators_of(
    connection: Connection, request: find_coordinator.FindCoordinatorRequest
) -> list[find_coordinator.Coordinator]:
    return list(connection.request(api.FIND_COORDINATOR, request).coordinators)


def test_coordinators_are_who_leads_their_partitions(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(
        *topic("__consumer_offsets", ORDERS, OWN, ELSEWHERE), *topic("__transaction_state", OTHER, ELSEWHERE)
    )
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
        found = coordinators_of(connection, request)
        assert sorted((each.node_id, each.port) for each in found) == [(ELSEWHERE, 9092), (OWN, broker.port)]
        request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        (other,) = coordinators_of(connection, request)
        assert (other.node_id, other.host) == (ELSEWHERE, "elsewhere")
        groups = broker._parts.groups
        assert groups is not None
        here = {each.key for each in found if each.node_id == OWN}
        wanted = {key: 0 if key in here else int(ErrorCode.NOT_COORDINATOR) for key in "ab"}
        wait_until(lambda: {key: int(groups.error_of(key)) for key in "ab"} == wanted, WAIT_S, "its groups are loaded")
        assert connection.request(api.LIST_GROUPS, list_groups.ListGroupsRequest()).error_code == 0
        controller.append(moved(ORDERS, 0, ELSEWHERE), moved(ORDERS, 1, ELSEWHERE))
        gone = int(ErrorCode.NOT_COORDINATOR)
        wait_until(lambda: {groups.error_of(key) for key in "ab"} == {gone}, WAIT_S, "others coordinate")


def test_the_coordinators_topic_is_created_on_demand(controller: ScriptedController, tmp_path: Path) -> None:
    controller.answers[api.CREATE_TOPICS].append(lambda _request: CreateTopicsResponse())
    with Broker(settings(controller, tmp_path)) as broker, connect(broker) as connection:
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["a"])
        (found,) = connection.request(api.FIND_COORDINATOR, request).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        controller.wait_for(lambda: any(key == api.CREATE_TOPICS for key, _, _ in controller.seen))
        (topic_asked,) = controller.requests(api.CREATE_TOPICS)[0].topics
        assert (topic_asked.name, topic_asked.num_partitions) == ("__consumer_offsets", 50)
        assert {each.name for each in topic_asked.configs} == {"cleanup.policy", "compression.type", "segment.bytes"}
