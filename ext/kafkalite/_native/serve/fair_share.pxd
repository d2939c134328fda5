"""Limit the records of one partition in the response to a fetch of several partitions."""

from libc.stdint cimport int64_t

from kafkalite._native.log.log_slice cimport LogSlice

cdef enum:
    SHARE_RECORDS = 60          # of a partition in an answer; one that ends an answer may begin the next one, too

cdef int64_t shared_max(int fd) noexcept
cdef int64_t share_of(LogSlice piece, int64_t offset) noexcept
