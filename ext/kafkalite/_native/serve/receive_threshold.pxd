"""How much of a large request has to come before its worker is woken, and how long that is waited for."""

from libc.stdint cimport int64_t

cdef enum:
    LOW_WATER_MIN = 16384               # less is not worth a system call
    LOW_WATER_MAX = 229376              # a little less than what TLS is received into
    LOOK_MS_MIN = 1                     # how long less than that is left where it is, of a client that sends much
    LOOK_MS_MAX = 32                    # and of one that sends little


cdef class LowWater:
    cdef int fd
    cdef int size                       # fewer bytes do not wake the worker
    cdef int look_ms                    # after so long it looks at fewer
    cdef double look_at                 # monotonic seconds when that is; 0: never

    cdef int set(self, Py_ssize_t missing, int64_t received, double now) except -1


cdef class Looks:
    cdef list waiting                   # heap of (deadline, number, LowWater, connection)
    cdef int64_t number

    cdef int add(self, LowWater low_water, object connection) except -1
    cdef object sooner(self, object deadline)
    cdef list due(self, double now)
