"""Decode the bodies of Avro messages to columns. Each writer's schema has a program that appends a message's values.

    program    Op[]: one per type of the writer's schema, with the column that it fills; column -1 skips the value
    columns    Column[]: one per node of the reader's schema. Leaves hold values, lists and maps hold offsets, structs
               hold children

All programs of a decoder fill the same columns. So one batch may contain messages with different writers' schemas.

If a message cannot be decoded, `column_truncate` removes the values that it appended, and its row becomes null. The
length of a column is enough to truncate it.

The bytes are untrusted: a size in a message is compared with the remaining bytes before anything is allocated for it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from kafkalite._native.wire.cursor cimport Cursor

# Kinds of columns and operations of programs, also for the Python code that builds them.
cpdef enum:
    COLUMN_NULL, COLUMN_BOOLEAN, COLUMN_FIXED, COLUMN_BYTES, COLUMN_LIST, COLUMN_STRUCT

cpdef enum:
    OP_NULL, OP_BOOLEAN, OP_INT, OP_LONG, OP_TO_FLOAT, OP_TO_DOUBLE, OP_FLOAT, OP_FLOAT_TO_DOUBLE, OP_DOUBLE
    OP_BYTES, OP_STRING, OP_FIXED, OP_DECIMAL, OP_ENUM, OP_SYMBOL, OP_RECORD, OP_UNION, OP_ARRAY, OP_MEMBER
    OP_DEFAULT, OP_FAIL

cdef enum Failure:
    FAILURE_NONE, FAILURE_TRUNCATED, FAILURE_OVERLONG, FAILURE_NEGATIVE, FAILURE_RANGE, FAILURE_BOOLEAN, FAILURE_UTF8
    FAILURE_SYMBOL, FAILURE_BRANCH, FAILURE_UNRESOLVED, FAILURE_ITEMS, FAILURE_DEPTH, FAILURE_DECIMAL
    FAILURE_TRAILING, FAILURE_SIZE, FAILURE_MEMORY, FAILURE_LOGICAL, FAILURE_UNIT

cdef struct Op:
    int32_t code
    int32_t column              # -1: read and drop
    int32_t first               # its operands in `links`
    int32_t count
    # Of a fixed its size, of a decimal its precision, of a member its number; of a number 1 where it has to fit 32
    # bits, and twice its factor, 0 for none; of a failure 1 for a symbol, 2 for a logical type.
    int64_t argument
    int64_t blob                # where its bytes begin in `blobs` (a default, a symbol)
    int64_t blob_size

cdef struct Column:
    int32_t kind
    int32_t width               # bytes of a value, COLUMN_FIXED
    int32_t first               # its children in `links`
    int32_t count
    int64_t length
    int64_t room                # values there is room for
    int64_t null_count
    uint8_t* valid              # a byte a value
    unsigned char* data         # values, or the bytes of all items
    int64_t data_size
    int64_t data_room
    int32_t* offsets            # length + 1, COLUMN_BYTES and COLUMN_LIST

cdef struct Program:
    Op* ops
    Column* columns
    const int32_t* links
    const unsigned char* blobs
    int64_t items_left          # array and map items that this message may still have
    int64_t records_left        # records, which may have no bytes at all


cdef class ColumnDecoder:
    cdef Program program
    cdef int32_t op_count
    cdef int32_t column_count
    cdef object _blobs
    cdef object _links

    cdef int _run_all(self, const unsigned char* data, const int64_t* starts, const int64_t* ends,
                      const int32_t* roots, int32_t* failures, Py_ssize_t count) noexcept nogil
