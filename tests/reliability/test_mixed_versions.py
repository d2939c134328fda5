"""F6: old and new versions of Produce, Fetch and ListOffsets mixed on the same data: all see the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.broker.handlers import table
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.kit.harness.load import unpack
from tests.kit.harness.samples import sample
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import BrokerProcess

MakeBroker = Callable[..., BrokerProcess]
TOPIC = "mixed"


def served(key: int) -> range:
    row = table.find(key)
    assert row is not None
    return range(row.oldest, row.newest + 1)


def produce(connection: TypedConnection, version: int, topic_id: bytes, batch: bytes) -> int:
    """The batch's base offset."""
    partitions = [PartitionProduceData(index=0, records=batch)]
    name = {"topic_id": topic_id} if version >= 13 else {"name": TOPIC}
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(partition_data=partitions, **name)]
    )
    found = connection.ask(api.PRODUCE, version, request).responses[0].partition_responses[0]
    assert found.error_code == 0, f"Produce v{version}: {found.error_code}"
    return int(found.base_offset)


def fetch(connection: TypedConnection, version: int, topic_id: bytes, offset: int) -> tuple[int, bytes]:
    """(error, records) from an offset."""
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    name = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    session = {"session_id": 0, "session_epoch": -1} if version >= 7 else {}
    request = FetchRequest(replica_id=-1, max_wait_ms=0, topics=[FetchTopic(partitions=partitions, **name)], **session)
    found = connection.ask(api.FETCH, version, request).responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")


def end_offset(connection: TypedConnection, version: int) -> int:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    found = connection.ask(api.LIST_OFFSETS, version, request).topics[0].partitions[0]
    assert found.error_code == 0, f"ListOffsets v{version}: {found.error_code}"
    return int(found.offset)


def batch_in(codec: int, values: list[bytes]) -> bytes:
    """A batch of these values, packed by a library that the broker does not use for it."""
    import gzip

    import lz4.frame
    import snappy
    import zstandard

    packers = [bytes, gzip.compress, snappy.compress, lz4.frame.compress, zstandard.ZstdCompressor().compress]
    records = wire.encode_records([wire.Record(b"k", value) for value in values])
    return wire.seal_batch(packers[codec](records), len(values), attributes=codec)


@pytest.mark.parametrize("codec", sample(range(5), 1), ids=["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.scenario("F6")
def test_every_version_sees_what_every_version_wrote(make_broker: MakeBroker, codec: int) -> None:
    broker = make_broker().start()
    expected: list[tuple[int, bytes | None, bytes | None]] = []
    with TypedConnection(broker.port) as connection:
        assert connection.create_topic(TOPIC) == 0
        topic_id = connection.topic_id(TOPIC)
        for version in served(api.PRODUCE):
            if codec == 4 and version < 7:
                continue  # zstd may be sent from version 7 on (KIP-110)
            values = [b"v%d-%d" % (version, number) for number in range(3)]
            base = produce(connection, version, topic_id, batch_in(codec, values))
            assert base == len(expected), f"Produce v{version}"
            expected += [(base + number, b"k", value) for number, value in enumerate(values)]
    check(broker, topic_id, expected)
    broker.kill()
    broker.start()
    check(broker, topic_id, expected)


def check(broker: BrokerProcess, topic_id: bytes, expected: list[tuple[int, bytes | None, bytes | None]]) -> None:
    with TypedConnection(broker.port) as connection:
        for version in served(api.LIST_OFFSETS):
            assert end_offset(connection, version) == len(expected), f"ListOffsets v{version}"
        for version in served(api.FETCH):
            for start in (0, len(expected) // 2):
                error, data = fetch(connection, version, topic_id, start)
                assert error == 0, f"Fetch v{version}: {error}"
                rows = [row for batch in wire.split_batches(data) for row in wire.decode_records(unpack(batch))]
                assert [row for row in rows if row[0] >= start] == expected[start:], f"Fetch v{version} from {start}"
