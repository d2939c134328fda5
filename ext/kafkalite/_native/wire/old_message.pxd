"""Parse one entry of a message set of Kafka 0.8 to 0.10 (magic 0 and 1), which brokers return from old segments.

    at  size                                 at  size
     0   8   offset                          17   1   attributes: codec, LOG_APPEND_TIME (magic 1)
     8   4   size: bytes after it            18   8   timestamp in ms (magic 1 only)
    12   4   CRC-32 of byte 16 to the end         4   key size (-1 null), key
    16   1   magic                                4   value size (-1 null), value

An entry with a codec is a wrapper: its value is a compressed message set, and its offset is that of the last message
inside. In a wrapper of magic 1, inner offsets count from 0, and LOG_APPEND_TIME applies the wrapper's timestamp to all
messages. In a wrapper of magic 0, inner offsets are absolute.

Kafka 0.7's messages, without offset and key, are in message_set.pxd.

Thread rule: functions are pure. Returned pointers are valid as long as the parsed bytes.
"""

from libc.stdint cimport int32_t, int64_t
from kafkalite._native.base.crc32 cimport crc32
from kafkalite._native.wire.batch cimport CODEC_MASK, LOG_APPEND_TIME, MAGIC_AT
from kafkalite._native.wire.cursor cimport (
    Cursor,
    cursor_init,
    load_i32,
    load_i64,
    load_u32,
    need,
    read_i32,
    read_i64,
    read_raw,
)
from kafkalite._native.wire.status cimport BAD_CRC, BAD_MAGIC, NEGATIVE, OK, TRAILING, TRUNCATED, Status

cdef enum:
    OLD_SIZE_AT = 8
    OLD_CRC_AT = 12
    OLD_CRC_FROM = 16               # the first byte the CRC covers
    OLD_ATTRIBUTES_AT = 17
    OLD_FIELDS_AT = 18
    OLD_SIZE_MIN = 14               # the size field of the smallest entry
    OLD_MAGIC_MAX = 1


cdef struct OldMessage:
    int64_t offset
    int64_t size                    # of the whole entry in bytes
    int64_t timestamp               # ms, -1 none
    const unsigned char* key
    const unsigned char* value
    int32_t key_size                # -1 null
    int32_t value_size              # -1 null
    int magic
    int codec
    bint append_time


cdef inline bint is_old(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Return whether an entry of magic 0 or 1 begins here."""
    return size > MAGIC_AT and data[MAGIC_AT] <= OLD_MAGIC_MAX


cdef inline int32_t old_field_size(Cursor* c) noexcept nogil:
    cdef int32_t size = read_i32(c)
    if c.status == OK and size < -1:
        c.status = NEGATIVE
    if size > 0:
        need(c, size)
    return size


cdef inline Status parse_old(
    const unsigned char* data, Py_ssize_t size, OldMessage* message, bint check_crc
) noexcept nogil:
    """Parse an entry. Returns TRUNCATED if it is incomplete in `size` bytes; any other status but OK means damage."""
    cdef Cursor c
    cdef int32_t length
    if size <= MAGIC_AT:
        return TRUNCATED
    if data[MAGIC_AT] > OLD_MAGIC_MAX:
        return BAD_MAGIC
    length = load_i32(data + OLD_SIZE_AT)
    message.offset = load_i64(data)
    message.size = <int64_t>length + OLD_CRC_AT
    message.magic = data[MAGIC_AT]
    if length < OLD_SIZE_MIN:
        return NEGATIVE
    if message.size > size:
        return TRUNCATED
    if check_crc and crc32(data + OLD_CRC_FROM, <size_t>(message.size - OLD_CRC_FROM)) != load_u32(data + OLD_CRC_AT):
        return BAD_CRC
    message.codec = data[OLD_ATTRIBUTES_AT] & CODEC_MASK
    message.append_time = message.magic == 1 and data[OLD_ATTRIBUTES_AT] & LOG_APPEND_TIME != 0
    cursor_init(&c, data + OLD_FIELDS_AT, <Py_ssize_t>(message.size - OLD_FIELDS_AT))
    message.timestamp = read_i64(&c) if message.magic == 1 else -1
    message.key_size = old_field_size(&c)
    message.key = read_raw(&c, message.key_size) if message.key_size >= 0 else NULL
    message.value_size = old_field_size(&c)
    message.value = read_raw(&c, message.value_size) if message.value_size >= 0 else NULL
    if c.status == TRUNCATED:       # inside a complete entry
        return NEGATIVE
    if c.status == OK and c.pos != c.end:
        return TRAILING
    return c.status
