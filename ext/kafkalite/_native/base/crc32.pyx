"""CRC-32 (IEEE, zlib's) of Kafka 0.7's messages, by the fastest way this processor has.

The choice is made once, at import, and named in `backend`: pclmul, armv8 or table (ext/c/crc32.c). zlib 1.2.13 gives
the same values, 4 to 5 times slower for the 200 bytes of a usual message (benchmarks/micro/bench_message_set.py, calls
for no bytes taken off); libraries that are as fast (zlib-ng, ISA-L) offer Python a call per message, which costs more
than the sum itself.

Any thread may call; the GIL is released for buffers of GIL_RELEASE_SIZE and more.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from "crc32.h":
    ctypedef uint32_t (*kl_crc32_function)(uint32_t, const unsigned char*, size_t) noexcept nogil
    ctypedef struct kl_crc32_backend:
        const char* name
        kl_crc32_function function
    cdef enum:
        KL_CRC32_BACKENDS
    kl_crc32_backend kl_crc32_backends[]
    kl_crc32_function kl_crc32
    const char* kl_crc32_name
    void kl_crc32_select() noexcept nogil

cdef enum:
    GIL_RELEASE_SIZE = 65536    # about 3 µs of work: below that, giving the lock away costs more than it lends

kl_crc32_select()
backend = kl_crc32_name.decode()


cdef uint32_t crc32(const unsigned char* data, size_t size) noexcept nogil:
    """The CRC-32 of `size` bytes."""
    return kl_crc32(0, data, size)


cdef object run(kl_crc32_function function, object buffer, uint32_t value):
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


def native_crc32(buffer not None, uint32_t value=0):
    """The CRC-32 of `buffer`, or of what gave `value` followed by `buffer`."""
    return run(kl_crc32, buffer, value)


def available():
    """The names of the ways this processor can go, fastest first; "table" is always the last."""
    return tuple(
        kl_crc32_backends[i].name.decode()
        for i in range(<int>KL_CRC32_BACKENDS)
        if kl_crc32_backends[i].function != NULL
    )


def crc32_by(str name not None, buffer not None, uint32_t value=0):
    """The CRC-32 by the named way, so that ways can be compared. ValueError when this processor lacks it."""
    cdef bytes wanted = name.encode()
    for i in range(<int>KL_CRC32_BACKENDS):
        if kl_crc32_backends[i].function != NULL and wanted == kl_crc32_backends[i].name:
            return run(kl_crc32_backends[i].function, buffer, value)
    raise ValueError(f"unknown CRC-32 backend {name!r}; available here: {', '.join(available())}")
