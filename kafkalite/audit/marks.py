"""Encode and decode the mark that identifies a message: in a header, or as text in a payload field.

    header kafkalite.audit
      0  version    u8   1
      1  run        u64  big-endian, like all numbers; drawn at random when a producer starts
      9  sequence   i64  from 0, for each run and topic
     17  timestamp  i64  ms since 1970; the time that the producer gave, even if the topic uses LogAppendTime
     25  server     UTF-8, to the end

    text in a field     1:RUN:SEQUENCE:TIMESTAMP:SERVER     run in 16 hex digits, the other numbers in decimal

Run, topic and sequence identify a message permanently. Two records of a topic with the same run and sequence are one
message that was stored twice.

Thread rule: functions are pure.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

HEADER: Final = "kafkalite.audit"
VERSION: Final = 1
SERVER_SIZE_MAX: Final = 255
NAME: Final = np.frombuffer(HEADER.encode(), np.uint8)
FIXED: Final = struct.Struct(">BQqq")
INT64_MAX: Final = 2**63 - 1
LAYOUT: Final = [("version", "u1"), ("run", ">u8"), ("sequence", ">i8"), ("timestamp", ">i8")]


TEXT: Final = re.compile(rb"1:([0-9a-f]{16}):(\d{1,19}):(-?\d{1,19}):(.{1,255})", re.DOTALL)


class Marks(NamedTuple):
    """The marks of some records, one per row."""

    records: NDArray[np.int64]
    """The index of each mark's record in the columns."""
    runs: NDArray[np.uint64]
    sequences: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    servers: BytesColumn
    """The server names, UTF-8."""

    def server(self, row: int) -> str:
        """Return the server of a mark."""
        name = self.servers[row]
        assert name is not None, "a mark has a server"
        return bytes(name).decode("utf-8", "replace")

    def chosen(self, picked: NDArray[np.int64]) -> Marks:
        """Return a selection of the marks by row."""
        return Marks(
            self.records[picked],
            self.runs[picked],
            self.sequences[picked],
            self.timestamps[picked],
            self.servers.chosen(picked),
        )


def server_bytes(server: str) -> bytes:
    """Return a server's name as bytes. Raises ValueError if it is empty or too long."""
    raw = server.encode()
    if not 0 < len(raw) <= SERVER_SIZE_MAX:
        raise ValueError(f"a server name must have 1 to {SERVER_SIZE_MAX} bytes, not {len(raw)}")
    return raw


def mark(run: int, sequence: int, timestamp: int, server: bytes) -> bytes:
    """Return the mark of one message."""
    return FIXED.pack(VERSION, run, sequence, timestamp) + server


def mark_text(run: int, sequence: int, timestamp: int, server: bytes) -> str:
    """Return the mark of one message as text for a payload field."""
    return f"{VERSION}:{run:016x}:{sequence}:{timestamp}:{server.decode()}"


def with_marks(
    columns: RecordColumns, timestamps: NDArray[np.int64], *, run: int, first: int, server: bytes
) -> RecordColumns:
    """Return the records, each with a mark after its other headers; sequences start at `first`."""
    count = len(columns)
    rows = np.zeros(count, [*LAYOUT, ("server", f"S{len(server)}")])
    rows["version"] = VERSION
    rows["run"] = run
    rows["sequence"] = np.arange(first, first + count)
    rows["timestamp"] = timestamps
    rows["server"] = server
    size = rows.dtype.itemsize
    ends = np.arange(1, count + 1, dtype=np.int64) * size
    added = HeaderColumns(
        np.arange(count, dtype=np.int64),
        np.arange(1, count + 1, dtype=np.int64),
        BytesColumn(HEADER.encode(), np.zeros(count, np.int64), np.full(count, len(HEADER), np.int64)),
        BytesColumn(rows.tobytes(), ends - size, ends),
    )
    headers = added if columns.headers is None else joined(columns.headers, added)
    return RecordColumns(columns.offsets, columns.timestamps, columns.keys, columns.values, headers)


