"""Marks in headers: written marks are read next to other headers, and similar bytes are not taken for marks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.audit.marks import HEADER, SERVER_SIZE_MAX, mark, read_marks, server_bytes, with_marks
from kafkalite.wire.record.batches import decode, encode_batch
from kafkalite.wire.record.columns import HeaderColumns, Record, RecordColumns

names = st.text(st.characters(codec="utf-8"), max_size=8)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=30)), max_size=3).map(tuple)


def records_with(rows: list[tuple[tuple[str, bytes | None], ...]]) -> RecordColumns:
    return RecordColumns.from_records(Record(-1, 5, None, b"v", row) for row in rows)


@settings(deadline=None)
@given(st.lists(headers, min_size=1, max_size=12), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.data())
def test_a_mark_stands_behind_a_record_s_own_headers_and_is_read_back(
    rows: list[tuple[tuple[str, bytes | None], ...]], run: int, first: int, data: st.DataObject
) -> None:
    times = data.draw(st.lists(st.integers(-(2**62), 2**62), min_size=len(rows), max_size=len(rows)))
    marked = with_marks(records_with(rows), np.array(times), run=run, first=first, server="wéb".encode())
    stored, count = encode_batch(marked)
    read = decode(stored)
    assert count == len(rows)
    wanted = [mark(run, first + at, time, "wéb".encode()) for at, time in enumerate(times)]
    assert [record.headers for record in read.records()] == [
        (*row, (HEADER, one)) for row, one in zip(rows, wanted, strict=True)
    ]
    assert read.headers is not None
    found = read_marks(read.headers)
    assert found.records.tolist() == list(range(len(rows)))
    assert found.runs.tolist() == [run] * len(rows)
    assert found.sequences.tolist() == list(range(first, first + len(rows)))
    assert found.timestamps.tolist() == times
    assert found.server(len(rows) - 1) == "wéb"


def test_a_part_of_columns_is_marked_where_it_lies() -> None:
    whole = records_with([(("a", b"1"),), (), (("b", b"2"), ("c", None))])
    part = whole.chosen(np.array([2, 0]))
    marked = with_marks(part, np.array([7, 7]), run=1, first=0, server=b"s")
    assert marked.headers is not None
    assert [marked.headers[row][:-1] for row in range(2)] == [(("b", b"2"), ("c", None)), (("a", b"1"),)]


def test_the_last_mark_of_a_record_counts() -> None:
    two = HeaderColumns.from_items([((HEADER, mark(1, 5, 0, b"a")), ("x", b""), (HEADER, mark(2, 6, 0, b"b"))), ()])
    found = read_marks(two)
    assert (found.records.tolist(), found.runs.tolist(), found.sequences.tolist()) == ([0], [2], [6])


@pytest.mark.parametrize(
    "row",
    [
        pytest.param((), id="no headers"),
        pytest.param((("kafkalite.audiT", mark(1, 1, 1, b"s")),), id="another name of the same length"),
        pytest.param(((HEADER, None),), id="null"),
        pytest.param(((HEADER, mark(1, 1, 1, b"")),), id="no server"),
        pytest.param(((HEADER, b"\x02" + mark(1, 1, 1, b"s")[1:]),), id="another version"),
        pytest.param(((HEADER, mark(1, -1, 1, b"s")),), id="negative sequence"),
    ],
)
def test_what_is_no_mark_is_not_taken_for_one(row: tuple[tuple[str, bytes | None], ...]) -> None:
    found = read_marks(HeaderColumns.from_items([row, (("k", b"v"),), ((HEADER, mark(9, 3, 1, b"s")),)]))
    assert (found.records.tolist(), found.runs.tolist()) == ([2], [9])


def test_no_records_have_no_marks() -> None:
    assert read_marks(None).records.tolist() == []
    assert read_marks(HeaderColumns.from_items([(), ()])).records.tolist() == []


@pytest.mark.parametrize("name", ["", "x" * (SERVER_SIZE_MAX + 1), "é" * 128])
def test_a_server_without_a_usable_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        server_bytes(name)
