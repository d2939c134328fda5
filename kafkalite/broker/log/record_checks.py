"""Validate compressed batches before an append, and find the bad records of a refused batch.

The native code checks uncompressed records as it appends them. Compressed records are decompressed here, up to a size
limit, and checked before the append. The decompressed records are then discarded.

Thread rule: any thread.
"""

from __future__ import annotations

from kafkalite._native.wire.batch import (
    HEADER_SIZE,
    BatchError,
    BatchInfo,
    RecordFaults,
    check_records,
    find_faults,
    read_info,
)
from kafkalite.errors import ErrorCode
from kafkalite.wire.record.compression import CompressionError, Decompressor


def check_compressed(
    batch: bytes, *, key_required: bool, timestamp_min: int, timestamp_max: int, size_max: int
) -> tuple[int, int, int]:
    """Check a compressed batch; return (error code, index of the bad record or -1, largest timestamp in ms).

    `size_max` limits its decompressed size in bytes.
    """
    info = read_info(batch)
    try:
        with Decompressor(size_max, in_turns=True) as decompressor:
            records = decompressor.decompress(info.codec, memoryview(batch)[HEADER_SIZE:])
            try:
                _, max_timestamp, _ = check_records(
                    info,
                    records,
                    key_required=key_required,
                    timestamp_min=timestamp_min,
                    timestamp_max=timestamp_max,
                )
            except BatchError as error:
                return _code_of(info, records, key_required, error), error.index, -1
            finally:
                records.release()
    except CompressionError:
        return ErrorCode.INVALID_RECORD, -1, -1  # its CRC is correct, so a retry would fail, too
    return 0, -1, max_timestamp


def _code_of(info: BatchInfo, records: memoryview, key_required: bool, error: BatchError) -> int:
    """Return INVALID_TIMESTAMP if only the timestamp of a record is invalid, else INVALID_RECORD."""
    try:
        check_records(info, records, key_required=key_required)
    except BatchError as other:
        if other.index == error.index:
            return ErrorCode.INVALID_RECORD
    return ErrorCode.INVALID_TIMESTAMP


def faults_of(
    batch: bytes, *, key_required: bool, timestamp_min: int, timestamp_max: int, size_max: int
) -> RecordFaults:
    """Return the bad records of a batch that an append has refused. The timestamp bounds (ms) must be those of the
    append.
    """
    info = read_info(batch)
    records = memoryview(batch)[HEADER_SIZE:]
    if not info.codec:
        return find_faults(
            info, records, key_required=key_required, timestamp_min=timestamp_min, timestamp_max=timestamp_max
        )
    with Decompressor(size_max, in_turns=True) as decompressor:
        unpacked = decompressor.decompress(info.codec, records)
        try:
            return find_faults(
                info, unpacked, key_required=key_required, timestamp_min=timestamp_min, timestamp_max=timestamp_max
            )
        finally:
            unpacked.release()
