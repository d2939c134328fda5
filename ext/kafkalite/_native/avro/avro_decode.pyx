"""Decode the bodies of Avro messages to columns.

avro_decode.pxd describes programs and columns. kafkalite.avro.resolution builds the programs.

Thread rule: a ColumnDecoder belongs to one thread at a time. Its loop runs without the GIL.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from kafkalite._native.wire.cursor cimport Cursor, cursor_init, read_raw, read_varlong, remaining
from kafkalite._native.wire.status cimport NEGATIVE, OK, OVERLONG

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* Whether n bytes are UTF-8 as Python takes it: shortest forms, no surrogates, at most U+10FFFF. */
    static int kl_is_utf8(const unsigned char* p, int64_t n) {
        int64_t i = 0;
        uint64_t word;
        while (i < n) {
            if (n - i >= 8) {
                memcpy(&word, p + i, 8);
                if ((word & 0x8080808080808080ULL) == 0) { i += 8; continue; }
            }
            unsigned char c = p[i];
            if (c < 0x80) { i += 1; continue; }
            int64_t left = n - i;
            if (c >= 0xC2 && c <= 0xDF) {
                if (left < 2 || (p[i + 1] & 0xC0) != 0x80) return 0;
                i += 2;
            } else if (c >= 0xE0 && c <= 0xEF) {
                if (left < 3 || (p[i + 1] & 0xC0) != 0x80 || (p[i + 2] & 0xC0) != 0x80) return 0;
                if ((c == 0xE0 && p[i + 1] < 0xA0) || (c == 0xED && p[i + 1] > 0x9F)) return 0;
                i += 3;
            } else if (c >= 0xF0 && c <= 0xF4) {
                if (left < 4 || (p[i + 1] & 0xC0) != 0x80 || (p[i + 2] & 0xC0) != 0x80 || (p[i + 3] & 0xC0) != 0x80)
                    return 0;
                if ((c == 0xF0 && p[i + 1] < 0x90) || (c == 0xF4 && p[i + 1] > 0x8F)) return 0;
                i += 4;
            } else return 0;
        }
        return 1;
    }
    /* A big-endian two's complement number as 16 bytes little-endian; 0 when it has more digits than precision. */
    static int kl_decimal(const unsigned char* p, int64_t n, int64_t precision, unsigned char* out) {
        __int128 value = n > 0 && (p[0] & 0x80) ? -1 : 0;
        __int128 limit = 1;
        int64_t i = 0;
        while (n - i > 16 && p[i] == (value ? 0xFF : 0x00)) i += 1;
        if (n - i > 16) return 0;
        if (i > 0 && n - i == 16 && ((p[i] & 0x80) != 0) != (value != 0)) return 0;
        for (; i < n; i += 1) value = (__int128)(((unsigned __int128)value << 8) | p[i]);
        for (i = 0; i < precision; i += 1) limit *= 10;
        if (value >= limit || value <= -limit) return 0;
        memcpy(out, &value, 16);
        return 1;
    }
    """
    bint is_utf8 "kl_is_utf8"(const unsigned char* data, int64_t size) noexcept nogil
    bint to_decimal "kl_decimal"(const unsigned char* data, int64_t size, int64_t precision,
                                 unsigned char* out) noexcept nogil

cdef enum:
    DEPTH_MAX = 128             # values inside values
    FREE_ITEMS = 65536          # array items of no bytes that a message may have beyond its size
    RECORDS_PER_BYTE = 64       # records inside records that a message may have, likewise
    ROOM_MIN = 64
    LENGTH_MAX = 2147483646     # values of a column: one below what an int32 offset of a list can say

FAILURES = (
    "", "it is truncated", "a number has too many bytes", "a length is negative", "an int does not fit 32 bits",
    "a boolean is neither 0 nor 1", "a string is not UTF-8", "an enum has an unknown symbol",
    "a union has no such branch",
    "the reader's schema has no place for this type", "an array or map has more items than bytes",
    "it is nested too deeply", "a decimal has too many digits", "trailing bytes after the record",
    "a batch has more than 2 GiB", "no memory",
    "its logical type has another unit or scale than the reader's, which is not converted",
    "a time does not fit the reader's unit",
)
"""The meaning of each failure code that `decode` returns for a row."""


