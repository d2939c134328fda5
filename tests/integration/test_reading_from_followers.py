"""Consumers read from followers (KIP-392): the leader names one in their rack, and a follower serves what it knows to
be on all replicas in sync, to those who may ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite._native.log.log_append import append_batch
from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.client.connection import Connection
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.settings.areas.replication import RACK_AWARE_SELECTOR
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import fetch
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import cluster_settings
from tests.kit.harness.log_harness import make_batch, split
from tests.kit.harness.replica_harness import leaders
from tests.kit.processes.broker import wait_until

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
TOPIC = bytes(range(16))
WAIT_S = 60
OWN, TWO, THREE, FAR = 7, 2, 3, 4
RACKS = {TWO: "b", THREE: "b", FAR: "c"}
LEADER_EPOCH = 4
NOBODY = -1


def registered(node_id: int) -> object:
    return types.RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=10 + node_id,
        end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)],
        rack=RACKS[node_id],
        fenced=False,
        in_controlled_shutdown=node_id == FAR,  # so that it is not proposed as in sync
    )


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController(CLUSTER) as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        scripted.append(*map(registered, RACKS))
        yield scripted


@contextmanager
def broker_with(
    controller: ScriptedController, directory: Path, leader: int, isr: tuple[int, ...], **settings: object
) -> Iterator[Broker]:
    """Broker 7 in rack `a` and a partition that all four brokers have."""
    controller.append(
        types.TopicRecord(name="orders", topic_id=TOPIC),
        types.PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[OWN, TWO, THREE, FAR],
            isr=list(isr),
            leader=leader,
            leader_epoch=LEADER_EPOCH,
            partition_epoch=LEADER_EPOCH,
        ),
    )
    given = cluster_settings(controller.address, directory, broker_rack="a", broker_heartbeat_interval_ms=100)
    with Broker({**given, **settings}) as broker:
        wait_until(lambda: "orders" in broker.logs.topics, WAIT_S, "the partition is here")
        yield broker


def log_of(broker: Broker) -> ReplicaLog:
    found = broker.logs.topics["orders"].partitions[0]
    assert isinstance(found, ReplicaLog)
    return found


def connect(broker: Broker) -> closing[Connection]:
    return closing(Connection.connect("127.0.0.1", broker.port, client_id="test"))


def ask(
    connection: Connection,
    offset: int,
    *,
    rack: str = "",
    leader_epoch: int = -1,
    wait_ms: int = 0,
    version: int = 16,
    session: tuple[int, int] = (0, -1),
) -> None:
    part = fetch.FetchPartition(
        partition=0, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    topic = fetch.FetchTopic(topic="orders", topic_id=TOPIC, partitions=[part])
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session[0], session_epoch=session[1], topics=[topic], rack_id=rack
    )
    connection.send(api.FETCH, request, version_max=version)


def told(connection: Connection, offset: int, **fields: Any) -> Any:
    """The partition's part of the answer to a consumer."""
    ask(connection, offset, **fields)
    return connection.receive()[1].responses[0].partitions[0]


def count(part: Any) -> int:
    return sum(after - first for first, after, _ in split(bytes(part.records or b"")))


def follow(broker: Broker, replica: int, offset: int) -> None:
    """A follower has everything below an offset."""
    with connect(broker) as connection:
        part = fetch.FetchPartition(
            partition=0, current_leader_epoch=LEADER_EPOCH, fetch_offset=offset, log_start_offset=0
        )
        request = fetch.FetchRequest(
            max_wait_ms=0, session_epoch=-1, topics=[fetch.FetchTopic(topic_id=TOPIC, partitions=[part])]
        )
        request.replica_state = fetch.ReplicaState(replica_id=replica, replica_epoch=10 + replica)
        connection.send(api.FETCH, request, version_max=18)
        assert connection.receive()[1].responses[0].partitions[0].error_code == 0


SELECTS = {"replica.selector.class": RACK_AWARE_SELECTOR}


