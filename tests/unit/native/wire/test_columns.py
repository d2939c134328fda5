"""Columns as Python sees them, and what a reader leaves out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.wire.aborted_filter import AbortedFilter
from kafkalite._native.wire.batch import BatchError
from kafkalite.wire.record.batches import BatchReader, Producer, decode, encode_batch, whole_batches
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.oracles import record_oracle as oracle
from tests.kit.oracles.record_oracle import OracleBatch, OracleRecord

ITEMS = [b"a", None, b"", b"longer", None]


def test_bytes_column_is_a_sequence() -> None:
    column = BytesColumn.from_items(ITEMS)
    assert list(column) == ITEMS
    assert [column[i] for i in range(5)] == ITEMS
    assert (len(column), column[-2], column.size) == (5, b"longer", 7)
    assert list(column[1:4]) == [None, b"", b"longer"]
    assert column.offsets.tolist() == [0, 1, 1, 1, 7, 7]
    assert None in column
    assert column.index(b"longer") == 3


def test_empty_column() -> None:
    column = BytesColumn.from_items([])
    assert list(column) == []
    assert (column.size, column.offsets.tolist()) == (0, [0])


def test_column_with_gaps() -> None:
    column = BytesColumn(b"one\ntwo\n", np.array([0, 4]), np.array([3, 7]))
    assert list(column) == [b"one", b"two"]
    assert column.size == 6
    with pytest.raises(ValueError, match="not contiguous"):
        _ = column.offsets


def test_all_items_at_once_are_those_that_come_one_after_the_other() -> None:
    apart = BytesColumn(b"ab" + bytes(100_000) + b"cd", np.array([0, 100_002]), np.array([2, 100_004]))
    for column in (
        BytesColumn.from_items([]),
        BytesColumn.from_items([None]),
        BytesColumn.from_items([b"a", None, b"", b"bc"]),
        BytesColumn.from_items([b"a", None, b"", b"bc"])[1:],
        BytesColumn.from_items([b"a", b"b", b"c"]).chosen(np.array([2, 0])),
        apart,
    ):
        assert column.to_list() == list(column)


def test_headers_per_record() -> None:
    items = [(), (("a", b"1"), ("b", None)), (), (("c", b""),)]
    headers = HeaderColumns.from_items(items)
    assert [headers[i] for i in range(len(headers))] == items
    assert len(HeaderColumns.from_items([])) == 0


def test_header_key_that_is_not_utf8_is_shown_not_refused() -> None:
    raw = oracle.encode_batch(OracleBatch([OracleRecord(headers=[(b"\xff", b"v")])]))
    assert decode(raw).record(0).headers == (("\ufffd", b"v"),)


def run_of(*counts: int) -> bytes:
    """Return batches with these record counts, dense offsets from 0, the value being the offset."""
    out = b""
    offset = 0
    for count in counts:
        records = [Record(-1, offset + i, None, b"%d" % (offset + i)) for i in range(count)]
        raw, _ = encode_batch(RecordColumns.from_records(records), base_offset=offset)
        out += raw
        offset += count
    return out


@pytest.mark.parametrize(
    ("offset", "end", "wanted", "following"),
    [
        (0, None, range(9), 9),
        (4, None, range(4, 9), 9),
        (3, 4, range(3, 4), 4),
        (0, 5, range(5), 5),
        (8, 9, range(8, 9), 9),
        (9, None, range(0), 9),
        (20, None, range(0), 20),
        (2, 2, range(0), 2),
    ],
)
def test_only_the_asked_offsets(offset: int, end: int | None, wanted: range, following: int) -> None:
    with BatchReader() as reader:
        assert reader.read(run_of(3, 1, 5), offset, end) == following
        assert reader.take().offsets.tolist() == list(wanted)
        assert len(reader.take()) == 0


def test_several_reads_collect_into_one() -> None:
    first, second = run_of(3), run_of(3, 4)[len(run_of(3)) :]
    with BatchReader() as reader:
        position = reader.read(first, 0)
        position = reader.read(second, position)
        assert (position, reader.count) == (7, 7)
        columns = reader.take()
    assert [record.value for record in columns.records()] == [b"%d" % i for i in range(7)]


def test_taken_columns_outlive_the_reader() -> None:
    with BatchReader() as reader:
        reader.read(run_of(1000), 0)
        columns = reader.take()
    assert columns.values[999] == b"999"


def test_wrong_crc_stops_behind_the_good_batches() -> None:
    raw = bytearray(run_of(2, 3))
    raw[-2] ^= 1  # the last byte of the last value
    with BatchReader() as reader:
        with pytest.raises(BatchError, match="CRC"):
            reader.read(raw, 0)
        assert reader.take().offsets.tolist() == [0, 1]
    with BatchReader(check_crcs=False) as reader:
        assert reader.read(raw, 0) == 5


def test_a_compacted_batch_moves_on_to_its_last_offset() -> None:
    raw = oracle.encode_batch(
        OracleBatch([OracleRecord(0, 3, None, b"x")], base_offset=10, last_offset_delta=9, record_count=1)
    )
    with BatchReader() as reader:
        assert reader.read(raw, 10) == 20
        assert reader.take().offsets.tolist() == [13]


def test_an_emptied_batch_moves_on_too() -> None:
    raw = oracle.encode_batch(OracleBatch([], base_offset=10, last_offset_delta=4, max_timestamp=0))
    with BatchReader() as reader:
        assert reader.read(raw, 10) == 15
        assert reader.count == 0


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    return oracle.encode_batch(
        OracleBatch(
            [OracleRecord(0, 0, key, bytes(6))],
            base_offset=offset,
            attributes=0x30,
            producer_id=producer_id,
            producer_epoch=0,
        )
    )


def data(offset: int, producer_id: int, count: int = 2) -> bytes:
    records = [Record(-1, 0, None, b"%d" % (offset + i)) for i in range(count)]
    producer = Producer(producer_id, 0, 0, transactional=producer_id >= 0)
    return bytes(encode_batch(RecordColumns.from_records(records), base_offset=offset, producer=producer)[0])


ABORT, COMMIT = 0, 1
TRANSACTIONS = b"".join(
    [
        data(0, 7),  # aborted at 6
        data(2, 8),  # committed at 7
        data(4, -1),
        marker(6, 7, ABORT),
        marker(7, 8, COMMIT),
        data(8, 7),  # a later transaction of the same producer, committed
        marker(10, 7, COMMIT),
    ]
)


def test_read_committed_drops_aborted_records_only() -> None:
    with BatchReader() as reader:
        assert reader.read(TRANSACTIONS, 0, aborted=AbortedFilter([(7, 0)])) == 11
        assert reader.take().offsets.tolist() == [2, 3, 4, 5, 8, 9]


class History:
    """A log of transactions as a broker keeps it: a few producers, each a transaction at a time."""

    def __init__(self, steps: list[tuple[int, int, int, bool]]) -> None:
        self.raw = b""
        self.end = 0
        self.committed: list[int] = []
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, marker offset)"""
        running: dict[int, list[int]] = {}
        for producer_id, count, ending, packed in steps:
            if ending and producer_id in running:
                self._finish(producer_id, running.pop(producer_id), ending == 2)
            records = [Record(-1, 0, None, b"x")] * count
            who = Producer(producer_id, 0, 0, transactional=producer_id >= 0)
            codec = Codec.LZ4 if packed else Codec.NONE
            columns = RecordColumns.from_records(records)
            self.raw += encode_batch(columns, base_offset=self.end, producer=who, codec=codec)[0]
            offsets = list(range(self.end, self.end + count))
            if producer_id >= 0:
                running.setdefault(producer_id, []).extend(offsets)
            else:
                self.committed += offsets
            self.end += count
        for producer_id, offsets in running.items():
            self._finish(producer_id, offsets, commit=False)
        self.committed.sort()

    def _finish(self, producer_id: int, offsets: list[int], commit: bool) -> None:
        self.raw += marker(self.end, producer_id, COMMIT if commit else ABORT)
        if commit:
            self.committed += offsets
        else:
            self.aborted.append((producer_id, offsets[0], self.end))
        self.end += 1


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 4), st.integers(0, 2), st.booleans()), max_size=25),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(1, 1000),
)
def test_read_committed_sees_what_was_committed(
    steps: list[tuple[int, int, int, bool]], start: int, end: int, size_max: int
) -> None:
    """From any offset, cut anywhere: the broker names every abort whose marker is not before the offset."""
    history = History(steps)
    start, end = min(start, history.end), min(end, history.end)
    batches = [(info, history.raw[at : at + info.size]) for at, info in whole_batches(history.raw)]
    fetched = b"".join(raw for info, raw in batches if info.last_offset >= start)
    aborted = AbortedFilter((who, first) for who, first, last in history.aborted if last >= start)
    seen: list[int] = []
    with BatchReader() as reader:
        offset = start
        while offset < end:
            following = reader.read(fetched, offset, end, aborted, size_max=size_max)
            assert following > offset
            offset = following
            seen += reader.take().offsets.tolist()
    assert seen == [offset for offset in history.committed if start <= offset < end]


