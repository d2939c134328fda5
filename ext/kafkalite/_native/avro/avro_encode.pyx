"""Encode columns as the bodies of Avro messages.

avro_encode.pxd defines the nodes, and kafkalite.avro.encoder builds them.

Thread rule: a ColumnEncoder belongs to one thread at a time. Its loop runs without the GIL.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy
from kafkalite._native.wire.cursor cimport store_uvarlong

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* 16 bytes little-endian to the shortest big-endian number (width 0), or to `width` bytes; -1: too large. */
    static int kl_from_decimal(const unsigned char* p, int width, unsigned char* out) {
        int n = 16, i;
        unsigned char sign = p[15] & 0x80 ? 0xFF : 0;
        while (n > 1 && p[n - 1] == sign && ((p[n - 2] & 0x80) != 0) == (sign != 0)) n -= 1;
        if (width == 0) width = n;
        if (width < n) return -1;
        for (i = 0; i < width; i += 1) out[width - 1 - i] = i < 16 ? p[i] : sign;
        return width;
    }
    """
    int from_decimal "kl_from_decimal"(const unsigned char* data, int width, unsigned char* out) noexcept nogil

cdef enum:
    DECIMAL_WIDTH_MAX = 1024
    FAILURE_NONE = 0
    FAILURE_NULL = 1
    FAILURE_SYMBOL = 2
    FAILURE_DECIMAL = 3
    FAILURE_MEMBER = 4
    FAILURE_OFFSETS = 5
    FAILURE_SIZE = 6
    FAILURE_MEMORY = 7

FAILURES = (
    "", "a null where the schema has none", "a string is not a symbol of its enum", "a decimal does not fit its fixed",
    "a union needs exactly one member", "a column's offsets lie outside of it", "a batch has more than 2 GiB",
    "no memory",
)
"""The meaning of each failure code that `encode` returns for a row."""


cdef int output_grow(Output* out, int64_t size) noexcept nogil:
    cdef int64_t room = max(2 * out.room, out.size + size, 4096)
    cdef void* moved
    if out.size + size > INT32_MAX:
        return FAILURE_SIZE
    moved = realloc(out.data, <size_t>room)
    if moved == NULL:
        return FAILURE_MEMORY
    out.data = <unsigned char*>moved
    out.room = room
    return FAILURE_NONE

cdef inline int put_raw(Output* out, const void* data, int64_t size) noexcept nogil:
    cdef int failure
    if size > out.room - out.size:
        failure = output_grow(out, size)
        if failure:
            return failure
    if size:
        memcpy(out.data + out.size, data, <size_t>size)
    out.size += size
    return FAILURE_NONE

cdef inline int put_number(Output* out, int64_t value) noexcept nogil:
    cdef int failure
    if out.room - out.size < 10:
        failure = output_grow(out, 10)
        if failure:
            return failure
    out.size += store_uvarlong(out.data + out.size, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))
    return FAILURE_NONE

cdef inline bint is_valid(const Node* node, int64_t row) noexcept nogil:
    cdef int64_t place = node.offset + row
    return node.valid == NULL or (node.valid[place >> 3] >> (place & 7)) & 1

cdef inline bint span_of(const Node* node, int64_t row, int64_t* start, int64_t* end, int64_t limit) noexcept nogil:
    """Find where the bytes or the list of a row begin and end. Return False if they are outside of the data."""
    start[0] = node.offsets[node.offset + row]
    end[0] = node.offsets[node.offset + row + 1]
    return 0 <= start[0] <= end[0] <= limit


