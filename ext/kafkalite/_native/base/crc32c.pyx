"""Compute the CRC-32C of record batches, journal lines and index files, with the fastest backend for this processor.

The backend is chosen once, at import. Its name is in `backend`: avx512, sse42, armv8, table (ext/c/crc32c.c) or
package. "package" is the Python package `crc32c`, which only Python callers use.

Thread rule: any thread. The GIL is released for buffers of at least GIL_RELEASE_SIZE bytes.
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
    """Return the CRC-32C of `size` bytes."""
    return kl_crc32c(0, data, size)


cdef uint32_t crc32c_update(uint32_t value, const unsigned char* data, size_t size) noexcept nogil:
    """Return the CRC-32C of `size` bytes, continued from `value`, the CRC-32C of the bytes before them."""
    return kl_crc32c(value, data, size)


def native_crc32c(buffer not None, uint32_t value=0):
    """Return the CRC-32C of `buffer`, continued from `value`, the CRC-32C of the bytes before it."""
    return sum_of(kl_crc32c, buffer, value)


def available():
    """Return the names of the native backends that this processor supports, fastest first. "table" is always the
    last."""
    return tuple(names_of(kl_crc32c_backends, KL_CRC32C_BACKENDS))


def crc32c_by(str name not None, buffer not None, uint32_t value=0):
    """Return the CRC-32C by a named backend, for comparisons. Raises ValueError if this processor does not support
    it."""
    return sum_of(named(kl_crc32c_backends, KL_CRC32C_BACKENDS, name, "CRC-32C"), buffer, value)


cdef object choose():
    """Return the function for Python callers and the name of its backend.

    If only "table" is possible, this is the package `crc32c`, provided that it is installed and reports hardware
    support.
    """
    if kl_crc32c_name != b"table":
        return native_crc32c, kl_crc32c_name.decode()
    try:
        import crc32c as package
    except ImportError:
        return native_crc32c, "table"
    return (package.crc32c, "package") if package.hardware_based else (native_crc32c, "table")


# The C function above has the name that its Python twin needs, so the latter is bound in the module's dictionary.
globals()["crc32c"], backend = choose()