def test_an_end_in_a_gap_is_reached() -> None:
    """Compaction took out 2 to 9; a reader up to 5 must not wait for them."""
    raw = data(0, -1) + data(10, -1)
    for codec in (Codec.NONE, Codec.ZSTD):
        packed = encode_batch(RecordColumns.from_records([Record(-1, 0, None, b"x")]), base_offset=12, codec=codec)[0]
        with BatchReader() as reader:
            assert reader.read(raw, 0, 5) == 5
            assert reader.read(raw, 2, 5) == 5
            assert reader.read(packed, 2, 5) == 5
            assert reader.take().offsets.tolist() == [0, 1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_where_the_damage_is(codec: Codec) -> None:
    columns = RecordColumns.from_records([Record(-1, 0, None, b"x")] * 3)
    batches = [encode_batch(columns, base_offset=base, codec=codec)[0] for base in (0, 3, 6)]
    batches[1][-1] ^= 1
    with BatchReader() as reader:
        with pytest.raises(BatchError, match="CRC"):
            reader.read(b"".join(batches), 0)
        assert reader.damaged_at == 3
        assert reader.take().offsets.tolist() == [0, 1, 2]


def test_read_uncommitted_drops_markers_only() -> None:
    with BatchReader() as reader:
        assert reader.read(TRANSACTIONS, 0) == 11
        assert reader.take().offsets.tolist() == [0, 1, 2, 3, 4, 5, 8, 9]


def test_decompressing_stops_at_the_requested_size() -> None:
    records = [Record(-1, 0, None, bytes(1000))] * 10
    packed = b""
    for base in (0, 10, 20):
        packed += encode_batch(RecordColumns.from_records(records), base_offset=base, codec=Codec.ZSTD)[0]
    with BatchReader() as reader:
        seen = []
        offset = 0
        while offset < 30:
            offset = reader.read(packed, offset, size_max=5000)
            seen.append(reader.take().offsets.tolist())
    assert seen == [list(range(10)), list(range(10, 20)), list(range(20, 30))]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_headers_count_towards_the_requested_bytes(codec: Codec) -> None:
    record = Record(-1, 0, None, b"", (("h", bytes(1000)),))
    columns = RecordColumns.from_records([record])
    packed = b"".join(encode_batch(columns, base_offset=base, codec=codec)[0] for base in range(6))
    with BatchReader() as reader:
        assert reader.read(packed, 0, size_max=2000) == 2
        assert reader.size == 2 * (1 + 1000)
    with BatchReader(fields=["values"]) as reader:
        assert reader.read(packed, 0, size_max=2000) == 6


def test_whole_batches_positions() -> None:
    raw = run_of(1, 2, 3)
    found = [(position, info.base_offset) for position, info in whole_batches(raw + raw[:30])]
    assert [offset for _, offset in found] == [0, 1, 3]
    assert found[0][0] == 0


def test_records_without_offsets_and_timestamps() -> None:
    columns = RecordColumns.from_records([Record(1, 2, b"k", b"v")])
    bare = RecordColumns(np.empty(0, np.int64), np.empty(0, np.int64), columns.keys, columns.values)
    assert bare.record(0) == Record(-1, -1, b"k", b"v")
    assert list(bare.records()) == [Record(-1, -1, b"k", b"v")]
    assert (len(bare), bare.size) == (1, 2)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from(list(Codec))), min_size=1, max_size=8),
    st.integers(1, 60),
    st.integers(1, 400),
    st.integers(0, 100),
)
def test_pieces_are_the_whole(batches: list[tuple[int, Codec]], count_max: int, size_max: int, first: int) -> None:
    """A piece ends with the batch that fills it, for any codecs; nothing is lost between two pieces."""
    raw, end = b"", 0
    for count, codec in batches:
        records = [Record(end + i, end + i, b"k", b"%d" % (end + i)) for i in range(count)]
        raw += encode_batch(RecordColumns.from_records(records), base_offset=end, codec=codec)[0]
        end += count
    seen: list[int] = []
    offset = min(first, end)
    with BatchReader() as reader:
        while offset < end:
            following = reader.read(raw, offset, count_max=count_max, size_max=size_max)
            piece = reader.take()
            assert following > offset
            assert len(piece) < count_max + 30
            assert list(piece.values) == [b"%d" % number for number in piece.offsets]
            seen += piece.offsets.tolist()
            offset = following
    assert seen == list(range(min(first, end), end))


