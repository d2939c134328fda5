"""A broker leads partitions whose followers are written by hand: what they fetch moves what consumers see, who is in
sync is proposed to a scripted controller, and acks=all waits for all of that."""

from __future__ import annotations

import gc
import select
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.coordinator.timer_queue import CANCELLED_KEPT_MIN
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import delete_records, fetch, list_offsets, produce
from kafkalite.wire.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import member_of, membership
from tests.kit.harness.log_harness import make_batch, split
from tests.kit.harness.scrape import Scrape
from tests.kit.processes.broker import wait_until

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
TOPIC = bytes(range(16))
WAIT_S = 60
OWN, TWO, THREE, STRANGER = 7, 2, 3, 9
EPOCH_OF = {TWO: 12, THREE: 13, STRANGER: 19}
LEADER_EPOCH = 4
DAYS_MS = (1 << 31) - 1


def registered(node_id: int, epoch: int) -> object:
    return types.RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=epoch,
        end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)],
        fenced=False,
    )


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController(CLUSTER) as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        scripted.append(*(registered(node_id, epoch) for node_id, epoch in EPOCH_OF.items()))
        yield scripted


def give(controller: ScriptedController, isr: tuple[int, ...], replicas: tuple[int, ...] = (OWN, TWO, THREE)) -> None:
    """One partition that the broker leads."""
    controller.append(
        types.TopicRecord(name="orders", topic_id=TOPIC),
        types.PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=list(replicas),
            isr=list(isr),
            leader=OWN,
            leader_epoch=LEADER_EPOCH,
            partition_epoch=LEADER_EPOCH,
        ),
    )


def change(controller: ScriptedController, **fields: object) -> None:
    controller.append(types.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **fields))  # type: ignore[arg-type]


@contextmanager
def leading(controller: ScriptedController, directory: Path, **settings: object) -> Iterator[Broker]:
    config = {
        **membership(controller.address, OWN),
        "log.dirs": str(directory),
        "broker.heartbeat.interval.ms": 100,
        **settings,
    }
    with Broker(config) as broker:
        wait_until(lambda: "orders" in broker.logs.topics, WAIT_S, "the partition is here")
        yield broker


def core_of(broker: Broker) -> Any:
    return broker.logs.topics["orders"].partitions[0].core


def connect(broker: Broker) -> closing[Connection]:
    return closing(Connection.connect("127.0.0.1", broker.port, client_id="test"))


def write(connection: Connection, *, acks: int = -1, timeout_ms: int = 60_000, **fields: object) -> None:
    """Sends one record; `code_of` has the answer."""
    data = produce.PartitionProduceData(index=0, records=make_batch(**fields))  # type: ignore[arg-type]
    connection.send(
        api.PRODUCE,
        produce.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[produce.TopicProduceData(topic_id=TOPIC, partition_data=[data])],
        ),
    )


def code_of(connection: Connection) -> int:
    return int(connection.receive()[1].responses[0].partition_responses[0].error_code)


def is_answered(connection: Connection) -> bool:
    """Whether there is something to receive."""
    return bool(select.select([connection], [], [], 0)[0])


def ask(
    connection: Connection,
    offset: int,
    *,
    replica: int = TWO,
    replica_epoch: int | None = None,
    leader_epoch: int = LEADER_EPOCH,
    last_epoch: int = -1,
    start: int = 0,
    wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    version: int = 18,
) -> None:
    """Sends a Fetch; a follower's, unless `replica` is -1."""
    part = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=start,
        partition_max_bytes=1 << 20,
    )
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[fetch.FetchTopic(topic_id=TOPIC, partitions=[part])],
    )
    if replica >= 0 and version >= 15:
        epoch = EPOCH_OF[replica] if replica_epoch is None else replica_epoch
        request.replica_state = fetch.ReplicaState(replica_id=replica, replica_epoch=epoch)
    elif replica >= 0:
        request.replica_id = replica
    connection.send(api.FETCH, request, version_max=version)


