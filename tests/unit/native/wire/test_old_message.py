"""Message sets of magic 0 and 1, as brokers serve them out of segments of Kafka 0.8 to 0.10.

The oracle is kafka-python's builder of them.
"""

import contextlib
import random
import struct
import zlib

import pytest

from kafkalite._native.wire.batch import BatchError
from kafkalite._native.wire.columns import following_offset, wrapper_at
from kafkalite.wire.record.batches import BatchReader, decode, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import CompressionError, mend_old_lz4, xxh32_short
from tests.kit.oracles.old_messages import CODECS, ITEMS, STAMP, message_set


def expected(magic: int, first: int = 0, count: int = 4) -> list[Record]:
    return [Record(first + i, STAMP + i if magic else -1, *ITEMS[i % len(ITEMS)]) for i in range(count)]


def sealed(entry: bytearray) -> bytes:
    """With its CRC put right."""
    entry[12:16] = zlib.crc32(entry[16:]).to_bytes(4, "big")
    return bytes(entry)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(magic: int, codec: int) -> None:
    raw = message_set(magic, codec, 40) + message_set(magic, codec, 44)
    assert following_offset(raw, 40) == 48
    assert list(decode(raw).records()) == expected(magic, 40) + expected(magic, 44)


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_asked_offsets(codec: int) -> None:
    raw = message_set(1, codec, 40, 8)
    with BatchReader() as reader:
        assert reader.read(raw, 42, 45) == 45
        assert reader.take().offsets.tolist() == [42, 43, 44]
        assert reader.read(raw, 48) == 48
        assert reader.read(raw, 40, 40) == 40
        assert len(reader.take()) == 0


def test_old_sets_and_batches_in_one_answer() -> None:
    """An upgraded topic: the old segments end where the new ones begin, here inside one answer."""
    new, _ = encode_batch(RecordColumns.from_records([Record(-1, STAMP, b"n", b"new")]), base_offset=12)
    raw = message_set(0, 0, 0) + message_set(0, 1, 4) + message_set(1, 2, 8) + bytes(new)
    columns = decode(raw)
    assert columns.offsets.tolist() == list(range(13))
    assert columns.values[12] == b"new"


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(codec: int) -> None:
    raw = bytearray(message_set(1, codec))
    size = 12 + int.from_bytes(raw[8:12], "big")
    raw[17] |= 0x08
    raw[18:26] = (STAMP + 99).to_bytes(8, "big")
    columns = decode(sealed(raw[:size]) + bytes(raw[size:]))
    stamped = len(columns) if codec else 1
    assert columns.timestamps.tolist()[:stamped] == [STAMP + 99] * stamped
    assert columns.timestamp_types is not None
    assert columns.timestamp_types.tolist() == [1] * stamped + [0] * (len(columns) - stamped)


def test_pieces_end_between_entries() -> None:
    raw = message_set(1, 0, 0, 8)
    seen = []
    with BatchReader() as reader:
        offset = 0
        while offset < 8:
            offset = reader.read(raw, offset, count_max=3)
            seen.append(reader.take().offsets.tolist())
    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_fields_that_are_not_wanted_have_no_items() -> None:
    with BatchReader(fields=["keys"]) as reader:
        reader.read(message_set(1, 1) + message_set(1, 0, 4), 0)
        columns = reader.take()
    assert (len(columns), len(columns.keys), len(columns.values)) == (8, 8, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_cut_at_each_byte(codec: int) -> None:
    """An incomplete message is left for the next fetch."""
    raw = message_set(1, 0, 0, 1) + message_set(1, codec, 1, 1)
    whole = len(message_set(1, 0, 0, 1))
    for size in range(whole, len(raw)):
        with BatchReader() as reader:
            assert reader.read(raw[:size], 0) == 1
            assert reader.count == 1
        assert following_offset(raw[:size], 0) == 1


@pytest.mark.parametrize("codec", [0, 1])
def test_each_flipped_bit_is_noticed(codec: int) -> None:
    raw = message_set(1, codec, 7, 2 if codec else 1)
    for position in range(12, len(raw)):
        bad = bytearray(raw)
        bad[position] ^= 0x10
        with BatchReader() as reader, pytest.raises((BatchError, CompressionError)):
            reader.read(bytes(bad), 7)


def entry(body: bytes, *, size: int | None = None, magic: int = 1, attributes: int = 0, offset: int = 0) -> bytes:
    """Return an entry with a valid CRC and any other faults."""
    inside = struct.pack(">bb", magic, attributes) + body
    length = 4 + len(inside) if size is None else size
    return struct.pack(">qiI", offset, length, zlib.crc32(inside)) + inside


STAMPED = struct.pack(">q", STAMP)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, 5) + b"abc"), id="value-beyond-the-entry"),
        pytest.param(entry(STAMPED + struct.pack(">ii", 2**31 - 1, -1)), id="key-of-2-gib"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -2, -1)), id="key-size-minus-2"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, -1) + b"!"), id="bytes-behind-the-value"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, -1), size=13), id="size-below-the-smallest"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, -1), size=-1), id="size-negative"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, -1), attributes=1), id="a-wrapper-of-nothing"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, 3) + b"abc", attributes=1), id="a-wrapper-of-garbage"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, 3) + b"abc", attributes=4), id="zstd-in-magic-1"),
        pytest.param(entry(STAMPED + struct.pack(">ii", -1, 3) + b"abc", attributes=7), id="no-such-codec"),
    ],
)
def test_lies_are_refused(raw: bytes) -> None:
    good = entry(STAMPED + struct.pack(">ii", -1, 1) + b"x")
    with BatchReader() as reader:
        with pytest.raises((BatchError, CompressionError)):
            reader.read(good + bytes(7) + b"\1" + raw[8:], 0)
        assert reader.take().offsets.tolist() == [0]
        assert reader.damaged_at == 1


