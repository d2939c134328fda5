"""Internal topics: no client may write to them, by any API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalite import Broker
from kafkalite.errors import ErrorCode
from kafkalite.model import INTERNAL_TOPICS
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.checkers.side_by_side import Side
from tests.kit.harness import wire
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles.classic_oracle import HELLO_0
from tests.kit.oracles.classic_oracle import produce as classic_produce

OFFSETS, STATES = "__consumer_offsets", "__transaction_state"
TRANSACTIONAL = 16
PRODUCE_VERSIONS = (3, 8, 9, 12)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"}) as broker:
        broker.create_topic("own", 1)
        yield broker


@pytest.fixture
def side(broker: Broker) -> Side:
    """The broker, once it has both of its topics and a transactional producer `id`."""
    side = Side(broker.port)
    begun = side.ask(
        api.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    )
    side.producers["id"] = begun.producer_id, begun.producer_epoch
    item = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="own", partitions=[item])])
    assert side.ask(api.OFFSET_COMMIT, 8, commit).topics[0].partitions[0].error_code == 0
    assert {OFFSETS, STATES} <= broker.logs.topics.keys()
    side.ids = {name: topic.id for name, topic in broker.logs.topics.items()}
    return side


def produce(side: Side, version: int, *topics: str, acks: int = -1, **fields: int) -> object:
    """The code of each topic's partition 0, or "closed"."""
    data = wire.batch_of([wire.Record(key=b"k", value=b"v")], **fields)
    parts = [PartitionProduceData(index=0, records=data)]
    rows = [
        TopicProduceData(topic_id=side.ids[name], partition_data=parts)
        if version >= 13
        else TopicProduceData(name=name, partition_data=parts)
        for name in topics
    ]
    transactional_id = "id" if fields.get("attributes", 0) & TRANSACTIONAL else None
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=rows)
    answer = side.ask(api.PRODUCE, version, request)
    if isinstance(answer, str):
        return answer
    return [ErrorCode(topic.partition_responses[0].error_code).name for topic in answer.responses]


def ends(broker: Broker) -> dict[str, list[int]]:
    return {name: [log.log_end_offset for log in broker.logs.topics[name].partitions] for name in (OFFSETS, STATES)}


@pytest.mark.parametrize("version", [*PRODUCE_VERSIONS, 13])
@pytest.mark.parametrize("name", [OFFSETS, STATES])
def test_produce_is_refused_and_others_of_the_request_are_appended(
    broker: Broker, side: Side, name: str, version: int
) -> None:
    before = ends(broker)
    assert produce(side, version, name) == ["INVALID_TOPIC_EXCEPTION"]
    assert produce(side, version, name, acks=1) == ["INVALID_TOPIC_EXCEPTION"]
    assert produce(side, version, name, "own") == ["INVALID_TOPIC_EXCEPTION", "NONE"]
    assert produce(side, version, "own", name) == ["NONE", "INVALID_TOPIC_EXCEPTION"]
    own = broker.logs.topics["own"].partitions[0]
    assert own.log_end_offset == 2
    assert produce(side, version, "own", name, acks=0) == "closed"
    assert own.log_end_offset == 3
    assert produce(side, version, name, producer_id=900, producer_epoch=0, base_sequence=0) == [
        "INVALID_TOPIC_EXCEPTION"
    ]
    assert ends(broker) == before


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_transactional_produce_is_refused_and_adds_nothing_to_the_transaction(
    broker: Broker, side: Side, version: int
) -> None:
    producer_id, epoch = side.producers["id"]
    before = ends(broker)
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0, "attributes": TRANSACTIONAL}
    assert produce(side, version, OFFSETS, **fields) == ["INVALID_TOPIC_EXCEPTION"]
    assert ends(broker) == before


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_they_are_not_added_to_a_transaction(side: Side, name: str, version: int) -> None:
    producer_id, epoch = side.producers["id"]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[0, 999]) for topic in ("own", name, "missing")
        ],
    )
    answer = side.ask(api.ADD_PARTITIONS_TO_TXN, version, request)
    codes = {
        row.name: [ErrorCode(one.partition_error_code).name for one in row.results_by_partition]
        for row in answer.results_by_topic_v3_and_below
    }
    assert codes == {
        "own": ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"],
        name: ["TOPIC_AUTHORIZATION_FAILED"] * 2,
        "missing": ["UNKNOWN_TOPIC_OR_PARTITION"] * 2,
    }


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_the_old_listener_makes_none_of_them(broker: Broker, name: str) -> None:
    assert broker.classic_endpoint is not None
    with ClassicClient(broker.classic_endpoint.port) as client:
        client.send(classic_produce(name, 0, HELLO_0))
        assert client.closed()
    assert name not in broker.logs.topics


def test_the_old_listener_writes_to_none_that_is_there(broker: Broker, side: Side) -> None:
    before = ends(broker)
    assert broker.classic_endpoint is not None
    for name in (OFFSETS, STATES):
        with ClassicClient(broker.classic_endpoint.port) as client:
            client.send(classic_produce(name, 0, HELLO_0))
            assert client.closed()
    assert ends(broker) == before
