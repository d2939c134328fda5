"""Offset ranges as Arrow record batches: content, sizes, and an error for each incomplete one."""

import datetime as dt
import itertools
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.base.extras import needs_extra
from kafkalite.client import Client, ColumnReader, OffsetRange, RangeUnavailable
from kafkalite.client.columns.arrow import COLUMNS, ArrowExporter, microseconds, pieces, schema_of
from kafkalite.errors import CorruptMessage, ErrorCode, InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from kafkalite.model import TopicPartition
from kafkalite.wire.record.batches import decode, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.fakes.cluster import CLOSE, FETCH, LIST_OFFSETS, FakeCluster
from tests.kit.oracles.old_messages import message_set
from tests.kit.processes.broker import REPOSITORY

QUICK = {"request_timeout_s": 5.0, "retry_timeout_s": 5.0, "retry_backoff_s": 0.005}
KEY = TopicPartition("t", 0)
STAMP = 1_700_000_000_123


def record(i: int) -> Record:
    return Record(
        i,
        STAMP + i,
        b"key %d" % i if i % 3 else None,
        b"value %d" % i if i % 5 else None,
        () if i % 2 else (("a", b"%d" % i), ("n", None)),
    )


RECORDS = [record(i) for i in range(200)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(nodes=2) as cluster:
        cluster.create("t", 4)
        yield cluster


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap, **QUICK) as client:
        yield client


@pytest.fixture
def filled(client: Client) -> Client:
    """200 records in batches of 20 or so."""
    for first in range(0, 200, 20):
        client.produce("t", 0, RecordColumns.from_records(RECORDS[first : first + 20]), codec=first // 20 % 5)
    return client


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def expected_row(item: Record, partition: int = 0) -> dict[str, object]:
    stamp = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=item.timestamp)
    return {
        "key": item.key,
        "value": item.value,
        "topic": "t",
        "partition": partition,
        "offset": item.offset,
        "timestamp": stamp,
        "timestampType": 0,
        "headers": [{"key": key, "value": value} for key, value in item.headers] or None,
    }


# --- what is in a batch -----------------------------------------------------------------------------------------------


def test_every_column(filled: Client) -> None:
    reader = ColumnReader(filled)
    batches = list(reader.read("t", 0, 0, 200))
    assert all(batch.schema.equals(reader.schema) for batch in batches)
    assert rows_of(batches) == [expected_row(item) for item in RECORDS]


def test_the_schema_is_that_of_sparks_connector() -> None:
    assert [(field.name, str(field.type)) for field in schema_of()] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
    ]


@pytest.mark.parametrize("columns", [["offset"], ["value", "key"], ["headers", "partition"], ["timestampType"]])
def test_projection(filled: Client, columns: list[str]) -> None:
    reader = ColumnReader(filled, columns=columns)
    batches = list(reader.read("t", 0, 7, 133))
    assert sum(batch.num_rows for batch in batches) == 126
    assert all(batch.schema.names == columns for batch in batches)
    assert rows_of(batches) == [{name: expected_row(item)[name] for name in columns} for item in RECORDS[7:133]]


def test_columns_that_are_not_requested_are_not_copied(filled: Client) -> None:
    (first, *_) = ColumnReader(filled, columns=["offset", "key"]).read_numpy("t", 0, 0, 200)
    assert (len(first.values), first.values.size, first.headers) == (0, 0, None)
    assert len(first.keys) == len(first) > 0


@pytest.mark.parametrize("columns", [["colour"], ["key", "key"], []])
def test_columns_that_are_none(columns: list[str]) -> None:
    with pytest.raises(ValueError, match=r"unknown column 'colour'|duplicate column|no column given"):
        ColumnReader("127.0.0.1:9", columns=columns)


