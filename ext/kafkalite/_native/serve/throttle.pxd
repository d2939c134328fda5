"""How long one connection waits, because its client exceeds a quota."""

from libc.stdint cimport int32_t

from kafkalite._native.serve.quota cimport BoundClient
from kafkalite._native.serve.worker_parts cimport WorkerParts

cdef enum QuotaVerdict:
    NOT_BOUNDED = 0                     # no quota counts for the request, beyond the bytes that are counted already
    WITHIN_QUOTA = 1                    # a quota counts, and is not exceeded
    OVER_QUOTA = 2                      # the request is served, and its client waits after it
    HELD_BACK = 3                       # the request itself waits: it is in `held`


cdef class Throttle:
    cdef BoundClient client
    cdef bint bounded                   # the current request is one to which quotas count
    cdef int32_t ms                     # what the client of the current request is told to wait
    cdef int32_t owed_ms                # how long the request in `held` waits
    cdef double muted_until             # monotonic seconds; 0: it is not muted
    cdef bytearray held                 # a request that is served when the connection is not muted any more

    cdef QuotaVerdict judge(self, WorkerParts io, object principal, unsigned char* frame, Py_ssize_t size) except *
    cdef int32_t delay_ms(self, WorkerParts io, unsigned char* frame, Py_ssize_t size) except -1
    cdef bint counts(self) noexcept
