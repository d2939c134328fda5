"""Declare CRC-32 for other native modules. It uses no Python object, so any thread may call it with or without the
GIL."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32(const unsigned char* data, size_t size) noexcept nogil