# --- columns ---------------------------------------------------------------------------------------------------------

cdef int column_grow(Column* c) noexcept nogil:
    """Make room for one more value."""
    cdef int64_t room = min(c.room * 2, <int64_t>LENGTH_MAX) if c.room else ROOM_MIN
    cdef void* moved
    if c.length >= LENGTH_MAX:
        return FAILURE_SIZE
    moved = realloc(c.valid, <size_t>room)
    if moved == NULL:
        return FAILURE_MEMORY
    c.valid = <uint8_t*>moved
    if c.kind == COLUMN_BYTES or c.kind == COLUMN_LIST:
        moved = realloc(c.offsets, <size_t>(room + 1) * sizeof(int32_t))
        if moved == NULL:
            return FAILURE_MEMORY
        c.offsets = <int32_t*>moved
        if c.room == 0:
            c.offsets[0] = 0
    elif c.width:
        moved = realloc(c.data, <size_t>room * <size_t>c.width)
        if moved == NULL:
            return FAILURE_MEMORY
        c.data = <unsigned char*>moved
    c.room = room
    return FAILURE_NONE

cdef inline int column_next(Column* c, bint valid) noexcept nogil:
    """Append one value. The caller must then write its bytes before it does anything else with the column."""
    cdef int failure
    if c.length == c.room:
        failure = column_grow(c)
        if failure:
            return failure
    c.valid[c.length] = <unsigned char>valid
    c.null_count += not valid
    c.length += 1
    return FAILURE_NONE

cdef int bytes_grow(Column* c, int64_t size) noexcept nogil:
    cdef int64_t room = max(c.data_room * 2, c.data_size + size, 1024)
    cdef void* moved
    if c.data_size + size > INT32_MAX:
        return FAILURE_SIZE
    moved = realloc(c.data, <size_t>room)
    if moved == NULL:
        return FAILURE_MEMORY
    c.data = <unsigned char*>moved
    c.data_room = room
    return FAILURE_NONE

cdef inline int append_bytes(Column* c, const unsigned char* data, int64_t size) noexcept nogil:
    cdef int failure
    if size > c.data_room - c.data_size:
        failure = bytes_grow(c, size)
        if failure:
            return failure
    failure = column_next(c, True)
    if failure:
        return failure
    if size:
        memcpy(c.data + c.data_size, data, <size_t>size)
    c.data_size += size
    c.offsets[c.length] = <int32_t>c.data_size
    return FAILURE_NONE

cdef inline int append_value(Column* c, const void* value, int32_t size) noexcept nogil:
    cdef int failure
    if size != c.width:
        return FAILURE_UNRESOLVED
    failure = column_next(c, True)
    if failure:
        return failure
    memcpy(c.data + (c.length - 1) * size, value, <size_t>size)
    return FAILURE_NONE

cdef int append_null(Program* p, int32_t index) noexcept nogil:
    cdef Column* c = &p.columns[index]
    cdef int failure = column_next(c, False)
    cdef int32_t i
    if failure:
        return failure
    if c.kind == COLUMN_BYTES or c.kind == COLUMN_LIST:
        c.offsets[c.length] = c.offsets[c.length - 1]
    elif c.width:
        memset(c.data + (c.length - 1) * c.width, 0, <size_t>c.width)
    if c.kind == COLUMN_STRUCT:
        for i in range(c.count):
            failure = append_null(p, p.links[c.first + i])
            if failure:
                return failure
    return FAILURE_NONE

cdef void column_truncate(Program* p, int32_t index, int64_t length) noexcept nogil:
    """Remove all values after the first `length`, also from the children. The column may already be shorter."""
    cdef Column* c = &p.columns[index]
    cdef int64_t inner
    cdef int32_t i
    while c.length > length:
        c.length -= 1
        c.null_count -= not c.valid[c.length]
    if c.kind == COLUMN_BYTES:
        c.data_size = c.offsets[c.length] if c.room else 0
    elif c.kind == COLUMN_LIST:
        inner = c.offsets[c.length] if c.room else 0
        for i in range(c.count):
            column_truncate(p, p.links[c.first + i], inner)
    elif c.kind == COLUMN_STRUCT:
        for i in range(c.count):
            column_truncate(p, p.links[c.first + i], length)