def test_a_leader_names_the_replica_in_a_consumers_rack(controller: ScriptedController, tmp_path: Path) -> None:
    with (
        broker_with(controller, tmp_path, OWN, (OWN, TWO, THREE), **SELECTS) as broker,
        connect(broker) as reader,
    ):
        log = log_of(broker)
        for _ in range(10):
            append_batch(log.core, make_batch())
        assert told(reader, 0, rack="b").preferred_read_replica == NOBODY, "nobody has told what it has"
        follow(broker, TWO, 6)
        follow(broker, THREE, 4)
        follow(broker, FAR, 10)
        part = told(reader, 0, rack="b", wait_ms=WAIT_S * 1000)
        assert (part.preferred_read_replica, part.error_code, count(part), part.high_watermark) == (TWO, 0, 0, 4)
        assert told(reader, 6, rack="b").preferred_read_replica == TWO
        assert told(reader, 7, rack="b").preferred_read_replica == NOBODY, "only the leader has it"
        assert told(reader, 0, rack="c").preferred_read_replica == NOBODY, "the one there is not in sync"
        for rack in ("", "a", "d"):
            part = told(reader, 0, rack=rack)
            assert (part.preferred_read_replica, count(part)) == (NOBODY, 4)
        follow(broker, THREE, 8)
        assert told(reader, 0, rack="b", version=11).preferred_read_replica == THREE
        assert told(reader, 0, rack="b", leader_epoch=LEADER_EPOCH - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_session_tells_each_time_who_is_to_be_asked(controller: ScriptedController, tmp_path: Path) -> None:
    with broker_with(controller, tmp_path, OWN, (OWN, TWO), **SELECTS) as broker, connect(broker) as reader:
        follow(broker, TWO, 0)
        ask(reader, 0, rack="b", session=(0, 0))
        first = reader.receive()[1]
        assert first.responses[0].partitions[0].preferred_read_replica == TWO
        request = fetch.FetchRequest(max_wait_ms=0, session_id=first.session_id, session_epoch=1, rack_id="b")
        reader.send(api.FETCH, request, version_max=16)
        assert reader.receive()[1].responses[0].partitions[0].preferred_read_replica == TWO


def test_without_a_selector_the_leader_is_read(controller: ScriptedController, tmp_path: Path) -> None:
    with broker_with(controller, tmp_path, OWN, (OWN, TWO)) as broker, connect(broker) as reader:
        append_batch(log_of(broker).core, make_batch())
        follow(broker, TWO, 1)
        part = told(reader, 0, rack="b")
        assert (part.preferred_read_replica, count(part)) == (NOBODY, 1)


def test_a_follower_serves_up_to_the_high_watermark_that_it_knows(
    controller: ScriptedController, tmp_path: Path
) -> None:
    with broker_with(controller, tmp_path, TWO, (TWO, OWN)) as broker, connect(broker) as reader:
        log = log_of(broker)
        log.append_as_follower(leaders(0, 5, epoch=LEADER_EPOCH), LEADER_EPOCH, 3)
        part = told(reader, 0)
        assert (part.error_code, count(part), part.high_watermark, part.last_stable_offset) == (0, 3, 3, 3)
        for offset in (3, 5):
            part = told(reader, offset)
            assert (part.error_code, count(part)) == (0, 0)
        assert told(reader, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert told(reader, 0, leader_epoch=LEADER_EPOCH - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert told(reader, 0, leader_epoch=LEADER_EPOCH + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert count(told(reader, 0, leader_epoch=LEADER_EPOCH, version=11)) == 3
        assert told(reader, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "who cannot be told of it"


def test_a_consumer_waits_at_a_follower_until_the_high_watermark_moves(
    controller: ScriptedController, tmp_path: Path
) -> None:
    with broker_with(controller, tmp_path, TWO, (TWO, OWN)) as broker, connect(broker) as reader:
        log = log_of(broker)
        log.append_as_follower(leaders(0, 5, epoch=LEADER_EPOCH), LEADER_EPOCH, 3)
        ask(reader, 3, wait_ms=WAIT_S * 1000)
        with connect(broker) as other:
            told(other, 0)  # the first one is waiting by now
        log.append_as_follower(b"", LEADER_EPOCH, 5)
        assert count(reader.receive()[1].responses[0].partitions[0]) == 2
        ask(reader, 5, leader_epoch=LEADER_EPOCH, wait_ms=WAIT_S * 1000)
        controller.append(types.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=THREE))
        assert reader.receive()[1].responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_other_selectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"replica\.selector\.class"):
        Broker({"log.dirs": str(tmp_path), "replica.selector.class": "org.example.Selector"})
