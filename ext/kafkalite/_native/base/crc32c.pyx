"""Compute the CRC-32C of record batches, journal lines and index files, in the fastest way on this processor.

The way is chosen once, at import, and named in `backend`: avx512, sse42, armv8 or table (ext/c/crc32c.c). If only the
table is possible, `crc32c` calls from Python use the package of that name, if it is installed and reports hardware
support; then `backend` is "package". Native callers always use the C function.

Any thread may call; the GIL is released for buffers of GIL_RELEASE_SIZE and more.
"""

from libc.stdint cimport uint32_t

from kafkalite._native.base.crc cimport kl_crc_backend, kl_crc_function, named, names_of, sum_of

cdef extern from "crc32c.h":
    cdef enum:
        KL_CRC32C_BACKENDS
    kl_crc_backend kl_crc32c_backends[]
    kl_crc_function kl_crc32c
    const char* kl_crc32c_name
    void kl_crc32c_select() noexcept nogil

kl_crc32c_select()


cdef uint32_t crc32c(const unsigned char* data, size_t size) noexcept nogil:
    """The CRC-32C of `size` bytes."""
    return kl_crc32c(0, data, size)


cdef uint32_t crc32c_update(uint32_t value, const unsigned char* data, size_t size) noexcept nogil:
    """The CRC-32C of what gave `value`, followed by these bytes."""
    return kl_crc32c(value, data, size)


def native_crc32c(buffer not None, uint32_t value=0):
    """The CRC-32C of `buffer`, or of what gave `value` followed by `buffer`."""
    return sum_of(kl_crc32c, buffer, value)


def available():
    """The names of the native ways this processor can go, fastest first; "table" is always the last."""
    return tuple(names_of(kl_crc32c_backends, KL_CRC32C_BACKENDS))


def crc32c_by(str name not None, buffer not None, uint32_t value=0):
    """The CRC-32C by the named way, so that ways can be compared. ValueError when this processor lacks it."""
    return sum_of(named(kl_crc32c_backends, KL_CRC32C_BACKENDS, name, "CRC-32C"), buffer, value)


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