def test_no_copy_is_made_of_values() -> None:
    columns = decode(encode_batch(RecordColumns.from_records(RECORDS))[0])
    batch = ArrowExporter(COLUMNS, 1000, 1 << 20).batch(KEY, columns)
    assert batch.column("value").buffers()[2].address == np.frombuffer(columns.values.data, np.uint8).ctypes.data


def test_timestamps_outside_of_what_microseconds_hold() -> None:
    limit = (2**63 - 1) // 1000
    stamps = np.array([-(2**63), -1, 0, 2**63 - 1], np.int64)
    assert microseconds(stamps).tolist() == [-limit * 1000, -1000, 0, limit * 1000]


def test_a_header_key_that_is_not_utf8_is_shown_not_refused() -> None:
    raw = bytes(encode_batch(RecordColumns.from_records([Record(-1, 0, None, b"", (("ab", b"1"),))]))[0])
    bad = raw.replace(b"ab", b"\xff\xfe")
    batch = ArrowExporter(COLUMNS, 10, 100).batch(KEY, decode_unchecked(bad))
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [[{"key": "\ufffd\ufffd", "value": b"1"}]]


def decode_unchecked(raw: bytes) -> RecordColumns:
    from kafkalite.wire.record.batches import BatchReader

    with BatchReader(check_crcs=False) as reader:
        reader.read(raw, 0)
        return reader.take()


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=20),
            st.none() | st.binary(max_size=50),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 10),
    st.integers(1, 100),
)
def test_any_records_come_through(
    items: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], rows_max: int, size_max: int
) -> None:
    records = [Record(i, STAMP, key, value, tuple(headers)) for i, (key, value, headers) in enumerate(items)]
    columns = decode(encode_batch(RecordColumns.from_records(records))[0])
    batches = list(ArrowExporter(COLUMNS, rows_max, size_max).batches(KEY, columns))
    assert rows_of(batches) == [expected_row(item) for item in records]
    for batch in batches:
        size = sum(len(item or b"") for name in ("key", "value") for item in batch.column(name).to_pylist())
        assert batch.num_rows == 1 or (batch.num_rows <= rows_max and size <= size_max)


def test_pieces_of_columns_without_bytes() -> None:
    columns = decode(encode_batch(RecordColumns.from_records(RECORDS))[0])
    bare = RecordColumns(columns.offsets, columns.timestamps, columns.keys[:0], columns.values[:0])
    assert list(pieces(bare, 90, 1)) == [(0, 90), (90, 180), (180, 200)]


# --- ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), [(0, 200), (0, 1), (19, 21), (20, 40), (150, 200), (0, 0), (200, 200)])
def test_exactly_the_range(filled: Client, start: int, end: int) -> None:
    batches = list(ColumnReader(filled, columns=["offset"], rows_max=7).read("t", 0, start, end))
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(start, end))
    assert all(0 < batch.num_rows <= 7 for batch in batches)


def test_a_range_that_is_none(filled: Client) -> None:
    for start, end in [(-1, 5), (5, 4)]:
        with pytest.raises(ValueError, match="invalid offset range"):
            list(ColumnReader(filled).read("t", 0, start, end))


def test_an_end_that_is_not_reached_is_an_error(filled: Client) -> None:
    reader = ColumnReader(filled, columns=["offset"], stall_timeout_s=0.2)
    seen: list[int] = []
    with pytest.raises(RangeUnavailable, match="t-0: the range ends at offset 300, but the log is readable up to 200"):
        seen.extend(offset for batch in reader.read("t", 0, 100, 300) for offset in batch.column(0).to_pylist())
    assert seen == list(range(100, 200))


def test_an_end_that_comes_while_waiting(filled: Client, cluster: FakeCluster) -> None:
    batches = ColumnReader(filled, columns=["offset"]).read("t", 0, 190, 210)
    assert next(batches).num_rows == 10
    with Client(cluster.bootstrap, **QUICK) as other:
        other.produce("t", 0, [b"x"] * 30)
    assert sum(batch.num_rows for batch in batches) == 10