def part_of(connection: Connection) -> Any:
    return connection.receive()[1].responses[0].partitions[0]


def follow(connection: Connection, offset: int, **fields: Any) -> Any:
    """A follower's fetch that does not wait, and its part of the answer."""
    ask(connection, offset, **fields)
    return part_of(connection)


def seen(connection: Connection) -> int:
    """How many records a consumer is shown."""
    part = follow(connection, 0, replica=-1, leader_epoch=-1, start=-1)
    assert part.error_code == 0
    return sum(after - first for first, after, _ in split(bytes(part.records or b"")))


def code(connection: Connection, offset: int, **fields: Any) -> int:
    return int(follow(connection, offset, **fields).error_code)


# --- what followers fetch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [13, 14, 15, 17, 18])
def test_a_write_is_answered_and_seen_when_all_in_sync_have_it(
    controller: ScriptedController, tmp_path: Path, version: int
) -> None:
    give(controller, (OWN, TWO, THREE))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as reader:
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        for replica in (TWO, THREE):
            found = follow(reader, 0, replica=replica, version=version)
            assert [each[:2] for each in split(bytes(found.records))] == [(0, 1)]
            assert (found.high_watermark, seen(reader)) == (0, 0)
        assert follow(reader, 1, replica=TWO, version=version).high_watermark == 0
        assert not is_answered(writer)
        assert follow(reader, 1, replica=THREE, version=version).high_watermark == 1
        assert code_of(writer) == 0
        assert seen(reader) == 1


def test_a_write_that_wants_the_leader_alone_is_not_seen_before_followers_have_it(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as reader:
        write(writer, acks=1)
        assert code_of(writer) == 0
        assert seen(reader) == 0
        follow(reader, 1)
        assert seen(reader) == 1


def test_followers_wait_for_the_end_and_consumers_for_the_high_watermark(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with (
        leading(controller, tmp_path) as broker,
        connect(broker) as writer,
        connect(broker) as follower,
        connect(broker) as consumer,
    ):
        ask(follower, 0, wait_ms=60_000)
        ask(consumer, 0, replica=-1, leader_epoch=-1, start=-1, wait_ms=60_000)
        write(writer)
        found = part_of(follower)
        assert (found.high_watermark, len(found.records) > 0) == (0, True)
        assert not is_answered(consumer)
        ask(follower, 1, wait_ms=60_000)
        found = part_of(consumer)
        assert (found.high_watermark, len(found.records) > 0) == (1, True)
        assert code_of(writer) == 0
        change(controller, leader=TWO)
        assert part_of(follower).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"replica": STRANGER}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica": STRANGER, "leader_epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"leader_epoch": LEADER_EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": LEADER_EPOCH + 1, "replica": STRANGER}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_epoch": EPOCH_OF[TWO] - 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"last_epoch": LEADER_EPOCH + 1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"replica_epoch": -1}, ErrorCode.NONE),
    ],
)
def test_a_follower_that_may_not_fetch_is_told_why_and_counts_for_nothing(
    controller: ScriptedController, tmp_path: Path, fields: dict[str, Any], expected: ErrorCode
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer, count=2, acks=1)
        assert code_of(writer) == 0
        assert code(follower, fields.pop("offset", 2), **fields) == expected
        assert core_of(broker).high_watermark == (2 if expected == 0 else 0)


def test_a_follower_of_another_history_is_told_where_it_parts_and_counts_for_nothing(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer, acks=1, count=3)
        assert code_of(writer) == 0
        change(controller, leader=OWN)
        epoch = LEADER_EPOCH + 1
        wait_until(lambda: core_of(broker).leader_epoch == epoch, WAIT_S, "the leader is elected again")
        write(writer, acks=1, count=2)
        assert code_of(writer) == 0
        for _ in range(2):  # the second time it is remembered
            found = follow(follower, 4, last_epoch=LEADER_EPOCH, leader_epoch=epoch)
            assert (found.error_code, found.records or b"") == (0, b"")
            assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (LEADER_EPOCH, 3)
            assert [row[1] for row in core_of(broker).followers.states()] == [-1]
        found = follow(follower, 3, last_epoch=LEADER_EPOCH, leader_epoch=epoch)
        assert (found.diverging_epoch.epoch, found.high_watermark) == (-1, 3)
        assert [row[1] for row in core_of(broker).followers.states()] == [3]


