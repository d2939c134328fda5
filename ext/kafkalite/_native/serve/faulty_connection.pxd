"""Inject faults into the requests of a broker under test, before they are served."""

from kafkalite._native.serve.connection cimport Connection
from kafkalite._native.serve.sasl_connection cimport SaslConnection


cdef class FaultyConnection(Connection):
    pass


cdef class FaultySaslConnection(SaslConnection):
    pass
