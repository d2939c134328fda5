"""Find the batches of aborted transactions, which a read_committed consumer drops."""

from libc.stdint cimport int64_t
from kafkalite._native.wire.batch cimport BatchHeader
from kafkalite._native.wire.status cimport Status


cdef inline int64_t last_offset(const BatchHeader* header) noexcept nogil:
    return header.base_offset + header.last_offset_delta


cdef class AbortedFilter:
    cdef int64_t* entries               # (first offset, producer id) by first offset
    cdef int64_t* running               # producers with an aborted transaction that reaches the present batch
    cdef Py_ssize_t count, reached, running_count

    cdef Py_ssize_t find(self, int64_t producer_id) noexcept nogil
    cdef bint drops(self, const BatchHeader* header) noexcept nogil
    cdef Status see_marker(
        self, const unsigned char* records, Py_ssize_t size, const BatchHeader* header
    ) noexcept nogil
