"""Requests that one connection pipelines to partitions of a cluster: which response may wait for which."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import fetch, produce
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import cluster_settings
from tests.kit.harness.log_harness import make_batch
from tests.kit.processes.broker import wait_until

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
ORDERS = bytes(range(16))
WAIT_S = 60
OWN, ELSEWHERE = 7, 1
HELD, MOVED, ALONE = range(3)
"""Partitions: whose replica elsewhere asks for nothing; another such; one without."""
ALL, LEADER = -1, 1
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController(CLUSTER) as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        scripted.append(
            types.RegisterBrokerRecord(
                broker_id=ELSEWHERE,
                broker_epoch=1,
                end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)],
                fenced=False,
            )
        )
        scripted.append(types.TopicRecord(name="orders", topic_id=ORDERS))
        for number in (HELD, MOVED, ALONE):
            replicas = [OWN] if number == ALONE else [OWN, ELSEWHERE]
            scripted.append(
                types.PartitionRecord(
                    partition_id=number, topic_id=ORDERS, replicas=replicas, isr=replicas, leader=OWN, leader_epoch=0
                )
            )
        yield scripted


@pytest.fixture
def broker(controller: ScriptedController, tmp_path: Path) -> Iterator[Broker]:
    with Broker(
        cluster_settings(controller.address, tmp_path, replica_lag_time_max_ms=1_000_000, num_network_threads=1)
    ) as started:
        wait_until(lambda: len(logs_of(started)) == 3, WAIT_S, "the partitions are led")
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with closing(Connection.connect("127.0.0.1", broker.port, client_id="test")) as opened:
        yield opened


def logs_of(broker: Broker) -> list[PartitionLog]:
    topic = broker.logs.topics.get("orders")
    return [] if topic is None else [each for each in topic.partitions if isinstance(each, PartitionLog)]


def ends(broker: Broker) -> list[int]:
    return [log.log_end_offset for log in logs_of(broker)]


def send(connection: Connection, *numbers: int, acks: int = ALL, timeout_s: int = 10 * WAIT_S) -> None:
    """One record for each of these partitions, in one request."""
    parts = [produce.PartitionProduceData(index=number, records=make_batch()) for number in numbers]
    request = produce.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_s * 1000,
        topic_data=[produce.TopicProduceData(topic_id=ORDERS, partition_data=parts)],
    )
    connection.send(api.PRODUCE, request, timeout_s=10 * WAIT_S)


def answered(connection: Connection) -> list[tuple[int, int]]:
    """Partition and error code of each part of the next answer."""
    _, answer = connection.receive()
    return [(part.index, part.error_code) for part in answer.responses[0].partition_responses]


def move(controller: ScriptedController, number: int) -> None:
    controller.append(types.PartitionChangeRecord(topic_id=ORDERS, partition_id=number, leader=ELSEWHERE))


def let_go(controller: ScriptedController, number: int) -> None:
    """Shrink the in-sync replicas to this broker."""
    controller.append(types.PartitionChangeRecord(topic_id=ORDERS, partition_id=number, isr=[OWN]))


def wait_moved(broker: Broker, number: int) -> None:
    wait_until(lambda: not logs_of(broker)[number].core.led, WAIT_S, "somebody else leads it")


def served_up_to_here(broker: Broker) -> None:
    """What was sent before on any connection was looked at: so was a later request of another one."""
    with closing(Connection.connect("127.0.0.1", broker.port, client_id="other")) as other:
        for _ in range(3):
            send(other, ALONE, acks=LEADER)
            assert answered(other) == [(ALONE, 0)]


def test_an_error_never_waits_for_another_partition(
    broker: Broker, connection: Connection, controller: ScriptedController
) -> None:
    """The batch behind the wait is not appended before its answer could leave: so it is refused, and nowhere."""
    send(connection, HELD)
    wait_until(lambda: ends(broker)[HELD] == 1, WAIT_S, "it is appended and waits")
    send(connection, MOVED)
    served_up_to_here(broker)
    assert ends(broker)[MOVED] == 0
    move(controller, MOVED)
    wait_moved(broker, MOVED)
    let_go(controller, HELD)
    assert answered(connection) == [(HELD, 0)]
    assert answered(connection) == [(MOVED, NOT_LEADER)]
    assert ends(broker)[MOVED] == 0


def test_pipelined_requests_of_one_partition_are_answered_at_once(
    broker: Broker, connection: Connection, controller: ScriptedController
) -> None:
    for _ in range(5):
        send(connection, MOVED)
    wait_until(lambda: ends(broker)[MOVED] == 5, WAIT_S, "all are appended, none is answered")
    move(controller, MOVED)
    assert [answered(connection) for _ in range(5)] == [[(MOVED, NOT_LEADER)]] * 5


def test_requests_of_one_partition_are_pipelined_while_the_first_is_still_to_be_appended(
    broker: Broker, connection: Connection, controller: ScriptedController
) -> None:
    """The first batch of a log waits for its file, which is made on the I/O pool."""
    released = threading.Event()
    assert broker._parts.pool is not None
    broker._parts.pool.submit_ordered(logs_of(broker)[MOVED].core, released.wait)
    try:
        for _ in range(5):
            send(connection, MOVED)
        wait_until(lambda: parked(broker) == 5, WAIT_S, "all are taken")
    finally:
        released.set()
    wait_until(lambda: ends(broker)[MOVED] == 5, WAIT_S, "all are appended, none is answered")
    move(controller, MOVED)
    assert [answered(connection) for _ in range(5)] == [[(MOVED, NOT_LEADER)]] * 5


def test_requests_go_on_in_order_when_nothing_is_owed(
    broker: Broker, connection: Connection, controller: ScriptedController
) -> None:
    order = [HELD, HELD, MOVED, HELD, MOVED, MOVED]
    for number in order:
        send(connection, number)
    wait_until(lambda: ends(broker)[HELD] == 2, WAIT_S, "the first two are appended")
    served_up_to_here(broker)
    assert ends(broker)[:2] == [2, 0]
    let_go(controller, MOVED)
    let_go(controller, HELD)
    assert [answered(connection) for _ in order] == [[(number, 0)] for number in order]
    assert ends(broker)[:2] == [3, 3]


def test_request_of_several_partitions_waits_for_its_turn(
    broker: Broker, connection: Connection, controller: ScriptedController
) -> None:
    send(connection, HELD)
    send(connection, ALONE, HELD)
    wait_until(lambda: ends(broker)[HELD] == 1, WAIT_S, "the first is appended")
    before = ends(broker)[ALONE]
    served_up_to_here(broker)
    assert ends(broker)[HELD] == 1
    let_go(controller, HELD)
    assert answered(connection) == [(HELD, 0)]
    assert answered(connection) == [(ALONE, 0), (HELD, 0)]
    assert ends(broker) == [2, 0, before + 3 + 1]


@pytest.mark.parametrize(("number", "acks"), [(ALONE, ALL), (MOVED, LEADER)], ids=["one replica", "acks=1"])
def test_what_waits_for_no_replica_is_appended_at_once(
    broker: Broker, connection: Connection, controller: ScriptedController, number: int, acks: int
) -> None:
    send(connection, HELD)
    send(connection, number, acks=acks)
    wait_until(lambda: ends(broker)[number] == 1, WAIT_S, "it is appended")
    let_go(controller, HELD)
    assert answered(connection) == [(HELD, 0)]
    assert answered(connection) == [(number, 0)]


def test_request_behind_a_fetch_that_waits_is_not_appended_yet(
    broker: Broker, connection: Connection, controller: ScriptedController
) -> None:
    part = fetch.FetchPartition(partition=ALONE, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=10 * WAIT_S * 1000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(topic_id=ORDERS, partitions=[part])],
    )
    connection.send(api.FETCH, request, timeout_s=10 * WAIT_S)
    send(connection, MOVED)
    wait_until(lambda: parked(broker) == 1, WAIT_S, "the fetch waits")
    assert ends(broker)[MOVED] == 0
    served_up_to_here(broker)
    connection.receive()
    wait_until(lambda: ends(broker)[MOVED] == 1, WAIT_S, "it is appended when the fetch is answered")
    let_go(controller, MOVED)
    assert answered(connection) == [(MOVED, 0)]


def parked(broker: Broker) -> int:
    return sum(each.answers.in_flight for worker in broker._parts.workers for each in worker._connections.values())


def test_wait_that_is_over_lets_the_next_request_in(broker: Broker, connection: Connection) -> None:
    send(connection, HELD, timeout_s=1)
    send(connection, MOVED, timeout_s=1)
    assert answered(connection) == [(HELD, int(ErrorCode.REQUEST_TIMED_OUT))]
    assert answered(connection) == [(MOVED, int(ErrorCode.REQUEST_TIMED_OUT))]
    assert ends(broker)[:2] == [1, 1]


def test_connection_that_is_closed_while_a_request_waits_for_its_turn(broker: Broker, connection: Connection) -> None:
    send(connection, HELD)
    send(connection, MOVED)
    wait_until(lambda: ends(broker)[HELD] == 1, WAIT_S, "the first is appended")
    connection.close()
    served_up_to_here(broker)
    assert ends(broker)[:2] == [1, 0]
