"""CRC-32 for other native modules: callable from any thread, with or without the GIL; uses no Python object."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32(const unsigned char* data, size_t size) noexcept nogil
