"""Find batches in one segment by offset, position or time, with a sparse index."""

from libc.stdint cimport int64_t

from kafkalite._native.base.mapped_faults cimport MappedFile, fault_raised

cdef struct IndexView:
    # A consistent state of an index; valid while its `owner` array is referenced.
    const int64_t* offsets
    const int64_t* positions
    const int64_t* timestamps
    int64_t count

cdef inline int64_t bisect_last(const int64_t* values, int64_t count, int64_t key) noexcept nogil:
    """Return the index of the last value <= key in an ascending array, or -1."""
    cdef int64_t low = 0
    cdef int64_t high = count
    cdef int64_t middle
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1

cdef inline int64_t bisect_last_below(const int64_t* values, int64_t count, int64_t key) noexcept nogil:
    """Return the index of the last value < key in an array that never decreases, or -1."""
    cdef int64_t low = 0
    cdef int64_t high = count
    cdef int64_t middle
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low - 1

cdef class SegmentIndex:
    cdef readonly int64_t count         # entries
    cdef int64_t capacity
    cdef object array                   # int64, shape (3, capacity): offsets, positions, timestamps; None while empty
    cdef bint writable                  # False while the array is a mapped file
    cdef MappedFile source              # that file
    cdef int whole                      # never raised: the flag of an index that is no file
    cdef const int* fault               # raised when the mapped file could not be read
    cdef int64_t* offsets
    cdef int64_t* positions
    cdef int64_t* timestamps
    cdef object view(self, IndexView* out)      # returns the owner to hold; GIL held
    cdef inline bint has_fault(self) noexcept nogil:
        return fault_raised(self.fault)
    cdef int append(self, int64_t offset, int64_t position, int64_t timestamp) except -1
    cdef int _reserve(self, int64_t capacity) except -1
    cdef int _adopt(self, object array, bint writable) except -1
