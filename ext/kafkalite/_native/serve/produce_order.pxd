"""Decide which Produce requests with acks=all wait until earlier responses of their connection are sent."""

from kafkalite._native.serve.produce cimport ProduceServer
from kafkalite._native.serve.worker_parts cimport NativeApi

# Whether a request has to wait: its connection owes answers, and not all of them depend only on writes to the log
# `sole`, which is NULL if anything else is owed.
cdef bint has_to_wait(ProduceServer server, const NativeApi* produce, const void* sole, unsigned char* frame,
                      Py_ssize_t size) except -1
