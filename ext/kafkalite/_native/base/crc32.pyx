"""Compute the CRC-32 (IEEE, as in zlib) of Kafka 0.7's messages, in the fastest way that this processor supports.

The way is chosen once, at import, and named in `backend`: pclmul, armv8 or table (ext/c/crc32.c). zlib 1.2.13 gives
the same values, but takes 4 to 5 times as long for the 200 bytes of a usual message. (Measured without the time of an
empty call: benchmarks/micro/bench_message_set.py.) Libraries that are as fast, such as zlib-ng and ISA-L, need a Python
call per message, which takes longer than the checksum.

Any thread may call; the GIL is released for buffers of GIL_RELEASE_SIZE and more.
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
    """The CRC-32 of `size` bytes."""
    return kl_crc32(0, data, size)


def native_crc32(buffer not None, uint32_t value=0):
    """The CRC-32 of `buffer`, or of what gave `value` followed by `buffer`."""
    return sum_of(kl_crc32, buffer, value)


def available():
    """The names of the ways this processor can go, fastest first; "table" is always the last."""
    return tuple(names_of(kl_crc32_backends, KL_CRC32_BACKENDS))


def crc32_by(str name not None, buffer not None, uint32_t value=0):
    """The CRC-32 by the named way, so that ways can be compared. ValueError when this processor lacks it."""
    return sum_of(named(kl_crc32_backends, KL_CRC32_BACKENDS, name, "CRC-32"), buffer, value)
