"""Native batch code against the plain-Python oracle, both ways, and against fixed bytes."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalite._native.wire import batch as native
from kafkalite.wire.record.batches import Producer, decode, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec, compress, decompress
from tests.kit.oracles import record_oracle as oracle
from tests.kit.oracles.record_oracle import OracleBatch, OracleRecord

# Base offset 7, leader epoch 3, base timestamp 1_600_000_000_000: ("k", "value", h=x) and (null, null) one ms later.
GOLDEN = bytes.fromhex(
    "0000000000000007"  # base offset
    "00000049"  # batch length: 73
    "00000003"  # leader epoch
    "02"  # magic
    "23f2cc2c"  # CRC-32C, as kafka-python computes it too
    "0000"  # attributes
    "00000001"  # last offset delta
    "00000174876e8000"  # base timestamp
    "00000174876e8001"  # largest timestamp
    "ffffffffffffffff"  # producer id
    "ffff"  # producer epoch
    "ffffffff"  # base sequence
    "00000002"  # record count
    "20" "00" "00" "00" "02" "6b" "0a" "76616c7565" "02" "02" "68" "02" "78"  # length 16 … one header
    "0c" "00" "02" "02" "01" "01" "00"  # length 6: everything null
)  # fmt: skip

GOLDEN_BATCH = OracleBatch(
    [OracleRecord(0, 0, b"k", b"value", ((b"h", b"x"),)), OracleRecord(1, 1, None, None)],
    base_offset=7,
    leader_epoch=3,
    base_timestamp=1_600_000_000_000,
)
GOLDEN_RECORDS = [
    Record(7, 1_600_000_000_000, b"k", b"value", (("h", b"x"),)),
    Record(8, 1_600_000_000_001, None, None),
]

TIMESTAMPS = st.integers(-(2**62), 2**62)
ITEMS = st.one_of(st.none(), st.binary(max_size=80))
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=TIMESTAMPS,
        key=ITEMS,
        value=ITEMS,
        headers=st.lists(st.tuples(st.text(max_size=9), ITEMS), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=40,
)


def oracle_records(records: list[Record]) -> list[OracleRecord]:
    base = records[0].timestamp
    return [
        # A difference of two int64 need not fit into one: it wraps, as Java's does, and wraps back when it is added.
        OracleRecord(
            (r.timestamp - base + 2**63) % 2**64 - 2**63, i, r.key, r.value, [(k.encode(), v) for k, v in r.headers]
        )
        for i, r in enumerate(records)
    ]


def with_offsets(records: list[Record], base: int = 0) -> list[Record]:
    return [record._replace(offset=base + i) for i, record in enumerate(records)]


def test_golden_bytes_decode() -> None:
    assert oracle.encode_batch(GOLDEN_BATCH) == GOLDEN
    assert list(decode(GOLDEN).records()) == GOLDEN_RECORDS


def test_golden_bytes_encode() -> None:
    raw, count = encode_batch(RecordColumns.from_records(GOLDEN_RECORDS), base_offset=7)
    native.stamp(raw, 7, 3)
    assert (bytes(raw), count) == (GOLDEN, 2)


def test_golden_header_fields() -> None:
    info = native.check(GOLDEN)
    assert (info.base_offset, info.last_offset, info.size, info.leader_epoch) == (7, 8, 85, 3)
    assert (info.record_count, info.last_offset_delta, info.codec, info.attributes) == (2, 1, 0, 0)
    assert (info.base_timestamp, info.max_timestamp) == (1_600_000_000_000, 1_600_000_000_001)
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (-1, -1, -1)
    assert (info.is_control, info.is_transactional, info.is_log_append_time) == (False, False, False)


@given(RECORDS)
@example([Record(-1, -(2**62), None, None, ()), Record(-1, 2**62, None, None, ())])
def test_encode_equals_oracle(records: list[Record]) -> None:
    raw, count = encode_batch(RecordColumns.from_records(records))
    batch = OracleBatch(
        oracle_records(records),
        base_timestamp=records[0].timestamp,
        max_timestamp=max(r.timestamp for r in records),
    )
    assert count == len(records)
    assert bytes(raw) == oracle.encode_batch(batch)


@given(RECORDS, st.integers(0, 2**62), st.sampled_from(list(Codec)))
def test_decode_equals_oracle(records: list[Record], base_offset: int, codec: Codec) -> None:
    block = oracle.encode_records(oracle_records(records))
    batch = OracleBatch(
        oracle_records(records),
        base_offset=base_offset,
        attributes=codec,
        base_timestamp=records[0].timestamp,
        max_timestamp=max(r.timestamp for r in records),
        block=compress(codec, block),
    )
    raw = oracle.encode_batch(batch)
    info = native.check(raw)
    assert list(decode(raw).records()) == with_offsets(records, base_offset)
    times = [r.timestamp for r in records]
    newest = base_offset + times.index(max(times))
    assert native.check_records(info, block) == (min(times), max(times), newest)
    assert native.newest(info, block) == (max(times), newest)


@given(RECORDS, TIMESTAMPS, st.integers(0, 45))
def test_first_at_equals_a_linear_search(records: list[Record], target: int, first_offset: int) -> None:
    raw, _ = encode_batch(RecordColumns.from_records(records))
    wanted = [(r.timestamp, i) for i, r in enumerate(records) if r.timestamp >= target and i >= first_offset]
    assert native.first_at(native.check(raw), raw[61:], target, first_offset) == (wanted[0] if wanted else None)


@settings(max_examples=40)
@given(RECORDS, st.integers(1, 400), st.sampled_from(list(Codec)))
def test_a_run_of_batches_is_the_same_records(records: list[Record], size_max: int, codec: Codec) -> None:
    columns = RecordColumns.from_records(records)
    first = 0
    run = b""
    while first < len(records):
        raw, count = encode_batch(columns, first, size_max=size_max, codec=codec, base_offset=first)
        block = decompress(codec, raw[61:])
        assert count == 1 or len(block) <= size_max
        first += count
        run += raw
    assert list(decode(run).records()) == with_offsets(records)


def test_producer_fields_are_written() -> None:
    raw, _ = encode_batch(
        RecordColumns.from_records(GOLDEN_RECORDS), producer=Producer(2**40, 9, 77, transactional=True)
    )
    batch = oracle.decode_batch(bytes(raw))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.attributes) == (2**40, 9, 77, 0x10)


@pytest.mark.parametrize(
    "value", [b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192, b"x" * 1_048_575, b"x" * 1_048_576]
)
def test_value_sizes_at_every_varint_width(value: bytes) -> None:
    record = Record(0, 5, value, value)
    raw, _ = encode_batch(RecordColumns.from_records([record]))
    assert bytes(raw) == oracle.encode_batch(OracleBatch([OracleRecord(0, 0, value, value)], base_timestamp=5))
    assert decode(raw).record(0) == record


@pytest.mark.parametrize("power", range(64))
def test_timestamp_deltas_at_every_varint_width(power: int) -> None:
    for step in (2**power - 1, -(2**power)):
        records = [Record(0, 0, None, b""), Record(1, step, None, b"")]
        raw, _ = encode_batch(RecordColumns.from_records(records))
        wanted = OracleBatch([OracleRecord(), OracleRecord(step, 1)], max_timestamp=max(0, step))
        assert bytes(raw) == oracle.encode_batch(wanted)
        assert list(decode(raw).records()) == records


def test_log_append_time_rules_every_record() -> None:
    raw = bytearray(GOLDEN)
    native.stamp_append_time(raw, 1_700_000_000_000)
    info = native.check(raw)
    assert info.is_log_append_time
    assert info.max_timestamp == 1_700_000_000_000
    assert decode(raw).timestamps.tolist() == [1_700_000_000_000] * 2
    assert native.check_records(info, raw[61:]) == (1_700_000_000_000, 1_700_000_000_000, 7)
    assert bytes(raw[61:]) == GOLDEN[61:]


def test_stamping_offsets_leaves_the_crc_right() -> None:
    raw = bytearray(GOLDEN)
    native.stamp(raw, 2**40, 12)
    info = native.check(raw)
    assert (info.base_offset, info.leader_epoch) == (2**40, 12)
    assert decode(raw).offsets.tolist() == [2**40, 2**40 + 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python reads its resources the old way
@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_reads_ours_and_we_read_theirs(codec: Codec) -> None:
    from kafka.record import MemoryRecords, MemoryRecordsBuilder

    records = [Record(i, 1000 + i, b"k%d" % i, b"value" * i, (("h", b"v"),) if i % 2 else ()) for i in range(50)]
    raw, _ = encode_batch(RecordColumns.from_records(records), codec=codec)
    theirs = MemoryRecords(bytes(raw)).next_batch()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [tuple(r) for r in records]

    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 20)
    for r in records:
        builder.append(timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers))
    builder.close()
    assert list(decode(builder.buffer()).records()) == records


def test_empty_timestamps_take_the_given_one() -> None:
    columns = RecordColumns.from_records([Record(-1, -1, None, b"a"), Record(-1, -1, None, b"b")])
    bare = RecordColumns(np.empty(0, np.int64), np.empty(0, np.int64), columns.keys, columns.values)
    raw, _ = encode_batch(bare, timestamp=1234)
    assert decode(raw).timestamps.tolist() == [1234, 1234]
