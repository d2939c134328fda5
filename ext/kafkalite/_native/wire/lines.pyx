"""Convert lines of text to records and back, at gigabytes per second, for the command line.

    split_lines     bytes ─▶ where each line starts and ends
    split_keys      lines ─▶ key and value around a separator
    equals          column ─▶ which items are a given text (the null marker)
    partitions_of   keys ─▶ partitions, by murmur2 as in the Java client
    render          columns ─▶ bytes, each record in the same format

Thread rule: functions are pure. Their loops run without the GIL, over buffers that a memoryview keeps alive.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from kafkalite._native.base.growing cimport Growing, drop_memory, reserve, take_memory
from kafkalite._native.wire.columns cimport Column, ColumnDoor, item_size
from kafkalite._native.wire.find cimport find

import numpy as np

cdef const unsigned char* NOTHING = b""

cdef enum:
    INTEGER_SIZE_MAX = 20       # characters of an int64

cpdef enum:
    STEPS_MAX = 32              # of a format

cdef enum Operation:
    LITERAL = 0
    KEY = 1
    VALUE = 2
    OFFSET = 3
    TIMESTAMP = 4
    KEY_SIZE = 5
    VALUE_SIZE = 6
    HEADERS = 7

OPERATIONS = {
    "literal": LITERAL,
    "key": KEY,
    "value": VALUE,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "key_size": KEY_SIZE,
    "value_size": VALUE_SIZE,
    "headers": HEADERS,
}


def split_lines(const unsigned char[::1] buffer not None, bytes separator not None):
    """Return (starts, ends, position after the last separator) of the complete lines; starts and ends are int64
    arrays."""
    cdef Py_ssize_t size = buffer.shape[0]
    cdef Py_ssize_t separator_size = len(separator)
    cdef const unsigned char* part = separator
    cdef const unsigned char* begin = &buffer[0] if size else NOTHING
    cdef const unsigned char* end = begin + size
    cdef const unsigned char* line = begin
    cdef const unsigned char* hit
    cdef int64_t count = 0
    cdef int64_t i
    cdef int64_t[::1] starts, ends
    if separator_size == 0:
        raise ValueError("the separator is empty")
    with nogil:
        hit = find(begin, end, part, separator_size)
        while hit != NULL:
            count += 1
            line = hit + separator_size
            hit = find(line, end, part, separator_size)
    start_array = np.empty(count, np.int64)
    end_array = np.empty(count, np.int64)
    starts = start_array
    ends = end_array
    with nogil:
        line = begin
        for i in range(count):
            hit = find(line, end, part, separator_size)
            starts[i] = line - begin
            ends[i] = hit - begin
            line = hit + separator_size
    return start_array, end_array, line - begin


def split_keys(column not None, bytes separator not None):
    """Split lines of the form "key SEPARATOR value"; return the arrays (key ends, value starts, no key).

    A key starts where its line starts, and a value ends where its line ends. `no key` is 1 for a line without a
    separator, which is all value.
    """
    cdef ColumnDoor door = ColumnDoor(column)
    cdef Py_ssize_t separator_size = len(separator)
    cdef const unsigned char* part = separator
    cdef const unsigned char* line
    cdef const unsigned char* hit
    cdef Py_ssize_t i
    cdef int64_t size
    if separator_size == 0:
        raise ValueError("the separator is empty")
    key_end_array = np.empty(door.count, np.int64)
    value_start_array = np.empty(door.count, np.int64)
    none_array = np.zeros(door.count, np.uint8)
    cdef int64_t[::1] key_ends = key_end_array
    cdef int64_t[::1] value_starts = value_start_array
    cdef unsigned char[::1] none = none_array
    with nogil:
        for i in range(door.count):
            size = item_size(&door.column, i)
            line = door.column.data + door.column.starts[i]
            hit = find(line, line + size, part, separator_size) if size > 0 else NULL
            if hit == NULL:
                key_ends[i] = value_starts[i] = door.column.starts[i]
                none[i] = 1
            else:
                key_ends[i] = hit - door.column.data
                value_starts[i] = key_ends[i] + separator_size
    return key_end_array, value_start_array, none_array


def equals(column not None, bytes text not None):
    """Return a uint8 array with 1 for each item that equals `text`."""
    cdef ColumnDoor door = ColumnDoor(column)
    cdef int64_t wanted = len(text)
    cdef const unsigned char* data = text
    cdef Py_ssize_t i
    result = np.zeros(door.count, np.uint8)
    cdef unsigned char[::1] flags = result
    with nogil:
        for i in range(door.count):
            if item_size(&door.column, i) == wanted:
                flags[i] = memcmp(door.column.data + door.column.starts[i], data, <size_t>wanted) == 0
    return result


cdef uint32_t murmur2(const unsigned char* data, int64_t size) noexcept nogil:
    """Compute Austin Appleby's MurmurHash2 with the Java client's seed. Blocks are read in little-endian order."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = data[0] | (<uint32_t>data[1] << 8) | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24)
        k *= m
        k ^= k >> 24
        k *= m
        h = (h * m) ^ k
        data += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>data[2] << 16
    if size >= 2:
        h ^= <uint32_t>data[1] << 8
    if size >= 1:
        h = (h ^ data[0]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def partitions_of(keys not None, int32_t partition_count):
    """Return the partition to which the Java client sends each key, as an int32 array; -1 for a null key."""
    if partition_count < 1:
        raise ValueError(f"{partition_count} partitions")
    cdef ColumnDoor door = ColumnDoor(keys)
    cdef Py_ssize_t i
    cdef int64_t size
    result = np.full(door.count, -1, np.int32)
    cdef int32_t[::1] partitions = result
    with nogil:
        for i in range(door.count):
            size = item_size(&door.column, i)
            if size >= 0:
                partitions[i] = <int32_t>(
                    (murmur2(door.column.data + door.column.starts[i], size) & 0x7FFFFFFF) % <uint32_t>partition_count
                )
    return result


cdef bint put(Growing* out, const unsigned char* data, int64_t size) noexcept nogil:
    if not reserve(out, <size_t>size):
        return False
    memcpy(out.data + out.size, data, <size_t>size)
    out.size += <size_t>size
    return True


cdef bint put_integer(Growing* out, int64_t value) noexcept nogil:
    cdef unsigned char[INTEGER_SIZE_MAX] text
    cdef int position = INTEGER_SIZE_MAX
    cdef uint64_t left = <uint64_t>value if value >= 0 else <uint64_t>0 - <uint64_t>value
    while True:
        position -= 1
        text[position] = <unsigned char>(48 + left % 10)
        left //= 10
        if left == 0:
            break
    if value < 0:
        position -= 1
        text[position] = 45
    return put(out, &text[position], INTEGER_SIZE_MAX - position)


cdef struct Step:
    int operation
    const unsigned char* data
    Py_ssize_t size


# The columns of one rendering; header_ends is NULL without headers.
cdef struct Rows:
    const Column* keys
    const Column* values
    const int64_t* offsets
    const int64_t* timestamps
    const int64_t* header_starts
    const int64_t* header_ends
    const Column* header_keys
    const Column* header_values
    const unsigned char* null_text
    Py_ssize_t null_size


cdef inline bint put_item(Growing* out, const Column* column, Py_ssize_t i, const Rows* rows) noexcept nogil:
    cdef int64_t size = item_size(column, i)
    if size < 0:
        return put(out, rows.null_text, rows.null_size)
    return put(out, column.data + column.starts[i], size)


cdef bint put_headers(Growing* out, const Rows* rows, Py_ssize_t i) noexcept nogil:
    """Write a record's headers as key=value, separated by commas."""
    cdef int64_t h
    if rows.header_ends == NULL:
        return True
    for h in range(rows.header_starts[i], rows.header_ends[i]):
        if h > rows.header_starts[i] and not put(out, <const unsigned char*>b",", 1):
            return False
        if not put_item(out, rows.header_keys, h, rows) or not put(out, <const unsigned char*>b"=", 1):
            return False
        if not put_item(out, rows.header_values, h, rows):
            return False
    return True


cdef bint put_step(Growing* out, const Step* step, const Rows* rows, Py_ssize_t i) noexcept nogil:
    if step.operation == LITERAL:
        return put(out, step.data, step.size)
    if step.operation == VALUE:
        return put_item(out, rows.values, i, rows)
    if step.operation == KEY:
        return put_item(out, rows.keys, i, rows)
    if step.operation == OFFSET:
        return put_integer(out, rows.offsets[i])
    if step.operation == TIMESTAMP:
        return put_integer(out, rows.timestamps[i])
    if step.operation == KEY_SIZE:
        return put_integer(out, item_size(rows.keys, i))
    if step.operation == VALUE_SIZE:
        return put_integer(out, item_size(rows.values, i))
    return put_headers(out, rows, i)


def render(columns not None, list steps not None, bytes null_text not None):
    """Write all records in a format, one after the other; return a memoryview.

    `columns` are a reader's RecordColumns. `steps` lists (operation, literal bytes); see OPERATIONS.
    """
    cdef ColumnDoor keys = ColumnDoor(columns.keys)
    cdef ColumnDoor values = ColumnDoor(columns.values)
    cdef const int64_t[::1] offsets = columns.offsets
    cdef const int64_t[::1] timestamps = columns.timestamps
    cdef const int64_t[::1] header_starts, header_ends
    cdef ColumnDoor header_keys, header_values
    cdef Py_ssize_t count = values.count
    cdef Py_ssize_t i, s, step_count = len(steps)
    cdef Step[STEPS_MAX] program
    cdef Rows rows
    cdef Growing out
    cdef bint done = True
    if keys.count != count or offsets.shape[0] != count or timestamps.shape[0] != count:
        raise ValueError("the columns have different lengths")
    if step_count > STEPS_MAX:
        raise ValueError(f"the format has {step_count} parts; at most {STEPS_MAX} are allowed")
    for s in range(step_count):
        program[s].operation = steps[s][0]
        program[s].data = <const unsigned char*><bytes>steps[s][1]
        program[s].size = len(steps[s][1])
    if count == 0:
        return memoryview(b"")
    memset(&rows, 0, sizeof(rows))
    memset(&out, 0, sizeof(out))
    rows.keys = &keys.column
    rows.values = &values.column
    rows.offsets = &offsets[0]
    rows.timestamps = &timestamps[0]
    rows.null_text = null_text
    rows.null_size = len(null_text)
    if columns.headers is not None:
        header_starts = columns.headers.record_starts
        header_ends = columns.headers.record_ends
        header_keys = ColumnDoor(columns.headers.keys)
        header_values = ColumnDoor(columns.headers.values)
        if header_starts.shape[0] != count or header_ends.shape[0] != count:
            raise ValueError("the headers are those of another number of records")
        if columns.headers.record_starts.min() < 0 or columns.headers.record_ends.max() > header_keys.count:
            raise ValueError("a record's headers lie outside the columns")
        rows.header_starts = &header_starts[0]
        rows.header_ends = &header_ends[0]
        rows.header_keys = &header_keys.column
        rows.header_values = &header_values.column
    with nogil:
        done = reserve(&out, <size_t>(values.column.size + 64))
        for i in range(count):
            for s in range(step_count):
                done = done and put_step(&out, &program[s], &rows, i)
            if not done:
                break
    if not done:
        drop_memory(&out)
        raise MemoryError("room for formatted records")
    return take_memory(&out)
