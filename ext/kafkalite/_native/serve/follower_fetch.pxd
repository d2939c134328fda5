"""Serve a partition of a follower's fetch: check the follower, find diverging epochs, read up to the log end."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.segment_read cimport ReadResult
from kafkalite._native.serve.fetch_session cimport FetchPart
from kafkalite._native.serve.quota cimport Meter

cdef struct Asker:
    int32_t replica_id
    int64_t epoch               # of its broker, -1 unknown
    double now                  # seconds, monotonic

cdef int refusal_of(LogCore log, const FetchPart* part, const Asker* asker) except -1
cdef bint diverges(LogCore log, FetchPart* part, int32_t replica_id) except -1
cdef bint is_held_back(LogCore log, int32_t replica_id, Meter limit, double now) noexcept
cdef int64_t limited_size(const FetchPart* part, LogCore log) noexcept
cdef LogSlice read_for(LogCore log, FetchPart* part, const Asker* asker, int64_t size_max, bint whole_first,
                       ReadResult* out)
