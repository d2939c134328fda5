"""A connection of a broker under test: some requests meet a fault before they are served."""

from kafkalite._native.serve.connection cimport Connection


cdef class FaultyConnection(Connection):
    pass
