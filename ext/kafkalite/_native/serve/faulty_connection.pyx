"""Inject faults into the requests of a broker under test, before they are served.

A request whose API is not in `faults.armed` is served normally. For any other request, the result of
`faults.meet(connection, frame)` decides:

    None     the request is served normally
    bytes    the bytes are the response
    str      the connection is closed, with this reason

`faults` is kafkalite.testing.faults.Faults. Only a broker for tests has such connections, so other brokers do not pay
for the check.

Thread rule: as in the base class Connection.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from kafkalite._native.serve.connection cimport Connection
from kafkalite._native.serve.sasl_connection cimport SaslConnection
from kafkalite._native.wire.cursor cimport load_i16


cdef bint meet(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    """Return whether a fault handled this request."""
    cdef Py_ssize_t start
    cdef object faults = connection.io.faults
    cdef object outcome
    if load_i16(frame) not in faults.armed:
        return False
    outcome = faults.meet(connection, PyBytes_FromStringAndSize(<const char*>frame, size))
    if outcome is None:
        return False
    if isinstance(outcome, bytes):
        connection.io.requests += 1
        start = connection.io.out.size
        connection.io.out.put(<const unsigned char*>PyBytes_AS_STRING(outcome), PyBytes_GET_SIZE(outcome))
        connection.requeue_out(start)
    else:
        connection.refuse(outcome)
    return True


cdef class FaultyConnection(Connection):
    """An accepted socket of a broker under test."""

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        return 0 if meet(self, frame, size) else Connection.serve(self, frame, size)


cdef class FaultySaslConnection(SaslConnection):
    """An accepted socket of a SASL listener of a broker under test. Before authentication there are no faults."""

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        if self.io.now <= self.open_until and meet(self, frame, size):
            return 0
        return SaslConnection.serve(self, frame, size)
