"""Scan the batches of a segment, for recovery, verification, indexes, producer state and look-ups by time.

A scan checks headers in chunks, without the GIL. If requested, it also checks checksums. Then it processes the batches
with the GIL.

It stops at the given end, or at the first bytes that are not a batch. kafkalite.broker.log.recovery decides whether
these are an incomplete last batch or damage.

Thread rule: a scan belongs to one thread. The segment is pinned only during run() and resync().
"""

from libc.stdint cimport INT64_MAX, int64_t

from kafkalite._native.log.index cimport SegmentIndex
from kafkalite._native.log.producers cimport Marker, ProducerTable, read_marker
from kafkalite._native.log.record_format cimport PARSED, ItemInfo, RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.wire.batch cimport CONTROL

cdef enum:
    CHUNK_BATCHES = 512                 # headers walked per GIL release
    CHUNK_BYTES = 8 * 1024 * 1024       # and bytes: lets other threads run

    WALKED = 0
    WALK_INVALID = 1


cdef struct Walk:
    int64_t base                        # offset of the segment
    int64_t position
    int64_t next_offset
    int64_t end                         # position at which to stop
    int64_t offset_limit                # no batch may reach beyond this offset
    int64_t contiguous_from             # no gap may begin at or above this offset
    bint verify


cdef bint fits(RecordFormat format, const unsigned char* map, const Walk* walk, const ItemInfo* info) noexcept nogil:
    """Return whether a parsed batch is in order with the batches before and after it.

    The CRC does not cover the base offset, so this order is checked too. The batch must not begin below the offset
    after the previous batch. If it begins above (a gap, as after compaction), it must not overlap the next batch.
    """
    cdef ItemInfo following
    cdef int64_t after
    if info.next_offset > walk.offset_limit or info.base_offset < walk.next_offset:
        return False
    if walk.next_offset >= 0 and info.base_offset > walk.next_offset:
        if walk.next_offset >= walk.contiguous_from:
            return False
        after = info.position + info.size
        if (after < walk.end
                and format.parse(map + after, walk.end - after, walk.base + after, &following) == PARSED
                and following.base_offset < info.next_offset):
            return False
    return True


cdef int walk_chunk(RecordFormat format, const unsigned char* map, Walk* walk, ItemInfo* batches,
                    int64_t* count) noexcept nogil:
    """Parse a chunk of batches. Returns WALK_INVALID if the bytes at `walk.position` are not a batch in order."""
    cdef int64_t start = walk.position
    cdef ItemInfo* info
    count[0] = 0
    while walk.position < walk.end and count[0] < CHUNK_BATCHES and walk.position - start < CHUNK_BYTES:
        info = &batches[count[0]]
        if format.parse(map + walk.position, walk.end - walk.position, walk.base + walk.position, info) != PARSED:
            return WALK_INVALID
        info.position = walk.position
        if not fits(format, map, walk, info):
            return WALK_INVALID
        if walk.verify and not format.intact(map + walk.position, info):
            return WALK_INVALID
        walk.position += info.size
        walk.next_offset = info.next_offset
        count[0] += 1
    return WALKED


cdef int64_t find_batch(RecordFormat format, const unsigned char* map, int64_t position, const Walk* walk,
                        ItemInfo* info) noexcept nogil:
    """Return the first position from `position` on where an intact batch in order begins, or -1.

    A record may contain bytes that look like a batch. So the end or another batch in order must follow.
    """
    cdef ItemInfo following
    cdef int64_t after
    while position + format.size_min <= walk.end:
        if (format.parse(map + position, walk.end - position, walk.base + position, info) == PARSED
                and info.base_offset >= walk.next_offset and info.next_offset <= walk.offset_limit
                and format.intact(map + position, info)):
            info.position = position
            after = position + info.size
            if after == walk.end:
                return position
            if (format.parse(map + after, walk.end - after, walk.base + after, &following) == PARSED
                    and following.base_offset >= info.next_offset):
                return position
        position += 1
    return -1


