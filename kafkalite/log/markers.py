"""Transaction markers: the control batches that a coordinator has written behind the data of a transaction.

    record batch, attributes 0x30, the transaction's producer id and epoch, sequence -1, one record:
      key    version i16 = 0, type i16: 0 abort, 1 commit
      value  version i16 = 0, coordinator epoch i32

A marker takes an offset; clients step over it.
"""

import struct

from kafkalite._native.crc32c import crc32c

BATCH = struct.Struct(">qiibIhiqqqhii")
CRC_START = 21
OVERHEAD = 12
ATTRIBUTES = 0x30
MAGIC = 2
KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")
VERSION = 0
COMMIT, ABORT = 1, 0
TYPES = {COMMIT: "commit", ABORT: "abort"}


def marker_batch(producer_id: int, producer_epoch: int, coordinator_epoch: int, time_ms: int, *, commit: bool) -> bytes:
    """The batch, to be given its offset by the log."""
    key = KEY.pack(VERSION, COMMIT if commit else ABORT)
    value = VALUE.pack(VERSION, coordinator_epoch)
    # Sizes and deltas are zig-zag varints of one byte: twice the number.
    body = bytes((0, 0, 0, 2 * len(key))) + key + bytes((2 * len(value),)) + value + b"\0"
    record = bytes((2 * len(body),)) + body
    size = BATCH.size + len(record)
    fields = (ATTRIBUTES, 0, time_ms, time_ms, producer_id, producer_epoch, -1, 1)
    unsigned = BATCH.pack(0, size - OVERHEAD, -1, MAGIC, 0, *fields) + record
    return BATCH.pack(0, size - OVERHEAD, -1, MAGIC, crc32c(unsigned[CRC_START:]), *fields) + record


def marker_type(batch: bytes | memoryview) -> str | None:
    """`commit` or `abort`; None for a control batch that has no such record (any more)."""
    at = _behind_varint(batch, BATCH.size) + 1  # the record's size, its attributes
    for _ in range(3):  # two deltas, of which compaction makes the first one longer, and the key's size
        at = _behind_varint(batch, at)
    return TYPES.get(KEY.unpack_from(batch, at)[1]) if at + KEY.size <= len(batch) else None


def _behind_varint(data: bytes | memoryview, at: int) -> int:
    while at < len(data) and data[at] & 0x80:
        at += 1
    return at + 1
