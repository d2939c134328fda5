"""Encode columns as the bodies of Avro messages. Each type of the writer's schema has a node over its values' buffers.

The buffers are Arrow's. For each row, the encoder visits the nodes, and each node encodes its value in this row. The
caller owns the buffers and keeps them alive while the loop runs. The lengths of buffers are checked before the loop,
list offsets during it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

cpdef enum:
    NODE_NULL, NODE_BOOLEAN, NODE_INT, NODE_LONG, NODE_RAW, NODE_BYTES, NODE_DECIMAL, NODE_ENUM, NODE_RECORD
    NODE_UNION, NODE_ARRAY

cdef struct Node:
    int32_t code
    int32_t null_branch         # of a union that null is in, else -1
    int32_t value_branch        # of a union of null and one type, else -1
    int32_t width               # bytes of a value; of a decimal: of its fixed, 0 for bytes
    int32_t first               # its children in `links`; of an enum: its symbols in `symbols`
    int32_t count
    int64_t length              # values there are
    int64_t offset              # the first one's place in its buffers
    const uint8_t* valid        # a bit a value, or NULL
    const unsigned char* data
    const int32_t* offsets
    int64_t data_size

cdef struct Output:
    unsigned char* data
    int64_t size
    int64_t room


cdef class ColumnEncoder:
    cdef Node* nodes
    cdef int32_t node_count
    cdef object _keep
    cdef object _links
    cdef object _symbols        # of all enums, one after the other, and where each ends
    cdef object _symbol_ends
    cdef const int32_t* links
    cdef const unsigned char* symbols
    cdef const int32_t* symbol_ends
    cdef Output out

    cdef object _fill(self, int32_t index, row, list links, list symbols)
    cdef const unsigned char* _buffer(self, buffer) except? NULL
    cdef int _list(self, const Node* node, int64_t row) noexcept nogil
    cdef int _symbol(self, const Node* node, const unsigned char* text, int64_t size) noexcept nogil
    cdef int _union(self, const Node* node, int64_t row) noexcept nogil
    cdef int _put(self, int32_t index, int64_t row) noexcept nogil
    cdef int _value(self, const Node* node, int64_t row) noexcept nogil
