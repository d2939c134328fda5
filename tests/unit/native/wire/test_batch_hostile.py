"""Malformed batches: any bytes give a value or BatchError, never a crash, a hang or an over-read."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.wire import batch as native
from kafkalite._native.wire.batch import BatchError
from kafkalite._native.wire.columns import ColumnBuilder
from kafkalite.wire.record.batches import decode, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.oracles import record_oracle as oracle
from tests.kit.oracles.record_oracle import OracleBatch, OracleRecord, zigzag_varint

TRUNCATED, OVERLONG, NEGATIVE, TOO_MANY = (
    BatchError.TRUNCATED,
    BatchError.OVERLONG,
    BatchError.NEGATIVE,
    BatchError.TOO_MANY,
)
BAD_MAGIC, BAD_CRC, BAD_COUNT = BatchError.BAD_MAGIC, BatchError.BAD_CRC, BatchError.BAD_COUNT
TRAILING, BAD_VALUE = BatchError.TRAILING, BatchError.BAD_VALUE

RECORDS = [
    OracleRecord(0, 0, b"key", b"value", [(b"h", b"x"), (b"null", None)]),
    OracleRecord(5, 1, None, b"second"),
    OracleRecord(-3, 2, b"third", None),
]
VALID = oracle.encode_batch(OracleBatch(RECORDS, base_timestamp=1000))


def status_of(raw: bytes) -> int:
    with pytest.raises(BatchError) as caught:
        native.check(raw)
    assert caught.value.index == -1
    return caught.value.status


def walk(block: bytes, count: int, **rules: object) -> None:
    """Every native reader of records over the same block; all must agree on whether it is sound."""
    info = native.read_info(oracle.encode_batch(OracleBatch(RECORDS, record_count=count, base_timestamp=1000)))
    native.check_records(info, block, **rules)  # type: ignore[arg-type]
    native.first_at(info, block, 2**62)
    native.newest(info, block)
    ColumnBuilder().add(info, block)


def assert_refused(block: bytes, count: int, status: int, index: int) -> None:
    info = native.read_info(oracle.encode_batch(OracleBatch(RECORDS, record_count=count, base_timestamp=1000)))
    with pytest.raises(BatchError) as caught:
        native.check_records(info, block)
    assert (caught.value.status, caught.value.index) == (status, index)
    builder = ColumnBuilder()
    with pytest.raises(BatchError):
        builder.add(info, block)
    assert (builder.count, builder.size) == (0, 0), "a refused batch left something behind"


def test_cut_at_each_byte() -> None:
    for size in range(len(VALID)):
        assert status_of(VALID[:size]) == TRUNCATED


def test_each_flipped_bit_behind_the_crc_field_is_a_crc_error() -> None:
    for position in range(21, len(VALID)):
        for bit in range(8):
            raw = bytearray(VALID)
            raw[position] ^= 1 << bit
            assert status_of(bytes(raw)) == BAD_CRC


@pytest.mark.parametrize(
    ("batch", "status"),
    [
        pytest.param(OracleBatch(RECORDS, magic=0), BAD_MAGIC, id="magic-0"),
        pytest.param(OracleBatch(RECORDS, magic=1), BAD_MAGIC, id="magic-1"),
        pytest.param(OracleBatch(RECORDS, magic=3), BAD_MAGIC, id="magic-3"),
        pytest.param(OracleBatch(RECORDS, magic=-1), BAD_MAGIC, id="magic-minus-1"),
        pytest.param(OracleBatch(RECORDS, batch_length=48), NEGATIVE, id="length-48"),
        pytest.param(OracleBatch(RECORDS, batch_length=0), NEGATIVE, id="length-0"),
        pytest.param(OracleBatch(RECORDS, batch_length=-(2**31)), NEGATIVE, id="length-int-min"),
        pytest.param(OracleBatch(RECORDS, batch_length=2**31 - 1), TRUNCATED, id="length-int-max"),
        pytest.param(OracleBatch(RECORDS, batch_length=49), TRAILING, id="length-too-short"),
        pytest.param(OracleBatch(RECORDS, crc=0), BAD_CRC, id="crc-0"),
        pytest.param(OracleBatch(RECORDS, record_count=2), BAD_COUNT, id="count-one-less"),
        pytest.param(OracleBatch(RECORDS, record_count=4), BAD_COUNT, id="count-one-more"),
        pytest.param(OracleBatch(RECORDS, record_count=0, last_offset_delta=-1), BAD_COUNT, id="count-0"),
        pytest.param(OracleBatch(RECORDS, record_count=-1, last_offset_delta=-2), BAD_COUNT, id="count-negative"),
        pytest.param(
            OracleBatch(RECORDS, record_count=-(2**31), last_offset_delta=2**31 - 1), BAD_COUNT, id="count-overflow"
        ),
    ],
)
def test_header_lies(batch: OracleBatch, status: int) -> None:
    assert status_of(oracle.encode_batch(batch)) == status


def test_two_batches_are_not_one() -> None:
    assert status_of(VALID + VALID) == TRAILING


@pytest.mark.parametrize("position", [-1, len(VALID) + 1, 2**40])
def test_position_outside_the_buffer(position: int) -> None:
    with pytest.raises(IndexError, match=r"outside a buffer"):
        native.read_info(VALID, position)


BLOCK = VALID[61:]


def record(body: bytes, length: int | None = None) -> bytes:
    return zigzag_varint(len(body) if length is None else length) + body


FRONT = b"\0\0\0"  # attributes, timestamp delta, offset delta

BAD_BLOCKS = [
    pytest.param(b"", 1, TOO_MANY, 0, id="nothing"),
    pytest.param(BLOCK, 2, TRAILING, 2, id="fewer-claimed"),
    pytest.param(BLOCK, 4, TRUNCATED, 3, id="more-claimed"),
    pytest.param(BLOCK, 2**31 - 1, TOO_MANY, 0, id="count-int-max"),
    pytest.param(BLOCK, -1, TOO_MANY, 0, id="count-negative"),
    pytest.param(record(FRONT + b"\1\1\0", -1), 1, NEGATIVE, 0, id="length-minus-1"),
    pytest.param(record(FRONT + b"\1\1\0", 5), 1, NEGATIVE, 0, id="length-below-the-smallest"),
    pytest.param(record(FRONT + b"\1\1\0", -(2**31)), 1, NEGATIVE, 0, id="length-int-min"),
    pytest.param(record(FRONT + b"\1\1\0", 7), 1, TRUNCATED, 0, id="length-one-too-much"),
    pytest.param(record(FRONT + b"\1\1\0", 2**31 - 1), 1, TRUNCATED, 0, id="length-int-max"),
    pytest.param(b"\xff" * 5 + b"\x01" + bytes(20), 1, OVERLONG, 0, id="length-overlong"),
    pytest.param(b"\xff\xff\xff\xff\x1f" + bytes(20), 1, OVERLONG, 0, id="length-33-bits"),
    pytest.param(b"\x80" * 7, 1, OVERLONG, 0, id="length-never-ends"),
    pytest.param(record(b"\0" + b"\xff" * 10 + b"\0\1\1\0"), 1, OVERLONG, 0, id="timestamp-overlong"),
    pytest.param(record(FRONT + b"\3\1\0"), 1, NEGATIVE, 0, id="key-size-minus-2"),
    pytest.param(record(FRONT + zigzag_varint(-(2**31)) + b"\1\0"), 1, NEGATIVE, 0, id="key-size-int-min"),
    pytest.param(record(FRONT + b"\x0a" + b"\1\0"), 1, TRUNCATED, 0, id="key-beyond-the-record"),
    pytest.param(record(FRONT + zigzag_varint(2**31 - 1) + b"\1\0"), 1, TRUNCATED, 0, id="key-int-max"),
    pytest.param(record(FRONT + b"\1\3\0"), 1, NEGATIVE, 0, id="value-size-minus-2"),
    pytest.param(record(FRONT + b"\1\x0a\0"), 1, TRUNCATED, 0, id="value-beyond-the-record"),
    pytest.param(record(FRONT + b"\1\1\1"), 1, NEGATIVE, 0, id="header-count-minus-1"),
    pytest.param(record(FRONT + b"\1\1\2"), 1, OVERLONG, 0, id="header-missing"),
    pytest.param(record(FRONT + b"\1\1" + zigzag_varint(2**31 - 1) + bytes(9)), 1, OVERLONG, 0, id="headers-int-max"),
    pytest.param(record(FRONT + b"\1\1\2\1\1"), 1, NEGATIVE, 0, id="header-key-null"),
    pytest.param(record(FRONT + b"\1\1\2\x08\1"), 1, TRUNCATED, 0, id="header-key-beyond-the-record"),
    pytest.param(record(FRONT + b"\1\1\2\0\3"), 1, NEGATIVE, 0, id="header-value-size-minus-2"),
    pytest.param(record(FRONT + b"\1\1\2\0\x08"), 1, TRUNCATED, 0, id="header-value-beyond-the-record"),
    pytest.param(record(FRONT + b"\1\1\2\0\1\0"), 1, TRAILING, 0, id="bytes-behind-the-headers"),
    pytest.param(record(FRONT + b"\1\1\0\0"), 1, TRAILING, 0, id="bytes-behind-no-headers"),
]


@pytest.mark.parametrize(("block", "count", "status", "index"), BAD_BLOCKS)
def test_record_lies(block: bytes, count: int, status: int, index: int) -> None:
    assert_refused(block, count, status, index)


def test_block_cut_at_each_byte() -> None:
    for size in range(len(BLOCK)):
        with pytest.raises(BatchError):
            walk(BLOCK[:size], 3)


def test_a_good_block_before_a_bad_one_stays() -> None:
    builder = ColumnBuilder()
    info = native.read_info(VALID)
    builder.add(info, BLOCK)
    with pytest.raises(BatchError):
        builder.add(info, BLOCK[:-1])
    builder.add(info, BLOCK)
    offsets, timestamps, keys, values, headers, _ = builder.take()
    assert offsets.tolist() == [0, 1, 2] * 2
    assert timestamps.tolist() == [1000, 1005, 997] * 2
    assert bytes(keys[0]) == b"keythird" * 2
    assert bytes(values[0]) == b"valuesecond" * 2
    assert headers is not None
    assert headers[0].tolist() == [0, 2, 2, 2, 4, 4, 4]


@pytest.mark.parametrize(
    ("rules", "status", "index"),
    [
        pytest.param({"key_required": True}, BAD_VALUE, 1, id="key-required"),
        pytest.param({"timestamp_min": 1001}, BAD_VALUE, 0, id="too-old"),
        pytest.param({"timestamp_max": 1004}, BAD_VALUE, 1, id="too-new"),
    ],
)
def test_rules_name_the_first_bad_record(rules: dict[str, object], status: int, index: int) -> None:
    with pytest.raises(BatchError) as caught:
        walk(BLOCK, 3, **rules)
    assert (caught.value.status, caught.value.index) == (status, index)


def test_a_record_without_timestamp_passes_time_bounds() -> None:
    block = oracle.encode_records([OracleRecord(-1001, 0)])
    walk(block, 1, timestamp_min=500, timestamp_max=1500)


@pytest.mark.parametrize("deltas", [[1, 2, 3], [0, 2, 3], [0, 1, 1], [0, 1, -1], [0, 1, 2**31 - 1]])
def test_offset_deltas_must_be_dense_when_a_producer_sends_them(deltas: list[int]) -> None:
    block = oracle.encode_records([OracleRecord(0, delta) for delta in deltas])
    with pytest.raises(BatchError) as caught:
        walk(block, 3)
    assert caught.value.status == BAD_COUNT
    walk(block, 3, dense=False)


def test_timestamp_delta_that_overflows_wraps() -> None:
    block = oracle.encode_records([OracleRecord(2**63 - 1, 0)])
    info = native.read_info(
        oracle.encode_batch(OracleBatch(RECORDS, record_count=1, base_timestamp=1000, max_timestamp=0))
    )
    assert native.check_records(info, block)[0] == 1000 + 2**63 - 1 - 2**64


@given(st.binary(max_size=200), st.integers(-5, 40))
def test_noise_is_a_value_or_our_error(block: bytes, count: int) -> None:
    try:
        walk(block, count)
    except BatchError as error:
        assert error.index <= max(count, 0)  # noqa: PT017


def test_mutated_blocks_are_values_or_our_error() -> None:
    source = random.Random(7)
    for _ in range(20_000):
        block = bytearray(BLOCK)
        for _ in range(source.randrange(1, 4)):
            block[source.randrange(len(block))] = source.randrange(256)
        try:
            walk(bytes(block), 3)
        except BatchError:
            continue


@given(st.binary(max_size=150))
def test_header_noise_is_a_value_or_our_error(raw: bytes) -> None:
    for call in (native.read_info, native.check):
        try:
            call(raw)
        except BatchError:
            continue
    native.crc_matches(raw)


def test_decode_leaves_a_cut_off_last_batch() -> None:
    for size in range(len(VALID)):
        assert len(decode(VALID + VALID[:size])) == 3


def test_seal_and_stamp_refuse_what_is_no_batch() -> None:
    from kafkalite._native.wire.columns import seal

    with pytest.raises(BatchError):
        native.stamp(bytearray(60), 0, 0)
    with pytest.raises(BatchError):
        native.stamp_append_time(bytearray(VALID) + b"x", 0)
    with pytest.raises(ValueError, match="60 bytes"):
        seal(bytearray(60), attributes=0, count=1, base_timestamp=0, max_timestamp=0)
    with pytest.raises(ValueError, match="without a record"):
        seal(bytearray(61), attributes=0, count=0, base_timestamp=0, max_timestamp=0)


def test_columns_that_lie_outside_their_data() -> None:
    import numpy as np

    from kafkalite.wire.record.columns import BytesColumn

    good = RecordColumns.from_records([Record(-1, 1, b"k", b"value")] * 3)
    for start, end in [(-1, 3), (3, 2), (0, 16), (2**62, 2**62 + 1)]:
        starts = np.array([0, start, 0])
        ends = np.array([1, end, 1])
        bad = RecordColumns(good.offsets, good.timestamps, good.keys, BytesColumn(good.values.data, starts, ends))
        with pytest.raises(ValueError, match="record 1"):
            encode_batch(bad)
    short = RecordColumns(good.offsets, good.timestamps[:2], good.keys, good.values)
    with pytest.raises(ValueError, match="2 timestamps for 3 records"):
        encode_batch(short)
    with pytest.raises(ValueError, match="no record lies"):
        encode_batch(good, 3)
