"""Arrow in and out, splitting and the mirror against Apache Kafka itself."""

import itertools
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client, ColumnReader, ColumnWriter, RangeUnavailable
from kafkalite.mirror import Mirror, TopicFilter
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.processes.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.compat, pytest.mark.integration, pytest.mark.slow]

STAMP = 1_700_000_000_000


@pytest.fixture
def client(apache_kafka: ApacheKafka) -> Iterator[Client]:
    with Client(apache_kafka.bootstrap, retry_timeout_s=60) as client:
        yield client


@pytest.fixture
def kafkalite_client() -> Iterator[Client]:
    with Broker({"flush.on.acks.all": False}) as broker, Client(broker.bootstrap_servers) as client:
        yield client


def table(count: int) -> pa.Table:
    headers = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    return pa.table(
        {
            "key": pa.array([b"k%d" % (i % 100) if i % 5 else None for i in range(count)], pa.binary()),
            "value": pa.array([b"value %d " % i * (i % 20) for i in range(count)], pa.binary()),
            "timestamp": pa.array([STAMP + i for i in range(count)], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % i}] if i % 3 == 0 else None for i in range(count)], headers
            ),
        }
    )


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_arrow_comes_back(client: Client, codec: Codec) -> None:
    topic = f"arrow-{codec.name.lower()}"
    client.admin.create_topic(topic, 3)
    sent = table(20_000)
    with ColumnWriter(client, topic, codec=codec, batch_size=50_000, transactional_id=topic) as writer:
        with writer.transaction():
            writer.write(sent)
        writer.producer.begin_transaction()
        writer.write(sent.slice(0, 1000))
        writer.producer.abort_transaction()
    reader = ColumnReader(client, isolation_level="read_committed")
    ends = ColumnReader(client).offsets_for([TopicPartition(topic, p) for p in range(3)], "latest")
    batches = [batch for key, end in ends.items() for batch in reader.read(key.topic, key.partition, 0, end)]
    found = pa.Table.from_batches(batches, reader.schema).sort_by("timestamp")
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [(STAMP + i) * 1000 for i in range(20_000)]
    for name in ("key", "value", "headers"):
        assert found.column(name).to_pylist() == sent.column(name).to_pylist()


def test_splits(client: Client) -> None:
    client.admin.create_topic("split", 1)
    with client.producer(batch_size=20_000) as producer:
        producer.send("split", 0, [b"small %d" % i for i in range(20_000)])
        producer.send("split", 0, [b"large %d" % i + bytes(2000) for i in range(2000)])
    reader = ColumnReader(client, columns=["offset"], stall_timeout_s=1)
    parts = reader.split("split", 0, 0, 22_000, size_target=400_000)
    assert 8 <= len(parts) <= 20
    assert (parts[0].start, parts[-1].end) == (0, 22_000)
    assert all(one.end == two.start for one, two in itertools.pairwise(parts))
    assert 3_500_000 < sum(part.size for part in parts) < 6_500_000
    for part in parts:
        seen = [offset for batch in reader.read("split", 0, part.start, part.end) for offset in batch[0].to_pylist()]
        assert seen == list(range(part.start, part.end))
    with pytest.raises(RangeUnavailable):
        list(reader.read("split", 0, 0, 22_001))


def records(count: int) -> list[Record]:
    return [Record(-1, STAMP + i, b"k%d" % i, b"value %d" % i * 20, (("h", b"%d" % i),)) for i in range(count)]


def committed(client: Client, topic: str, partition: int) -> list[Record]:
    chunks = client.read(topic, partition, end=client.end_offset(topic, partition), isolation=1)
    return [record._replace(offset=-1) for chunk in chunks for record in chunk.columns.records()]


@pytest.mark.parametrize("towards", ["kafka", "kafkalite"])
def test_mirror(client: Client, kafkalite_client: Client, towards: str) -> None:
    one, two = (kafkalite_client, client) if towards == "kafka" else (client, kafkalite_client)
    topic = f"mirrored-to-{towards}"
    one.admin.create_topic(topic, 2, configs={"retention.ms": "-1"})
    sent = records(5000)
    with one.producer(transactional_id="source", codec=Codec.ZSTD, batch_size=100_000) as producer:
        for partition in range(2):
            with producer.transaction():
                producer.send(topic, partition, RecordColumns.from_records(sent))
        producer.begin_transaction()
        producer.send(topic, 0, [b"aborted"])
        producer.abort_transaction()
    for wanted in (10_000, 0):
        worker = Mirror(one, two, name=topic, topics=TopicFilter(topic))
        assert worker.run(threading.Event(), to_end=True).record_count == wanted
        worker.close()
    assert [committed(two, topic, partition) for partition in range(2)] == [sent, sent]
    settings = {entry.name: entry.value for entry in two.admin.describe_topic_configs(topic)}
    assert settings["retention.ms"] == "-1"
