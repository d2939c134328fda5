"""A view of a range of one segment, which a read returns instead of a copy of the bytes."""

from libc.stdint cimport int64_t

from kafkalite._native.log.segment cimport Segment

cdef class LogSlice:
    # Whole batches inside one segment; keeps it pinned until release() or until it is collected.
    cdef readonly object owner              # the log's; its read_failed is called for an unreadable file
    cdef readonly Segment segment
    cdef readonly int64_t position, size    # a reader may make it smaller, to a boundary of batches
    cpdef release(self)
    cdef int failed(self, int error) except -1

cdef LogSlice make_slice(object owner, Segment segment, int64_t position, int64_t size)
