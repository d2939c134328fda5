"""What is looked for in records, as bytes: found in a whole block first, then in a record's own fields."""

from libc.stdint cimport int32_t
from kafkalite._native.wire.batch cimport RecordView

cpdef enum:
    IN_KEY = 1                  # fields of a record, as bits
    IN_VALUE = 2
    IN_HEADERS = 4              # the value of any header

cpdef enum:
    IS = 0                      # the field is these bytes
    BEGINS = 1                  # it begins with them
    HOLDS = 2                   # they stand somewhere in it
    HOLDS_WORD = 3              # the same, with no letter, digit or underscore touching them

cpdef enum:
    NEEDLES_MAX = 16


cdef struct Needle:
    const unsigned char* data
    Py_ssize_t size
    int fields
    int how


# Where each needle comes next in a block that is walked from its begin to its end.
cdef struct Places:
    const unsigned char* next[NEEDLES_MAX]      # NULL: nowhere


cdef class Needles:
    cdef Needle needles[NEEDLES_MAX]
    cdef readonly Py_ssize_t count              # 0: every record is found
    cdef tuple kept                             # whose bytes the needles point to

    # Looks from `start` on; where the first of them stands, `end` without any. Where the block is the same and `start`
    # is not before the last one, what was found already is not looked for again; `fresh` says that it is another block.
    cdef const unsigned char* first_from(
        self, Places* places, const unsigned char* start, const unsigned char* end, bint fresh
    ) noexcept nogil

    # Whether one of them is in its field of this record; headers that cannot be read hold nothing.
    cdef bint found_in(self, const RecordView* record) noexcept nogil

    # The same for a message without headers.
    cdef bint found_in_fields(
        self, const unsigned char* key, int32_t key_size, const unsigned char* value, int32_t value_size
    ) noexcept nogil
