"""Decide what happens to bytes of a log that are not batches: truncate the log, quarantine them, or remove zeros.

To *quarantine* bytes or offsets is to mark them as damaged and never serve them. The *flushed offset* is the offset up
to which the log is known to be durable.

    bad bytes at or above the flushed offset    an interrupted write; the log is truncated at the first of them
    bad bytes below the flushed offset          quarantined and reported. Reads of their offsets return CORRUPT_MESSAGE;
                                                batches after them are served
    missing offsets after a sealed segment      quarantined, unless compaction may have removed them
    zeros at a segment's end                    truncated if no offset is missing before the next segment: a broker
                                                preallocated them, and did not stop cleanly

If another replica has all acknowledged records, the flushed offset of a replica's log counts as 0: damage is truncated,
and the records are fetched again.

The module checks the tail of a log after an unclean stop, and other bytes from disk before they are first served.
Everything here may block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.log.scan import SegmentScan
from kafkalite._native.wire.batch import HEADER_SIZE
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files, quarantine_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite._native.log.segment import Segment

logger = logging.getLogger(__name__)

OFFSET_MAX: Final = (1 << 63) - 1
ZEROS_CHUNK: Final = 1 << 20


class Tail(NamedTuple):
    """What to do with the end of a segment after it was read."""

    cut_position: int | None  # where to truncate the segment; None: nothing to truncate
    quarantined: bool  # damage at the end was quarantined, so nothing may be appended after it
    ahead: bool = False  # the bytes to cut are preallocated zeros; no batch is missing


def walk_tail(
    scan: SegmentScan,
    *,
    flushed_offset: int,
    offset_limit: int = OFFSET_MAX,
    contiguous_from: int = 0,
    keep_valid: bool = False,
) -> Tail:
    """Check a segment from the scan's position to its end; quarantine damage below `flushed_offset`.

    Missing offsets at or above `contiguous_from` are damage. With `keep_valid`, bytes that an intact batch follows are
    not truncated: the directory is from elsewhere, and its flushed offset is unknown.
    """
    segment = scan.segment
    end = segment.size
    while not scan.run(end, verify=True, contiguous_from=contiguous_from, offset_limit=offset_limit):
        offset = scan.first_bad_offset()
        may_cut = offset >= flushed_offset
        if (offset == offset_limit or (offset_limit == OFFSET_MAX and may_cut)) and ends_in_zeros(
            segment, scan.position
        ):
            return Tail(scan.position, quarantined=False, ahead=True)
        if may_cut and not keep_valid:
            return Tail(scan.position, quarantined=False)
        following = scan.resync(end, offset_limit=offset_limit)
        if following is None:
            if may_cut:
                return Tail(scan.position, quarantined=False)
            quarantine(segment, scan.position, end, offset, max(offset, min(flushed_offset, offset_limit)))
            return Tail(None, quarantined=True)
        quarantine(segment, scan.position, following[0], offset, following[1])
        scan.skip_to(*following)
    return Tail(None, quarantined=False)


def ends_in_zeros(segment: Segment, position: int) -> bool:
    """Return whether there are bytes from `position` to the end of the segment, and all of them are zero."""
    if position >= segment.size:
        return False
    for start in range(position, segment.size, ZEROS_CHUNK):
        if segment.read_bytes(start, min(ZEROS_CHUNK, segment.size - start)).strip(b"\0"):
            return False
    return True


def may_end_in_zeros(segment: Segment, covered_size: int) -> bool:
    """Return whether a durable segment may end in zeros, so that it has to be read.

    False if its saved index covers the whole segment.
    """
    if covered_size == segment.size or segment.format.positional:
        return False
    return ends_in_zeros(segment, max(0, segment.size - HEADER_SIZE))


def quarantine(segment: Segment, position: int, end: int, offset: int, next_offset: int) -> None:
    """Quarantine bytes [position, end) of a segment; save its ranges and log this. Do nothing if they are quarantined
    already.
    """
    if not segment.add_damage(position, end, offset, next_offset):
        return
    quarantine_file.save(segment)
    logger.error(
        "quarantined damaged bytes; reading their offsets fails, and all other offsets are served",
        extra=fields(
            path=segment.path, position=position, size=end - position, first_offset=offset, next_offset=next_offset
        ),
    )


def quarantine_gap(segment: Segment, offset: int, next_offset: int) -> None:
    """Quarantine the offsets that are missing between a sealed segment and the next segment."""
    if not segment.add_damage(segment.size, segment.size, offset, next_offset):
        return
    quarantine_file.save(segment)
    logger.error(
        "records are missing: a segment ends before the next one begins; reading their offsets fails, and all "
        "other offsets are served",
        extra=fields(path=segment.path, size=segment.size, first_offset=offset, next_offset=next_offset),
    )


def check_end(segment: Segment, offset: int, limit: int) -> None:
    """Quarantine the offsets [offset, limit), which are missing between a sealed segment and the next one.

    Call this only for a log in which no offset may be missing. Do nothing if the segment has Kafka's index files, since
    Kafka may have compacted it, or if `log repair` removed the offsets.
    """
    if offset >= limit:
        return
    stem = f"{segment.directory}/{files.stem(segment.base_offset)}"
    if any(disk.exists(stem + suffix) for suffix in files.KAFKA_INDEX_SUFFIXES):
        return
    taken_out = quarantine_file.taken_out(segment.directory, segment.base_offset)
    if not any(first <= offset and limit <= next_offset for first, next_offset in taken_out):
        quarantine_gap(segment, offset, limit)


def verify_granules(segment: Segment, granules: Sequence[tuple[int, int, int, int, int]], offset_limit: int) -> None:
    """Check granules of a segment, mark them as verified, and quarantine damage.

    A granule is the part of a segment from one index entry to the next, as `Segment.unverified_granules` returns it.
    `offset_limit` bounds the offsets of the last granule.
    """
    done = 0
    while done < len(granules):
        last = done
        while last + 1 < len(granules) and granules[last + 1][1] == granules[last][2]:
            last += 1
        done = _verify_run(segment, granules[done : last + 1], offset_limit) + done


def _verify_run(segment: Segment, run: Sequence[tuple[int, int, int, int, int]], offset_limit: int) -> int:
    """Check adjacent granules until one is damaged; quarantine its damage. Return the number of checked granules."""
    _, position, _, first_offset, _ = run[0]
    first_offset = first_offset if first_offset >= 0 else segment.base_offset
    scan = SegmentScan(segment, position=position, next_offset=first_offset)
    limit = run[-1][4] if run[-1][4] >= 0 else offset_limit
    if scan.run(run[-1][2], verify=True, offset_limit=limit):
        for granule in run:
            segment.mark_verified(granule[0])
        return len(run)
    count = 0
    for number, _, end, _, next_first in run:
        count += 1
        if end <= scan.position:
            segment.mark_verified(number)
            continue
        _quarantine_in_granule(scan, end, next_first if next_first >= 0 else offset_limit)
        segment.mark_verified(number)
        break
    return count


def _quarantine_in_granule(scan: SegmentScan, end: int, offset_limit: int) -> None:
    """Quarantine the damage from the scan's position to the end of its granule, where the next index entry begins."""
    while True:
        offset = scan.first_bad_offset()
        following = scan.resync(end, offset_limit=offset_limit) or (end, offset_limit)
        quarantine(scan.segment, scan.position, following[0], offset, following[1])
        scan.skip_to(*following)
        if scan.position >= end or scan.run(end, verify=True, offset_limit=offset_limit):
            return
