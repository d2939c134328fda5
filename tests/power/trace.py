"""What recorder.c wrote, record by record. A record's place in the trace is its moment: smaller is earlier."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = 0x31524557504B4C
HEADER_SIZE = 4096
HEADER = struct.Struct("<QQQII")  # magic, size, next, lock, overflow
_RECORD = struct.Struct("<IHHIIqqqII")

OPEN, CLOSE, WRITE, TRUNCATE, ALLOCATE, RENAME, UNLINK, RMDIR, MKDIR, LINK, SYMLINK = range(1, 12)
SYNC_BEGIN, SYNC_END, DUP, SEND, MARK, PROCESS, UNSUPPORTED, TRUNCATE_PATH = range(12, 20)
FSYNC, FDATASYNC, SYNCFS, SYNC_ALL, SYNC_RANGE = range(5)
FLAG_ZEROS, FLAG_FAILED = 1, 2
MARK_KILL, MARK_STOP, MARK_GONE, MARK_READY = range(4)
"""Marks of the recording process: it is about to kill, to stop; the process is gone; it serves."""


class TraceError(Exception):
    """The trace cannot be used: it is too short for what happened, or holds what the model does not know."""


class Record(NamedTuple):
    """One event of a broker. recorder.c documents a, b and c where it records the kind."""

    place: int
    kind: int
    flags: int
    pid: int
    a: int
    b: int
    c: int
    path: str
    data: bytes


def read(path: Path) -> list[Record]:
    """Every record of a trace file; TraceError when it overflowed."""
    with path.open("rb") as file:
        magic, _, end, _, overflow = HEADER.unpack(file.read(HEADER.size))
        if magic != MAGIC:
            raise TraceError(f"{path} is no trace")
        if overflow:
            raise TraceError(f"{path} is full: give the recording more room")
        file.seek(0)
        return list(parse(file.read(end)))


def parse(data: bytes) -> Iterator[Record]:
    """The records in the bytes of a trace, its header included."""
    place = HEADER_SIZE
    while place < len(data):
        size, kind, flags, pid, _, a, b, c, path_size, data_size = _RECORD.unpack_from(data, place)
        path_at = place + _RECORD.size
        path = data[path_at : path_at + path_size].decode(errors="surrogateescape")
        yield Record(
            place, kind, flags, pid, a, b, c, path, data[path_at + path_size : path_at + path_size + data_size]
        )
        place += size


def encode(records: list[Record]) -> bytes:
    """Return the bytes of a made-up trace: places are numbered again."""
    body = bytearray()
    for record in records:
        path = record.path.encode(errors="surrogateescape")
        size = (_RECORD.size + len(path) + len(record.data) + 7) & ~7
        fields = (size, record.kind, record.flags, record.pid, 0, record.a, record.b, record.c)
        piece = _RECORD.pack(*fields, len(path), len(record.data)) + path + record.data
        body += piece.ljust(size, b"\0")
    header = HEADER.pack(MAGIC, HEADER_SIZE + len(body), HEADER_SIZE + len(body), 0, 0)
    return header.ljust(HEADER_SIZE, b"\0") + bytes(body)
