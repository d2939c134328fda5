"""The topics that brokers keep for themselves are closed to clients as Apache Kafka 4.1 closes them.

A story is played on both: every request that could write to, cut or change such a topic, beside a topic of the client's
own. What differs on purpose is listed in DIFFERENT with the reason. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import alter_configs as ac
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.checkers.side_by_side import Make, Side, Step, differences, two_brokers, versions
from tests.kit.harness import wire
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OFFSETS, STATES, SHARED, OWN = "__consumer_offsets", "__transaction_state", "__share_group_state", "own"
THERE = [OFFSETS, STATES]
TRANSACTIONAL, CONTROL = 16, 32
TOPIC = 2
ZSTD = 4
DIFFERENT = {
    "transactional": "INVALID_TOPIC_EXCEPTION whatever the batch; Kafka asks the transaction's coordinator first",
    "transactional beside own": "the same",
    "grow __consumer_offsets": "Kafka adds partitions, and then looks for each group in another one than before",
    "grow __transaction_state": "the same, of transactional ids",
    "create __share_group_state": "the broker makes its own topics; Kafka lets a client make them",
    "delete __consumer_offsets": "Kafka deletes it, and every group's offsets",
    "delete __transaction_state": "Kafka deletes it, and every transaction's state",
}
"""Step → why the answers differ on purpose."""


def batch(**fields: int) -> bytes:
    return wire.batch_of([wire.Record(key=b"k", value=b"v")], base_timestamp=1000, max_timestamp=1000, **fields)


def produce(*topics: str, partition: int = 0, data: bytes | None = None, **fields: Any) -> Make:
    def make(version: int, side: Side) -> ProduceRequest:
        parts = [PartitionProduceData(index=partition, records=batch() if data is None else data)]
        rows = [
            TopicProduceData(topic_id=side.ids[name], partition_data=parts)
            if version >= 13
            else TopicProduceData(name=name, partition_data=parts)
            for name in topics
        ]
        return ProduceRequest(**{"acks": -1, "timeout_ms": 10_000, "topic_data": rows, **fields})

    return make


def produce_steps() -> Iterator[Step]:
    key = api.PRODUCE
    for name in THERE:
        for acks in (-1, 0, 1, 2):
            yield f"{name} acks {acks}", key, versions(key), produce(name, acks=acks)
        yield f"{name} unknown partition", key, versions(key), produce(name, partition=999)
        yield (
            f"{name} idempotent",
            key,
            versions(key),
            produce(name, data=batch(producer_id=7000, producer_epoch=0, base_sequence=0)),
        )
        yield f"{name} bad checksum", key, versions(key), produce(name, data=batch(crc=1))
        yield f"{name} empty", key, versions(key), produce(name, data=b"")
        yield f"{name} control", key, versions(key), produce(name, data=batch(attributes=CONTROL))
        yield f"{name} zstd", key, versions(key, 3, 6), produce(name, data=batch(attributes=ZSTD))
        for acks in (-1, 0, 1):
            yield f"{name} and own acks {acks}", key, versions(key), produce(name, OWN, acks=acks)
            yield f"own and {name} acks {acks}", key, versions(key), produce(OWN, name, acks=acks)
        yield (
            f"{name} transactional without id",
            key,
            versions(key),
            produce(name, data=batch(producer_id=7000, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)),
        )
    yield "not there", key, versions(key, 3, 12), produce(SHARED)


def end_steps(*names: str) -> Iterator[Step]:
    key = api.LIST_OFFSETS
    for name in names:
        item = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[item])])
        yield f"end of {name}", key, versions(key, 5, 5), lambda version, side, request=request: request


def added(*topics: str, partition: int = 0, name: str = "id") -> Make:
    def make(version: int, side: Side) -> AddPartitionsToTxnRequest:
        producer_id, epoch = side.producers[name]
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition]) for topic in topics],
        )

    return make


def transaction_steps() -> Iterator[Step]:
    key = api.ADD_PARTITIONS_TO_TXN
    for name in (*THERE, SHARED):
        yield f"add {name}", key, versions(key), added(name)
        yield f"add {name} and own", key, versions(key), added(name, OWN)
        yield f"add {name}, own and missing", key, versions(key), added(name, OWN, "missing")
        yield f"add {name} unknown partition", key, versions(key), added(name, partition=999)
        yield f"add {name} of stranger", key, versions(key), added(name, name="stranger")

    def ended(version: int, side: Side) -> EndTxnRequest:
        producer_id, epoch = side.producers["id"]
        return EndTxnRequest(transactional_id="id", producer_id=producer_id, producer_epoch=epoch, committed=True)

    def written(version: int, side: Side) -> ProduceRequest:
        producer_id, epoch = side.producers["id"]
        data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, attributes=TRANSACTIONAL)
        return produce(OFFSETS, data=data, transactional_id="id")(version, side)

    def committed(version: int, side: Side) -> TxnOffsetCommitRequest:
        producer_id, epoch = side.producers["id"]
        item = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        return TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=OFFSETS, partitions=[item])],
        )

    yield "commit of nothing begun", api.TXN_OFFSET_COMMIT, versions(api.TXN_OFFSET_COMMIT, 3, 4), committed
    yield "nothing was begun", api.END_TXN, versions(api.END_TXN, 3, 3), ended
    yield "transactional", api.PRODUCE, versions(api.PRODUCE, 3, 11), written
    yield "add own", key, versions(key, 3), added(OWN)
    yield "transactional beside own", api.PRODUCE, versions(api.PRODUCE, 3, 11), written
    yield "end", api.END_TXN, versions(api.END_TXN, 3, 3), ended


def other_steps() -> Iterator[Step]:
    for name in THERE:
        for offset in (-1, 0):
            item = DeleteRecordsPartition(partition_index=0, offset=offset)
            cut = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[item])], timeout_ms=10_000)
            yield f"cut {name} {offset}", api.DELETE_RECORDS, versions(api.DELETE_RECORDS), lambda v, s, cut=cut: cut
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=51, assignments=None)], timeout_ms=10_000, validate_only=True
        )
        key = api.CREATE_PARTITIONS
        yield f"grow {name}", key, versions(key), lambda version, side, grow=grow: grow
        for setting, value in (("cleanup.policy", "delete"), ("segment.bytes", "2097152"), ("no.such", "1")):
            items = [ac.AlterableConfig(name=setting, value=value)]
            resource = ac.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=items)
            yield (
                f"replace {setting} of {name}",
                api.ALTER_CONFIGS,
                versions(api.ALTER_CONFIGS),
                partial(
                    lambda version, side, resource: ac.AlterConfigsRequest(resources=[resource], validate_only=True),
                    resource=resource,
                ),
            )
            new = [iac.AlterableConfig(name=setting, config_operation=0, value=value)]
            other = iac.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=new)
            yield (
                f"change {setting} of {name}",
                api.INCREMENTAL_ALTER_CONFIGS,
                versions(api.INCREMENTAL_ALTER_CONFIGS),
                partial(
                    lambda version, side, other: iac.IncrementalAlterConfigsRequest(
                        resources=[other], validate_only=True
                    ),
                    other=other,
                ),
            )
    for name in (*THERE, SHARED):
        made = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
            timeout_ms=10_000,
            validate_only=True,
        )
        yield f"create {name}", api.CREATE_TOPICS, versions(api.CREATE_TOPICS), lambda version, side, made=made: made
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        if name not in THERE:
            key = api.METADATA
            yield f"metadata {name}", key, versions(key, 4), lambda version, side, asked=asked: asked
    for name in THERE:

        def gone(version: int, side: Side, name: str = name) -> DeleteTopicsRequest:
            if version >= 6:
                return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
            return DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)

        yield f"delete {name}", api.DELETE_TOPICS, versions(api.DELETE_TOPICS), gone


def prepare(side: Side) -> None:
    """The broker's own topics are there, one of the client's, and a producer `id`; `side.ids` and `side.producers`."""
    own = CreateTopicsRequest(
        topics=[CreatableTopic(name=OWN, num_partitions=1, replication_factor=1)], timeout_ms=9000
    )
    side.ask(api.CREATE_TOPICS, 7, own)

    def found(kind: int, name: str) -> bool:
        answer = side.ask(api.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]))
        return answer.coordinators[0].error_code == 0

    for kind in (0, 1):
        wait_until(partial(found, kind, "id"), 60, "a coordinator")
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    side.producers = {"stranger": (99_999, 0)}

    def begun() -> bool:
        answer = side.ask(api.INIT_PRODUCER_ID, 4, request)
        side.producers["id"] = answer.producer_id, answer.producer_epoch
        return answer.error_code == 0

    wait_until(begun, 60, "a producer id")

    item = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    commit = OffsetCommitRequest(group_id="id", topics=[OffsetCommitRequestTopic(name=OWN, partitions=[item])])

    def committed() -> bool:  # kafkalite makes the groups' topic now
        return side.ask(api.OFFSET_COMMIT, 8, commit).topics[0].partitions[0].error_code == 0

    wait_until(committed, 60, "a commit")

    def described() -> bool:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (*THERE, OWN)])
        answer = side.ask(api.METADATA, 12, asked)
        side.ids = {topic.name: topic.topic_id for topic in answer.topics}
        return not any(topic.error_code for topic in answer.topics)

    wait_until(described, 60, "the topics")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with two_brokers(tmp_path_factory.mktemp("kafka"), auto_create_topics_enable="false") as both:
        for side in both:
            prepare(side)
        yield both


def test_internal_topics_are_closed_as_kafkas(sides: tuple[Side, Side]) -> None:
    written = [*produce_steps(), *end_steps(*THERE, OWN), *transaction_steps(), *end_steps(OFFSETS)]
    found = differences(sides, [*written, *other_steps()], DIFFERENT)
    assert not found, "\n".join(found)
