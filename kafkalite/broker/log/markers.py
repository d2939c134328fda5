"""Build and parse transaction markers, the control batches that end a transaction in a partition.

    record batch, transactional and control bits, the transaction's producer id and epoch, sequence -1, one record:
      key    version i16 = 0, type i16: 0 abort, 1 commit
      value  version i16 = 0, coordinator epoch i32

A marker has an offset, like a record. Clients skip it.
"""

from __future__ import annotations

import struct
from typing import Final

from kafkalite._native.wire.batch import CONTROL, HEADER_SIZE, MARKER_ABORT, MARKER_COMMIT, TRANSACTIONAL

KEY: Final = struct.Struct(">hh")
VALUE: Final = struct.Struct(">hi")
VERSION: Final = 0
TYPES: Final = {MARKER_COMMIT: "commit", MARKER_ABORT: "abort"}


def marker_batch(producer_id: int, producer_epoch: int, coordinator_epoch: int, time_ms: int, *, commit: bool) -> bytes:
    """Return a marker batch without an offset, which the log sets at the append."""
    from kafkalite._native.wire.columns import seal  # imports numpy, which a start does without

    key = KEY.pack(VERSION, MARKER_COMMIT if commit else MARKER_ABORT)
    value = VALUE.pack(VERSION, coordinator_epoch)
    # Sizes and deltas are zig-zag varints of one byte: twice the number.
    body = bytes((0, 0, 0, 2 * len(key))) + key + bytes((2 * len(value),)) + value + b"\0"
    record = bytes((2 * len(body),)) + body
    batch = bytearray(HEADER_SIZE) + record
    seal(
        batch,
        attributes=TRANSACTIONAL | CONTROL,
        count=1,
        base_timestamp=time_ms,
        max_timestamp=time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return bytes(batch)


def marker_type(batch: bytes | memoryview) -> str | None:
    """Return `commit` or `abort`; None for a control batch without such a record, for example after compaction."""
    at = _behind_varint(batch, HEADER_SIZE) + 1  # skip the record's size and attributes
    for _ in range(3):  # and two deltas, the first of which compaction lengthens, and the key's size
        at = _behind_varint(batch, at)
    return TYPES.get(KEY.unpack_from(batch, at)[1]) if at + KEY.size <= len(batch) else None


def _behind_varint(data: bytes | memoryview, at: int) -> int:
    while at < len(data) and data[at] & 0x80:
        at += 1
    return at + 1
