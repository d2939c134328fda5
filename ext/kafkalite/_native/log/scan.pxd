"""Scan the batches of a segment, for recovery, verification, indexes, producer state and look-ups by time."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from kafkalite._native.log.index cimport SegmentIndex
from kafkalite._native.log.producers cimport ProducerTable
from kafkalite._native.log.record_format cimport ItemInfo
from kafkalite._native.log.segment cimport Segment

cdef class SegmentScan:
    cdef readonly Segment segment
    cdef readonly int64_t position          # of the next batch
    cdef readonly int64_t next_offset       # first offset after the last batch, -1 when not known yet
    cdef readonly int64_t batch_count
    cdef readonly int64_t last_position     # of the last batch, -1 none
    cdef readonly int64_t max_timestamp, max_timestamp_offset
    cdef readonly int64_t bytes_since_entry
    cdef readonly SegmentIndex index        # built on the way, or None
    cdef int64_t index_interval
    cdef ProducerTable producers            # updated on the way, or None
    cdef int64_t producers_from             # batches below this offset are in it already
    cdef int _take(self, const unsigned char* map, const ItemInfo* batches, int64_t count) except -1
    cdef int _take_producer(self, const unsigned char* map, const ItemInfo* info) except -1
