"""Serve a connection of a SASL listener, after its client has authenticated."""

from libc.stdint cimport int16_t, int32_t

from kafkalite._native.serve.connection cimport Connection


cdef class SaslConnection(Connection):
    cdef object sign_in                 # handlers.sign_in.SignIn: the exchange, a step a frame
    cdef double open_until              # monotonic seconds up to which requests are served; -inf: not authenticated
    cdef bint raw                       # frames are tokens without headers (SaslHandshake 0)
    cdef bint holding                   # a step runs on another thread: nothing is read or served meanwhile
    cdef bytes claimed_id               # the client id of its first request
    cdef bytes farewell                 # the last response to a failed authentication, sent at the close
    cdef Py_ssize_t counted_bytes       # of `received`, before authentication

    cdef bint refrains(self) noexcept
    cdef int answer(self, bytes frame) except -1
    cdef int step(self, unsigned char* frame, Py_ssize_t size) except -1
    cdef bint may_keep(self, Py_ssize_t size) except -1
    cdef int count_bytes(self, Py_ssize_t size) except -1
