"""Ranges as Arrow record batches out of a real broker: codecs, transactions, compaction, old topics, splitting."""

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client, ColumnReader, ColumnWriter, RangeUnavailable
from kafkalite.errors import OffsetOutOfRange
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_0, OracleMessage, encode_set, gzip_wrapper
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

STAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "log.flush.interval": 1,
        "flush.on.acks.all": False,
        "log.cleaner.backoff.ms": 50,
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers, retry_timeout_s=10) as client:
        yield client


def records(count: int, first: int = 0) -> list[Record]:
    return [
        Record(i, STAMP + i, b"k%d" % (i % 50), b"value %d " % i * (i % 5), (("h", b"%d" % i),) if i % 4 == 0 else ())
        for i in range(first, first + count)
    ]


def offsets(reader: ColumnReader, topic: str, start: int, end: int) -> list[int]:
    batches = reader.read(topic, 0, start, end)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_every_codec(broker: Broker, client: Client, codec: Codec) -> None:
    topic = f"codec-{codec.name.lower()}"
    broker.create_topic(topic)
    sent = records(5000)
    client.produce(topic, 0, RecordColumns.from_records(sent), codec=codec, batch_size=20_000)
    reader = ColumnReader(client, rows_max=1000, size_max=100_000)
    batches = list(reader.read(topic, 0, 17, 4321, topic_id=client.topic(topic).topic_id))
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows <= 1000
        assert sum(len(value or b"") for value in batch.column("value").to_pylist()) <= 100_000
    table = pa.Table.from_batches(batches, reader.schema)
    assert table.column("offset").to_pylist() == list(range(17, 4321))
    assert table.column("value").to_pylist() == [record.value for record in sent[17:4321]]
    assert table.column("key").to_pylist() == [record.key for record in sent[17:4321]]
    headers = [[{"key": k, "value": v} for k, v in record.headers] or None for record in sent[17:4321]]
    assert table.column("headers").to_pylist() == headers


def test_read_committed_and_open_transactions(broker: Broker, client: Client) -> None:
    broker.create_topic("tx")
    with client.producer(transactional_id="a") as producer:
        for number in range(4):
            producer.begin_transaction()
            producer.send("tx", 0, [b"%d" % number] * 10)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()
        producer.send("tx", 0, [b"open"] * 10)
        producer.flush()
        committed = ColumnReader(client, isolation_level="read_committed", stall_timeout_s=0.3)
        (stable,) = committed.offsets_for([TopicPartition("tx", 0)], "latest").values()
        (end,) = ColumnReader(client).offsets_for([TopicPartition("tx", 0)], "latest").values()
        assert (stable, end) == (44, 54)
        assert offsets(committed, "tx", 0, stable) == [*range(10), *range(22, 32)]
        assert len(offsets(ColumnReader(client), "tx", 0, end)) == 50
        with pytest.raises(RangeUnavailable, match=r"readable up to 44 .*open transaction"):
            offsets(committed, "tx", 0, end)
        producer.commit_transaction()
    assert len(offsets(committed, "tx", 0, end)) == 30


