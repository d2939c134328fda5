"""Find records by time for ListOffsets.

    segments by their largest timestamp ▸ a position from the index ▸ batch headers ▸ the records of one batch

As in Kafka, the result is a record, not a batch. So its batch is decompressed. Bytes from disk are checked before they
are used, and quarantined bytes are skipped.

Everything here may block. The log's lock is taken only to load an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.log.scan import batch_headers
from kafkalite._native.wire.batch import HEADER_SIZE, BatchError, BatchInfo, first_at, newest, read_info
from kafkalite.broker.log import recovery
from kafkalite.model import OffsetAndTimestamp
from kafkalite.wire.record.compression import CompressionError, Decompressor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite._native.log.log_core import LogCore
    from kafkalite._native.log.scan import BatchHeaderDict
    from kafkalite._native.log.segment import Segment
    from kafkalite.broker.log.indexes import SegmentIndexes

STEP_SIZE: Final = 4 * 1024 * 1024
"""Number of bytes checked and walked at a time."""


class SearchedLog(NamedTuple):
    """The parts of a log that a look-up reads."""

    log: LogCore
    indexes: SegmentIndexes
    decompressed_size_max: int


def find_timestamp(searched: SearchedLog, timestamp: int, upper_offset: int | None) -> OffsetAndTimestamp | None:
    """Return the first record, in offset order, whose timestamp (ms) is at least `timestamp`.

    Only records below `upper_offset` count. FileNotFoundError if a segment is removed meanwhile.
    """
    upper = searched.log.high_watermark if upper_offset is None else min(upper_offset, searched.log.high_watermark)
    for segment, next_offset in _segments(searched):
        if segment.base_offset >= upper:
            break
        searched.indexes.ensure_summary(segment)
        if segment.max_timestamp < timestamp:
            continue
        position = searched.indexes.loaded(segment).position_of_time(timestamp)
        for header in _headers(searched, segment, position, next_offset):
            if header["base_offset"] >= upper:
                return None
            if header["max_timestamp"] >= timestamp:
                found = _first_record(searched, segment, header, timestamp)
                if found is not None:
                    return found if found.offset < upper else None
    return None


def find_newest(searched: SearchedLog) -> OffsetAndTimestamp | None:
    """Return the record with the largest timestamp, the first of them if several have it; None in an empty log.

    FileNotFoundError if a segment is removed meanwhile.
    """
    best: OffsetAndTimestamp | None = None
    for segment, next_offset in _segments(searched):
        searched.indexes.ensure_summary(segment)
        if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp <= best.timestamp):
            continue
        found = _newest_in(searched, segment, next_offset)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _segments(searched: SearchedLog) -> Iterator[tuple[Segment, int]]:
    """Yield (segment, first offset after it) for segments with visible bytes."""
    segments = searched.log.segments
    for i, segment in enumerate(segments):
        next_offset = segments[i + 1].base_offset if i + 1 < len(segments) else searched.log.log_end_offset
        if segment.size > 0 and next_offset > searched.log.log_start_offset:
            yield segment, next_offset


def _headers(searched: SearchedLog, segment: Segment, position: int, next_offset: int) -> Iterator[BatchHeaderDict]:
    """Yield the headers of checked batches that end above the log start, from a position at which a batch begins."""
    index = searched.indexes.loaded(segment)
    position = max(position, index.position_of_offset(searched.log.log_start_offset))
    size = segment.size
    while position < size:
        recovery.verify_granules(segment, segment.unverified_granules(position, position + STEP_SIZE), next_offset)
        position, end = _between_damage(segment, position, min(size, position + STEP_SIZE))
        headers = batch_headers(segment, position, end)
        for header in headers:
            if header["next_offset"] > searched.log.log_start_offset:
                yield header
        if headers:
            position = headers[-1]["position"] + headers[-1]["size"]
        elif end == size:
            return
        elif end > position:
            position = end if _is_damaged(segment, end) else _behind_large_batch(segment, position, size)


def _between_damage(segment: Segment, position: int, end: int) -> tuple[int, int]:
    """Return the next range of readable bytes from `position` on: (start, end).

    The start is after quarantined bytes, if `position` lies in them. The end is before the next quarantined bytes.
    """
    for start, stop, _, _ in segment.damage or ():
        if start <= position < stop:
            position = stop
        elif position < start < stop:
            end = min(end, start)
    return position, max(position, end)


def _is_damaged(segment: Segment, position: int) -> bool:
    return any(start <= position < stop for start, stop, _, _ in segment.damage or ())


def _behind_large_batch(segment: Segment, position: int, size: int) -> int:
    """Return the position after a batch that is larger than one read step; the segment's end if no batch is at
    `position`."""
    found = batch_headers(segment, position, size, count_max=1)
    return found[0]["position"] + found[0]["size"] if found else size


def _newest_in(searched: SearchedLog, segment: Segment, next_offset: int) -> OffsetAndTimestamp | None:
    """Return a segment's newest record.

    The index knows the batch of this record. But if the log start lies within the segment, all batch headers are read.
    """
    index = searched.indexes.loaded(segment)
    cut = segment.base_offset < searched.log.log_start_offset
    position = 0 if cut else index.position_of_offset(segment.max_timestamp_offset)
    best: BatchHeaderDict | None = None
    for header in _headers(searched, segment, position, next_offset):
        if not cut and header["base_offset"] >= segment.max_timestamp_offset:
            return _newest_record(searched, segment, header)
        if best is None or header["max_timestamp"] > best["max_timestamp"]:
            best = header
    return None if best is None else _newest_record(searched, segment, best)


def _first_record(
    searched: SearchedLog, segment: Segment, header: BatchHeaderDict, timestamp: int
) -> OffsetAndTimestamp | None:
    start = searched.log.log_start_offset
    fallback = (header["max_timestamp"], max(header["base_offset"], start))
    return _in_batch(
        searched, segment, header, lambda info, records: first_at(info, records, timestamp, start), fallback
    )


def _newest_record(searched: SearchedLog, segment: Segment, header: BatchHeaderDict) -> OffsetAndTimestamp | None:
    start = searched.log.log_start_offset
    fallback = (header["max_timestamp"], header["next_offset"] - 1)
    return _in_batch(searched, segment, header, lambda info, records: newest(info, records, start), fallback)


def _in_batch(
    searched: SearchedLog,
    segment: Segment,
    header: BatchHeaderDict,
    look: Callable[[BatchInfo, memoryview], tuple[int, int] | None],
    fallback: tuple[int, int],
) -> OffsetAndTimestamp | None:
    """Return the record that `look` finds in a batch.

    `look` gets the batch's header and decompressed records, and returns (timestamp, offset). If the records cannot be
    read, the result is `fallback`. This can happen if the records were not validated at the append.
    """
    batch = segment.read_bytes(header["position"], header["size"])
    info = read_info(batch)
    try:
        with Decompressor(searched.decompressed_size_max, in_turns=True) as decompressor:
            records = decompressor.decompress(info.codec, memoryview(batch)[HEADER_SIZE:])
            try:
                found = look(info, records)
            finally:
                records.release()
    except (CompressionError, BatchError):
        found = fallback
    return None if found is None else OffsetAndTimestamp(found[1], found[0], info.leader_epoch)