cdef class SegmentScan:
    """A scan of one segment. It begins at `position`, with a batch whose offset is `next_offset` or above."""

    def __init__(self, Segment segment, *, int64_t position=0, int64_t next_offset=-1, SegmentIndex index=None,
                 int64_t index_interval=0, int64_t bytes_since_entry=0, ProducerTable producers=None,
                 int64_t producers_from=0, int64_t max_timestamp=-1, int64_t max_timestamp_offset=-1,
                 int64_t last_position=-1):
        self.segment = segment
        self.position = position
        self.next_offset = next_offset
        self.index = index
        self.index_interval = index_interval
        self.bytes_since_entry = bytes_since_entry
        self.producers = producers
        self.producers_from = producers_from
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self.last_position = last_position

    def install(self, *, int64_t verified_from=INT64_MAX):
        """Give the segment the results of the scan: its index, timestamps and last batch.

        The segment's bytes from `verified_from` on count as checked; 0: all of them. Raises ValueError without an
        index.
        """
        if self.index is None:
            raise ValueError("a scan without an index has nothing to give")
        self.segment.set_verified_from(verified_from)
        self.segment.set_index(self.index, self.bytes_since_entry, self.max_timestamp, self.max_timestamp_offset,
                               self.last_position)

    cdef int _take(self, const unsigned char* map, const ItemInfo* batches, int64_t count) except -1:
        cdef const ItemInfo* info
        cdef int64_t i
        for i in range(count):
            info = &batches[i]
            if self.index is not None:
                if self.bytes_since_entry > self.index_interval:
                    self.index.append(info.base_offset, info.position, self.max_timestamp)
                    self.bytes_since_entry = 0
                self.bytes_since_entry += info.size
            # A batch that compaction left without records has no time.
            if info.max_timestamp > self.max_timestamp and info.record_count > 0:
                self.max_timestamp = info.max_timestamp
                self.max_timestamp_offset = info.base_offset
            if self.producers is not None and info.producer_id >= 0 and info.base_offset >= self.producers_from:
                self._take_producer(map, info)
        if count:
            self.last_position = batches[count - 1].position
            self.batch_count += count
        return 0

    cdef int _take_producer(self, const unsigned char* map, const ItemInfo* info) except -1:
        cdef Marker marker
        if info.attributes & CONTROL:
            read_marker(map + info.position, info, &marker)
            return self.producers.update_marker(info, &marker, info.max_timestamp)
        return self.producers.update(info, info.max_timestamp)

    def run(self, int64_t end, *, bint verify, int64_t contiguous_from=INT64_MAX, int64_t offset_limit=INT64_MAX):
        """Scan to position `end`. Return False if the bytes at `position` are not a batch in order.

        Gaps between offsets are allowed only below `contiguous_from`, because unflushed batches are never compacted.
        Raises SegmentUnreadable if the file cannot be read. Then the scan's results must be discarded.
        """
        cdef ItemInfo batches[CHUNK_BATCHES]
        cdef Walk walk
        cdef RecordFormat format = self.segment.format
        cdef const unsigned char* map
        cdef int64_t count = 0
        cdef int result = WALKED
        walk.base = self.segment.base_offset
        walk.position = self.position
        walk.next_offset = self.next_offset
        walk.end = end
        walk.offset_limit = offset_limit
        walk.verify = verify
        walk.contiguous_from = contiguous_from
        self.segment.pin()
        try:
            map = self.segment.map
            while walk.position < end and result == WALKED:
                with nogil:
                    result = walk_chunk(format, map, &walk, batches, &count)
                self._take(map, batches, count)
                self.segment.check_read()
                self.position = walk.position
                self.next_offset = walk.next_offset
        finally:
            self.segment.unpin()
        return result == WALKED

    def resync(self, int64_t end, *, int64_t offset_limit=INT64_MAX):
        """Return (position, base offset) of the next intact batch after a bad one, or None if there is none before
        `end`."""
        cdef ItemInfo info
        cdef Walk walk
        cdef RecordFormat format = self.segment.format
        cdef const unsigned char* map
        cdef int64_t found
        walk.base = self.segment.base_offset
        walk.position = self.position
        walk.next_offset = self.next_offset
        walk.end = end
        walk.offset_limit = offset_limit
        walk.verify = True
        walk.contiguous_from = INT64_MAX
        self.segment.pin()
        try:
            map = self.segment.map
            with nogil:
                found = find_batch(format, map, walk.position + 1, &walk, &info)
            self.segment.check_read()
        finally:
            self.segment.unpin()
        return None if found < 0 else (found, info.base_offset)

    def skip_to(self, int64_t position, int64_t next_offset):
        """Continue at another batch boundary, after bytes that are not batches."""
        self.position = position
        self.next_offset = next_offset

    def first_bad_offset(self):
        """Return the offset that the batch at `position` should have."""
        return self.next_offset if self.next_offset >= 0 else self.segment.base_offset


def batch_headers(Segment segment, int64_t position, int64_t end, *, int64_t count_max=1024):
    """Return up to `count_max` headers as dicts, from a batch boundary on. It stops at bytes that are not a batch."""
    cdef ItemInfo info
    found = []
    segment.pin()
    try:
        while position < end and len(found) < count_max:
            if segment.format.parse(
                    segment.map + position, end - position, segment.base_offset + position, &info) != PARSED:
                break
            info.position = position
            found.append(info)
            position += info.size
        segment.check_read()
    finally:
        segment.unpin()
    return found


def header_at(Segment segment, int64_t position):
    """Return the header of the batch at `position` as a dict, or None if its checksum is wrong."""
    cdef ItemInfo info
    if position < 0 or position >= segment.size:
        return None
    cdef bint whole
    segment.pin()
    try:
        whole = segment.format.parse(
            segment.map + position, segment.size - position, segment.base_offset + position, &info) == PARSED
        whole = whole and segment.format.intact(segment.map + position, &info)
        segment.check_read()
    finally:
        segment.unpin()
    if not whole:
        return None
    info.position = position
    return info
