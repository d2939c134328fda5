"""CRC-32C of record batches, journal lines and index files, by the fastest way this processor has.

The choice is made once, at import, and named in `backend`: avx512, sse42, armv8 or table (ext/c/crc32c.c). Where only
the table is left, `crc32c` from Python asks the package of that name, if it is installed and says that it has hardware
support; then `backend` is "package". Native callers use the C function in every case.

Any thread may call; the GIL is released for buffers of GIL_RELEASE_SIZE and more.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from "crc32c.h":
    ctypedef uint32_t (*kl_crc32c_function)(uint32_t, const unsigned char*, size_t) noexcept nogil
    ctypedef struct kl_crc32c_backend:
        const char* name
        kl_crc32c_function function
    cdef enum:
        KL_CRC32C_BACKENDS
    kl_crc32c_backend kl_crc32c_backends[]
    kl_crc32c_function kl_crc32c
    const char* kl_crc32c_name
    void kl_crc32c_select() noexcept nogil

cdef enum:
    GIL_RELEASE_SIZE = 65536    # about 3 µs of work: below that, giving the lock away costs more than it lends

kl_crc32c_select()


cdef uint32_t crc32c(const unsigned char* data, size_t size) noexcept nogil:
    """The CRC-32C of `size` bytes."""
    return kl_crc32c(0, data, size)


cdef uint32_t crc32c_update(uint32_t value, const unsigned char* data, size_t size) noexcept nogil:
    """The CRC-32C of what gave `value`, followed by these bytes."""
    return kl_crc32c(value, data, size)


cdef object run(kl_crc32c_function function, object buffer, uint32_t value):
    """The Py_buffer itself rather than a typed memoryview, which costs as much as summing 4 KiB."""
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


def native_crc32c(buffer not None, uint32_t value=0):
    """The CRC-32C of `buffer`, or of what gave `value` followed by `buffer`."""
    return run(kl_crc32c, buffer, value)


def available():
    """The names of the native ways this processor can go, fastest first; "table" is always the last."""
    return tuple(
        kl_crc32c_backends[i].name.decode()
        for i in range(<int>KL_CRC32C_BACKENDS)
        if kl_crc32c_backends[i].function != NULL
    )


def crc32c_by(str name not None, buffer not None, uint32_t value=0):
    """The CRC-32C by the named way, so that ways can be compared. ValueError when this processor lacks it."""
    cdef bytes wanted = name.encode()
    for i in range(<int>KL_CRC32C_BACKENDS):
        if kl_crc32c_backends[i].function != NULL and wanted == kl_crc32c_backends[i].name:
            return run(kl_crc32c_backends[i].function, buffer, value)
    raise ValueError(f"unknown CRC-32C backend {name!r}; available here: {', '.join(available())}")


cdef object choose():
    """The function for Python callers and its name."""
    if kl_crc32c_name != b"table":
        return native_crc32c, kl_crc32c_name.decode()
    try:
        import crc32c as package
    except ImportError:
        return native_crc32c, "table"
    return (package.crc32c, "package") if package.hardware_based else (native_crc32c, "table")


# The C function above has the name that its Python twin needs, so the latter is bound in the module's dictionary.
globals()["crc32c"], backend = choose()
