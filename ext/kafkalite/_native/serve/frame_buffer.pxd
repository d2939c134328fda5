"""Keep the bytes that one connection has received and not served, and charge them to its client."""

from libc.stdint cimport int16_t, int64_t

from kafkalite._native.serve.memory cimport Holding, MemoryCeiling

cdef enum:
    PENDING_CAPACITY_MIN = 4096

cdef enum FrameCharge:
    FRAME_CHARGED = 0
    FRAME_WAITS = 1                     # its holder may not have the memory now
    FRAME_TOO_LARGE = 2                 # no holder may ever have so large a frame


cdef class FrameBuffer:
    cdef unsigned char* data            # NULL while there is no buffer
    cdef Py_ssize_t size                # bytes received and not served
    cdef Py_ssize_t capacity
    cdef Py_ssize_t room_min            # free bytes that a receive needs
    cdef bint moved                     # `data` is another buffer than when its frames began to be served
    cdef MemoryCeiling memory
    cdef str client_host
    cdef Holding* holding               # of the connection's holder; NULL: nothing was charged yet
    cdef object held_as                 # the principal of `holding`
    cdef int64_t charged                # bytes, of the buffer and of a cut frame that is larger
    cdef int64_t begun                  # size of an incomplete frame; 0: there is none
    cdef double begun_at                # monotonic seconds when the wait for that frame began

    cdef Holding* find_holding(self, object principal) except NULL
    cdef int charge_bytes(self, object principal, int64_t size) except -1
    cdef FrameCharge charge_frame(self, object principal, int16_t produce_key, double now) except *
    cdef bint is_short(self, object principal) except -1
    cdef Py_ssize_t missing(self) noexcept
    cdef Py_ssize_t next_capacity(self) noexcept
    cdef int grow(self, Py_ssize_t capacity) except -1
    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1
    cdef int skip(self, Py_ssize_t size) noexcept
    cdef unsigned char* take(self, unsigned char* data, Py_ssize_t size, void** owner, Py_ssize_t* rest) except NULL
    cdef int clear(self) noexcept
