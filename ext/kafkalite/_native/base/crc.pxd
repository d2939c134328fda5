"""Parts that the modules crc32 and crc32c share: checksums of Python buffers, and backends by name (ext/c/crc.h)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from "crc.h":
    ctypedef uint32_t (*kl_crc_function)(uint32_t, const unsigned char*, size_t) noexcept nogil
    ctypedef struct kl_crc_backend:
        const char* name
        kl_crc_function function

cdef enum:
    GIL_RELEASE_SIZE = 65536    # about 3 µs of work: below that, releasing the lock costs more than it gains


cdef inline object sum_of(kl_crc_function function, object buffer, uint32_t value):
    """Return the checksum of a buffer, continued from `value`.

    A typed memoryview instead of the Py_buffer would cost as much time as the checksum of 4 KiB.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < GIL_RELEASE_SIZE:
            return function(value, <const unsigned char*>view.buf, <size_t>view.len)
        with nogil:
            value = function(value, <const unsigned char*>view.buf, <size_t>view.len)
        return value
    finally:
        PyBuffer_Release(&view)


cdef inline list names_of(const kl_crc_backend* backends, int count):
    """Return the names of the backends that this processor supports, fastest first. "table" is always the last."""
    return [backends[i].name.decode() for i in range(count) if backends[i].function != NULL]


cdef inline kl_crc_function named(const kl_crc_backend* backends, int count, str name, str crc) except NULL:
    """Return the function of a backend. Raises ValueError if this processor does not support it."""
    cdef bytes wanted = name.encode()
    for i in range(count):
        if backends[i].function != NULL and wanted == backends[i].name:
            return backends[i].function
    raise ValueError(f"unknown {crc} backend {name!r}; available here: {', '.join(names_of(backends, count))}")
