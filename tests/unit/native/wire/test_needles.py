"""Records found by their bytes: the same as by decoding all of them and looking at each."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.wire.aborted_filter import AbortedFilter
from kafkalite._native.wire.batch import BatchError
from kafkalite._native.wire.needles import (
    BEGINS,
    HOLDS,
    HOLDS_WORD,
    IN_HEADERS,
    IN_KEY,
    IN_VALUE,
    IS,
    NEEDLES_MAX,
    Needles,
)
from kafkalite.wire.record.batches import BatchReader, Producer, Seen, decode, encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.oracles.old_messages import CODECS, message_set

EVERYWHERE = IN_KEY | IN_VALUE | IN_HEADERS
TEXTS = st.lists(st.sampled_from([b"a", b"b", b"ab", b"_", b" ", b"-", b"\xc3\xa9", b"7"]), max_size=6).map(b"".join)
FIELDS = st.one_of(st.none(), TEXTS)
HEADERS = st.lists(st.tuples(st.sampled_from(["ab", "h"]), FIELDS), max_size=3).map(tuple)
RECORDS = st.lists(st.builds(lambda k, v, h: Record(0, 0, k, v, h), FIELDS, FIELDS, HEADERS), min_size=1, max_size=12)
NEEDLE = st.tuples(TEXTS.filter(bool), st.integers(1, EVERYWHERE), st.integers(IS, HOLDS_WORD))


def fits(field: bytes | None, needle: bytes, how: int) -> bool:
    """The same in plain Python."""
    if field is None:
        return False
    word = rb"[0-9A-Za-z_\x80-\xff]"
    before = rb"(?<!%b)" % word if re.match(word, needle) else b""
    after = rb"(?!%b)" % word if re.match(word, needle[-1:]) else b""
    by_rule = {
        IS: field == needle,
        BEGINS: field.startswith(needle),
        HOLDS: needle in field,
        HOLDS_WORD: re.search(before + re.escape(needle) + after, field) is not None,
    }
    return by_rule[how]


def found_in(record: Record, needles: list[tuple[bytes, int, int]]) -> bool:
    fields = [(IN_KEY, record.key), (IN_VALUE, record.value)]
    fields += [(IN_HEADERS, value) for _, value in record.headers]
    return not needles or any(
        where & wanted and fits(field, needle, how) for needle, wanted, how in needles for where, field in fields
    )


@given(
    st.lists(st.tuples(RECORDS, st.sampled_from(Codec)), max_size=5),
    st.lists(NEEDLE, max_size=3),
    st.integers(0, 30),
    st.integers(0, 60),
)
def test_what_is_found_is_what_a_look_at_each_record_finds(
    batches: list[tuple[list[Record], Codec]], rows: list[tuple[bytes, int, int]], start: int, end: int
) -> None:
    raw = b""
    offset = 0
    for records, codec in batches:
        raw += encode_batch(RecordColumns.from_records(records), base_offset=offset, codec=codec)[0]
        offset += len(records)
    wanted = list(decode(raw, start, end).records())
    with BatchReader(needles=Needles(rows)) as reader:
        reader.read(raw, start, end)
        assert list(reader.take().records()) == [record for record in wanted if found_in(record, rows)]
        assert reader.seen == Seen(len(wanted))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_old_segments_are_searched_too(magic: int, codec: int) -> None:
    raw = message_set(magic, codec, 40, 8)
    everything = list(decode(raw).records())
    sought = next(record.value for record in everything if record.value)
    with BatchReader(needles=Needles([(sought, IN_VALUE, IS)])) as reader:
        reader.read(raw, 41, 47)
        assert list(reader.take().records()) == [
            record for record in everything if record.value == sought and 41 <= record.offset < 47
        ]
        assert reader.seen.records == 6


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_aborted_records_are_not_found_and_are_counted(codec: Codec) -> None:
    who = Producer(7, 0, 0, transactional=True)
    columns = RecordColumns.from_records([Record(0, 0, b"id", b"v")] * 3)
    raw = encode_batch(columns, base_offset=10, producer=who, codec=codec)[0]
    raw += encode_batch(columns, base_offset=13, codec=codec)[0]
    with BatchReader(needles=Needles([(b"id", IN_KEY, IS)])) as reader:
        assert reader.read(raw, 11, aborted=AbortedFilter([(7, 10)])) == 16
        assert reader.take().offsets.tolist() == [13, 14, 15]
        assert reader.seen == Seen(records=3, aborted=2)


def test_a_damaged_batch_is_reported_though_it_is_empty() -> None:
    raw = bytearray(encode_batch(RecordColumns.from_records([Record(0, 0, b"k", b"value")] * 4))[0])
    raw[-3] ^= 1
    with BatchReader(needles=Needles([(b"nowhere", IN_VALUE, HOLDS)])) as reader:
        with pytest.raises(BatchError):
            reader.read(raw, 0)
        assert (reader.damaged_at, reader.seen) == (0, Seen())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(b"", IN_KEY, IS)], "without bytes"),
        ([(b"a", 0, IS)], "no field or rule"),
        ([(b"a", 8, IS)], "no field or rule"),
        ([(b"a", IN_KEY, 4)], "no field or rule"),
        ([(b"a", IN_KEY, IS)] * (NEEDLES_MAX + 1), "17 needles; at most 16 are allowed"),
    ],
)
def test_needles_that_are_none_are_refused(rows: list[tuple[bytes, int, int]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Needles(rows)
