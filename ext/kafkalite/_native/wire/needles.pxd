"""Declare the search for bytes (needles) in the records of a batch."""

from libc.stdint cimport int32_t
from kafkalite._native.wire.batch cimport RecordView

cpdef enum:
    IN_KEY = 1                  # fields of a record, as bits
    IN_VALUE = 2
    IN_HEADERS = 4              # the value of any header

cpdef enum:
    IS = 0                      # the field is these bytes
    BEGINS = 1                  # the field begins with these bytes
    HOLDS = 2                   # the field contains them
    HOLDS_WORD = 3              # the same, not adjacent to a letter, digit or underscore

cpdef enum:
    NEEDLES_MAX = 16


cdef struct Needle:
    const unsigned char* data
    Py_ssize_t size
    int fields
    int how


# The next position of each needle in a block that is walked from start to end.
cdef struct Places:
    const unsigned char* next[NEEDLES_MAX]      # NULL: none


cdef class Needles:
    cdef Needle needles[NEEDLES_MAX]
    cdef readonly Py_ssize_t count              # 0: every record matches
    cdef tuple kept                             # owns the bytes of the needles

    # Searches from `start` on; returns the position of the first needle, or `end`. In the same block, with `start` not
    # before the last one, earlier results are reused; `fresh` means another block.
    cdef const unsigned char* first_from(
        self, Places* places, const unsigned char* start, const unsigned char* end, bint fresh
    ) noexcept nogil

    # Returns whether a needle matches its field of this record; malformed headers match nothing.
    cdef bint found_in(self, const RecordView* record) noexcept nogil

    # The same for a message without headers.
    cdef bint found_in_fields(
        self, const unsigned char* key, int32_t key_size, const unsigned char* value, int32_t value_size
    ) noexcept nogil
