"""Declare a bounds-checked view of a Python column, for native modules."""

from libc.stdint cimport INT32_MAX, int64_t


# A column for C; its arrays have at least as many entries as the caller expects.
cdef struct Column:
    const unsigned char* data
    int64_t size
    const int64_t* starts
    const int64_t* ends
    const unsigned char* nulls      # NULL if there are no nulls


cdef class ColumnDoor:              # holds a Python column's buffers while C reads them
    cdef const unsigned char[::1] data
    cdef const int64_t[::1] starts
    cdef const int64_t[::1] ends
    cdef const unsigned char[::1] nulls
    cdef Column column
    cdef Py_ssize_t count


cdef inline int64_t item_size(const Column* column, Py_ssize_t i) noexcept nogil:
    """Return the size of item i; -1 for null; -2 if it is outside of the data or larger than the format allows."""
    cdef int64_t start, end
    if column.nulls != NULL and column.nulls[i]:
        return -1
    start = column.starts[i]
    end = column.ends[i]
    if start < 0 or end < start or end > column.size or end - start > INT32_MAX:
        return -2
    return end - start
