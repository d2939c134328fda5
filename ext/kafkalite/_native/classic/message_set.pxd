"""Parse one message of Kafka 0.7, and declare the numbers of 0.7's request types for broker and client.

message_set.pyx shows the layout of messages and iterates over message sets.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from kafkalite._native.base.crc32 cimport crc32
from kafkalite._native.wire.cursor cimport load_i32, load_u32

cdef enum:
    SIZE_FIELD_SIZE = 4             # in front of each message, and not counted by it
    OVERHEAD_0 = 9                  # bytes of an entry that are not payload: magic 0
    OVERHEAD_1 = 10                 # magic 1
    CODEC_MASK = 3                  # of the attributes

# A request's first field, for Python too.
cpdef enum:
    TYPE_PRODUCE = 0
    TYPE_FETCH = 1
    TYPE_MULTIFETCH = 2
    TYPE_MULTIPRODUCE = 3
    TYPE_OFFSETS = 4

cpdef enum:
    ANY_PARTITION = -1              # in a PRODUCE: the broker picks one

cdef enum EntryFault:
    ENTRY_GOOD = 0
    ENTRY_PARTIAL = 1               # the bytes end inside it
    ENTRY_BAD_SIZE = 2              # negative, or below its own header
    ENTRY_BAD_MAGIC = 3             # neither 0 nor 1
    ENTRY_BAD_CRC = 4
    ENTRY_BAD_CODEC = 5             # codec 3 is undefined
    ENTRY_BAD_CONTENT = 6           # compressed bytes that do not unpack, or are nested too deep

cdef struct Entry:
    int64_t size                    # bytes of it all, size field included
    const unsigned char* payload
    int64_t payload_size
    uint32_t crc                    # of the payload, as the entry has it
    unsigned char magic
    unsigned char attributes

cdef struct SetFindings:
    int64_t valid_size              # bytes of the whole entries before the fault, or before a partial tail
    int64_t count                   # of them
    int64_t last_position           # where the last one starts
    int64_t payload_size_max
    int64_t compressed_count        # of them, wrappers
    int fault                       # an EntryFault; ENTRY_PARTIAL is one only in the first entry

cdef inline int read_entry(const unsigned char* data, int64_t left, Entry* out) noexcept nogil:
    """Parse the entry at `data` without trusting any field; return an EntryFault. The checksum is not checked."""
    cdef int32_t size
    cdef int64_t overhead
    if left < SIZE_FIELD_SIZE:
        return ENTRY_PARTIAL
    size = load_i32(data)
    if size < OVERHEAD_0 - SIZE_FIELD_SIZE:
        return ENTRY_BAD_SIZE
    out.size = <int64_t>size + SIZE_FIELD_SIZE
    if left < OVERHEAD_0 or out.size > left:
        return ENTRY_PARTIAL
    out.magic = data[4]
    if out.magic == 1:
        overhead = OVERHEAD_1
        if out.size < OVERHEAD_1:
            return ENTRY_BAD_SIZE
        out.attributes = data[5]
        out.crc = load_u32(data + 6)
    elif out.magic == 0:
        overhead = OVERHEAD_0
        out.attributes = 0
        out.crc = load_u32(data + 5)
    else:
        return ENTRY_BAD_MAGIC
    out.payload = data + overhead
    out.payload_size = out.size - overhead
    return ENTRY_GOOD

cdef inline bint entry_intact(const Entry* entry) noexcept nogil:
    return crc32(entry.payload, <size_t>entry.payload_size) == entry.crc

cdef void walk_set(const unsigned char* data, int64_t size, bint verify, SetFindings* out) noexcept nogil

cdef class Message:
    cdef readonly bytes payload
    cdef readonly int magic
    cdef readonly int attributes
    cdef uint32_t crc
    cdef bint crc_known

cdef class MessageIterator:
    cdef readonly int64_t next_offset   # where to fetch after the message given last
    cdef readonly int depth             # of nesting: 0 for a set that no wrapper holds
    cdef Py_buffer view
    cdef bint held
    cdef const unsigned char* data
    cdef int64_t size
    cdef int64_t position
    cdef int64_t base_offset            # of position 0
    cdef int64_t given                  # entries before the current one
    cdef bint shallow
    cdef bint stopped                   # by another thread, perhaps
    cdef int depth_max
    cdef object unpack                  # (codec, payload, depth) -> bytes
    cdef object fault                   # (EntryFault, offset) -> exception
    cdef MessageIterator inner          # of the wrapper at `position`, or None
    cdef Message ahead                  # the next one out of it
    cdef int64_t wrapper_size

    cdef Message step(self)
    cdef Message enter(self, const Entry* entry)
    cdef int give_up(self, int fault) except -1
