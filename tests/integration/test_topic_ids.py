"""Topics by id on the wire: Fetch 13 to 18 and Produce 13, with ids that are known, unknown, and of deleted topics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.checkers.side_by_side import Side
from tests.kit.harness import wire

pytestmark = pytest.mark.integration

BY_ID = range(13, 19)
PRODUCE_BY_NAME, PRODUCE_BY_ID = 12, 13
STRANGER = bytes(range(16))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def topic_id(broker: Broker, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return Side(broker.port).ask(api.METADATA, 12, request).topics[0].topic_id


def produce(broker: Broker, topic: Any, *partitions: int, version: int = PRODUCE_BY_ID, acks: int = 1) -> list[int]:
    """The error codes of one record for each partition; the response's topics are the request's."""
    batch = wire.batch_of([wire.Record(value=b"v")])
    named = {"topic_id": topic} if version >= PRODUCE_BY_ID else {"name": topic}
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(partition_data=data, **named)])
    answer = Side(broker.port).ask(api.PRODUCE, version, request)
    assert [getattr(row, *named) for row in answer.responses] == [topic]
    return [part.error_code for part in answer.responses[0].partition_responses]


def fetch(broker: Broker, version: int, *topics: tuple[bytes, int], max_wait_ms: int = 0) -> list[tuple[bytes, Any]]:
    """(topic id, partition's part of the answer) in the order of the answer."""
    wanted = [
        FetchTopic(topic_id=name, partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20)])
        for name, index in topics
    ]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=wanted)
    answer = Side(broker.port).ask(api.FETCH, version, request)
    assert (answer.error_code, answer.node_endpoints) == (0, [])
    return [(row.topic_id, part) for row in answer.responses for part in row.partitions]


@pytest.mark.parametrize("version", BY_ID)
def test_fetch_by_id_reads_the_topic_and_names_it_by_id(broker: Broker, version: int) -> None:
    broker.create_topic("orders", 2)
    orders = topic_id(broker, "orders")
    assert produce(broker, "orders", 0, version=PRODUCE_BY_NAME) == [0]
    found = fetch(broker, version, (orders, 0), (STRANGER, 0), (orders, 7), (bytes(16), 0), (orders, 1))
    assert [(name, part.partition_index, part.error_code) for name, part in found] == [
        (orders, 0, ErrorCode.NONE),
        (STRANGER, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (orders, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (bytes(16), 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (orders, 1, ErrorCode.NONE),
    ]
    assert [part.high_watermark for _, part in found] == [1, -1, -1, -1, 0]
    batch = wire.split_batches(found[0][1].records)[0]
    assert wire.decode_records(batch) == [(0, None, b"v")]


@pytest.mark.parametrize("version", [15, 17])
def test_tags_that_followers_send_are_read_over(broker: Broker, version: int) -> None:
    broker.create_topic("orders")
    partition = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    if version >= 17:
        partition.replica_directory_id = STRANGER
    request = FetchRequest(
        cluster_id="elsewhere",
        replica_state=ReplicaState(replica_id=-1, replica_epoch=7),
        topics=[FetchTopic(topic_id=topic_id(broker, "orders"), partitions=[partition])],
    )
    answer = Side(broker.port).ask(api.FETCH, version, request)
    assert [part.error_code for part in answer.responses[0].partitions] == [0]


def test_produce_by_id(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    orders = topic_id(broker, "orders")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for acks in (1, -1):
        assert produce(broker, orders, 0, 1, 2, acks=acks) == [0, 0, unknown]
        assert produce(broker, STRANGER, 0, 1, acks=acks) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
        assert produce(broker, bytes(16), 0, acks=acks) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert [part.high_watermark for _, part in fetch(broker, 13, (orders, 0), (orders, 1))] == [2, 2]


def test_each_incarnation_of_a_topic_has_its_own_id_and_the_old_one_reads_nothing(broker: Broker) -> None:
    ids = []
    for _ in range(3):
        broker.create_topic("orders")
        ids.append(topic_id(broker, "orders"))
        assert produce(broker, ids[-1], 0) == [0]
        for old in ids[:-1]:
            assert [part.error_code for _, part in fetch(broker, 13, (old, 0))] == [ErrorCode.UNKNOWN_TOPIC_ID]
            assert produce(broker, old, 0) == [ErrorCode.UNKNOWN_TOPIC_ID]
        broker.delete_topic("orders")
    assert len(set(ids)) == 3


def test_waiting_fetch_ends_when_its_topic_goes(broker: Broker) -> None:
    broker.create_topic("orders")
    orders = topic_id(broker, "orders")
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.extend(fetch(broker, 13, (orders, 0), max_wait_ms=60_000)))
    waiting.start()
    broker.delete_topic("orders")
    waiting.join(30)
    code = answers[0][1].error_code
    # The deletion may come before the request, which then does not know the id, or while it waits.
    assert code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
