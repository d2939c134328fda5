"""Arrow and NumPy columns to partitions: which one a row goes to, what is taken, and what is refused before sending."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalite._native.wire.batch import read_info
from kafkalite.client import Client, ColumnReader, ColumnWriter, TransactionAborted
from kafkalite.errors import UnknownTopicOrPartition
from kafkalite.wire.record.batches import decode, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.fakes.cluster import PRODUCE, FakeCluster
from tests.kit.oracles.old_messages import murmur2

QUICK = {"request_timeout_s": 5.0, "retry_timeout_s": 5.0, "retry_backoff_s": 0.005}
STAMP = 1_700_000_000_123


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(nodes=2) as cluster:
        cluster.create("t", 4)
        cluster.create("u", 2)
        yield cluster


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap, **QUICK) as client:
        yield client


def stored(client: Client, topic: str = "t") -> dict[int, list[Record]]:
    """What each partition has, in order."""
    return {
        partition: [record for chunk in client.read(topic, partition) for record in chunk.columns.records()]
        for partition in client.partitions(topic)
    }


def write(client: Client, data: Any, topic: str | None = "t", **options: object) -> None:
    with ColumnWriter(client, topic, **options) as writer:
        writer.write(data)


def test_every_column(client: Client) -> None:
    when = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", None, b""], pa.binary()),
            "value": pa.array([None, b"two", b""], pa.binary()),
            "partition": pa.array([1, 1, 1], pa.int32()),
            "timestamp": pa.array([when, when, when], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []],
                pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            ),
        }
    )
    write(client, batch, codec=3)
    assert stored(client)[1] == [
        Record(0, STAMP, b"a", None, (("h", b"1"), ("n", None))),
        Record(1, STAMP, None, b"two"),
        Record(2, STAMP, b"", b""),
    ]


def test_what_was_read_can_be_written(client: Client) -> None:
    records = [
        Record(i, STAMP + i, b"k%d" % i if i % 3 else None, b"v%d" % i, (("a", b"1"),) if i % 2 else ())
        for i in range(500)
    ]
    client.produce("t", 3, RecordColumns.from_records(records))
    reader = ColumnReader(client, columns=["key", "value", "timestamp", "headers", "partition"], rows_max=77)
    with ColumnWriter(client) as writer:
        for batch in reader.read("t", 3, 100, 400):
            writer.write(batch.set_column(4, "partition", pa.nulls(batch.num_rows)).slice(5), topic="u")
    written = [record._replace(offset=-1) for part in stored(client, "u").values() for record in part]
    wanted = [record._replace(offset=-1) for i, record in enumerate(records[100:400]) if i % 77 >= 5]
    assert sorted(written, key=lambda record: record.timestamp) == wanted


def test_keys_go_where_the_java_client_sends_them(client: Client) -> None:
    keys = [b"key %d" % i if i % 7 else None for i in range(300)]
    write(client, pa.record_batch({"key": pa.array(keys, pa.binary()), "value": [b"%d" % i for i in range(300)]}))
    parts = stored(client)
    for partition, records in parts.items():
        assert all((murmur2(record.key) & 0x7FFFFFFF) % 4 == partition for record in records if record.key is not None)
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
    assert sum(map(len, parts.values())) == 300
    assert len({p for p, records in parts.items() if any(record.key is None for record in records)}) == 1


def test_rows_whose_keys_are_ignored_take_turns_by_write(client: Client) -> None:
    with ColumnWriter(client, "t", ignore_keys=True) as writer:
        for _ in range(8):
            writer.write(pa.record_batch({"key": [b"same"] * 10, "value": [b"x"] * 10}))
    assert [len(records) for records in stored(client).values()] == [20] * 4


def test_rows_without_keys_take_turns_by_write(client: Client) -> None:
    with ColumnWriter(client, "t") as writer:
        for _ in range(8):
            writer.write(pa.record_batch({"value": [b"x"] * 10}))
    assert [len(records) for records in stored(client).values()] == [20] * 4


def test_a_partition_that_is_null_follows_the_key(client: Client) -> None:
    keys, wanted = [b"a", b"b", b"c", b"d"], [3, None, 0, None]
    write(client, pa.record_batch({"key": keys, "value": keys, "partition": pa.array(wanted, pa.int64())}))
    found = {record.value: partition for partition, records in stored(client).items() for record in records}
    assert found[b"a"] == 3
    assert found[b"c"] == 0
    assert all(found[key] == (murmur2(key) & 0x7FFFFFFF) % 4 for key in (b"b", b"d"))


def test_rows_by_topic(client: Client) -> None:
    batch = pa.record_batch({"topic": ["u", None, "t", "u"], "value": [b"0", b"1", b"2", b"3"]})
    write(client, batch)
    assert sorted(record.value for records in stored(client, "u").values() for record in records) == [b"0", b"3"]
    assert sorted(record.value for records in stored(client, "t").values() for record in records) == [b"1", b"2"]


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "large_binary", "string_view", "binary_view", "dictionary", "fixed"]
)
def test_types_of_values(client: Client, kind: str) -> None:
    items = ["one", None, "two"]
    types = {
        "string": pa.string(),
        "large_string": pa.large_string(),
        "large_binary": pa.large_binary(),
        "string_view": pa.string_view(),
        "binary_view": pa.binary_view(),
    }
    if kind == "dictionary":
        array = pa.array(items).dictionary_encode()
    elif kind == "fixed":
        array = pa.array([b"one", None, b"two"], pa.binary(3))
    elif "binary" in kind:
        array = pa.array([None if item is None else item.encode() for item in items], types[kind])
    else:
        array = pa.array(items, types[kind])
    batch = pa.record_batch({"value": array, "partition": [0, 0, 0]}).slice(1)
    write(client, batch)
    assert [record.value for record in stored(client)[0]] == [None, b"two"]


@pytest.mark.parametrize(
    ("kind", "raw", "wanted"),
    [
        ("s", 1_700_000_000, 1_700_000_000_000),
        ("ms", STAMP, STAMP),
        ("us", STAMP * 1000 + 999, STAMP),
        ("ns", -1, -1),
        ("int64", STAMP, STAMP),
    ],
)
def test_units_of_time(client: Client, kind: str, raw: int, wanted: int) -> None:
    array = pa.array([raw], pa.int64())
    times = array if kind == "int64" else array.view(pa.timestamp(kind))
    write(client, pa.record_batch({"value": [b"x"], "timestamp": times, "partition": [0]}))
    (record,) = stored(client)[0]
    assert record.timestamp == wanted


def test_headers_as_a_map_and_in_a_slice(client: Client) -> None:
    kind = pa.map_(pa.string(), pa.binary())
    headers = pa.array([[("a", b"1")], None, [("b", None), ("c", b"")], []], kind)
    batch = pa.record_batch({"value": [b"0", b"1", b"2", b"3"], "headers": headers, "partition": [2] * 4})
    write(client, batch.slice(1, 2))
    assert [record.headers for record in stored(client)[2]] == [(), (("b", None), ("c", b""))]


def test_tables_and_empty_batches(client: Client) -> None:
    table = pa.table(
        {"value": pa.chunked_array([[b"a"], [], [b"b", b"c"]]), "partition": pa.chunked_array([[0, 0, 0]])}
    )
    write(client, table)
    write(client, table.slice(0, 0))
    write(client, pa.record_batch({"value": pa.array([], pa.binary())}))
    assert [record.value for record in stored(client)[0]] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": [b"a"]}, "cannot write columns key; expected 'value'"),
        ({"value": [b"a"], "offset": [1]}, "unknown column 'offset'; expected"),
        ({"value": [1]}, "column value has type int64; expected binary or string"),
        ({"value": [b"a"], "partition": ["x"]}, "column partition has type string"),
        ({"value": [b"a"], "partition": [4]}, "topic t has no partition 4 .partition count: 4"),
        ({"value": [b"a"], "timestamp": ["now"]}, "column timestamp has type string"),
        ({"value": [b"a"], "headers": ["x"]}, "column headers has type string"),
        ({"value": [b"a"], "headers": [[{"key": None, "value": b""}]]}, "column headers"),
    ],
)
def test_what_cannot_be_written(client: Client, cluster: FakeCluster, columns: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        write(client, pa.record_batch(columns))
    assert cluster.count(PRODUCE) == 0


def test_rows_without_a_topic(client: Client) -> None:
    with pytest.raises(ValueError, match="no topic"):
        write(client, pa.record_batch({"value": [b"a"]}), topic=None)
    with pytest.raises(UnknownTopicOrPartition):
        write(client, pa.record_batch({"value": [b"a"]}), topic="nothing")


def test_numpy_columns(client: Client) -> None:
    columns = RecordColumns.from_records([Record(-1, STAMP, b"k", b"%d" % i) for i in range(4)])
    with ColumnWriter(client, "t") as writer:
        writer.write_columns(columns, partitions=np.array([0, 1, -1, 0]))
        with pytest.raises(ValueError, match="3 partitions for 4 records"):
            writer.write_columns(columns, partitions=np.array([0, 1, 2]))
        writer.flush()
        assert writer.record_count == 4
    assert (murmur2(b"k") & 0x7FFFFFFF) % 4 == 0
    assert [record.value for record in stored(client)[0]] == [b"0", b"2", b"3"]


def test_a_transaction(client: Client) -> None:
    batch = pa.record_batch({"value": [b"a", b"b"], "partition": [0, 1]})
    with ColumnWriter(client, "t", transactional_id="w") as writer, writer.transaction():
        writer.write(batch)
    assert [len(records) for records in stored(client).values()] == [1, 1, 0, 0]


def test_an_error_inside_aborts(client: Client, cluster: FakeCluster) -> None:
    batch = pa.record_batch({"value": [b"a"], "partition": [0]})
    cluster.batch_size_max = 10
    writer = ColumnWriter(client, "t", transactional_id="w")
    with pytest.raises(TransactionAborted), writer, writer.transaction():
        writer.write(batch)


def batch_of(count: int, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(-1, STAMP + i, b"k%d" % i, b"value %d" % i * 20, (("h", b"1"),)) for i in range(count)]
    return bytes(encode_batch(RecordColumns.from_records(records), codec=codec, base_offset=77)[0])


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_batch_of_another_log_is_sent_as_it_is(client: Client, cluster: FakeCluster, codec: Codec) -> None:
    raw = batch_of(50, codec)
    with client.producer() as producer:
        assert [producer.send_batch("t", 1, raw) for _ in range(3)] == [50] * 3
        producer.flush()
        assert producer.record_count == 150
    found = stored(client)[1]
    assert [record._replace(offset=-1) for record in found] == [
        record._replace(offset=-1) for record in decode(raw).records()
    ] * 3
    sent = [read_info(stored_raw) for _, stored_raw in cluster.topics["t"][1].batches]
    assert [info.base_sequence for info in sent] == [0, 50, 100]
    assert {info.codec for info in sent} == {codec}
    assert all(stored_raw[61:] == raw[61:] for _, stored_raw in cluster.topics["t"][1].batches)


def test_a_batch_of_another_log_that_is_too_large_is_halved_in_its_codec(client: Client, cluster: FakeCluster) -> None:
    cluster.batch_size_max = 1000
    with client.producer() as producer:
        producer.send_batch("t", 0, batch_of(64, Codec.SNAPPY))
    assert len(stored(client)[0]) == 64
    sent = [read_info(raw) for _, raw in cluster.topics["t"][0].batches]
    assert len(sent) > 1
    assert {info.codec for info in sent} == {Codec.SNAPPY}


def test_what_is_no_batch_to_be_sent_as_it_is(client: Client, cluster: FakeCluster) -> None:
    raw = batch_of(3)
    control, stamped, sparse = bytearray(raw), bytearray(raw), bytearray(raw)
    control[22] |= 0x20
    stamped[22] |= 0x08
    sparse[26] += 1
    with client.producer() as producer:
        for bad in (b"", raw[:60], raw[:-1], raw + b"\0", bytes(control), bytes(stamped), bytes(sparse)):
            with pytest.raises(ValueError, match="batch"):
                producer.send_batch("t", 0, bad)
    assert cluster.count(PRODUCE) == 0


def test_bootstrap_servers_in_place_of_a_client(cluster: FakeCluster) -> None:
    with ColumnWriter(cluster.bootstrap, "u") as writer:
        writer.write(pa.record_batch({"value": [b"a"]}))
    assert not writer.client._connections
    assert sum(partition.end for partition in cluster.topics["u"]) == 1
