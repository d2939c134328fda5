"""Read and write `NNN.txnindex`, the list of a segment's aborted transactions, in Kafka's format.

    one entry of 34 bytes per abort marker in the segment, big-endian, in the order of the markers
      0  version i16 = 0        18  marker offset i64 (Kafka's last offset)
      2  producer id i64        26  last stable offset after the marker i64
      10 first offset i64

A segment without aborted transactions has no file. A file is written as a whole. It is made durable before any producer
snapshot that depends on it (kafkalite.broker.log.snapshots).

Everything here may block. Writes raise OSError.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.base.crc32c import crc32c
from kafkalite.base.logging import fields
from kafkalite.broker.log import files

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0

Row = tuple[int, int, int, int]
"""Producer id, first offset, marker offset, last stable offset."""


def path_of(directory: str, base_offset: int) -> str:
    """Return the path of a segment's transaction index."""
    return f"{directory}/{files.stem(base_offset)}{files.TRANSACTION_INDEX_SUFFIX}"


def encode(rows: Sequence[Row]) -> bytes:
    """Return the contents of a file with these entries."""
    return b"".join(ENTRY.pack(VERSION, *row) for row in rows)


def decode(data: bytes, base_offset: int, limit: int) -> list[Row] | None:
    """Return the entries in the file of a segment with offsets [base_offset, limit); None if they are not plausible."""
    if len(data) % ENTRY.size:
        return None
    rows: list[Row] = []
    newest, stable = base_offset - 1, -1
    for version, producer_id, first, marker, stable_offset in ENTRY.iter_unpack(data):
        in_order = newest < marker < limit and stable <= stable_offset <= marker + 1
        if version != VERSION or producer_id < 0 or not 0 <= first < marker or not in_order:
            return None
        rows.append((producer_id, first, marker, stable_offset))
        newest, stable = marker, stable_offset
    return rows


def begins_from(data: bytes, offset: int) -> bool:
    """Return whether the first complete entry has its marker at `offset` or later; True without entries."""
    return len(data) < ENTRY.size or ENTRY.unpack_from(data)[3] >= offset


def mark_of(data: bytes) -> tuple[int, int]:
    """Return (count, CRC) of these entries. A snapshot's companion file stores it to identify the entries."""
    return len(data) // ENTRY.size, crc32c(data)


def read(directory: str, base_offset: int) -> bytes:
    """Return the bytes of a segment's file; empty if it is missing or unreadable. An unreadable file is logged."""
    path = path_of(directory, base_offset)
    try:
        return files.read_bytes(path) or b""
    except OSError as error:
        logger.warning("could not read the list of aborted transactions", extra=fields(path=path, reason=str(error)))
        return b""


def write(directory: str, base_offset: int, data: bytes) -> None:
    """Replace a segment's file, durably; without entries, remove it."""
    path = path_of(directory, base_offset)
    if data:
        files.write_atomically(path, data, durable=True)
    else:
        file_ops.unlink(path, missing_ok=True)


def cut(directory: str, base_offset: int, log_end: int) -> None:
    """Drop the entries of markers that a truncation of the log to `log_end` removes."""
    data = read(directory, base_offset)
    whole = len(data) - len(data) % ENTRY.size
    kept = 0
    while kept < whole and ENTRY.unpack_from(data, kept)[3] < log_end:
        kept += ENTRY.size
    if kept < len(data):
        write(directory, base_offset, data[:kept])
