"""Declare CRC-32C for other native modules. It uses no Python object, so any thread may call it with or without the
GIL."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(const unsigned char* data, size_t size) noexcept nogil
cdef uint32_t crc32c_update(uint32_t value, const unsigned char* data, size_t size) noexcept nogil