def test_a_fetch_counts_once_however_often_it_is_looked_at(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with (
        leading(controller, tmp_path) as broker,
        connect(broker) as writer,
        connect(broker) as follower,
        connect(broker) as again,
    ):
        ask(follower, 0, wait_ms=60_000)
        wait_until(lambda: core_of(broker).followers.states()[0][1] == 0, WAIT_S, "it is noted")
        assert code(again, 0, replica_epoch=-1) == 0  # told apart by the epoch that it gives
        write(writer, acks=1)
        assert code_of(writer) == 0
        assert part_of(follower).error_code == 0
        assert core_of(broker).followers.states()[0][3] == -1, "the one that was woken was noted before"


def test_sessions_of_followers_bring_what_has_changed(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        ask(follower, 0, session=(0, 0))
        session = follower.receive()[1].session_id
        assert session > 0
        ask(follower, 0, session=(session, 1))
        assert follower.receive()[1].responses == []
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        ask(follower, 0, session=(session, 2))
        assert len(part_of(follower).records) > 0
        ask(follower, 1, session=(session, 3))
        assert part_of(follower).high_watermark == 1
        assert code_of(writer) == 0


# --- who is in sync ---------------------------------------------------------------------------------------------------


def asked_isr(controller: ScriptedController) -> list[list[tuple[int, int]]]:
    """What was proposed, with epochs."""
    return [
        [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
        for request in controller.requests(api.ALTER_PARTITION)
        for topic in request.topics
        for row in topic.partitions
    ]


def test_a_follower_that_has_caught_up_becomes_in_sync(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN,), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer, count=5)
        assert code_of(writer) == 0
        assert code(follower, 4) == 0
        assert asked_isr(controller) == []
        assert code(follower, 5) == 0
        own = (OWN, controller.registered[OWN][0])
        wait_until(lambda: core_of(broker).followers.in_sync_count == 2, WAIT_S, "it is in sync")
        assert asked_isr(controller) == [[own, (TWO, EPOCH_OF[TWO])]]
        request = controller.requests(api.ALTER_PARTITION)[0]
        row = request.topics[0].partitions[0]
        assert (request.broker_id, request.broker_epoch) == own
        assert (row.leader_epoch, row.partition_epoch, row.leader_recovery_state) == (LEADER_EPOCH, LEADER_EPOCH, 0)


def test_a_follower_counts_from_the_moment_it_is_proposed(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN,), (OWN, TWO))
    refused = AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(
                topic_id=TOPIC,
                partitions=[
                    AlterPartitionResponsePartitionData(partition_index=0, error_code=ErrorCode.INVALID_UPDATE_VERSION)
                ],
            )
        ]
    )
    controller.answers[api.ALTER_PARTITION].append(lambda _request: refused)
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        assert code(follower, 0) == 0
        wait_until(lambda: asked_isr(controller), WAIT_S, "it is proposed")
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        assert code(follower, 0) == 0
        assert core_of(broker).high_watermark == 0
        assert not is_answered(writer)
        change(controller, isr=[OWN, TWO])
        assert code(follower, 1) == 0
        assert code_of(writer) == 0


def test_a_follower_that_stopped_leaves_and_what_waits_for_it_is_answered(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    lag = {"replica.lag.time.max.ms": 1500}
    with leading(controller, tmp_path, **lag) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer)
        assert code_of(writer) == 0
        assert asked_isr(controller) == [[(OWN, controller.registered[OWN][0])]]
        assert core_of(broker).followers.in_sync_count == 1
        assert code(follower, 1) == 0
        wait_until(lambda: core_of(broker).followers.in_sync_count == 2, WAIT_S, "it comes back")


