"""List the aborted transactions of one log, for read_committed fetches."""

from libc.stdint cimport int64_t

cdef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset        # of its first batch in this log
    int64_t marker_offset       # of the abort marker that ended it
    int64_t stable_offset       # the log's last stable offset after that marker

cdef class AbortedTransactions:
    cdef AbortedTransaction* entries            # marker_offset rises; stable_offset never falls
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef int put(self, int64_t producer_id, int64_t first_offset, int64_t marker_offset,
                 int64_t stable_offset) except -1
    cdef Py_ssize_t first_marker_from(self, int64_t offset) noexcept nogil
    cdef Py_ssize_t _first_stable_from(self, int64_t offset) noexcept nogil
    cdef list overlapping(self, int64_t from_offset, int64_t upper_offset)
