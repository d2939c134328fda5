"""Set a socket's receive low-water mark while a large request arrives, so that fewer packets wake the worker."""

from libc.stdint cimport int64_t

cdef enum:
    LOW_WATER_MIN = 16384               # a smaller mark is not worth a system call
    LOW_WATER_MAX = 229376              # slightly less than the receive buffer of TLS
    LOOK_MS_MIN = 1                     # wait before the worker looks at fewer bytes, for a fast client
    LOOK_MS_MAX = 32                    # the same for a slow client


cdef class LowWater:
    cdef int fd
    cdef int size                       # fewer bytes do not wake the worker
    cdef int look_ms                    # after this time the worker looks at fewer
    cdef double look_at                 # monotonic seconds of that look; 0: never

    cdef int set(self, Py_ssize_t missing, int64_t received, double now) except -1


cdef class Looks:
    cdef list waiting                   # heap of (deadline, number, LowWater, connection)
    cdef int64_t number

    cdef int add(self, LowWater low_water, object connection) except -1
    cdef object sooner(self, object deadline)
    cdef list due(self, double now)