def test_a_start_that_is_gone(filled: Client, cluster: FakeCluster) -> None:
    cluster.topics["t"][0].start = 50
    with pytest.raises(OffsetOutOfRange):
        list(ColumnReader(filled).read("t", 0, 49, 100))


def test_a_gap_up_to_the_end_ends_the_range(filled: Client, cluster: FakeCluster) -> None:
    """Compaction took the last records: nothing will ever come for them."""
    del cluster.topics["t"][0].batches[5:]
    batches = list(ColumnReader(filled, columns=["offset"]).read("t", 0, 80, 200))
    assert sum(batch.num_rows for batch in batches) == 20


def test_a_topic_or_partition_that_is_not_there(client: Client) -> None:
    for topic, partition in [("nothing", 0), ("t", 9)]:
        with pytest.raises(UnknownTopicOrPartition):
            list(ColumnReader(client).read(topic, partition, 0, 1))


def test_a_recreated_topic_is_noticed(filled: Client) -> None:
    reader = ColumnReader(filled)
    with pytest.raises(InconsistentTopicId, match="was recreated"):
        list(reader.read("t", 0, 0, 10, topic_id=b"\1" * 16))
    assert sum(batch.num_rows for batch in reader.read("t", 0, 0, 10, topic_id=bytes(16))) == 10


def test_lost_connections_and_moved_leaders_are_followed(filled: Client, cluster: FakeCluster) -> None:
    cluster.fail(FETCH, CLOSE, times=2)
    cluster.fail(FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    batches = list(ColumnReader(filled, columns=["offset"], fetch_size=600).read("t", 0, 0, 200))
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(200))


def test_a_damaged_batch_is_an_error_behind_the_good_ones(filled: Client, cluster: FakeCluster) -> None:
    base, raw = cluster.topics["t"][0].batches[3]
    damaged = bytearray(raw)
    damaged[-1] ^= 1
    cluster.topics["t"][0].batches[3] = (base, bytes(damaged))
    seen: list[int] = []
    with pytest.raises(CorruptMessage, match="the batch at offset 60"):
        seen.extend(
            offset
            for batch in ColumnReader(filled, columns=["offset"]).read("t", 0, 0, 200)
            for offset in batch.column(0).to_pylist()
        )
    assert seen == list(range(60))


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets(client: Client, cluster: FakeCluster, magic: int, codec: int) -> None:
    partition = cluster.topics["t"][1]
    partition.end = 12
    partition.read = lambda offset, size: b"".join(  # type: ignore[method-assign]
        message_set(magic, codec, first) for first in range(0, 12, 4) if first + 4 > offset
    )
    batches = list(ColumnReader(client).read("t", 1, 2, 11))
    rows = rows_of(batches)
    assert [row["offset"] for row in rows] == list(range(2, 11))
    assert [row["key"] for row in rows[:3]] == [b"", b"k" * 300, b"key"]


# --- planning ---------------------------------------------------------------------------------------------------------


def test_offsets_for(filled: Client, cluster: FakeCluster) -> None:
    reader = ColumnReader(filled)
    keys = [KEY, TopicPartition("t", 1)]
    assert reader.offsets_for(keys, "earliest") == dict.fromkeys(keys, 0)
    assert reader.offsets_for(keys, "latest") == {keys[0]: 200, keys[1]: 0}
    assert reader.offsets_for(keys, STAMP) == dict.fromkeys(keys, -1)
    assert cluster.count(LIST_OFFSETS) >= 3
    for wrong in ("first", -5):
        with pytest.raises(ValueError, match=r"invalid at=('first'|-5); expected"):
            reader.offsets_for(keys, wrong)


def covers(parts: list[OffsetRange], start: int, end: int) -> bool:
    return (
        parts[0].start == start
        and parts[-1].end == end
        and all(part.start < part.end for part in parts)
        and all(first.end == second.start for first, second in itertools.pairwise(parts))
    )


