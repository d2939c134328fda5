"""Set a TLS socket's receive low-water mark while a large request arrives, so that fewer packets wake the worker.

With SO_RCVLOWAT, the socket becomes readable only when most of the missing bytes have arrived. Without it, each TLS
record of the request would wake the worker.

With the mark alone, client and broker could wait for each other, because the kernel delays acknowledgements of unread
data. So the worker also reads the socket without an event, LOOK_MS_MIN to LOOK_MS_MAX milliseconds later.

Thread rule: only the connection's worker.
"""

cimport cython
from libc.stdint cimport int64_t

import heapq

cdef extern from "<sys/socket.h>" nogil:
    int setsockopt(int fd, int level, int option, const void* value, unsigned int size)
    int SOL_SOCKET, SO_RCVLOWAT


@cython.final
cdef class LowWater:
    """The low-water mark of one socket."""

    def __cinit__(self, int fd):
        self.fd = fd
        self.size = 1
        self.look_ms = LOOK_MS_MIN

    cdef int set(self, Py_ssize_t missing, int64_t received, double now) except -1:
        """Set the mark for `missing` bytes that are still to come, after `received` bytes came since the last call.

        The worker reads the socket at `look_at`, sooner if much data arrived since the last call. If none arrived, the
        mark becomes one byte.
        """
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
    """Connections that a worker reads soon, even without an event."""

    def __cinit__(self):
        self.waiting = []

    cdef int add(self, LowWater low_water, object connection) except -1:
        """Read a connection at the time `look_at` of its mark, unless that time changes before."""
        self.number += 1
        heapq.heappush(self.waiting, (low_water.look_at, self.number, low_water, connection))
        return 0

    cdef object sooner(self, object deadline):
        """Return the earlier of `deadline` and the first read, in monotonic seconds; None if there is neither."""
        while self.waiting and (<LowWater>self.waiting[0][2]).look_at != self.waiting[0][0]:
            heapq.heappop(self.waiting)
        if not self.waiting or deadline is not None and deadline < self.waiting[0][0]:
            return deadline
        return self.waiting[0][0]

    cdef list due(self, double now):
        """Return the connections that are due to be read."""
        cdef list found = []
        while self.waiting and self.waiting[0][0] <= now:
            deadline, _, low_water, connection = heapq.heappop(self.waiting)
            if (<LowWater>low_water).look_at == deadline:
                found.append(connection)
        return found
