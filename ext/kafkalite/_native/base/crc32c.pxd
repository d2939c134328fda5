"""CRC-32C for other native modules: any thread, with or without the GIL, no Python object touched."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(const unsigned char* data, size_t size) noexcept nogil
cdef uint32_t crc32c_update(uint32_t value, const unsigned char* data, size_t size) noexcept nogil
