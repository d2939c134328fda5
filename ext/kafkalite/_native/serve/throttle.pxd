"""Decide how long one connection waits, because its client exceeds a quota (KIP-219)."""

from libc.stdint cimport int32_t

from kafkalite._native.serve.quota cimport BoundClient
from kafkalite._native.serve.worker_parts cimport WorkerParts

cdef enum QuotaVerdict:
    NOT_BOUNDED = 0                     # no quota applies, except for bytes that are counted already
    WITHIN_QUOTA = 1                    # a quota applies, and is not exceeded
    OVER_QUOTA = 2                      # the request is served, and its client waits after it
    HELD_BACK = 3                       # the request itself waits: it is in `held`


cdef class Throttle:
    cdef BoundClient client
    cdef bint bounded                   # quotas apply to the current request
    cdef int32_t ms                     # throttle time in the response to the current request
    cdef int32_t owed_ms                # how long the request in `held` waits
    cdef double muted_until             # monotonic seconds; 0: it is not muted
    cdef bytearray held                 # a request that is served when the mute ends

    cdef QuotaVerdict judge(self, WorkerParts io, object principal, unsigned char* frame, Py_ssize_t size) except *
    cdef int32_t delay_ms(self, WorkerParts io, unsigned char* frame, Py_ssize_t size) except -1
    cdef bint counts(self) noexcept
