"""Reads ZooKeeper's transaction log: every change of every node and session, in order, with the server's own times.

    "ZKLG" | int32 version | int64 database          then, up to the zeros that the file was made longer with,
    int64 Adler-32 | int32 size | transaction | 'B'
    transaction:  int64 session | int32 cxid | int64 zxid | int64 time in ms | int32 type | body of that type | digest

A watch tells that something changed and misses what changed twice; this misses nothing. Ephemeral nodes are not deleted
one by one when their session ends: `read_changes` says so for each. Format: ZooKeeper 3.8's FileTxnLog and jute.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CREATE, DELETE, SET, BEGIN, END = "create", "delete", "set", "begin", "end"
FAILED = "failed"
"""A request that was refused: it changed nothing."""

_FILE_HEADER = struct.Struct(">4siq")
_ENTRY_HEADER = struct.Struct(">qi")
_HEADER = struct.Struct(">qiqqi")
_INT = struct.Struct(">i")
_CREATES = (1, 15)
_DELETE, _SET, _ACL, _FAILED, _BEGIN, _END = 2, 5, 7, -1, -10, -11


class Change(NamedTuple):
    """One change; `session` is who made it, and for the end of a session, and what goes with it, whose it was."""

    zxid: int
    time_s: float
    session: int
    kind: str
    path: str = ""
    value: bytes = b""
    ephemeral: bool = False


def read_changes(directory: Path) -> list[Change]:
    """All changes since the server's first start; the deletions that the end of a session brings follow it."""
    found: list[Change] = []
    owned: dict[str, int] = {}
    for path in sorted(directory.glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        for change in read_log(path.read_bytes()):
            found.append(change)
            if change.kind == CREATE and change.ephemeral:
                owned[change.path] = change.session
            elif change.kind == DELETE:
                owned.pop(change.path, None)
            elif change.kind == END:
                for name in [name for name, session in owned.items() if session == change.session]:
                    del owned[name]
                    found.append(change._replace(kind=DELETE, path=name, ephemeral=True))
    return found


def read_log(data: bytes) -> Iterator[Change]:
    """The changes of one file; ValueError for one that is not a log, or holds what is not known here."""
    magic, version, _ = _FILE_HEADER.unpack_from(data)
    if (magic, version) != (b"ZKLG", 2):
        raise ValueError(f"not a transaction log: {magic!r} {version}")
    at = _FILE_HEADER.size
    while at + _ENTRY_HEADER.size <= len(data):
        checksum, size = _ENTRY_HEADER.unpack_from(data, at)
        at += _ENTRY_HEADER.size
        entry = data[at : at + size]
        if size == 0 or zlib.adler32(entry) != checksum:
            return  # the end, or an entry that is being written
        yield _read_entry(entry)
        at += size + 1


def _read_entry(entry: bytes) -> Change:
    session, _, zxid, time_ms, kind = _HEADER.unpack_from(entry)
    at = _HEADER.size
    head = zxid, time_ms / 1000, session
    if kind in _CREATES:
        path, at = _sized(entry, at)
        value, at = _sized(entry, at)
        (acl_count,) = _INT.unpack_from(entry, at)
        at += _INT.size
        for _ in range(acl_count):
            _, at = _sized(entry, at + _INT.size)
            _, at = _sized(entry, at)
        return Change(*head, CREATE, path.decode(), value, ephemeral=entry[at] == 1)
    if kind == _DELETE:
        return Change(*head, DELETE, _sized(entry, at)[0].decode())
    if kind == _SET:
        path, at = _sized(entry, at)
        return Change(*head, SET, path.decode(), _sized(entry, at)[0])
    names = {_BEGIN: BEGIN, _END: END, _FAILED: FAILED, _ACL: FAILED}
    if kind not in names:
        raise ValueError(f"a transaction of type {kind}, which nobody here makes")
    return Change(*head, names[kind])


def _sized(entry: bytes, at: int) -> tuple[bytes, int]:
    """Return a length-prefixed string or buffer and the position after it; a length of -1 means none."""
    (size,) = _INT.unpack_from(entry, at)
    start = at + _INT.size
    end = start + max(size, 0)
    return entry[start:end], end
