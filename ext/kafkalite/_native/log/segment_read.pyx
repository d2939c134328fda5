"""Find the whole batches of a segment that answer a read, by its index and the batch headers.

    offset ─▶ index: a granule ─▶ headers: the batch that contains it ─▶ last batch boundary below the limits

A granule is the bytes between two index entries. The CRC of bytes from an earlier process is checked once; before this
check, the result is READ_DEFER. Quarantined batches are skipped. A read from an offset inside them is refused.

Thread rule: the rule of Segment applies. The caller holds a pin, and checks the segment for faults after reading the
map.
"""

from libc.stdint cimport INT64_MAX, int64_t

from kafkalite._native.log.index cimport IndexView, bisect_last
from kafkalite._native.log.record_format cimport PARSED, ItemInfo, RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.wire.error_codes cimport CORRUPT_MESSAGE

cdef enum:
    FOUND = 0
    PASSED_END = 1
    MET_INVALID = 2


cdef int find_offset(RecordFormat format, const unsigned char* map, int64_t base, int64_t position, int64_t limit,
                     int64_t offset, ItemInfo* info) noexcept nogil:
    """Find the first batch that ends above `offset`, by reading headers from a batch boundary on."""
    cdef int result
    while position < limit:
        result = format.parse(map + position, limit - position, base + position, info)
        if result != PARSED:
            return MET_INVALID
        if info.next_offset > offset:
            info.position = position
            return FOUND
        position += info.size
    return PASSED_END


cdef int64_t last_boundary(RecordFormat format, const unsigned char* map, int64_t base, int64_t position, int64_t limit,
                           int64_t target, int64_t upper_offset) noexcept nogil:
    """Return the last batch boundary at or below `target`, with all batches before it below `upper_offset`.

    `position` is a batch boundary from which to read headers.
    """
    cdef ItemInfo info
    while position < limit:
        if format.parse(map + position, limit - position, base + position, &info) != PARSED:
            break
        if position + info.size > target or info.next_offset > upper_offset:
            break
        position += info.size
    return position


cdef int slice_segment(Segment segment, int64_t offset, int64_t size_max, bint whole_first, int64_t upper_offset,
                       int64_t size_limit, ReadResult* out) except -1:
    """Find whole batches from the one that contains `offset` on, all below `upper_offset`. Return a READ_ constant.

    The result is in `out`: positions, outcome and error. The error is CORRUPT_MESSAGE for an offset in quarantined
    bytes. The caller holds a pin.
    """
    out.error = 0
    out.start = out.end = 0
    if segment.index is None:
        out.outcome = READ_DEFER
    elif segment.damage is not None:
        out.outcome = slice_damaged(segment, offset, size_max, whole_first, upper_offset, size_limit, out)
    else:
        out.outcome = slice_whole(segment, offset, size_max, whole_first, upper_offset, size_limit, out)
    return out.outcome


cdef int slice_whole(Segment segment, int64_t offset, int64_t size_max, bint whole_first, int64_t upper_offset,
                     int64_t size_limit, ReadResult* out) except -1:
    """Do what slice_segment() does, for a segment without quarantined bytes."""
    cdef IndexView view
    cdef ItemInfo info
    cdef int64_t i, position, granule_end, target, first_end, boundary
    cdef int result
    cdef RecordFormat format = segment.format
    cdef const unsigned char* map = segment.map
    cdef int64_t base = segment.base_offset
    _owner = segment.index.view(&view)  # keeps the columns alive while they are bisected without the GIL
    i = bisect_last(view.offsets, view.count, offset)
    position = view.positions[i] if i >= 0 else 0
    granule_end = view.positions[i + 1] if i + 1 < view.count else size_limit
    if not segment.is_verified(position, granule_end):
        return READ_DEFER
    with nogil:
        result = find_offset(format, map, base, position, size_limit, offset, &info)
    if result == PASSED_END:
        return READ_PAST_END
    if result == MET_INVALID:
        if segment.is_verified(position, size_limit):
            segment.distrust()          # they were batches once: somebody changed the file
        return READ_DEFER
    if not segment.is_verified(info.position, info.position + info.size):
        return refuse_read(out, CORRUPT_MESSAGE) if segment.is_verified(position, size_limit) else READ_DEFER
    if info.next_offset > upper_offset:
        return READ_NOTHING
    first_end = info.position + info.size
    target = min(info.position + min(size_max, INT64_MAX - info.position), size_limit)
    out.start = info.position
    if target < first_end:
        out.end = first_end
        return READ_FOUND if whole_first else READ_NOTHING
    if not segment.is_verified(info.position, target):
        return READ_DEFER
    if target == size_limit and upper_offset == INT64_MAX:
        out.end = size_limit
        return READ_FOUND
    with nogil:
        i = bisect_last(view.positions, view.count, target)
        if upper_offset != INT64_MAX:
            i = min(i, bisect_last(view.offsets, view.count, upper_offset))
        boundary = max(first_end, view.positions[i]) if i >= 0 else first_end
        boundary = last_boundary(format, map, base, boundary, size_limit, target, upper_offset)
    out.end = boundary
    return READ_FOUND


cdef int slice_damaged(Segment segment, int64_t offset, int64_t size_max, bint whole_first, int64_t upper_offset,
                       int64_t size_limit, ReadResult* out) except -1:
    """Do what slice_segment() does, for a segment with quarantined bytes: skip them, and end before them.

    This is rare, so the code is simple rather than fast.
    """
    cdef ItemInfo info
    cdef int64_t position, bound, target, first_end
    cdef int result
    cdef tuple damage = segment.damage
    position = segment.index.position_of_offset(offset)
    while True:
        bound = size_limit
        for damage_start, damage_end, _, _ in damage:
            if damage_start <= position < damage_end:
                position = damage_end
            elif damage_start > position and damage_end > damage_start:
                bound = min(bound, <int64_t>damage_start)
        if position >= size_limit:
            return READ_PAST_END
        if not segment.is_verified(position, min(position + 1, size_limit)):
            return READ_DEFER
        result = find_offset(segment.format, segment.map, segment.base_offset, position, bound, offset, &info)
        if result == FOUND:
            break
        if result == MET_INVALID:
            return refuse_read(out, CORRUPT_MESSAGE) if segment.is_verified(position, bound) else READ_DEFER
        position = bound
    first_end = info.position + info.size
    target = min(info.position + min(size_max, INT64_MAX - info.position), bound)
    if not segment.is_verified(info.position, max(target, first_end)):
        return READ_DEFER
    if segment.damage is not damage:
        return READ_DEFER               # found meanwhile: look again
    if info.next_offset > upper_offset or (target < first_end and not whole_first):
        return READ_NOTHING
    out.start = info.position
    out.end = first_end
    if target >= first_end:
        out.end = last_boundary(
            segment.format, segment.map, segment.base_offset, first_end, bound, target, upper_offset)
    return READ_FOUND


cdef int64_t end_offset_at(Segment segment, int64_t position, int64_t end) except -1:
    """Return the offset after the batches in [position, end), two batch boundaries. The caller holds a pin."""
    cdef ItemInfo info
    cdef IndexView view
    cdef int64_t i
    cdef int64_t base = segment.base_offset
    info.next_offset = base
    _owner = segment.index.view(&view)
    with nogil:
        i = bisect_last(view.positions, view.count, end - 1)
        if i >= 0:
            position = max(position, view.positions[i])
        while position < end and segment.format.parse(
                segment.map + position, end - position, base + position, &info) == PARSED:
            position += info.size
    return info.next_offset
