"""Add the current leader to error responses (KIP-951), and select read replicas (KIP-392)."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.serve.transfer cimport OutBuffer

cdef enum:
    PRODUCE_LEADERS_FROM = 10           # version
    FETCH_LEADERS_FROM = 16
    PRODUCE_LEADER_TAG = 0
    FETCH_LEADER_TAG = 1


cdef class Leaders:
    cdef object address_of              # (listener, node id) -> (host, port, rack) or None
    cdef bint by_rack                   # consumers that send their rack get a preferred read replica

    cdef bint is_in(self, bytes rack, object listener, int32_t node_id) except -1
    cdef int32_t preferred(self, LogCore log, bytes rack, int64_t offset, object listener) except -2
    cdef int put_leader(self, OutBuffer out, int tag, LogCore log) except -1
    cdef int put_endpoints(self, OutBuffer out, object listener, object nodes) except -1
