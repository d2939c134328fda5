"""Find records that contain certain bytes (needles), before a record is decoded or copied.

    1  search the records block of a batch for each needle; if none is found, the batch is finished
    2  find the record that contains the needle
    3  compare this record's fields by the needle's rule

The C library's memmem searches about 10 GB/s. Only a record whose bytes contain a needle is examined.

Thread rule: Needles are immutable, so threads may share them.
"""

cimport cython
from libc.stdint cimport int32_t
from libc.string cimport memcmp, memset
from kafkalite._native.wire.batch cimport RecordView, next_header
from kafkalite._native.wire.cursor cimport Cursor, cursor_init
from kafkalite._native.wire.find cimport find
from kafkalite._native.wire.status cimport OK


cdef inline bint is_word(unsigned char byte) noexcept nogil:
    """Return whether a byte is a letter, a digit, an underscore, or part of a non-ASCII character."""
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte == 95 or byte >= 128


cdef bint holds_word(const Needle* needle, const unsigned char* data, const unsigned char* end) noexcept nogil:
    """Return whether the needle occurs as a whole word. An edge of the needle that is no word character may touch
    anything."""
    cdef const unsigned char* at = data
    while True:
        at = find(at, end, needle.data, needle.size)
        if at == NULL:
            return False
        if (
            (at == data or not is_word(at[0]) or not is_word((at - 1)[0]))
            and (
                at + needle.size == end
                or not is_word(at[needle.size - 1])
                or not is_word(at[needle.size])
            )
        ):
            return True
        at += 1


cdef bint fits(const Needle* needle, const unsigned char* data, int32_t size) noexcept nogil:
    """Return whether a field, which may be null, matches the needle by the needle's rule."""
    if size < needle.size:
        return False
    if needle.how == IS:
        return size == needle.size and memcmp(data, needle.data, <size_t>size) == 0
    if needle.how == BEGINS:
        return memcmp(data, needle.data, <size_t>needle.size) == 0
    if needle.how == HOLDS:
        return find(data, data + size, needle.data, needle.size) != NULL
    return holds_word(needle, data, data + size)


@cython.final
cdef class Needles:
    """The needles of a reader. `rows` lists (bytes, fields as bits, rule); without rows, every record matches.

    Raises ValueError for more than NEEDLES_MAX needles, an empty needle, or an unknown field or rule.
    """

    def __cinit__(self, rows=()):
        cdef const unsigned char[::1] view
        cdef Py_ssize_t i
        kept = []
        listed = list(rows)
        if len(listed) > NEEDLES_MAX:
            raise ValueError(f"{len(listed)} needles; at most {NEEDLES_MAX} are allowed")
        memset(self.needles, 0, sizeof(self.needles))
        for i, (text, fields, how) in enumerate(listed):
            raw = bytes(text)
            if not raw:
                raise ValueError("a needle without bytes")
            if not 0 < fields <= IN_KEY | IN_VALUE | IN_HEADERS or not IS <= how <= HOLDS_WORD:
                raise ValueError(f"no field or rule of needles is {fields}, {how}")
            view = raw
            kept.append(raw)
            self.needles[i].data = &view[0]
            self.needles[i].size = view.shape[0]
            self.needles[i].fields = fields
            self.needles[i].how = how
        self.kept = tuple(kept)
        self.count = len(kept)

    cdef const unsigned char* first_from(
        self, Places* places, const unsigned char* start, const unsigned char* end, bint fresh
    ) noexcept nogil:
        cdef const unsigned char* first = end
        cdef Py_ssize_t i
        if self.count == 0:
            return start
        for i in range(self.count):
            if fresh or (places.next[i] != NULL and places.next[i] < start):
                places.next[i] = find(start, end, self.needles[i].data, self.needles[i].size)
            if places.next[i] != NULL and places.next[i] < first:
                first = places.next[i]
        return first

    cdef bint found_in(self, const RecordView* record) noexcept nogil:
        cdef Cursor c
        cdef const unsigned char* key
        cdef const unsigned char* value
        cdef int32_t key_size, value_size, _header
        cdef Py_ssize_t i
        if self.found_in_fields(record.key, record.key_size, record.value, record.value_size):
            return True
        cursor_init(&c, record.headers, record.end - record.headers)
        for _header in range(record.header_count):
            if next_header(&c, &key, &key_size, &value, &value_size) != OK:
                return False
            for i in range(self.count):
                if self.needles[i].fields & IN_HEADERS and fits(&self.needles[i], value, value_size):
                    return True
        return False

    cdef bint found_in_fields(
        self, const unsigned char* key, int32_t key_size, const unsigned char* value, int32_t value_size
    ) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.needles[i].fields & IN_KEY and fits(&self.needles[i], key, key_size):
                return True
            if self.needles[i].fields & IN_VALUE and fits(&self.needles[i], value, value_size):
                return True
        return self.count == 0