@pytest.mark.parametrize("fields", [[], ["keys"], ["values"], ["headers"], ["keys", "headers"]])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_fields_that_are_not_wanted_are_not_there(fields: list[str], codec: Codec) -> None:
    records = [Record(i, i, b"key", b"value", (("h", b"%d" % i),)) for i in range(100)]
    with BatchReader(fields=fields) as reader:
        assert reader.read(encode_batch(RecordColumns.from_records(records), codec=codec)[0], 0) == 100
        columns = reader.take()
    assert (len(columns), columns.timestamps.tolist()) == (100, list(range(100)))
    assert list(columns.keys) == ([b"key"] * 100 if "keys" in fields else [])
    assert list(columns.values) == ([b"value"] * 100 if "values" in fields else [])
    assert (columns.headers is not None) == ("headers" in fields)


def test_a_field_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        BatchReader(fields=["offsets"])


def test_whose_time_it_is() -> None:
    raw = run_of(2) + oracle.encode_batch(
        OracleBatch([OracleRecord(0, 0, None, b"x")], base_offset=2, attributes=0x08, max_timestamp=77)
    )
    columns = decode(raw)
    assert columns.timestamps.tolist() == [0, 1, 77]
    assert columns.timestamp_types is not None
    assert columns.timestamp_types.tolist() == [0, 0, 1]
