"""Which Produce requests have to wait until those before them on their connection are answered."""

from kafkalite._native.serve.produce cimport ProduceServer
from kafkalite._native.serve.worker_parts cimport NativeApi

# Whether a request's turn has not come: something is owed on its connection, all of it to writes of the log `sole`,
# NULL where it is owed to anything else.
cdef bint has_to_wait(ProduceServer server, const NativeApi* produce, const void* sole, unsigned char* frame,
                      Py_ssize_t size) except -1