def test_a_compacted_topic(broker: Broker, client: Client) -> None:
    """Gaps inside and between batches, tombstones, and a topic whose last records are gone."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    broker.create_topic("compacted", 1, **settings, segment_bytes=20_000)
    client.produce("compacted", 0, RecordColumns.from_records(records(3000)), batch_size=4000)
    reader = ColumnReader(client)
    wait_until(lambda: len(offsets(reader, "compacted", 0, 3000)) < 1500, 60, "compaction")
    kept = offsets(reader, "compacted", 0, 3000)
    assert kept == sorted(set(kept))
    assert kept[-50:] == list(range(2950, 3000))
    middle = kept[len(kept) // 2]
    part = set(offsets(reader, "compacted", 100, middle))
    later = offsets(reader, "compacted", 0, 3000)  # compaction continues meanwhile
    assert {offset for offset in later if 100 <= offset < middle} <= part
    assert part <= {offset for offset in kept if 100 <= offset < middle}


def test_a_range_that_aged_out(broker: Broker, client: Client) -> None:
    broker.create_topic("aged")
    client.produce("aged", 0, [b"x"] * 100)
    client.admin.delete_records({TopicPartition("aged", 0): 40})
    reader = ColumnReader(client)
    with pytest.raises(OffsetOutOfRange):
        offsets(reader, "aged", 39, 100)
    assert offsets(reader, "aged", 40, 100) == list(range(40, 100))
    assert reader.offsets_for([TopicPartition("aged", 0)], "earliest") == {TopicPartition("aged", 0): 40}


def test_offsets_by_time(broker: Broker, client: Client) -> None:
    broker.create_topic("times")
    client.produce("times", 0, RecordColumns.from_records(records(100)))
    key = TopicPartition("times", 0)
    reader = ColumnReader(client)
    assert [reader.offsets_for([key], stamp)[key] for stamp in (0, STAMP + 42, STAMP + 100)] == [0, 42, -1]


def test_a_topic_of_kafka_07(broker: Broker, client: Client) -> None:
    broker.create_topic("classic", 1, message_format="classic")
    data = HELLO_0 * 3 + encode_set([gzip_wrapper([OracleMessage(b"in %d" % i) for i in range(5)])]) + HELLO_0
    assert broker.classic_endpoint is not None
    with ClassicClient(broker.classic_endpoint.port) as classic:
        classic.send(oracle.produce("classic", 0, data))
        classic.fetch("classic", 0, 0, 1)
    reader = ColumnReader(client)
    end = reader.offsets_for([TopicPartition("classic", 0)], "latest")[TopicPartition("classic", 0)]
    assert end == len(data)
    (batch,) = reader.read("classic", 0, 0, end)
    assert batch.column("value").to_pylist() == [b"hello"] * 3 + [b"in %d" % i for i in range(5)] + [b"hello"]
    assert [row["key"] for row in batch.to_pylist()] == [None] * 9
    assert reader.split("classic", 0, 0, end, size_target=1 << 20)[0].end == end


def test_splits_are_read_to_the_same_records(broker: Broker, client: Client) -> None:
    broker.create_topic("split")
    with client.producer(batch_size=10_000) as producer:
        producer.send("split", 0, [b"small %d" % i for i in range(20_000)])
        producer.send("split", 0, [b"large %d" % i + bytes(2000) for i in range(1000)])
    reader = ColumnReader(client, columns=["offset", "value"])
    parts = reader.split("split", 0, 0, 21_000, size_target=200_000)
    assert 8 <= len(parts) <= 20
    assert [parts[0].start, parts[-1].end] == [0, 21_000]
    assert all(one.end == two.start for one, two in itertools.pairwise(parts))
    sizes = []
    for part in parts:
        batches = list(reader.read("split", 0, part.start, part.end))
        assert sum(batch.num_rows for batch in batches) == part.end - part.start
        sizes.append(sum(batch.column("value").nbytes for batch in batches))
    assert max(sizes) < 400_000


def test_write_then_read_arrow(broker: Broker, client: Client) -> None:
    broker.create_topic("roundtrip", 3)
    table = pa.table(
        {
            "key": pa.array([b"k%d" % (i % 100) for i in range(30_000)], pa.binary()),
            "value": pa.array([b"value %d" % i for i in range(30_000)], pa.binary()),
            "timestamp": pa.array([STAMP + i for i in range(30_000)], pa.timestamp("ms", "UTC")),
        }
    )
    with ColumnWriter(client, "roundtrip", codec=Codec.ZSTD, transactional_id="w") as writer:
        with writer.transaction():
            writer.write(table)
        writer.producer.begin_transaction()
        writer.write(table.slice(0, 5000))
        writer.producer.abort_transaction()
    reader = ColumnReader(client, isolation_level="read_committed")
    ends = ColumnReader(client).offsets_for([TopicPartition("roundtrip", p) for p in range(3)], "latest")
    batches = [batch for key, end in ends.items() for batch in reader.read(key.topic, key.partition, 0, end)]
    found = pa.Table.from_batches(batches).sort_by("timestamp")
    assert found.select(["key", "value"]).equals(table.select(["key", "value"]))
    by_key = found.group_by("key").aggregate([("partition", "count_distinct")])
    assert set(by_key.column("partition_count_distinct").to_pylist()) == {1}
