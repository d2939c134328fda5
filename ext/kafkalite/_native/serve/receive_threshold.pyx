"""How much of a large request has to come before its worker is woken, and how long that is waited for.

Clients send what they seal with TLS record by record, and each would wake the worker: the selector sleeps until most of
what is missing has come (SO_RCVLOWAT). But a kernel acknowledges late what nobody reads, and a client's sends no more
than some packets, however small, that are not acknowledged: both would sleep. So the worker looks by itself too, sooner
where much comes meanwhile, later where little does; where nothing came, each byte wakes it.

Thread rule: all of this belongs to a connection's worker.
"""

cimport cython
from libc.stdint cimport int64_t

import heapq

cdef extern from "<sys/socket.h>" nogil:
    int setsockopt(int fd, int level, int option, const void* value, unsigned int size)
    int SOL_SOCKET, SO_RCVLOWAT


@cython.final
cdef class LowWater:
    """That of one socket."""

    def __cinit__(self, int fd):
        self.fd = fd
        self.size = 1
        self.look_ms = LOOK_MS_MIN

    cdef int set(self, Py_ssize_t missing, int64_t received, double now) except -1:
        """`missing` bytes at least are to come of a request, and `received` came since this was last called."""
        cdef int size = 1
        if self.size > 1:
            if received >= LOW_WATER_MIN:
                self.look_ms = <int>max(LOOK_MS_MIN, self.look_ms // 2)
            else:
                self.look_ms = <int>min(LOOK_MS_MAX, self.look_ms * 2)
        self.look_at = 0.0
        if received > 0 and missing >= LOW_WATER_MIN:
            size = <int>min(missing, <Py_ssize_t>LOW_WATER_MAX)
            self.look_at = now + <double>self.look_ms / 1000
        if size != self.size:
            self.size = size
            setsockopt(self.fd, SOL_SOCKET, SO_RCVLOWAT, &self.size, sizeof(int))
        return 0


@cython.final
cdef class Looks:
    """Connections of a worker that it looks at soon, whether it is woken for them or not."""

    def __cinit__(self):
        self.waiting = []

    cdef int add(self, LowWater low_water, object connection) except -1:
        """At its `look_at`, unless that has changed until then."""
        self.number += 1
        heapq.heappush(self.waiting, (low_water.look_at, self.number, low_water, connection))
        return 0

    cdef object sooner(self, object deadline):
        """Monotonic seconds: the earliest of these and of `deadline`, None where there is none."""
        while self.waiting and (<LowWater>self.waiting[0][2]).look_at != self.waiting[0][0]:
            heapq.heappop(self.waiting)
        if not self.waiting or deadline is not None and deadline < self.waiting[0][0]:
            return deadline
        return self.waiting[0][0]

    cdef list due(self, double now):
        """Connections whose time has come."""
        cdef list found = []
        while self.waiting and self.waiting[0][0] <= now:
            deadline, _, low_water, connection = heapq.heappop(self.waiting)
            if (<LowWater>low_water).look_at == deadline:
                found.append(connection)
        return found
