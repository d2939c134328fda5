"""Serve Fetch requests with many partitions, or with a large session, a few partitions at a time."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.serve.fetch cimport FetchPlan
from kafkalite._native.serve.quota cimport Meter
from kafkalite._native.serve.worker_parts cimport WorkerParts
from kafkalite._native.wire.cursor cimport Cursor

cdef enum:
    FETCH_SIZE_AT_ONCE = 16384      # bytes of a request that is parsed at once: 1,024 partitions at most


cdef class FetchRun:
    cdef FetchPlan plan
    cdef WorkerParts io
    cdef object connection
    cdef object steps               # the generator that does the work; None: it has ended
    cdef int64_t until              # the end of the current turn, as now_ns
    cdef bint scheduled             # it is in io.long_runs, or its turn runs
    cdef bint holds                 # later requests of its connection wait
    cdef bint timed                 # its deadline is in io.timers
    cdef void* frame                # its own copy of the request; NULL: that is parsed
    cdef const unsigned char* body
    cdef Py_ssize_t size
    cdef Cursor cursor
    cdef bytes client_id            # of the request
    cdef bint bounded               # by a quota:
    cdef Meter meter
    cdef int32_t throttle_ms

    cdef int begin(self) except -1
    cdef int schedule(self) except -1
    cdef int leave_session(self, int error) except -1
    cdef int end(self) except -1
