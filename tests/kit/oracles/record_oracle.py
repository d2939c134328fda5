"""Record batch v2 in plain Python, read off the format's description: the oracle for the native code.

Slow and obvious on purpose. It shares nothing with kafkalite but the Record type.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import crc32c as crc32c_package

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_FROM = 21


@dataclass
class OracleRecord:
    """Deltas are relative to the batch."""

    timestamp_delta: int = 0
    offset_delta: int = 0
    key: bytes | None = None
    value: bytes | None = b""
    headers: Sequence[tuple[bytes, bytes | None]] = ()


@dataclass
class OracleBatch:
    """Header fields in wire order; None means: computed from the records."""

    records: Sequence[OracleRecord] = ()
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    base_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    batch_length: int | None = None
    crc: int | None = None
    last_offset_delta: int | None = None
    max_timestamp: int | None = None
    record_count: int | None = None
    block: bytes | None = field(default=None, repr=False)  # the records as stored in the batch, compressed for example


def zigzag_varint(value: int, bits: int = 64) -> bytes:
    """Zig-zag, then seven bits a byte, least significant first."""
    raw = (value << 1) ^ (value >> (bits - 1))
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def read_zigzag_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position behind it)."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position


def nullable(item: bytes | None) -> bytes:
    return zigzag_varint(-1) if item is None else zigzag_varint(len(item)) + item


def encode_record(record: OracleRecord) -> bytes:
    body = b"\0" + zigzag_varint(record.timestamp_delta) + zigzag_varint(record.offset_delta)
    body += nullable(record.key) + nullable(record.value) + zigzag_varint(len(record.headers))
    for key, value in record.headers:
        body += nullable(key) + nullable(value)
    return zigzag_varint(len(body)) + body


def encode_records(records: Sequence[OracleRecord]) -> bytes:
    return b"".join(encode_record(record) for record in records)


def encode_batch(batch: OracleBatch) -> bytes:
    """The whole batch; fields given explicitly are written as they are, right or wrong."""
    block = encode_records(batch.records) if batch.block is None else batch.block
    last = max((r.offset_delta for r in batch.records), default=0)
    largest = batch.base_timestamp + max((r.timestamp_delta for r in batch.records), default=0)
    fields = [
        batch.base_offset,
        49 + len(block) if batch.batch_length is None else batch.batch_length,
        batch.leader_epoch,
        batch.magic,
        0,
        batch.attributes,
        last if batch.last_offset_delta is None else batch.last_offset_delta,
        batch.base_timestamp,
        largest if batch.max_timestamp is None else batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records) if batch.record_count is None else batch.record_count,
    ]
    raw = HEADER.pack(*fields) + block
    fields[4] = crc32c_package.crc32c(raw[CRC_FROM:]) if batch.crc is None else batch.crc
    return HEADER.pack(*fields) + block


def decode_batch(raw: bytes) -> OracleBatch:
    """An uncompressed batch that is known to be well-formed."""
    base_offset, length, epoch, magic, crc, attributes, last, base_ts, max_ts, pid, pepoch, sequence, count = (
        HEADER.unpack_from(raw)
    )
    block = raw[HEADER.size :]
    return OracleBatch(
        records=decode_records(block, count) if attributes & 7 == 0 else [],
        base_offset=base_offset,
        leader_epoch=epoch,
        magic=magic,
        attributes=attributes,
        base_timestamp=base_ts,
        producer_id=pid,
        producer_epoch=pepoch,
        base_sequence=sequence,
        batch_length=length,
        crc=crc,
        last_offset_delta=last,
        max_timestamp=max_ts,
        record_count=count,
        block=block,
    )


def decode_records(block: bytes, count: int) -> list[OracleRecord]:
    records = []
    position = 0
    for _ in range(count):
        length, position = read_zigzag_varint(block, position)
        end = position + length
        timestamp_delta, position = read_zigzag_varint(block, position + 1)
        offset_delta, position = read_zigzag_varint(block, position)
        key, position = read_nullable(block, position)
        value, position = read_nullable(block, position)
        header_count, position = read_zigzag_varint(block, position)
        headers = []
        for _ in range(header_count):
            header_key, position = read_nullable(block, position)
            header_value, position = read_nullable(block, position)
            assert header_key is not None
            headers.append((header_key, header_value))
        assert position == end, "a record does not end where its length says"
        records.append(OracleRecord(timestamp_delta, offset_delta, key, value, headers))
    assert position == len(block), "bytes left behind the last record"
    return records


def read_nullable(block: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_zigzag_varint(block, position)
    if size < 0:
        return None, position
    assert position + size <= len(block)
    return block[position : position + size], position + size