def test_a_wrapper_inside_a_wrapper_is_refused_and_leaves_nothing() -> None:
    inner = entry(STAMPED + struct.pack(">ii", -1, 1) + b"x") + message_set(1, 1)
    wrapper = entry(STAMPED + struct.pack(">i", -1) + packed(inner), attributes=1, offset=4)
    with BatchReader() as reader:
        with pytest.raises(BatchError):
            reader.read(wrapper, 0)
        assert reader.count == 0


@pytest.mark.parametrize("left_out", [1, 5, 20])
def test_a_cut_inner_set_is_refused(left_out: int) -> None:
    inner = message_set(1, 0)[:-left_out]
    wrapper = entry(STAMPED + struct.pack(">i", -1) + packed(inner), attributes=1, offset=3)
    with BatchReader() as reader:
        with pytest.raises(BatchError):
            reader.read(wrapper, 0)
        assert reader.count == 0


def packed(inner: bytes) -> bytes:
    data = zlib.compress(inner, wbits=31)
    return struct.pack(">i", len(data)) + data


def test_garbage_never_crashes() -> None:
    """Random damage to good sets of every kind, CRCs unchecked, so that the parser meets it."""
    dice = random.Random(20)
    good = [message_set(magic, codec, 5) for magic in (0, 1) for codec in CODECS]
    for _ in range(3000):
        raw = bytearray(dice.choice(good) + dice.choice(good))
        for _ in range(dice.randint(1, 6)):
            raw[dice.randrange(len(raw))] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        del raw[dice.randint(0, len(raw)) :]
        following_offset(bytes(raw), 0)
        with BatchReader(check_crcs=False, decompressed_size_max=1_000_000) as reader:
            with contextlib.suppress(BatchError, CompressionError):
                reader.read(bytes(raw), 0)
            assert len(list(reader.take().records())) <= len(raw)


def test_wrapper_at_says_nothing_about_what_is_none() -> None:
    assert wrapper_at(b"", 0, check_crcs=True) is None
    assert (
        wrapper_at(bytes(encode_batch(RecordColumns.from_records([Record(-1, 0, None, b"x")]))[0]), 0, check_crcs=True)
        is None
    )
    assert wrapper_at(message_set(1, 1)[:-1], 0, check_crcs=True) is None
    assert wrapper_at(message_set(1, 1), 10_000, check_crcs=True) is None


def test_the_short_hash() -> None:
    """Values of the reference implementation."""
    assert xxh32_short(b"") == 0x02CC5D05
    assert xxh32_short(b"a") == 0x550D7456
    assert xxh32_short(b"abc") == 0x32D153FF
    assert xxh32_short(b"0123456789") == 0x950C9C0A


def test_an_old_lz4_frame_is_mended_and_other_bytes_stay() -> None:
    assert mend_old_lz4(b"short") == b"short"
    assert mend_old_lz4(b"not a frame at all") == b"not a frame at all"
    frame = b"\x04\x22\x4d\x18\x60\x40\x00rest"
    assert bytes(mend_old_lz4(frame))[:6] == frame[:6]
    assert bytes(mend_old_lz4(frame))[6] == 0x82