# --- values ----------------------------------------------------------------------------------------------------------

cdef inline int failure_of(const Cursor* c) noexcept nogil:
    if c.status == OVERLONG:
        return FAILURE_OVERLONG
    if c.status == NEGATIVE:
        return FAILURE_NEGATIVE
    return FAILURE_TRUNCATED

cdef int run_number(Program* p, const Op* op, Cursor* c) noexcept nogil:
    """Read an int or a long, and convert it to the column's type."""
    cdef int64_t number = read_varlong(c)
    cdef int64_t factor = op.argument >> 1
    cdef int32_t narrow
    cdef float single
    cdef double wide
    if c.status != OK:
        return failure_of(c)
    if op.argument & 1 and (number > INT32_MAX or number < INT32_MIN):
        return FAILURE_RANGE
    if op.column < 0:
        return FAILURE_NONE
    if factor:
        if number > INT64_MAX / factor or number < -(INT64_MAX / factor):
            return FAILURE_UNIT
        number *= factor
    if op.code == OP_LONG:
        return append_value(&p.columns[op.column], &number, 8)
    if op.code == OP_INT:
        narrow = <int32_t>number
        return append_value(&p.columns[op.column], &narrow, 4)
    if op.code == OP_TO_FLOAT:
        single = <float>number
        return append_value(&p.columns[op.column], &single, 4)
    wide = <double>number
    return append_value(&p.columns[op.column], &wide, 8)

cdef int run_raw(Program* p, const Op* op, Cursor* c, int64_t size) noexcept nogil:
    """Read a value of a fixed number of bytes: float, double or fixed."""
    cdef const unsigned char* raw = read_raw(c, size)
    cdef float single
    cdef double wide
    if c.status != OK:
        return failure_of(c)
    if op.column < 0:
        return FAILURE_NONE
    if op.code == OP_FLOAT_TO_DOUBLE:
        memcpy(&single, raw, 4)
        wide = single
        return append_value(&p.columns[op.column], &wide, 8)
    return append_value(&p.columns[op.column], raw, <int32_t>size)

cdef int run_bytes(Program* p, const Op* op, Cursor* c) noexcept nogil:
    """Read bytes, a string, or a decimal of either form (bytes or fixed)."""
    cdef unsigned char decimal[16]
    cdef int64_t size
    cdef const unsigned char* raw
    size = op.argument >> 8 if op.code == OP_DECIMAL and op.argument >> 8 else read_varlong(c)
    if c.status != OK:
        return failure_of(c)
    raw = read_raw(c, size)
    if c.status != OK:
        return failure_of(c)
    if op.column < 0:
        return FAILURE_NONE
    if op.code == OP_DECIMAL:
        if not to_decimal(raw, size, op.argument & 0xFF, decimal):
            return FAILURE_DECIMAL
        return append_value(&p.columns[op.column], decimal, 16)
    if op.code == OP_STRING and not is_utf8(raw, size):
        return FAILURE_UTF8
    return append_bytes(&p.columns[op.column], raw, size)

cdef int run_boolean(Program* p, const Op* op, Cursor* c) noexcept nogil:
    cdef const unsigned char* raw = read_raw(c, 1)
    if c.status != OK:
        return failure_of(c)
    if raw[0] > 1:
        return FAILURE_BOOLEAN
    return append_value(&p.columns[op.column], raw, 1) if op.column >= 0 else FAILURE_NONE

cdef int run_choice(Program* p, const Op* op, Cursor* c, int depth) noexcept nogil:
    """Read the number of a union's branch or an enum's symbol, and run the operand with this number."""
    cdef int64_t number = read_varlong(c)
    if c.status != OK:
        return failure_of(c)
    if number < 0 or number >= op.count:
        return FAILURE_BRANCH if op.code == OP_UNION else FAILURE_SYMBOL
    if op.code == OP_ENUM and op.column < 0:
        return FAILURE_NONE
    return run(p, p.links[op.first + number], c, depth)

