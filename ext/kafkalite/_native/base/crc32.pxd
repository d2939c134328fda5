"""CRC-32 for other native modules: any thread, with or without the GIL, no Python object touched."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32(const unsigned char* data, size_t size) noexcept nogil
