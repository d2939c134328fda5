"""Text to columns and back, against Python's own split, partition and formatting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._native.wire import lines
from kafkalite._native.wire.lines import OPERATIONS
from kafkalite.wire.record.columns import BytesColumn, Record, RecordColumns

SEPARATORS = st.sampled_from([b"\n", b";", b"\r\n", b"::", b"\0"])
TEXT = st.lists(st.sampled_from([b"\n", b"\r\n", b";", b":", b"::", b"\0", b"a", b"word", b""]), max_size=60).map(
    b"".join
)


def column_of(data: bytes, separator: bytes) -> BytesColumn:
    starts, ends, _ = lines.split_lines(data, separator)
    return BytesColumn(data, starts, ends)


@given(TEXT, SEPARATORS)
def test_split_lines_equals_split(data: bytes, separator: bytes) -> None:
    starts, ends, consumed = lines.split_lines(data, separator)
    *whole, rest = data.split(separator)
    assert list(BytesColumn(data, starts, ends)) == whole
    assert data[consumed:] == rest


@given(TEXT, SEPARATORS)
def test_split_keys_equals_partition(data: bytes, separator: bytes) -> None:
    column = column_of(data, b"\n")
    key_ends, value_starts, no_key = lines.split_keys(column, separator)
    keys = list(BytesColumn(data, column.starts, key_ends, no_key))
    values = list(BytesColumn(data, value_starts, column.ends))
    for line, key, value in zip(column, keys, values, strict=True):
        before, found, after = line.partition(separator)
        assert (key, value) == ((before, after) if found else (None, line))


def test_empty_separators_are_refused() -> None:
    column = column_of(b"a\n", b"\n")
    with pytest.raises(ValueError, match="separator is empty"):
        lines.split_lines(b"a", b"")
    with pytest.raises(ValueError, match="separator is empty"):
        lines.split_keys(column, b"")


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=30), st.binary(max_size=3))
def test_equals(items: list[bytes | None], text: bytes) -> None:
    assert lines.equals(BytesColumn.from_items(items), text).tolist() == [item == text for item in items]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python reads its resources the old way
@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=20), st.integers(1, 1000))
def test_partitions_equal_kafka_pythons(keys: list[bytes | None], count: int) -> None:
    from kafka.partitioner.default import murmur2

    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert lines.partitions_of(BytesColumn.from_items(keys), count).tolist() == expected


def test_no_partitions() -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        lines.partitions_of(BytesColumn.from_items([b"x"]), 0)


RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.integers(-(2**63), 2**63 - 1),
        timestamp=st.integers(-(2**63), 2**63 - 1),
        key=st.one_of(st.none(), st.binary(max_size=10)),
        value=st.one_of(st.none(), st.binary(max_size=10)),
        headers=st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=4))), max_size=3).map(
            tuple
        ),
    ),
    max_size=20,
)


def expected_text(record: Record, null: bytes) -> bytes:
    def text(item: bytes | None) -> bytes:
        return null if item is None else item

    headers = b",".join(key.encode() + b"=" + text(value) for key, value in record.headers)
    sizes = [b"%d" % (-1 if item is None else len(item)) for item in (record.key, record.value)]
    parts = [text(record.key), text(record.value), b"%d" % record.offset, b"%d" % record.timestamp, *sizes, headers]
    return b"|".join(parts) + b"\n"


@given(RECORDS, st.sampled_from([b"", b"NULL"]))
def test_render_equals_formatting(records: list[Record], null: bytes) -> None:
    names = ["key", "value", "offset", "timestamp", "key_size", "value_size", "headers"]
    steps = [step for name in names for step in ((OPERATIONS[name], b""), (OPERATIONS["literal"], b"|"))]
    steps[-1] = (OPERATIONS["literal"], b"\n")
    rendered = lines.render(RecordColumns.from_records(records), steps, null)
    assert bytes(rendered) == b"".join(expected_text(record, null) for record in records)


def test_render_refuses_columns_that_contradict_each_other() -> None:
    columns = RecordColumns.from_records([Record(0, 0, None, b"x", (("h", b"v"),))] * 3)
    step = [(OPERATIONS["headers"], b"")]
    short = RecordColumns(columns.offsets[:2], columns.timestamps, columns.keys, columns.values)
    with pytest.raises(ValueError, match="different lengths"):
        lines.render(short, step, b"")
    assert columns.headers is not None
    outside = type(columns.headers)(
        columns.headers.record_starts, np.full(3, 99), columns.headers.keys, columns.headers.values
    )
    with pytest.raises(ValueError, match="outside"):
        lines.render(
            RecordColumns(columns.offsets, columns.timestamps, columns.keys, columns.values, outside), step, b""
        )
    with pytest.raises(ValueError, match="33 parts"):
        lines.render(columns, step * 33, b"")
