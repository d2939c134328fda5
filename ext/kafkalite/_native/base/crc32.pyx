"""Compute the CRC-32 (IEEE, as in zlib) of Kafka 0.7's messages, with the fastest backend for this processor.

The backend is chosen once, at import. Its name is in `backend`: pclmul, armv8 or table (ext/c/crc32.c).

zlib 1.2.13 takes 4 to 5 times as long for a usual message of 200 bytes (benchmarks/micro/bench_message_set.py).

Thread rule: any thread. The GIL is released for buffers of at least GIL_RELEASE_SIZE bytes.
"""

from libc.stdint cimport uint32_t

from kafkalite._native.base.crc cimport kl_crc_backend, kl_crc_function, named, names_of, sum_of

cdef extern from "crc32.h":
    cdef enum:
        KL_CRC32_BACKENDS
    kl_crc_backend kl_crc32_backends[]
    kl_crc_function kl_crc32
    const char* kl_crc32_name
    void kl_crc32_select() noexcept nogil

kl_crc32_select()
backend = kl_crc32_name.decode()


cdef uint32_t crc32(const unsigned char* data, size_t size) noexcept nogil:
    """Return the CRC-32 of `size` bytes."""
    return kl_crc32(0, data, size)


def native_crc32(buffer not None, uint32_t value=0):
    """Return the CRC-32 of `buffer`, continued from `value`, the CRC-32 of the bytes before it."""
    return sum_of(kl_crc32, buffer, value)


def available():
    """Return the names of the backends that this processor supports, fastest first. "table" is always the last."""
    return tuple(names_of(kl_crc32_backends, KL_CRC32_BACKENDS))


def crc32_by(str name not None, buffer not None, uint32_t value=0):
    """Return the CRC-32 by a named backend, for comparisons. Raises ValueError if this processor does not support
    it."""
    return sum_of(named(kl_crc32_backends, KL_CRC32_BACKENDS, name, "CRC-32"), buffer, value)
