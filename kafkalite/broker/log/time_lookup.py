"""Which record has a time: the first one not older than a timestamp, and the newest one (ListOffsets).

    segments by their largest timestamp ▸ a place in the index ▸ batch headers ▸ the records of one batch

The answer is a record, not a batch (as in Kafka): the one batch that must hold it is unpacked. Bytes from disk are
checked before they are believed; quarantined ones are stepped over. A batch whose records cannot be read, which only a
broker that does not look at records can have let in, answers by its header.

Everything here may block; it reads like any other reader and takes no lock but for loading an index.
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
"""Bytes checked and walked at a time."""


class SearchedLog(NamedTuple):
    """What a look-up needs of a log."""

    log: LogCore
    indexes: SegmentIndexes
    decompressed_size_max: int


def find_timestamp(searched: SearchedLog, timestamp: int, upper_offset: int | None) -> OffsetAndTimestamp | None:
    """The first record, in offset order, with a timestamp (ms) >= `timestamp`, below upper_offset.

    FileNotFoundError where somebody took a segment away meanwhile.
    """
    upper = searched.log.high_watermark if upper_offset is None else min(upper_offset, searched.log.high_watermark)
    for segment, behind in _segments(searched):
        if segment.base_offset >= upper:
            break
        searched.indexes.ensure_summary(segment)
        if segment.max_timestamp < timestamp:
            continue
        position = searched.indexes.loaded(segment).position_of_time(timestamp)
        for header in _headers(searched, segment, position, behind):
            if header["base_offset"] >= upper:
                return None
            if header["max_timestamp"] >= timestamp:
                found = _first_record(searched, segment, header, timestamp)
                if found is not None:
                    return found if found.offset < upper else None
    return None


def find_newest(searched: SearchedLog) -> OffsetAndTimestamp | None:
    """The record with the largest timestamp, the first one where several have it; None in an empty log.

    FileNotFoundError as find_timestamp.
    """
    best: OffsetAndTimestamp | None = None
    for segment, behind in _segments(searched):
        searched.indexes.ensure_summary(segment)
        if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp <= best.timestamp):
            continue
        found = _newest_in(searched, segment, behind)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _segments(searched: SearchedLog) -> Iterator[tuple[Segment, int]]:
    """(segment, first offset after it) of those that hold anything a reader may see."""
    segments = searched.log.segments
    for i, segment in enumerate(segments):
        behind = segments[i + 1].base_offset if i + 1 < len(segments) else searched.log.log_end_offset
        if segment.size > 0 and behind > searched.log.log_start_offset:
            yield segment, behind


def _headers(searched: SearchedLog, segment: Segment, position: int, behind: int) -> Iterator[BatchHeaderDict]:
    """Headers from a batch boundary on that end above the log start, of checked batches only."""
    index = searched.indexes.loaded(segment)
    position = max(position, index.position_of_offset(searched.log.log_start_offset))
    size = segment.size
    while position < size:
        recovery.verify_granules(segment, segment.unverified_granules(position, position + STEP_SIZE), behind)
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
    """The position moved out of quarantined bytes, and the end moved before the next ones."""
    for start, stop, _, _ in segment.damage or ():
        if start <= position < stop:
            position = stop
        elif position < start < stop:
            end = min(end, start)
    return position, max(position, end)


def _is_damaged(segment: Segment, position: int) -> bool:
    return any(start <= position < stop for start, stop, _, _ in segment.damage or ())


def _behind_large_batch(segment: Segment, position: int, size: int) -> int:
    """After a batch larger than a step, or at the end where there is no batch."""
    found = batch_headers(segment, position, size, count_max=1)
    return found[0]["position"] + found[0]["size"] if found else size


def _newest_in(searched: SearchedLog, segment: Segment, behind: int) -> OffsetAndTimestamp | None:
    """Of one segment: its summary names the batch, unless the log start cuts into the segment."""
    index = searched.indexes.loaded(segment)
    cut = segment.base_offset < searched.log.log_start_offset
    position = 0 if cut else index.position_of_offset(segment.max_timestamp_offset)
    best: BatchHeaderDict | None = None
    for header in _headers(searched, segment, position, behind):
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
    """What `look` finds among the unpacked records of a batch, as (timestamp, offset)."""
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
