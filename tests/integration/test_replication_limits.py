"""Partitions that are limited (KIP-73): a leader gives them, and a follower asks for them, no faster than it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import pytest

from kafkalite._native.log.log_append import append_batch
from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.client.connection import Connection
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import fetch
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import cluster_settings
from tests.kit.harness.log_harness import make_batch, split
from tests.kit.processes.broker import wait_until

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
TOPIC = bytes(range(16))
WAIT_S = 60
OWN, TWO, THREE = 7, 2, 3
LEADER_EPOCH = 4
OF_TOPIC, OF_BROKER = 2, 4
RATE, NAMED = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
NEVER_PAID = {"replication.quota.window.num": 1_000_000_000}
"""A throttle debt at a byte a second outlasts the test."""


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController(CLUSTER) as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        for node_id in (TWO, THREE):
            point = types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)
            scripted.append(
                types.RegisterBrokerRecord(
                    broker_id=node_id,
                    broker_epoch=10 + node_id,
                    end_points=[point],
                    fenced=False,
                    in_controlled_shutdown=node_id == TWO,  # so that it is not proposed as in sync
                )
            )
        scripted.append(
            types.TopicRecord(name="orders", topic_id=TOPIC),
            types.PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[OWN, TWO, THREE],
                isr=[OWN, THREE],
                leader=OWN,
                leader_epoch=LEADER_EPOCH,
                partition_epoch=LEADER_EPOCH,
            ),
        )
        yield scripted


def setting(kind: int, whose: str, name: str, value: str | None) -> object:
    return types.ConfigRecord(resource_type=kind, resource_name=whose, name=name, value=value)


def fetched(connection: Connection, replica: int, offset: int, wait_ms: int = 0) -> Any:
    """A follower's part of the answer."""
    part = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=LEADER_EPOCH,
        fetch_offset=offset,
        log_start_offset=0,
        partition_max_bytes=1,  # a batch at a time
    )
    topic = fetch.FetchTopic(topic_id=TOPIC, partitions=[part])
    request = fetch.FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_epoch=-1, topics=[topic])
    request.replica_state = fetch.ReplicaState(replica_id=replica, replica_epoch=10 + replica)
    connection.send(api.FETCH, request, version_max=18)
    found = connection.receive()[1].responses[0].partitions[0]
    assert found.error_code == 0
    return found


def count(part: Any) -> int:
    return sum(after - first for first, after, _ in split(bytes(part.records or b"")))


def limited(broker: Broker) -> bool:
    """Whether the partition is, as its leader knows."""
    return bool(log_of(broker).core.followers.limited)


def rate_of(broker: Broker) -> float:
    """Return the leader's current limit, in bytes a second."""
    assert broker._parts.cluster.fetchers is not None
    return broker._parts.cluster.fetchers.limits.leading.limit


def log_of(broker: Broker) -> ReplicaLog:
    found = broker.logs.topics["orders"].partitions[0]
    assert isinstance(found, ReplicaLog)
    return found


def test_a_leader_holds_back_who_is_not_in_sync(controller: ScriptedController, tmp_path: Path) -> None:
    settings = cluster_settings(controller.address, tmp_path, broker_heartbeat_interval_ms=100)
    with Broker({**settings, **NEVER_PAID}) as broker:
        wait_until(lambda: "orders" in broker.logs.topics, WAIT_S, "the partition is here")
        for _ in range(10):
            append_batch(log_of(broker).core, make_batch())
        with closing(Connection.connect("127.0.0.1", broker.port, client_id="test")) as connection:
            for offset in range(3):
                assert count(fetched(connection, TWO, offset)) == 1
            controller.append(
                setting(OF_BROKER, str(OWN), RATE, "1"), setting(OF_TOPIC, "orders", NAMED, f"1:{OWN},0:{TWO}")
            )
            wait_until(lambda: rate_of(broker) == 1, WAIT_S, "the rate counts")
            assert not limited(broker), "another partition, and another leader"
            assert count(fetched(connection, TWO, 3)) == 1
            assert count(fetched(connection, TWO, 4)) == 1
            controller.append(setting(OF_TOPIC, "orders", NAMED, f"0:{OWN}"))
            wait_until(lambda: limited(broker), WAIT_S, "it is limited")
            assert count(fetched(connection, TWO, 5)) == 1, "nothing was used up before"
            part = fetched(connection, TWO, 6, wait_ms=50)
            assert (count(part), part.high_watermark) == (0, 0)
            assert count(fetched(connection, THREE, 0)) == 1, "in sync"
            assert count(fetched(connection, TWO, 6)) == 0
            controller.append(setting(OF_TOPIC, "orders", NAMED, "*"), setting(OF_BROKER, str(OWN), RATE, None))
            wait_until(lambda: rate_of(broker) == inf, WAIT_S, "no rate counts")
            wait_until(lambda: count(fetched(connection, TWO, 6)) == 1, WAIT_S, "it is given the rest")
