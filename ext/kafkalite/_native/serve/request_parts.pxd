"""Help to parse Produce and Fetch requests: a growing array of partitions, and topics by name or id."""

from libc.stdint cimport int32_t
from libc.stdlib cimport realloc
from libc.string cimport memset
from kafkalite._native.serve.topic_table cimport TOPIC_ID_SIZE
from kafkalite._native.serve.transfer cimport OutBuffer
from kafkalite._native.wire.cursor cimport Cursor, read_raw, read_string


cdef inline void* add_part(void** parts, int32_t* count, int32_t* capacity, int32_t at_first,
                           size_t part_size) except NULL:
    """Append a zeroed element to a growing C array; return its address, which the next call may change."""
    cdef int32_t wanted
    cdef void* grown
    if count[0] == capacity[0]:
        wanted = max(at_first, <int32_t>(capacity[0] * 2))
        grown = realloc(parts[0], <size_t>wanted * part_size)
        if grown == NULL:
            raise MemoryError
        parts[0] = grown
        capacity[0] = wanted
    grown = <char*>parts[0] + <size_t>count[0] * part_size
    memset(grown, 0, part_size)
    count[0] += 1
    return grown


cdef inline const unsigned char* read_topic(Cursor* c, bint by_id, bint flexible, Py_ssize_t* size) noexcept nogil:
    """Read a topic's name or id. A null name gives NULL and size -1."""
    if by_id:
        size[0] = TOPIC_ID_SIZE
        return read_raw(c, TOPIC_ID_SIZE)
    return read_string(c, flexible, size)


cdef inline int put_topic(OutBuffer out, const unsigned char* key, Py_ssize_t size, bint by_id,
                          bint flexible) except -1:
    """Write a topic as its request has it: by name or id."""
    if by_id:
        return out.put(key, size)
    return out.put_string(key, size, flexible)