def test_one_that_came_back_in_another_life_is_not_taken_for_the_one_that_fetched(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN,), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer)
        assert code_of(writer) == 0
        later = EPOCH_OF[TWO] + 100
        controller.append(registered(TWO, later))
        wait_until(lambda: member_of(broker).image.brokers[TWO].epoch == later, WAIT_S, "the news is here")
        assert code(follower, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert asked_isr(controller) == []
        assert code(follower, 1, replica_epoch=later) == 0
        wait_until(lambda: [row for row in asked_isr(controller) if (TWO, later) in row], WAIT_S, "it is proposed anew")
        wait_until(lambda: core_of(broker).followers.in_sync_count == 2, WAIT_S, "it is in sync")


# --- acks=all ---------------------------------------------------------------------------------------------------------


def set_min(controller: ScriptedController, value: int) -> None:
    controller.append(
        types.ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value=str(value))
    )


def test_too_few_in_sync_refuse_a_write_for_all_and_show_nothing(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN,))
    set_min(controller, 2)
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as reader:
        write(writer)
        assert code_of(writer) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert core_of(broker).log_end_offset == 0
        write(writer, acks=1)
        assert code_of(writer) == 0
        assert seen(reader) == 0
        set_min(controller, 1)
        wait_until(lambda: seen(reader) == 1, WAIT_S, "it may be seen")


def test_a_write_waits_no_longer_than_its_client(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer, timeout_ms=50)
        assert code_of(writer) == ErrorCode.REQUEST_TIMED_OUT
        assert core_of(broker).log_end_offset == 1, "it stays"
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 2, WAIT_S, "it is written")
        assert code(follower, 2) == 0
        assert code_of(writer) == 0