def joined(own: HeaderColumns, added: HeaderColumns) -> HeaderColumns:
    """Return the headers of each record, followed by one header from `added`."""
    counts = own.record_ends - own.record_starts
    ends = np.cumsum(counts + 1)
    starts = ends - counts - 1
    from_own = np.ones(int(ends[-1]) if len(ends) else 0, np.bool_)
    from_own[ends - 1] = False
    # Header indexes without the added marks: a record's first header, plus the number of headers before it in that
    # record.
    picked = np.arange(int(counts.sum())) + np.repeat(own.record_starts - (np.cumsum(counts) - counts), counts)
    keys = interleaved(own.keys.chosen(picked), added.keys, from_own)
    return HeaderColumns(starts, ends, keys, interleaved(own.values.chosen(picked), added.values, from_own))


def interleaved(one: BytesColumn, other: BytesColumn, from_one: NDArray[np.bool_]) -> BytesColumn:
    """Merge two columns in order. The next item is from `one` where `from_one` is true, else from `other`."""
    base = memoryview(one.data).nbytes
    starts = np.empty(len(from_one), np.int64)
    ends = np.empty(len(from_one), np.int64)
    starts[from_one], ends[from_one] = one.starts, one.ends
    starts[~from_one], ends[~from_one] = other.starts + base, other.ends + base
    nulls = None
    if one.nulls is not None:
        nulls = np.zeros(len(from_one), np.uint8)
        nulls[from_one] = one.nulls
    return BytesColumn(b"".join((one.data, other.data)), starts, ends, nulls)


def read_marks(headers: HeaderColumns | None) -> Marks:
    """Return the mark of each record that has a valid mark.

    A record that a program forwarded with its headers has several marks. The last one counts.
    """
    if headers is None or not len(headers.keys):
        return marks_of_texts([])
    keys, values = headers.keys, headers.values
    chosen = (keys.ends - keys.starts == len(NAME)) & (values.ends - values.starts > FIXED.size)
    if values.nulls is not None:
        chosen &= values.nulls == 0
    found = np.flatnonzero(chosen)
    found = found[(bytes_at(keys, found, len(NAME)) == NAME).all(axis=1)]
    fixed = bytes_at(values, found, FIXED.size).view(LAYOUT)[:, 0]
    known = (fixed["version"] == VERSION) & (fixed["sequence"] >= 0)
    found, fixed = found[known], fixed[known]
    # Records and their headers have the same order, so a header belongs to the last record that begins at or before it.
    records = np.searchsorted(headers.record_starts, found, "right") - 1
    last = np.append(records[1:] != records[:-1], True)[: len(records)]
    if not last.all():
        records, found, fixed = records[last], found[last], fixed[last]
    return Marks(
        records,
        fixed["run"].astype(np.uint64),
        fixed["sequence"].astype(np.int64),
        fixed["timestamp"].astype(np.int64),
        BytesColumn(values.data, values.starts[found] + FIXED.size, values.ends[found]),
    )


def marks_of_texts(texts: Iterable[tuple[int, bytes]]) -> Marks:
    """Return the marks in texts, each with its record's index. Texts that are not marks are ignored."""
    rows = []
    for record, text in texts:
        found = TEXT.fullmatch(text)
        if found is not None and int(found[2]) <= INT64_MAX and -INT64_MAX <= int(found[3]) <= INT64_MAX:
            rows.append((record, int(found[1], 16), int(found[2]), int(found[3]), found[4]))
    return Marks(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.uint64),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.int64),
        BytesColumn.from_items(row[4] for row in rows),
    )


def bytes_at(column: BytesColumn, picked: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """Return the first `size` bytes of each chosen item, one row per item. Every item must be that long."""
    data = np.frombuffer(memoryview(column.data), np.uint8)
    return np.ascontiguousarray(data[column.starts[picked][:, None] + np.arange(size)])
