"""A connection of a broker under test: some requests meet a fault before they are served.

    frame ─▶ its API is in `faults.armed`? ─┬─ no ──────────────────────────────────────▶ served as ever
                                            └─ yes ─▶ faults.meet(connection, frame) ─┬─ None ─▶ served as ever
                                                                                      ├─ bytes ─▶ the answer
                                                                                      └─ str ─▶ closed, with this reason

Only a broker that was made for faults has such connections, so nobody else pays for the question. `faults` is
kafkalite.testing.faults.Faults. Thread rule: Connection's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from kafkalite._native.serve.connection cimport Connection
from kafkalite._native.wire.cursor cimport load_i16


cdef class FaultyConnection(Connection):
    """One accepted socket of a broker under test."""

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        cdef Py_ssize_t start
        cdef object faults = self.io.faults
        cdef object outcome
        if load_i16(frame) in faults.armed:
            outcome = faults.meet(self, PyBytes_FromStringAndSize(<const char*>frame, size))
            if isinstance(outcome, bytes):
                self.io.requests += 1
                start = self.io.out.size
                self.io.out.put(<const unsigned char*>PyBytes_AS_STRING(outcome), PyBytes_GET_SIZE(outcome))
                return self.requeue_out(start)
            if outcome is not None:
                return self.refuse(outcome)
        return Connection.serve(self, frame, size)
