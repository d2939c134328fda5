"""Declare the programs that decode and encode one Kafka message in one version; see codec.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from kafkalite._native.wire.cursor cimport Cursor


cdef struct Op:                   # how to handle one field
    int kind                      # a Kind of codec.pyx
    bint is_array
    bint nullable                 # null is legal in this version
    bint must_fit                 # refuse to drop a value other than the default if the field is absent
    int32_t child                 # the struct's program, -1 for scalars
    int32_t tag
    Py_ssize_t slot               # the offset of the attribute in an instance, in bytes
    Py_ssize_t item_size_min      # fewest bytes of one value (one item of an array) in the message
    int default_kind              # a DefaultKind of codec.pyx
    PyObject* default             # borrowed from Program.kept; for a struct an instance to compare with
    PyObject* name                # borrowed from Program.kept

cdef struct StructProgram:        # ops[first:first + count] in wire order, then tagged by tag, then absent ones
    PyObject* cls                 # borrowed from Program.kept
    int32_t first, count
    int32_t tagged_first, tagged_count
    int32_t absent_first, absent_count
    Py_ssize_t size_min

cdef struct Reader:               # lives for one decode call
    Cursor cursor
    const unsigned char* start
    int64_t objects_left
    int64_t pause_below           # `pace` is called when fewer objects are left; 0: there is no pace
    PyObject* pace                # called between objects of a long message, or NULL
    PyObject* view                # memoryview from which records are sliced, or NULL: copy them
    bint exact                    # nothing may follow the message

cdef struct Writer:               # lives for one encode call; `data` is the caller's stack until it has grown once
    unsigned char* data
    Py_ssize_t size
    Py_ssize_t capacity
    bint on_heap
    int64_t items_left            # array items to write until `pace` is called; below 0: there is no pace
    PyObject* pace                # called with the bytes written so far, or NULL


cdef class Program:
    cdef readonly object message  # the dataclass
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly bint strict     # refuse to drop values of fields marked "must fit"
    cdef Op* ops
    cdef StructProgram* structs
    cdef int32_t ops_count, structs_count
    cdef list kept                # owns every PyObject* above

    cdef object read_struct(self, Reader* r, int32_t index)
    cdef int read_tags(self, Reader* r, PyObject* instance, StructProgram* s) except -1
    cdef object read_value(self, Reader* r, Op* op)
    cdef object read_array(self, Reader* r, Op* op)
    cdef object read_one(self, Reader* r, Op* op)
    cdef object read_string(self, Reader* r, Op* op)
    cdef object read_bytes(self, Reader* r, Op* op)
    cdef int pause(self, Reader* r) except -1
    cdef object fail(self, Reader* r, Op* op)
    cdef object encode_behind(self, object message, bytes header, object pace)
    cdef int64_t items_of(self, PyObject* instance, int32_t index) except -1
    cdef int release_struct(self, PyObject* instance, int32_t index, object pace, int64_t* items_left) except -1
    cdef int release_list(self, Op* op, list items, object pace, int64_t* items_left) except -1
    cdef object _decode(self, Reader* r, const unsigned char* data, Py_ssize_t size)
    cdef PyObject* _keep(self, value)
    cdef Py_ssize_t _size_min(self, Op* op)
    cdef int32_t _emit(self, list rows, int32_t at) except -1

    cdef int write_struct(self, Writer* w, PyObject* instance, int32_t index) except -1
    cdef int write_tags(self, Writer* w, PyObject* instance, StructProgram* s) except -1
    cdef int write_value(self, Writer* w, Op* op, PyObject* value) except -1
    cdef int write_array(self, Writer* w, Op* op, PyObject* value) except -1
    cdef int write_one(self, Writer* w, Op* op, PyObject* value) except -1
    cdef int write_string(self, Writer* w, Op* op, PyObject* value) except -1
    cdef int write_bytes(self, Writer* w, Op* op, PyObject* value) except -1
    cdef int write_length(self, Writer* w, Py_ssize_t length, int width) except -1
    cdef object refuse(self, Op* op, str reason)
