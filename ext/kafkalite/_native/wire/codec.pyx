"""Decode and encode Kafka protocol messages, by programs that are compiled from the messages' field tables.

A `Program` belongs to one message class and one version; its first use compiles it. A field that the version lacks gets
the schema's default when decoding, and is dropped when encoding. A value that must not be lost raises EncodeError
instead, in a response only in the debug build.

The bytes are untrusted:

    counts         compared with the remaining bytes before anything is allocated
    total size     structs and array items together are limited (`objects_max`), because one byte of a message may
                   become 100 bytes of objects
    nesting        bounded by the schema, which has no recursion
    errors         invalid UTF-8, a forbidden null, a string above 32767 bytes, and bytes after the last field, except
                   where the caller allows these
    unknown tags   skipped

Thread rule: a Program is immutable, and a call keeps its state on the stack. A call holds the GIL. It lets other
threads run only while it copies many bytes, and when it calls `pace`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove
from kafkalite._native.base.debug cimport KL_DEBUG
from kafkalite._native.wire.cursor cimport (
    Cursor, cursor_init, load_u16, load_u64, read_compact_count, read_count, read_i8, read_i16, read_i32, read_i64,
    read_raw, read_u32, read_uvarint, remaining, skip_tags, store_i16, store_i32, store_i64, store_u32, store_uvarint,
)
from kafkalite._native.wire.status cimport (
    BAD_UTF8, BAD_VALUE, LIMIT, NEGATIVE, OK, OVERLONG, TOO_MANY, TRAILING, TRUNCATED,
)

cdef extern from *:
    """
    #include <structmember.h>
    static inline Py_ssize_t kl_member_offset(PyObject* descriptor) {
        PyMemberDef* member = ((PyMemberDescrObject*)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    static inline PyObject** kl_slot(PyObject* instance, Py_ssize_t offset) {
        return (PyObject**)((char*)instance + offset);
    }
    static inline void kl_store_float(unsigned char* p, double value) {
        uint64_t bits;
        memcpy(&bits, &value, 8);
        bits = __builtin_bswap64(bits);
        memcpy(p, &bits, 8);
    }
    static inline double kl_load_float(uint64_t bits) {
        double value;
        memcpy(&value, &bits, 8);
        return value;
    }
    """
    Py_ssize_t kl_member_offset(PyObject* descriptor)
    PyObject** kl_slot(PyObject* instance, Py_ssize_t offset) noexcept
    void kl_store_float(unsigned char* p, double value) noexcept
    double kl_load_float(uint64_t bits) noexcept

cdef extern from "Python.h":
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    ctypedef struct PyTypeObject:
        pass
    PyTypeObject* Py_TYPE(PyObject*)
    object PyType_GenericAlloc(PyTypeObject*, Py_ssize_t)
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*) except NULL
    bint PyUnicode_Check(PyObject*)
    long long PyLong_AsLongLong(PyObject*) except? -1
    object PyLong_FromLong(long)
    object PyLong_FromLongLong(long long)
    object PyLong_FromUnsignedLong(unsigned long)
    double PyFloat_AsDouble(PyObject*) except? -1
    bint PyList_CheckExact(PyObject*)
    Py_ssize_t Py_REFCNT(PyObject*)
    bint PyTuple_CheckExact(PyObject*)
    PyObject** PySequence_Fast_ITEMS(PyObject*)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject*)
    void Py_XINCREF(PyObject*)
    void Py_XDECREF(PyObject*)
    int PyObject_IsTrue(PyObject*) except -1

cdef enum Kind:
    INT8
    INT16
    INT32
    INT64
    UINT16
    UINT32
    FLOAT64
    BOOL
    UUID
    STRING
    BYTES
    RECORDS
    STRUCT

cdef enum DefaultKind:
    DEFAULT_OBJECT      # shared, immutable
    DEFAULT_LIST        # a new empty list each time
    DEFAULT_STRUCT      # a new default instance each time

cdef enum:
    STRING_SIZE_MAX = 0x7FFF      # Kafka's own limit, in compact strings too
    STACK_BUFFER_SIZE = 1024      # larger messages are built on the heap
    UUID_SIZE = 16
    VARINT_SIZE_MAX = 5
    PACE_ITEMS = 64
    COPY_SIZE_MAX = 65536         # longer messages and values are copied without the GIL

OBJECTS_MAX = 500_000             # structs and array items in one decoded message, by default

cdef dict KINDS = {
    "int8": (INT8, 1), "int16": (INT16, 2), "int32": (INT32, 4), "int64": (INT64, 8), "uint16": (UINT16, 2),
    "uint32": (UINT32, 4), "float64": (FLOAT64, 8), "bool": (BOOL, 1), "uuid": (UUID, UUID_SIZE),
}
cdef dict LENGTH_SIZES = {"string": (STRING, 2), "bytes": (BYTES, 4), "records": (RECORDS, 4)}   # flexible: 1

cdef dict REASONS = {
    TRUNCATED: "the message is truncated",
    OVERLONG: "a varint is too long",
    NEGATIVE: "a negative length",
    TOO_MANY: "a count exceeds the remaining bytes",
    BAD_UTF8: "a string is not UTF-8",
    LIMIT: "too many items in one message",
    TRAILING: "trailing bytes after the last field",
    BAD_VALUE: "a value is not allowed by the schema",
}


def covers(str versions, int version):
    """Return whether a version range of a field table contains a version. A range is "3+", "0-7", "4", or "" for
    none."""
    if not versions:
        return False
    if versions.endswith("+"):
        return version >= int(versions.rstrip("+"))
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


def tags_size(bytes data not None):
    """Return the size of the tag buffer with which `data` begins. Raises DecodeError if it does not begin with one."""
    cdef Cursor c
    cursor_init(&c, <const unsigned char*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    with nogil:                     # 100 MB may hold 50 million tags
        skip_tags(&c)
    if c.status != OK:
        raise DecodeError(f"header tags: {REASONS.get(<int>c.status, 'malformed')}", 0)
    return c.pos - <const unsigned char*>PyBytes_AS_STRING(data)


class CodecError(ValueError):
    """The base class of DecodeError and EncodeError."""


class DecodeError(CodecError):
    """The bytes are not a message of this class and version. `position` counts from the start of the body."""

    def __init__(self, message, position=0):
        super().__init__(message)
        self.position = position


class EncodeError(CodecError):
    """A message object cannot be encoded in this version. This is an error of kafkalite, not of its peer."""


@cython.final
@cython.no_gc_clear
cdef class Program:
    """Decodes and encodes one message class in one version. kafkalite.wire.protocol builds each program once.

    `structs` has an entry per struct of the message, and `ops` an entry per field with the field's place in the Python
    object. No constructor runs. A nullable struct begins with a byte that is negative for null; in a tag it is 0 for
    null, as in Kafka.
    """

    def __cinit__(self, message, int version, bint flexible, dict namespace, bint strict=False):
        """Compile a program. `namespace` is the `vars()` of the message's module, in which field tables name
        structs."""
        self.message = message
        self.version = version
        self.flexible = flexible
        self.strict = strict or KL_DEBUG
        self.kept = []
        cdef list structs = []
        _collect(message, namespace, structs)
        cdef list plans = [self._plan(cls, namespace, structs) for cls in structs]
        self._build(structs, plans)

    def __dealloc__(self):
        PyMem_Free(self.ops)
        PyMem_Free(self.structs)

    def __repr__(self):
        return f"<Program {self.message.__name__} v{self.version}>"

    # Compiling: Python speed, once per message and version.

    def _plan(self, cls, dict namespace, list structs):
        """Return a struct's fields in three lists: in wire order, tagged by tag number, and absent in this version."""
        present, tagged, absent = [], [], []
        prototype = cls()
        for row in cls.FIELDS:
            name, kind, versions, nullable, tag, must_fit = row + ("",) * (6 - len(row))
            number, _, tag_versions = tag.partition(":")
            default = getattr(prototype, name)
            is_array = kind.startswith("[]")
            inner = kind[2:] if is_array else kind
            child = structs.index(namespace[inner]) if inner in namespace else -1
            op = (name, cls, inner, is_array, covers(nullable, self.version), bool(must_fit), child, default)
            if not covers(versions, self.version):
                absent.append((0, op))
            elif self.flexible and covers(tag_versions, self.version):
                tagged.append((int(number), op))
            else:
                present.append((-1, op))
        tagged.sort(key=lambda item: item[0])
        return present, tagged, absent

    def _build(self, list structs, list plans):
        cdef Py_ssize_t total = 0
        cdef int32_t at = 0
        cdef StructProgram* s
        for plan in plans:
            total += sum(len(part) for part in plan)
        self.ops_count = <int32_t>total
        self.structs_count = <int32_t>len(structs)
        self.ops = <Op*>PyMem_Calloc(<size_t>max(total, 1), sizeof(Op))
        self.structs = <StructProgram*>PyMem_Calloc(<size_t>len(structs), sizeof(StructProgram))
        if self.ops == NULL or self.structs == NULL:
            raise MemoryError
        for index, (cls, (present, tagged, absent)) in enumerate(zip(structs, plans, strict=True)):
            s = &self.structs[<int32_t>index]
            s.cls = self._keep(cls)
            s.first, s.count = at, <int32_t>len(present)
            at = self._emit(present, at)
            s.tagged_first, s.tagged_count = at, <int32_t>len(tagged)
            at = self._emit(tagged, at)
            s.absent_first, s.absent_count = at, <int32_t>len(absent)
            at = self._emit(absent, at)
            s.size_min = sum(self._size_min(&self.ops[i]) for i in range(s.first, s.first + s.count)) + self.flexible

    cdef PyObject* _keep(self, value):
        self.kept.append(value)
        return <PyObject*>value

    cdef Py_ssize_t _size_min(self, Op* op):
        if op.is_array:
            return 1 if self.flexible else 4
        if op.kind == STRUCT and op.nullable:
            return 1
        return op.item_size_min

    cdef int32_t _emit(self, list rows, int32_t at) except -1:
        cdef Op* op
        for tag, (name, cls, inner, is_array, nullable, must_fit, child, default) in rows:
            op = &self.ops[at]
            op.name = self._keep(name)
            op.is_array, op.nullable, op.must_fit = is_array, nullable, must_fit
            op.child, op.tag = child, tag
            descriptor = cls.__dict__[name]
            op.slot = kl_member_offset(<PyObject*>descriptor)
            if op.slot <= 0:
                raise TypeError(f"{cls.__name__}.{name} is not a slot")
            if child >= 0:      # innermost structs come first, so the child is built already
                op.kind, op.item_size_min = STRUCT, self.structs[<int32_t>child].size_min
            elif inner in KINDS:
                op.kind, op.item_size_min = KINDS[inner]
            else:
                op.kind, op.item_size_min = LENGTH_SIZES[inner]
                if self.flexible:
                    op.item_size_min = 1
            if isinstance(default, list):
                op.default_kind = DEFAULT_LIST
            elif child >= 0 and default is not None:
                op.default_kind = DEFAULT_STRUCT
            op.default = self._keep(default)
            at += 1
        return at

    # Reading.

    def decode(self, data, *, int64_t objects_max=-1, bint views=False, bint exact=True, pace=None):
        """Decode a message from a buffer. Raises DecodeError. With exact=False, other bytes may follow the message.

        `objects_max` limits structs and array items together (default OBJECTS_MAX). With `views`, fields of type
        records are memoryviews of `data` instead of copies. `pace()` is called every PACE_ITEMS objects.
        """
        cdef Reader r
        cdef Py_buffer buffer
        r.exact = exact
        view = memoryview(data).cast("B") if views else None
        r.objects_left = objects_max if objects_max >= 0 else OBJECTS_MAX
        r.pace = <PyObject*>pace if pace is not None else NULL
        r.pause_below = 0 if pace is None else max(<int64_t>0, r.objects_left - PACE_ITEMS)
        r.view = <PyObject*>view if views else NULL
        if PyBytes_CheckExact(data):
            return self._decode(&r, <const unsigned char*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            return self._decode(&r, <const unsigned char*>buffer.buf, buffer.len)
        finally:
            PyBuffer_Release(&buffer)

    cdef object _decode(self, Reader* r, const unsigned char* data, Py_ssize_t size):
        cursor_init(&r.cursor, data, size)
        r.start = data
        message = self.read_struct(r, self.structs_count - 1)
        if r.exact and r.cursor.pos != r.cursor.end:
            r.cursor.status = TRAILING
            raise self.fail(r, NULL)
        return message

    cdef object fail(self, Reader* r, Op* op):
        field = f", field {<object>op.name}" if op != NULL else ""
        position = r.cursor.pos - r.start
        reason = REASONS.get(<int>r.cursor.status, "malformed")
        return DecodeError(
            f"{self.message.__name__} v{self.version}{field}: {reason} (at byte {position})", position)

    cdef int pause(self, Reader* r) except -1:
        """Raise DecodeError if the message has too many objects, otherwise call `pace`.

        A million items take a second, so `pace` lets other threads run. It may raise, which ends the call.
        """
        if r.objects_left < 0:
            r.cursor.status = LIMIT
            raise self.fail(r, NULL)
        (<object>r.pace)()
        r.pause_below = max(<int64_t>0, r.objects_left - PACE_ITEMS)
        return 0

    cdef object read_struct(self, Reader* r, int32_t index):
        cdef StructProgram* s = &self.structs[index]
        cdef Op* op
        cdef int32_t i
        r.objects_left -= 1
        if r.objects_left < r.pause_below:
            self.pause(r)
        instance = PyType_GenericAlloc(<PyTypeObject*>s.cls, 0)
        cdef PyObject* raw = <PyObject*>instance
        for i in range(s.first, s.first + s.count):
            op = &self.ops[i]
            store_slot(raw, op, self.read_value(r, op))
        for i in range(s.absent_first, s.absent_first + s.absent_count):
            store_slot(raw, &self.ops[i], default_of(&self.ops[i]))
        for i in range(s.tagged_first, s.tagged_first + s.tagged_count):
            store_slot(raw, &self.ops[i], default_of(&self.ops[i]))
        if self.flexible:
            self.read_tags(r, raw, s)
        return instance

    cdef int read_tags(self, Reader* r, PyObject* instance, StructProgram* s) except -1:
        cdef uint32_t count = read_uvarint(&r.cursor)
        cdef uint32_t tag, size, _
        cdef const unsigned char* outer_end
        cdef Op* op
        cdef int32_t i
        for _ in range(count):
            tag = read_uvarint(&r.cursor)
            size = read_uvarint(&r.cursor)
            if r.cursor.status == OK and <Py_ssize_t>size > remaining(&r.cursor):
                r.cursor.status = TRUNCATED
            if r.cursor.status != OK:
                break
            op = NULL
            for i in range(s.tagged_first, s.tagged_first + s.tagged_count):
                if <uint32_t>self.ops[i].tag == tag:
                    op = &self.ops[i]
                    break
            if op == NULL:
                read_raw(&r.cursor, size)
                continue
            outer_end = r.cursor.end
            r.cursor.end = r.cursor.pos + size      # the value must fill exactly its tag
            store_slot(instance, op, self.read_value(r, op))
            if r.cursor.pos != r.cursor.end:
                r.cursor.status = TRAILING
                raise self.fail(r, op)
            r.cursor.end = outer_end
        if r.cursor.status != OK:
            raise self.fail(r, NULL)
        return 0

    cdef object read_value(self, Reader* r, Op* op):
        cdef int8_t mark
        if op.is_array:
            return self.read_array(r, op)
        if op.kind == STRUCT and op.nullable:
            mark = read_i8(&r.cursor)
            if mark < 0 or (mark == 0 and op.tag >= 0 and r.cursor.status == OK):
                return None
            if r.cursor.status != OK:
                raise self.fail(r, op)
        return self.read_one(r, op)

    cdef object read_array(self, Reader* r, Op* op):
        cdef int32_t count, i
        if self.flexible:
            count = read_compact_count(&r.cursor, op.item_size_min)
        else:
            count = read_count(&r.cursor, op.item_size_min)
        if r.cursor.status == OK:
            if count < 0:
                if op.nullable:
                    return None
                r.cursor.status = BAD_VALUE
            elif count > r.objects_left:
                r.cursor.status = LIMIT
        if r.cursor.status != OK:
            raise self.fail(r, op)
        if op.kind != STRUCT:       # a struct counts itself
            r.objects_left -= count
        items = PyList_New(count)
        for i in range(count):
            if i & (PACE_ITEMS - 1) == PACE_ITEMS - 1 and r.pace != NULL and op.kind != STRUCT:
                (<object>r.pace)()
            item = self.read_one(r, op)
            Py_INCREF(item)
            PyList_SET_ITEM(items, i, item)
        return items

    cdef object read_one(self, Reader* r, Op* op):
        cdef Cursor* c = &r.cursor
        cdef const unsigned char* p
        if op.kind == STRUCT:
            return self.read_struct(r, op.child)
        if op.kind == STRING:
            return self.read_string(r, op)
        if op.kind == BYTES or op.kind == RECORDS:
            return self.read_bytes(r, op)
        p = read_raw(c, op.item_size_min)
        if p == NULL:
            raise self.fail(r, op)
        c.pos = p       # scalars have a fixed size, which is now known to be there
        if op.kind == INT8:
            return PyLong_FromLong(read_i8(c))
        elif op.kind == INT16:
            return PyLong_FromLong(read_i16(c))
        elif op.kind == INT32:
            return PyLong_FromLong(read_i32(c))
        elif op.kind == INT64:
            return PyLong_FromLongLong(read_i64(c))
        elif op.kind == BOOL:
            return read_i8(c) != 0
        elif op.kind == UUID:
            return PyBytes_FromStringAndSize(<const char*>read_raw(c, UUID_SIZE), UUID_SIZE)
        elif op.kind == UINT16:
            return PyLong_FromLong(load_u16(read_raw(c, 2)))
        elif op.kind == UINT32:
            return PyLong_FromUnsignedLong(read_u32(c))
        return kl_load_float(load_u64(read_raw(c, 8)))

    cdef object read_string(self, Reader* r, Op* op):
        cdef Cursor* c = &r.cursor
        cdef int64_t size = <int64_t>read_uvarint(c) - 1 if self.flexible else <int64_t>read_i16(c)
        cdef const unsigned char* p
        if c.status == OK:
            if size == -1 and op.nullable:
                return None
            if size < 0:
                c.status = BAD_VALUE if size == -1 else NEGATIVE
            elif size > STRING_SIZE_MAX:
                c.status = BAD_VALUE
        p = read_raw(c, size)
        if p == NULL:
            raise self.fail(r, op)
        try:
            return PyUnicode_DecodeUTF8(<const char*>p, size, NULL)
        except UnicodeDecodeError:
            c.status = BAD_UTF8
        raise self.fail(r, op)

    cdef object read_bytes(self, Reader* r, Op* op):
        cdef Cursor* c = &r.cursor
        cdef int64_t size = <int64_t>read_uvarint(c) - 1 if self.flexible else <int64_t>read_i32(c)
        cdef const unsigned char* p
        if c.status == OK:
            if size == -1 and op.nullable:
                return None
            if size < 0:
                c.status = BAD_VALUE if size == -1 else NEGATIVE
        p = read_raw(c, size)
        if p == NULL:
            raise self.fail(r, op)
        if op.kind == RECORDS and r.view != NULL:
            return (<object>r.view)[p - r.start:p - r.start + size]
        return copy_of(p, <Py_ssize_t>size)

    # Writing.

    def encode(self, message):
        """Return the body of a message. Raises EncodeError if a value does not fit its field."""
        return self.encode_behind(message, None, None)

    def encode_frame(self, message, bytes header not None, pace=None):
        """Return a frame that is ready to be sent: int32 size, `header` and body. Raises EncodeError.

        `pace(size)` is called every PACE_ITEMS array items, with the number of bytes written so far.
        """
        return self.encode_behind(message, header, pace)

    cdef object encode_behind(self, object message, bytes header, object pace):
        cdef unsigned char inline_buffer[STACK_BUFFER_SIZE]
        cdef Writer w
        w.data = inline_buffer
        w.size = 0
        w.capacity = STACK_BUFFER_SIZE
        w.on_heap = False
        w.pace = <PyObject*>pace
        w.items_left = -1 if pace is None else PACE_ITEMS
        try:
            if header is not None:
                put_raw(&w, <const unsigned char*>"\0\0\0\0", 4)
                put_raw(&w, <const unsigned char*>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
            self.write_struct(&w, <PyObject*>message, self.structs_count - 1)
            if header is not None:
                if w.size - 4 > 0x7FFFFFFF:
                    raise EncodeError(f"{self.message.__name__} v{self.version}: longer than 2 GiB")
                store_i32(w.data, <int32_t>(w.size - 4))
            return copy_of(w.data, w.size)
        finally:
            if w.on_heap:
                PyMem_Free(w.data)

    def count_items(self, message):
        """Return the number of items in all lists of a message, including nested lists."""
        return self.items_of(<PyObject*>message, self.structs_count - 1)

    cdef int64_t items_of(self, PyObject* instance, int32_t index) except -1:
        cdef StructProgram* s = &self.structs[index]
        cdef Op* op
        cdef PyObject* value
        cdef int64_t count = 0
        cdef Py_ssize_t at
        cdef int32_t i
        if <PyObject*>Py_TYPE(instance) != s.cls:
            return 0
        for i in range(s.first, s.absent_first):
            op = &self.ops[i]
            value = kl_slot(instance, op.slot)[0]
            if op.is_array and value != NULL and PyList_CheckExact(value):
                count += PySequence_Fast_GET_SIZE(value)
                if op.kind == STRUCT:
                    for at in range(PySequence_Fast_GET_SIZE(value)):
                        count += self.items_of(PySequence_Fast_ITEMS(value)[at], op.child)
        return count

    def release(self, message, pace not None):
        """Free the contents of a message's lists, calling `pace()` every PACE_ITEMS items. The message is unusable
        afterwards.

        Lists and structs that other objects refer to are left unchanged.
        """
        cdef int64_t items_left = PACE_ITEMS
        self.release_struct(<PyObject*>message, self.structs_count - 1, pace, &items_left)

    cdef int release_struct(self, PyObject* instance, int32_t index, object pace, int64_t* items_left) except -1:
        cdef StructProgram* s = &self.structs[index]
        cdef PyObject* value
        cdef int32_t i
        if <PyObject*>Py_TYPE(instance) != s.cls:
            return 0
        for i in range(s.first, s.absent_first + s.absent_count):
            if self.ops[i].is_array:
                value = kl_slot(instance, self.ops[i].slot)[0]
                if value != NULL and PyList_CheckExact(value) and Py_REFCNT(value) == 1:
                    self.release_list(&self.ops[i], <list>value, pace, items_left)
        return 0

    cdef int release_list(self, Op* op, list items, object pace, int64_t* items_left) except -1:
        cdef Py_ssize_t count
        cdef PyObject* last
        while items:
            count = len(items)
            last = PySequence_Fast_ITEMS(<PyObject*>items)[count - 1]
            if op.kind == STRUCT and Py_REFCNT(last) == 1:
                self.release_struct(last, op.child, pace, items_left)
            items.pop()
            items_left[0] -= 1
            if items_left[0] == 0:
                items_left[0] = PACE_ITEMS
                pace()
        return 0

    cdef object refuse(self, Op* op, str reason):
        return EncodeError(f"{self.message.__name__} v{self.version}, field {<object>op.name}: {reason}")

    cdef int write_struct(self, Writer* w, PyObject* instance, int32_t index) except -1:
        cdef StructProgram* s = &self.structs[index]
        cdef Op* op
        cdef int32_t i
        if <PyObject*>Py_TYPE(instance) != s.cls:
            raise EncodeError(
                f"{self.message.__name__} v{self.version}: {(<object>s.cls).__name__} expected, "
                f"got {<object>instance!r}")
        for i in range(s.first, s.first + s.count):
            op = &self.ops[i]
            self.write_value(w, op, load_slot(self, instance, op))
        if self.strict:
            for i in range(s.absent_first, s.absent_first + s.absent_count):
                op = &self.ops[i]
                if op.must_fit and not is_default(op, load_slot(self, instance, op)):
                    raise self.refuse(op, "this version of the message has no such field")
        if self.flexible:
            self.write_tags(w, instance, s)
        return 0

    cdef int write_tags(self, Writer* w, PyObject* instance, StructProgram* s) except -1:
        """Write the tagged fields that differ from their defaults. Old versions of librdkafka cannot skip tags."""
        cdef uint32_t count = 0
        cdef Py_ssize_t at, size
        cdef unsigned char prefix[VARINT_SIZE_MAX]
        cdef Py_ssize_t prefix_size
        cdef Op* op
        cdef int32_t i
        for i in range(s.tagged_first, s.tagged_first + s.tagged_count):
            if not is_default(&self.ops[i], load_slot(self, instance, &self.ops[i])):
                count += 1
        put_uvarint(w, count)
        if count == 0:
            return 0
        for i in range(s.tagged_first, s.tagged_first + s.tagged_count):
            op = &self.ops[i]
            if is_default(op, load_slot(self, instance, op)):
                continue
            put_uvarint(w, <uint32_t>op.tag)
            at = w.size
            self.write_value(w, op, load_slot(self, instance, op))
            size = w.size - at
            prefix_size = store_uvarint(prefix, <uint32_t>size)     # known only now: move the value after it
            put_raw(w, prefix, prefix_size)
            memmove(w.data + at + prefix_size, w.data + at, <size_t>size)
            memcpy(w.data + at, prefix, <size_t>prefix_size)
        return 0

    cdef int write_value(self, Writer* w, Op* op, PyObject* value) except -1:
        if op.is_array:
            return self.write_array(w, op, value)
        if op.kind == STRUCT and op.nullable:
            if value == Py_None:
                return put_i8(w, -1 if op.tag < 0 else 0)       # in a tag Kafka writes the mark as an unsigned varint
            put_i8(w, 1)
        return self.write_one(w, op, value)

    cdef int write_array(self, Writer* w, Op* op, PyObject* value) except -1:
        cdef Py_ssize_t count, i
        if value == Py_None:
            if not op.nullable:
                raise self.refuse(op, "null is not allowed")
            return self.write_length(w, -1, 4)
        if not PyList_CheckExact(value) and not PyTuple_CheckExact(value):
            raise self.refuse(op, "the value must be a list or tuple")
        count = PySequence_Fast_GET_SIZE(value)
        if count > 0x7FFFFFFE:
            raise self.refuse(op, "too many items")
        self.write_length(w, count, 4)
        for i in range(count):
            # Writing an item may run Python (__index__, a buffer's exporter), which may change the list.
            if i >= PySequence_Fast_GET_SIZE(value):
                raise self.refuse(op, "the list changed while it was encoded")
            item = <object>PySequence_Fast_ITEMS(value)[i]
            self.write_one(w, op, <PyObject*>item)
            w.items_left -= 1
            if w.items_left == 0:
                w.items_left = PACE_ITEMS
                (<object>w.pace)(w.size)
        if PySequence_Fast_GET_SIZE(value) != count:
            raise self.refuse(op, "the list changed while it was encoded")
        return 0

    cdef int write_one(self, Writer* w, Op* op, PyObject* value) except -1:
        cdef long long number
        if op.kind == STRUCT:
            return self.write_struct(w, value, op.child)
        if op.kind == STRING:
            return self.write_string(w, op, value)
        if op.kind == BYTES or op.kind == RECORDS or op.kind == UUID:
            return self.write_bytes(w, op, value)
        if op.kind == BOOL:
            return put_i8(w, 1 if value == Py_True or (value != Py_False and PyObject_IsTrue(value)) else 0)
        try:
            if op.kind == FLOAT64:
                reserve(w, 8)
                kl_store_float(w.data + w.size, PyFloat_AsDouble(value))
                w.size += 8
                return 0
            number = PyLong_AsLongLong(value)
        except (OverflowError, TypeError):
            raise self.refuse(op, f"{<object>value!r} is not a number of its type") from None
        if not put_integer(w, op.kind, number):
            raise self.refuse(op, f"{number} is out of range")
        return 0

    cdef int write_length(self, Writer* w, Py_ssize_t length, int width) except -1:
        if self.flexible:
            return put_uvarint(w, <uint32_t>(length + 1))
        reserve(w, width)
        if width == 2:
            store_i16(w.data + w.size, <int16_t>length)
        else:
            store_i32(w.data + w.size, <int32_t>length)
        w.size += width
        return 0

    cdef int write_string(self, Writer* w, Op* op, PyObject* value) except -1:
        cdef Py_ssize_t size = 0
        cdef const char* text
        if value == Py_None:
            if not op.nullable:
                raise self.refuse(op, "null is not allowed")
            return self.write_length(w, -1, 2)
        if not PyUnicode_Check(value):
            raise self.refuse(op, f"{<object>value!r} is not a string")
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            raise self.refuse(op, "the string has lone surrogates") from None
        if size > STRING_SIZE_MAX:
            raise self.refuse(op, f"{size} bytes are too long for a string")
        self.write_length(w, size, 2)
        return put_raw(w, <const unsigned char*>text, size)

    cdef int write_bytes(self, Writer* w, Op* op, PyObject* value) except -1:
        cdef Py_buffer buffer
        if value == Py_None:
            if not op.nullable:
                raise self.refuse(op, "null is not allowed")
            return self.write_length(w, -1, 4)
        try:
            PyObject_GetBuffer(<object>value, &buffer, PyBUF_SIMPLE)
        except TypeError:
            raise self.refuse(op, f"{<object>value!r} has no bytes") from None
        try:
            if op.kind == UUID:
                if buffer.len != UUID_SIZE:
                    raise self.refuse(op, "a UUID has 16 bytes")
            elif buffer.len > 0x7FFFFFFE:
                raise self.refuse(op, "longer than 2 GiB")
            else:
                self.write_length(w, buffer.len, 4)
            return put_raw(w, <const unsigned char*>buffer.buf, buffer.len)
        finally:
            PyBuffer_Release(&buffer)


def _collect(cls, dict namespace, list into):
    """Append the structs of a message to `into`, innermost first, the message itself last."""
    for row in cls.FIELDS:
        inner = namespace.get(row[1].removeprefix("[]"))
        if inner is not None:
            _collect(inner, namespace, into)
    if cls not in into:
        into.append(cls)


cdef inline void store_slot(PyObject* instance, Op* op, object value):
    """Set a slot. It may already have a value: a default, or the same tag sent twice."""
    cdef PyObject** slot = kl_slot(instance, op.slot)
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(old)


cdef inline PyObject* load_slot(Program program, PyObject* instance, Op* op) except NULL:
    """Return a borrowed reference to a slot's value. It is valid until the attribute is assigned."""
    cdef PyObject* value = kl_slot(instance, op.slot)[0]
    if value == NULL:
        raise program.refuse(op, "not set")
    return value


cdef object default_of(Op* op):
    if op.default_kind == DEFAULT_OBJECT:
        return <object>op.default
    if op.default_kind == DEFAULT_LIST:
        return []
    return type(<object>op.default)()


cdef bint is_default(Op* op, PyObject* value) except -1:
    if value == op.default:
        return True
    return <object>value == <object>op.default


cdef bytes copy_of(const unsigned char* data, Py_ssize_t size):
    """Copy bytes. Large copies run without the GIL: 100 MB take 50 ms, most of it for new memory pages."""
    cdef bytes whole
    cdef char* target
    if size <= COPY_SIZE_MAX:
        return PyBytes_FromStringAndSize(<const char*>data, size)
    whole = PyBytes_FromStringAndSize(NULL, size)
    target = PyBytes_AS_STRING(whole)
    with nogil:
        memcpy(target, data, <size_t>size)
    return whole


cdef int reserve(Writer* w, Py_ssize_t size) except -1:
    """Make room for `size` more bytes."""
    cdef Py_ssize_t capacity = w.capacity
    cdef unsigned char* data
    if size <= capacity - w.size:
        return 0
    while size > capacity - w.size:
        capacity *= 2
    if w.on_heap:
        data = <unsigned char*>PyMem_Realloc(w.data, <size_t>capacity)
    else:
        data = <unsigned char*>PyMem_Malloc(<size_t>capacity)
        if data != NULL:
            memcpy(data, w.data, <size_t>w.size)
    if data == NULL:
        raise MemoryError
    w.data = data
    w.capacity = capacity
    w.on_heap = True
    return 0


cdef inline int put_raw(Writer* w, const unsigned char* data, Py_ssize_t size) except -1:
    reserve(w, size)
    memcpy(w.data + w.size, data, <size_t>size)
    w.size += size
    return 0


cdef inline int put_i8(Writer* w, int8_t value) except -1:
    reserve(w, 1)
    w.data[w.size] = <unsigned char>value
    w.size += 1
    return 0


cdef inline int put_uvarint(Writer* w, uint32_t value) except -1:
    reserve(w, VARINT_SIZE_MAX)
    w.size += store_uvarint(w.data + w.size, value)
    return 0


cdef int put_integer(Writer* w, int kind, long long value) except -1:
    """Return 1 if the value was written, 0 if it does not fit its type."""
    reserve(w, 8)
    cdef unsigned char* p = w.data + w.size
    if kind == INT32:
        if value != <int32_t>value:
            return 0
        store_i32(p, <int32_t>value)
        w.size += 4
    elif kind == INT16:
        if value != <int16_t>value:
            return 0
        store_i16(p, <int16_t>value)
        w.size += 2
    elif kind == INT64:
        store_i64(p, value)
        w.size += 8
    elif kind == INT8:
        if value != <int8_t>value:
            return 0
        p[0] = <unsigned char>value
        w.size += 1
    elif kind == UINT16:
        if value != <uint16_t>value:
            return 0
        store_i16(p, <int16_t>value)
        w.size += 2
    else:
        if value != <uint32_t>value:
            return 0
        store_u32(p, <uint32_t>value)
        w.size += 4
    return 1