def test_split_covers_the_range_at_batches(filled: Client, cluster: FakeCluster) -> None:
    reader = ColumnReader(filled)
    total = sum(len(raw) for _, raw in cluster.topics["t"][0].batches)
    parts = reader.split("t", 0, 0, 200, size_target=total // 5)
    assert covers(parts, 0, 200)
    assert 3 <= len(parts) <= 7
    assert all(part.start % 20 == 0 for part in parts)
    assert 0.8 * total < sum(part.size for part in parts) < 1.2 * total
    assert covers(reader.split("t", 0, 33, 34, size_target=1), 33, 34)
    assert reader.split("t", 0, 33, 33, size_target=1) == []
    with pytest.raises(ValueError, match="size_target must be at least 1 byte"):
        reader.split("t", 0, 0, 200, size_target=0)


def test_split_follows_the_density(client: Client, cluster: FakeCluster) -> None:
    """Half of the offsets are a fiftieth of the bytes."""
    for _ in range(50):
        client.produce("t", 0, [b"x" * 20] * 20)
    for _ in range(50):
        client.produce("t", 0, [b"x" * 1200] * 20)
    parts = ColumnReader(client).split("t", 0, 0, 2000, size_target=120_000)
    assert covers(parts, 0, 2000)
    for part in parts:
        size = sum(len(raw) for base, raw in cluster.topics["t"][0].batches if part.start <= base < part.end)
        assert 60_000 < size < 240_000, parts
        assert 0.5 < part.size / size < 2


def test_split_with_gaps(filled: Client, cluster: FakeCluster) -> None:
    """Nothing is left of offsets 40 to 160."""
    del cluster.topics["t"][0].batches[2:8]
    parts = ColumnReader(filled).split("t", 0, 0, 200, size_target=1200)
    assert covers(parts, 0, 200)
    del cluster.topics["t"][0].batches[:]
    assert ColumnReader(filled).split("t", 0, 0, 200, size_target=1000) == [OffsetRange(0, 200, 0)]


def test_estimate_of_old_sets_and_one_batch(client: Client, cluster: FakeCluster) -> None:
    client.produce("t", 0, [b"x" * 100] * 100)
    (_, raw), *_ = cluster.topics["t"][0].batches
    assert ColumnReader(client).estimate_size("t", 0, 0, 100) == len(raw)
    partition = cluster.topics["t"][1]
    partition.end = 4
    partition.read = lambda offset, size: message_set(1, 1)  # type: ignore[method-assign]
    assert ColumnReader(client).estimate_size("t", 1, 0, 4) == len(message_set(1, 1))


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_options_that_are_none() -> None:
    with pytest.raises(ValueError, match="isolation_level"):
        ColumnReader("127.0.0.1:9", isolation_level="serializable")
    with pytest.raises(ValueError, match=r"rows_max .0. and size_max"):
        ColumnReader("127.0.0.1:9", rows_max=0)


def test_a_readers_own_client_is_closed(cluster: FakeCluster) -> None:
    with ColumnReader(cluster.bootstrap) as reader:
        assert reader.offsets_for([KEY], "latest") == {KEY: 0}
        assert reader.client._connections
    assert not reader.client._connections


def test_without_pyarrow_numpy_works_and_arrow_says_what_is_missing(cluster: FakeCluster) -> None:
    with Client(cluster.bootstrap, **QUICK) as client:
        client.produce("t", 0, [b"a", b"b"], codec=Codec.NONE)
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from kafkalite.client import ColumnReader\n"
        f"with ColumnReader({cluster.bootstrap!r}) as reader:\n"
        "    print([list(part.values) for part in reader.read_numpy('t', 0, 0, 2)])\n"
        "    try:\n"
        "        next(reader.read('t', 0, 0, 2))\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        "[[b'a', b'b']]",
        needs_extra("Arrow record batches need pyarrow", "arrow"),
    ]
