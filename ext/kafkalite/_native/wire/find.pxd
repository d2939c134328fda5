"""Search for bytes in memory.

Thread rule: pure functions, without the GIL.
"""

cdef extern from "string.h" nogil:
    const void* memchr(const void* data, int byte, size_t size)
    const void* memmem(const void* data, size_t size, const void* part, size_t part_size)


cdef inline const unsigned char* find(
    const unsigned char* data, const unsigned char* end, const unsigned char* part, Py_ssize_t size
) noexcept nogil:
    """Return the address of the next `part` between `data` and `end`, or NULL."""
    if size == 1:
        return <const unsigned char*>memchr(data, part[0], <size_t>(end - data))
    return <const unsigned char*>memmem(data, <size_t>(end - data), part, <size_t>size)
