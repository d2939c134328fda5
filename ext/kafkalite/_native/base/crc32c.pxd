"""CRC-32C for other native modules: callable from any thread, with or without the GIL; uses no Python object."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(const unsigned char* data, size_t size) noexcept nogil
cdef uint32_t crc32c_update(uint32_t value, const unsigned char* data, size_t size) noexcept nogil