cdef int run_list(Program* p, const Op* op, Cursor* c, int depth) noexcept nogil:
    """Read an array's items, or a map's keys and values, block by block."""
    cdef Column* column = &p.columns[op.column] if op.column >= 0 else NULL
    cdef int64_t count, _i
    cdef int32_t j
    cdef int failure
    while True:
        count = read_varlong(c)
        if count < 0 and c.status == OK:
            read_varlong(c)  # the block's size, for those who step over it
            if count < -INT32_MAX:
                return FAILURE_ITEMS
            count = -count
        if c.status != OK:
            return failure_of(c)
        if count == 0:
            break
        if count > p.items_left:
            return FAILURE_ITEMS
        p.items_left -= count
        for _i in range(count):
            for j in range(op.count):
                failure = run(p, p.links[op.first + j], c, depth)
                if failure:
                    return failure
    if column == NULL:
        return FAILURE_NONE
    failure = column_next(column, True)
    if failure:
        return failure
    column.offsets[column.length] = <int32_t>p.columns[p.links[column.first]].length
    return FAILURE_NONE

cdef int run_record(Program* p, const Op* op, Cursor* c, int depth) noexcept nogil:
    """Read the fields of a record in the writer's order, then append the defaults of fields that the writer lacks."""
    cdef int32_t i
    cdef int failure
    p.records_left -= 1
    if p.records_left < 0:
        return FAILURE_ITEMS
    for i in range(op.count):
        failure = run(p, p.links[op.first + i], c, depth)
        if failure:
            return failure
    return column_next(&p.columns[op.column], True) if op.column >= 0 else FAILURE_NONE

cdef int run_member(Program* p, const Op* op, Cursor* c, int depth) noexcept nogil:
    """Read one member of a union of several types. The union's column is a struct in which all other members are
    null."""
    cdef Column* column = &p.columns[op.column]
    cdef int failure = run(p, p.links[op.first], c, depth)
    cdef int32_t i
    if failure:
        return failure
    for i in range(column.count):
        if i != op.argument:
            failure = append_null(p, p.links[column.first + i])
            if failure:
                return failure
    return column_next(column, True)

cdef int run_default(Program* p, const Op* op, int depth) noexcept nogil:
    """Append a default value, which the program contains in Avro's encoding."""
    cdef Cursor c
    cdef int64_t before = p.items_left
    cdef int failure
    cursor_init(&c, p.blobs + op.blob, op.blob_size)
    p.items_left = op.blob_size + FREE_ITEMS
    failure = run(p, p.links[op.first], &c, depth)
    p.items_left = before
    return failure

cdef int run(Program* p, int32_t index, Cursor* c, int depth) noexcept nogil:
    """Read one value; return a Failure. After a failure the caller truncates the columns, which may be half filled."""
    cdef const Op* op = &p.ops[index]
    if depth > DEPTH_MAX:
        return FAILURE_DEPTH
    if op.code == OP_LONG or op.code == OP_INT or op.code == OP_TO_FLOAT or op.code == OP_TO_DOUBLE:
        return run_number(p, op, c)
    if op.code == OP_STRING or op.code == OP_BYTES or op.code == OP_DECIMAL:
        return run_bytes(p, op, c)
    if op.code == OP_UNION or op.code == OP_ENUM:
        return run_choice(p, op, c, depth + 1)
    if op.code == OP_NULL:
        return append_null(p, op.column) if op.column >= 0 else FAILURE_NONE
    if op.code == OP_DOUBLE:
        return run_raw(p, op, c, 8)
    if op.code == OP_FLOAT or op.code == OP_FLOAT_TO_DOUBLE:
        return run_raw(p, op, c, 4)
    if op.code == OP_BOOLEAN:
        return run_boolean(p, op, c)
    if op.code == OP_RECORD:
        return run_record(p, op, c, depth + 1)
    if op.code == OP_ARRAY:
        return run_list(p, op, c, depth + 1)
    if op.code == OP_FIXED:
        return run_raw(p, op, c, op.argument)
    if op.code == OP_SYMBOL:
        return append_bytes(&p.columns[op.column], p.blobs + op.blob, op.blob_size)
    if op.code == OP_MEMBER:
        return run_member(p, op, c, depth + 1)
    if op.code == OP_DEFAULT:
        return run_default(p, op, depth + 1)
    if op.argument == 2:
        return FAILURE_LOGICAL
    return FAILURE_SYMBOL if op.argument else FAILURE_UNRESOLVED