@cython.final
cdef class ColumnEncoder:
    """The nodes of one schema, over the columns of one batch.

    `nodes` lists (code, null branch, value branch, width, children, symbols, length, offset, valid, data, offsets) by
    index; the first node is the root. A branch is -1 if the node is not in a union. A missing buffer is None.
    """

    def __cinit__(self, nodes):
        cdef int32_t index
        cdef const int32_t[::1] view
        self._keep = []
        self.node_count = <int32_t>len(nodes)
        if self.node_count == 0:
            raise ValueError("an encoder has one node at least")
        self.nodes = <Node*>calloc(<size_t>self.node_count, sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        links, symbols = [], []
        for index, row in enumerate(nodes):
            self._fill(index, row, links, symbols)
        view = self._links = np.array([*links, 0], np.int32)
        self.links = &view[0]
        self._symbols = b"".join(symbols)
        self.symbols = <const unsigned char*>self._symbols
        view = self._symbol_ends = np.cumsum([0, *map(len, symbols)], dtype=np.int32)
        self.symbol_ends = &view[0]

    def __dealloc__(self):
        free(self.nodes)
        free(self.out.data)

    cdef object _fill(self, int32_t index, row, list links, list symbols):
        cdef Node* node = &self.nodes[index]
        code, null_branch, value_branch, width, children, own, length, offset, valid, data, offsets = row
        if any(not index < child < self.node_count for child in children) or length < 0 or offset < 0:
            raise ValueError(f"node {index} points outside")
        node.code, node.null_branch, node.value_branch = code, null_branch, value_branch
        node.width, node.length, node.offset = width, length, offset
        if code == NODE_ENUM:
            node.first, node.count = <int32_t>len(symbols), <int32_t>len(own)
            symbols += own
        else:
            node.first, node.count = <int32_t>len(links), <int32_t>len(children)
            links += children
        self._check(index, code, width, children, length + offset, valid, data, offsets)
        node.valid = self._buffer(valid)
        node.data = self._buffer(data)
        node.data_size = len(memoryview(data).cast("B")) if data is not None else 0
        node.offsets = <const int32_t*>self._buffer(offsets)

    def _check(self, index, code, width, children, end, valid, data, offsets):
        """Raise ValueError if a buffer is too small for its node, or a child is missing."""
        def size(buffer):
            return 0 if buffer is None else len(memoryview(buffer).cast("B"))

        wanted = {
            NODE_BOOLEAN: (end + 7) // 8, NODE_INT: 4 * end, NODE_LONG: 8 * end, NODE_RAW: width * end,
            NODE_DECIMAL: 16 * end,
        }.get(code, 0)
        if not NODE_NULL <= code <= NODE_ARRAY or width < 0 or (code == NODE_DECIMAL and width > DECIMAL_WIDTH_MAX):
            raise ValueError(f"node {index} is none: {code}, {width}")
        if size(data) < wanted or (valid is not None and size(valid) < (end + 7) // 8):
            raise ValueError(f"node {index} has buffers that are too small")
        if code in (NODE_BYTES, NODE_ENUM, NODE_ARRAY) and end and size(offsets) < 4 * (end + 1):
            raise ValueError(f"node {index} has too few offsets")
        if code == NODE_ARRAY and not children:
            raise ValueError(f"node {index} has no items")

    cdef const unsigned char* _buffer(self, buffer) except? NULL:
        cdef const unsigned char[::1] view
        if buffer is None:
            return NULL
        view = memoryview(buffer).cast("B")
        self._keep.append(view)
        return &view[0] if view.shape[0] else NULL

    cdef int _list(self, const Node* node, int64_t row) noexcept nogil:
        """Write an array's items, or a map's keys and values, as one block."""
        cdef int64_t start, end, i
        cdef int32_t j
        cdef int failure
        if not span_of(node, row, &start, &end, self.nodes[self.links[node.first]].length):
            return FAILURE_OFFSETS
        if end > start:
            failure = put_number(&self.out, end - start)
            if failure:
                return failure
            for i in range(start, end):
                for j in range(node.count):
                    failure = self._put(self.links[node.first + j], i)
                    if failure:
                        return failure
        return put_number(&self.out, 0)

    cdef int _symbol(self, const Node* node, const unsigned char* text, int64_t size) noexcept nogil:
        cdef int32_t i
        cdef int64_t start
        for i in range(node.count):
            start = self.symbol_ends[node.first + i]
            if self.symbol_ends[node.first + i + 1] - start == size and (
                size == 0 or memcmp(self.symbols + start, text, <size_t>size) == 0
            ):
                return put_number(&self.out, i)
        return FAILURE_SYMBOL

    cdef int _union(self, const Node* node, int64_t row) noexcept nogil:
        """Write the number of the union's only member that is not null, then its value.

        The children do not include null. If null comes before the member in the schema, it counts for the number.
        """
        cdef int32_t i, found = -1
        for i in range(node.count):
            if is_valid(&self.nodes[self.links[node.first + i]], row):
                if found >= 0:
                    return FAILURE_MEMBER
                found = i
        if found < 0:
            return FAILURE_MEMBER
        i = put_number(&self.out, found + (0 <= node.null_branch <= found))
        return i if i else self._put(self.links[node.first + found], row)

    cdef int _put(self, int32_t index, int64_t row) noexcept nogil:
        """Write one value. In a union of null and one type, write the number of the branch first."""
        cdef const Node* node = &self.nodes[index]
        cdef int failure
        if row >= node.length:
            return FAILURE_OFFSETS
        if node.code == NODE_NULL:
            return put_number(&self.out, node.null_branch) if node.null_branch >= 0 else FAILURE_NONE
        if not is_valid(node, row):
            return put_number(&self.out, node.null_branch) if node.null_branch >= 0 else FAILURE_NULL
        if node.value_branch >= 0:
            failure = put_number(&self.out, node.value_branch)
            if failure:
                return failure
        return self._value(node, row)

    cdef int _value(self, const Node* node, int64_t row) noexcept nogil:
        cdef int64_t place = node.offset + row, start, end, wide
        cdef int32_t i, narrow
        cdef unsigned char decimal[DECIMAL_WIDTH_MAX]
        cdef unsigned char bit
        cdef int failure
        if node.code == NODE_LONG:
            memcpy(&wide, node.data + 8 * place, 8)
            return put_number(&self.out, wide)
        if node.code == NODE_INT:
            memcpy(&narrow, node.data + 4 * place, 4)
            return put_number(&self.out, narrow)
        if node.code == NODE_RAW:
            return put_raw(&self.out, node.data + node.width * place, node.width)
        if node.code == NODE_BYTES or node.code == NODE_ENUM:
            if not span_of(node, row, &start, &end, node.data_size):
                return FAILURE_OFFSETS
            if node.code == NODE_ENUM:
                return self._symbol(node, node.data + start, end - start)
            failure = put_number(&self.out, end - start)
            return failure if failure else put_raw(&self.out, node.data + start, end - start)
        if node.code == NODE_RECORD:
            for i in range(node.count):
                failure = self._put(self.links[node.first + i], row)
                if failure:
                    return failure
            return FAILURE_NONE
        if node.code == NODE_ARRAY:
            return self._list(node, row)
        if node.code == NODE_UNION:
            return self._union(node, row)
        if node.code == NODE_BOOLEAN:
            bit = (node.data[place >> 3] >> (place & 7)) & 1
            return put_raw(&self.out, &bit, 1)
        i = from_decimal(node.data + 16 * place, node.width, decimal)
        if i < 0:
            return FAILURE_DECIMAL
        failure = put_number(&self.out, i) if node.width == 0 else FAILURE_NONE
        return failure if failure else put_raw(&self.out, decimal, i)

    def encode(self, bytes prefix not None):
        """Encode all rows, each after `prefix`; return (bytes, end of each row, failure code of each row).

        A code is 0 or an index of FAILURES. A row that fails has no bytes. If the root is not nullable, a null row has
        code 0 and no bytes; the caller recognizes it by the root's nulls. Raises MemoryError, and OverflowError for
        more than 2 GiB.
        """
        cdef Py_ssize_t count = self.nodes[0].length, i
        cdef int32_t[::1] ends, failures
        cdef int64_t start
        cdef int failure = FAILURE_NONE
        cdef const unsigned char* head = prefix
        cdef int64_t head_size = len(prefix)
        end_array, failure_array = np.zeros(count + 1, np.int32), np.zeros(count, np.int32)
        ends, failures = end_array, failure_array
        self.out.size = 0
        with nogil:
            for i in range(count):
                if is_valid(&self.nodes[0], i) or self.nodes[0].null_branch >= 0:
                    start = self.out.size
                    failure = put_raw(&self.out, head, head_size)
                    if not failure:
                        failure = self._put(0, i)
                    if failure == FAILURE_SIZE or failure == FAILURE_MEMORY:
                        break
                    if failure:
                        failures[i] = failure
                        self.out.size = start
                ends[i + 1] = <int32_t>self.out.size
        if failure == FAILURE_MEMORY:
            raise MemoryError
        if failure == FAILURE_SIZE:
            raise OverflowError(FAILURES[FAILURE_SIZE])
        return PyBytes_FromStringAndSize(<char*>self.out.data, self.out.size), end_array, failure_array