def test_a_write_whose_client_would_not_wait_at_all_is_answered_at_once(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer:
        write(writer, timeout_ms=-1)
        assert code_of(writer) == ErrorCode.REQUEST_TIMED_OUT
        assert core_of(broker).log_end_offset == 1, "it stays"


def test_a_write_that_began_before_leadership_is_not_taken_for_replicated(
    controller: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recode = ReplicaLog.recode

    def elected_meanwhile(log: ReplicaLog, batch: bytes, codec: int) -> bytearray:
        change(controller, leader=OWN)
        wait_until(lambda: log.led, WAIT_S, "it is led here")
        return recode(log, batch, codec)

    monkeypatch.setattr(ReplicaLog, "recode", elected_meanwhile)
    give(controller, (OWN, TWO), (OWN, TWO))
    controller.append(
        types.ConfigRecord(resource_type=2, resource_name="orders", name="compression.type", value="gzip")
    )
    change(controller, leader=TWO)
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        wait_until(lambda: not core_of(broker).led, WAIT_S, "another leads")
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        assert core_of(broker).high_watermark == 0
        assert code(follower, 1, leader_epoch=core_of(broker).leader_epoch) == 0
        assert code_of(writer) == 0
        assert core_of(broker).high_watermark == 1


def test_a_waiting_write_fails_when_leadership_is_lost(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer:
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        change(controller, leader=TWO)
        assert code_of(writer) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_write_that_waits_survives_an_election_of_the_same_leader(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as follower:
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        change(controller, leader=OWN)
        wait_until(lambda: core_of(broker).leader_epoch == LEADER_EPOCH + 1, WAIT_S, "it is elected")
        assert code(follower, 1, leader_epoch=LEADER_EPOCH + 1) == 0
        assert code_of(writer) == 0


def test_the_broker_stops_while_writes_wait(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer:
        write(writer)
        wait_until(lambda: core_of(broker).log_end_offset == 1, WAIT_S, "it is written")
        broker.stop()
        assert code_of(writer) in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# --- offsets ----------------------------------------------------------------------------------------------------------


def latest(connection: Connection, *, replica: int = -1, timestamp: int = -1) -> tuple[int, int]:
    """(code, offset)."""
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = list_offsets.ListOffsetsRequest(
        replica_id=replica, topics=[list_offsets.ListOffsetsTopic(name="orders", partitions=[wanted])]
    )
    row = connection.request(api.LIST_OFFSETS, request).topics[0].partitions[0]
    return row.error_code, row.offset


def test_the_end_is_the_log_s_for_followers_and_the_high_watermark_for_consumers(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as writer, connect(broker) as reader:
        write(writer, acks=1, count=3)
        assert code_of(writer) == 0
        assert (latest(reader), latest(reader, replica=TWO)) == ((0, 0), (0, 3))
        follow(reader, 2)
        assert (latest(reader), latest(reader, replica=TWO)) == ((0, 2), (0, 3))
        change(controller, leader=OWN)
        wait_until(lambda: core_of(broker).leader_epoch == LEADER_EPOCH + 1, WAIT_S, "it is elected")
        assert latest(reader) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert latest(reader, replica=TWO) == (0, 3)
        assert latest(reader, timestamp=-2) == (0, 0)
        follow(reader, 3, leader_epoch=LEADER_EPOCH + 1)
        assert latest(reader) == (0, 3)


# --- elections while a write is under way -----------------------------------------------------------------------------


@pytest.fixture
def recoded(controller: ScriptedController) -> None:
    """The topic's batches are recompressed before the append, and flushed after it."""
    for name, value in (("compression.type", "gzip"), ("flush.messages", "1"), ("min.insync.replicas", "2")):
        controller.append(types.ConfigRecord(resource_type=2, resource_name="orders", name=name, value=value))


@pytest.mark.usefixtures("recoded")
def test_a_write_between_two_elections_is_not_safe(
    controller: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This broker leads at neither check, but in between."""
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as client:
        log = broker.logs.topics["orders"].partitions[0]
        assert isinstance(log, ReplicaLog)
        wanted = log.assignment
        elsewhere = wanted._replace(leads=False, leader_id=TWO)
        recode, flush_due = ReplicaLog.recode, ReplicaLog.flush_due

        def led(self: ReplicaLog, batch: bytes, codec: int) -> bytearray:
            self.lead(wanted)
            return recode(self, batch, codec)

        def resigned(self: ReplicaLog, end_offset: int) -> None:
            flush_due(self, end_offset)
            self.resign(elsewhere)

        monkeypatch.setattr(ReplicaLog, "recode", led)
        monkeypatch.setattr(ReplicaLog, "flush_due", resigned)
        log.resign(elsewhere)
        write(client)
        assert code_of(client) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert log.log_end_offset == 1


@pytest.mark.usefixtures("recoded")
def test_a_write_in_an_election_is_refused_where_too_few_are_in_sync_by_then(
    controller: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as client:
        log = broker.logs.topics["orders"].partitions[0]
        assert isinstance(log, ReplicaLog)
        wanted = log.assignment
        recode = ReplicaLog.recode

        def led(self: ReplicaLog, batch: bytes, codec: int) -> bytearray:
            self.lead(wanted._replace(isr=(OWN,)))
            return recode(self, batch, codec)

        monkeypatch.setattr(ReplicaLog, "recode", led)
        log.resign(wanted._replace(leads=False, leader_id=TWO))
        write(client)
        assert code_of(client) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert log.log_end_offset == 0


# --- DeleteRecords ----------------------------------------------------------------------------------------------------


def delete(connection: Connection, offset: int, *, timeout_ms: int = 60_000) -> None:
    """Sends it; `deleted` has the answer."""
    part = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name="orders", partitions=[part])
    connection.send(api.DELETE_RECORDS, delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms))


def deleted(connection: Connection) -> tuple[int, int]:
    """(code, low watermark)."""
    row = connection.receive()[1].topics[0].partitions[0]
    return row.error_code, row.low_watermark


def write_and_follow(client: Connection, follower: Connection) -> None:
    """Four records, which one follower has."""
    write(client, acks=1, count=4)
    assert code_of(client) == 0
    follow(follower, 4)


def test_deleted_records_are_gone_when_all_followers_alive_start_there(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as follower:
        write_and_follow(client, follower)
        delete(client, 5)
        assert deleted(client) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        delete(client, 3, timeout_ms=50)
        assert deleted(client) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert follow(follower, 4).log_start_offset == 3, "what is deleted stays so"
        delete(client, 3)
        assert follow(follower, 4, start=3).error_code == 0
        assert not is_answered(client), "the third is alive, and has not told where it starts"
        controller.append(types.FenceBrokerRecord(id=THREE, epoch=EPOCH_OF[THREE]))
        assert deleted(client) == (0, 3)
        delete(client, -1)
        wait_until(lambda: core_of(broker).log_start_offset == 4, WAIT_S, "the leader has done so")
        assert follow(follower, 4, start=4).error_code == 0
        assert deleted(client) == (0, 4)


def test_deleting_ends_with_leadership(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as follower:
        write_and_follow(client, follower)
        delete(client, 2)
        wait_until(lambda: core_of(broker).log_start_offset == 2, WAIT_S, "the leader has done so")
        change(controller, leader=TWO)
        assert deleted(client) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_deleting_ends_with_the_topic(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as follower:
        write_and_follow(client, follower)
        delete(client, 2)
        core = core_of(broker)
        wait_until(lambda: core.log_start_offset == 2, WAIT_S, "the leader has done so")
        controller.append(types.RemoveTopicRecord(topic_id=TOPIC))
        assert deleted(client) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def waiting(kind: str) -> int:
    """How many objects of a class there are."""
    gc.collect()
    return sum(type(each).__name__ == kind for each in gc.get_objects())


def test_nothing_waits_for_clients_that_have_gone_however_long_they_would_have_waited(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    metrics = {"metrics.listeners": "http://127.0.0.1:0"}
    with leading(controller, tmp_path, **metrics) as broker, ExitStack() as clients:
        rounds = 20
        several = [clients.enter_context(connect(broker)) for _ in range(20)]
        first = several[0]
        write(first, acks=1)
        assert code_of(first) == 0
        with connect(broker) as follower:
            follow(follower, 1)
        for client in several:
            for _ in range(rounds):
                write(client, timeout_ms=DAYS_MS)
        wait_until(lambda: waiting("PendingProduce") == rounds * len(several), WAIT_S, "all writes wait")
        for client in several:
            client.close()
        wait_until(lambda: waiting("PendingProduce") == 0, WAIT_S, "nobody waits for replicas")
        told = Scrape.of(broker.metrics_urls[0]).samples
        answers = {
            dict(labels)["error"]: count
            for (name, labels), count in told.items()
            if name == "kafka_network_requestmetrics_errors_total" and dict(labels)["request"] == "Produce"
        }
        assert answers == {"NONE": 1}, "nobody was told that his time was over"
        several = [clients.enter_context(connect(broker)) for _ in range(20)]
        for client in several:
            for _ in range(rounds):
                delete(client, 1, timeout_ms=DAYS_MS)
        wait_until(lambda: waiting("_Waiting") == rounds * len(several), WAIT_S, "all wait for followers to delete")
        for client in several:
            client.close()
        wait_until(lambda: waiting("_Waiting") <= CANCELLED_KEPT_MIN, WAIT_S, "nobody waits for the low watermark")


def test_deleting_does_not_wait_for_one_that_is_no_replica_any_more(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO))
    with leading(controller, tmp_path) as broker, connect(broker) as client, connect(broker) as follower:
        write_and_follow(client, follower)
        delete(client, 2)
        wait_until(lambda: core_of(broker).log_start_offset == 2, WAIT_S, "the leader has done so")
        assert follow(follower, 4, start=2).error_code == 0
        change(controller, replicas=[OWN, TWO])
        assert deleted(client) == (0, 2)
        delete(client, 3)
        wait_until(lambda: core_of(broker).log_start_offset == 3, WAIT_S, "the leader has done so")
        change(controller, replicas=[OWN], isr=[OWN])
        assert deleted(client) == (0, 3)


# --- authorization, and the errors returned ---------------------------------------------------------------------------


def test_only_who_may_act_for_the_cluster_fetches_as_a_follower(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    allowed = {"resource_name": "orders", "pattern_type": 3, "principal": "User:ANONYMOUS", "host": "*"}
    rights = [(2, 3, "orders"), (2, 4, "orders")]  # read and write of the topic
    for number, (kind, operation, name) in enumerate(rights):
        rule = {**allowed, "resource_type": kind, "resource_name": name, "operation": operation}
        controller.append(types.AccessControlEntryRecord(id=bytes([number]) * 16, permission_type=3, **rule))
    secured = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with leading(controller, tmp_path, **secured) as broker, connect(broker) as client:
        write(client, acks=1)
        assert code_of(client) == 0
        assert code(client, 0, replica=-1, start=-1) == 0
        assert code(client, 0) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [row[1] for row in core_of(broker).followers.states()] == [-1]
        act = {**allowed, "resource_type": 4, "resource_name": "kafka-cluster", "operation": 9}
        controller.append(types.AccessControlEntryRecord(id=b"9" * 16, permission_type=3, **act))
        wait_until(lambda: code(client, 0) == 0, WAIT_S, "it may follow")


def test_the_session_of_one_who_may_not_follow_takes_no_consumer_s_place(
    controller: ScriptedController, tmp_path: Path
) -> None:
    give(controller, (OWN, TWO), (OWN, TWO))
    secured = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "max.incremental.fetch.session.cache.slots": 1,
    }
    with leading(controller, tmp_path, **secured) as broker, connect(broker) as client:
        ask(client, 0, replica=-1, start=-1, session=(0, 0))
        kept = client.receive()[1].session_id
        assert kept > 0
        ask(client, 0, session=(0, 0))
        refused = client.receive()[1]
        assert refused.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert refused.session_id == 0
        ask(client, 0, replica=-1, start=-1, session=(kept, 1))
        assert client.receive()[1].error_code == 0


def test_metrics_tell_of_followers(controller: ScriptedController, tmp_path: Path) -> None:
    give(controller, (OWN,), (OWN, TWO))
    set_min(controller, 2)
    with (
        leading(controller, tmp_path, **{"metrics.listeners": "http://127.0.0.1:0"}) as broker,
        connect(broker) as client,
    ):

        def told(name: str, **more: object) -> float:
            return Scrape.of(broker.metrics_urls[0])(name, **more)

        here = {"topic": "orders", "partition": 0}
        names = {name for name, _ in Scrape.of(broker.metrics_urls[0]).samples}
        assert [name for name in names if name.startswith("kafka_controller")] == [], "that is the controllers' to tell"
        assert told("kafka_topic_partition_leader_is_preferred", **here) == 1
        assert told("kafka_server_replicamanager_leadercount") == 1
        write(client, acks=1, count=3)
        assert code_of(client) == 0
        assert told("kafka_server_replicamanager_underreplicatedpartitions") == 1
        assert told("kafka_server_replicamanager_underminisrpartitioncount") == 1
        assert (
            told("kafka_cluster_partition_underminisr", **here)
            == told("kafka_cluster_partition_underreplicated", **here)
            == 1
        )
        assert told("kafkalite_follower_lag_records", **here, replica=2) == 3
        assert code(client, 3) == 0
        wait_until(lambda: told("kafka_server_replicamanager_isrexpands_total") == 1, WAIT_S, "it is in sync")
        assert told("kafka_server_replicamanager_underreplicatedpartitions") == 0
        assert told("kafka_server_replicamanager_underminisrpartitioncount") == 0
        assert told("kafka_server_replicamanager_atminisrpartitioncount") == 1
        assert (
            told("kafka_cluster_partition_insyncreplicascount", **here)
            == told("kafka_topic_partition_replicas", **here)
            == 2
        )
        assert told("kafkalite_follower_lag_records", **here, replica=2) == 0
        change(controller, replicas=[TWO, OWN])
        wait_until(
            lambda: not told("kafka_topic_partition_leader_is_preferred", **here), WAIT_S, "another is preferred"
        )