# --- the class -------------------------------------------------------------------------------------------------------

cdef class ColumnDecoder:
    """The columns of one reader's schema, and the programs of any number of writers' schemas that fill them.

    `columns` lists (kind, width, children) by index; the first column is the root.
    """

    def __cinit__(self, columns):
        cdef int32_t index, child
        self._links = np.empty(0, np.int32)
        self._blobs = b""
        self.column_count = <int32_t>len(columns)
        if self.column_count == 0:
            raise ValueError("a decoder has one column at least")
        self.program.columns = <Column*>calloc(<size_t>self.column_count, sizeof(Column))
        if self.program.columns == NULL:
            raise MemoryError
        links = []
        for index, (kind, width, children) in enumerate(columns):
            if kind not in (COLUMN_NULL, COLUMN_BOOLEAN, COLUMN_FIXED, COLUMN_BYTES, COLUMN_LIST, COLUMN_STRUCT):
                raise ValueError(f"column {index} is of kind {kind}")
            if (kind == COLUMN_LIST and not children) or any(not index < child < len(columns) for child in children):
                raise ValueError(f"column {index} has the children {children}")
            self.program.columns[index].kind = kind
            self.program.columns[index].width = 1 if kind == COLUMN_BOOLEAN else width if kind == COLUMN_FIXED else 0
            self.program.columns[index].first = <int32_t>len(links)
            self.program.columns[index].count = <int32_t>len(children)
            links += children
        self._extend(links, b"")

    def __dealloc__(self):
        cdef int32_t i
        if self.program.columns != NULL:
            for i in range(self.column_count):
                free(self.program.columns[i].valid)
                free(self.program.columns[i].data)
                free(self.program.columns[i].offsets)
            free(self.program.columns)
        free(self.program.ops)

    def _extend(self, links, blobs):
        """Extend the tables, and update the pointers into them."""
        cdef const int32_t[::1] link_view
        self._links = np.concatenate((self._links, np.array(links, np.int32)))
        self._blobs += blobs
        link_view = self._links
        self.program.links = &link_view[0] if link_view.shape[0] else NULL
        self.program.blobs = <const unsigned char*>self._blobs

    def add(self, ops):
        """Add a program; return the index of its first op.

        `ops` lists (code, column, operands, argument, bytes). An operand is an index in all ops added so far. Raises
        ValueError for a program that points outside of its ops or columns.
        """
        cdef int32_t first = self.op_count
        cdef Py_ssize_t total = first + len(ops)
        cdef Op* moved
        cdef Op* op
        links = []
        blobs = []
        link_base, blob_base = len(self._links), len(self._blobs)
        for code, column, operands, argument, _ in ops:
            check_op(code, column, operands, argument, total, self.column_count)
        moved = <Op*>realloc(self.program.ops, <size_t>max(total, 1) * sizeof(Op))
        if moved == NULL:
            raise MemoryError
        self.program.ops = moved
        for code, column, operands, argument, blob in ops:
            op = &self.program.ops[self.op_count]
            op.code, op.column, op.argument = code, column, argument
            op.first, op.count = <int32_t>(link_base + len(links)), <int32_t>len(operands)
            op.blob, op.blob_size = blob_base, len(blob)
            links += operands
            blobs.append(blob)
            blob_base += len(blob)
            self.op_count += 1
        self._extend(links, b"".join(blobs))
        return first

    def decode(self, const unsigned char[::1] data not None, const int64_t[::1] starts not None,
               const int64_t[::1] ends not None, const int32_t[::1] roots not None):
        """Decode messages into new columns; return one failure code per row.

        Message i is data[starts[i]:ends[i]], and its program begins at roots[i]; a root of -1 gives a null. The code is
        0 or an index of FAILURES; a row that fails is null. Raises MemoryError, and OverflowError for more than 2 GiB
        in a column.
        """
        cdef Py_ssize_t count = starts.shape[0], i
        cdef int32_t[::1] failures
        cdef int status
        if ends.shape[0] != count or roots.shape[0] != count:
            raise ValueError("starts, ends and roots differ in length")
        for i in range(count):
            if roots[i] >= self.op_count or starts[i] < 0 or starts[i] > ends[i] or ends[i] > data.shape[0]:
                raise ValueError(f"row {i} lies outside of the data or has no program")
        result = np.zeros(count, np.int32)
        column_truncate(&self.program, 0, 0)
        if count == 0:
            return result
        failures = result
        with nogil:
            status = self._run_all(&data[0] if data.shape[0] else NULL, &starts[0], &ends[0], &roots[0],
                                   &failures[0], count)
        if status == FAILURE_MEMORY:
            raise MemoryError
        if status == FAILURE_SIZE:
            raise OverflowError(FAILURES[FAILURE_SIZE])
        return result

    cdef int _run_all(self, const unsigned char* data, const int64_t* starts, const int64_t* ends,
                      const int32_t* roots, int32_t* failures, Py_ssize_t count) noexcept nogil:
        cdef Cursor c
        cdef Py_ssize_t i
        cdef int failure
        for i in range(count):
            failure = FAILURE_NONE
            if roots[i] >= 0:
                cursor_init(&c, data + starts[i], ends[i] - starts[i])
                self.program.items_left = ends[i] - starts[i] + FREE_ITEMS
                self.program.records_left = (ends[i] - starts[i]) * RECORDS_PER_BYTE + FREE_ITEMS
                failure = run(&self.program, roots[i], &c, 0)
                if failure == FAILURE_NONE and remaining(&c):
                    failure = FAILURE_TRAILING
            if failure == FAILURE_SIZE or failure == FAILURE_MEMORY:
                return failure
            if failure:
                failures[i] = failure
                column_truncate(&self.program, 0, i)
            if failure or roots[i] < 0:
                failure = append_null(&self.program, 0)
                if failure:
                    return failure
        return FAILURE_NONE

    def column(self, int32_t index):
        """Return (length, number of nulls, validity, offsets, data) of a column.

        Validity has a byte per value, 1 if the value is not null, and is None without nulls. Offsets and data are None
        if the column has none.
        """
        cdef Column* c
        if not 0 <= index < self.column_count:
            raise IndexError("no such column")
        c = &self.program.columns[index]
        valid = offsets = data = None
        if c.null_count:
            valid = PyBytes_FromStringAndSize(<char*>c.valid, c.length)
        if c.kind == COLUMN_BYTES or c.kind == COLUMN_LIST:
            offsets = PyBytes_FromStringAndSize(<char*>c.offsets, (c.length + 1) * 4) if c.room else bytes(4)
        if c.kind == COLUMN_BYTES:
            data = PyBytes_FromStringAndSize(<char*>c.data, c.data_size)
        elif c.width:
            data = PyBytes_FromStringAndSize(<char*>c.data, c.length * c.width)
        return c.length, c.null_count, valid, offsets, data


def check_op(code, column, operands, argument, total, columns):
    """Raise ValueError for an op that points outside of the program or the columns."""
    if not 0 <= code <= OP_FAIL or not -1 <= column < columns:
        raise ValueError(f"there is no op {code} on column {column}")
    if any(not 0 <= operand < total for operand in operands):
        raise ValueError(f"the operands {operands} are outside of the program")
    if code in (OP_MEMBER, OP_DEFAULT) and len(operands) != 1:
        raise ValueError("a member or default has one operand")
    if code == OP_ARRAY and not operands:
        raise ValueError("an array has items")
    if code == OP_FIXED and argument < 0:
        raise ValueError("a fixed has a size")
    if code in (OP_MEMBER, OP_SYMBOL) and column < 0:
        raise ValueError("a member or symbol has a column")
