"""Read big-endian numbers, varints and strings from memory with bounds checks, and write big-endian numbers.

A read beyond the end sets `status`. All later reads then return zero and leave `pos` unchanged, so a parser may check
`status` once per structure. The check is `n <= end - pos`, which cannot overflow. Varints have at most 5 bytes (32 bit)
or 10 bytes (64 bit).

Thread rule: functions run without the GIL and use no Python object. The caller keeps the memory alive.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from kafkalite._native.wire.status cimport Status, OK, TRUNCATED, OVERLONG, NEGATIVE, TOO_MANY

cdef enum:
    HEADER_SIZE_MIN = 10                # of a request: key, version, correlation id and the length of the client id

cdef extern from *:
    """
    #define kl_bswap16(x) __builtin_bswap16(x)
    #define kl_bswap32(x) __builtin_bswap32(x)
    #define kl_bswap64(x) __builtin_bswap64(x)
    """
    uint16_t kl_bswap16(uint16_t) noexcept nogil
    uint32_t kl_bswap32(uint32_t) noexcept nogil
    uint64_t kl_bswap64(uint64_t) noexcept nogil


cdef inline uint16_t load_u16(const unsigned char* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return kl_bswap16(v)

cdef inline int16_t load_i16(const unsigned char* p) noexcept nogil:
    return <int16_t>load_u16(p)

cdef inline uint32_t load_u32(const unsigned char* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return kl_bswap32(v)

cdef inline int32_t load_i32(const unsigned char* p) noexcept nogil:
    return <int32_t>load_u32(p)

cdef inline uint64_t load_u64(const unsigned char* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return kl_bswap64(v)

cdef inline int64_t load_i64(const unsigned char* p) noexcept nogil:
    return <int64_t>load_u64(p)

cdef inline void store_i16(unsigned char* p, int16_t value) noexcept nogil:
    cdef uint16_t v = kl_bswap16(<uint16_t>value)
    memcpy(p, &v, 2)

cdef inline void store_i32(unsigned char* p, int32_t value) noexcept nogil:
    cdef uint32_t v = kl_bswap32(<uint32_t>value)
    memcpy(p, &v, 4)

cdef inline void store_u32(unsigned char* p, uint32_t value) noexcept nogil:
    cdef uint32_t v = kl_bswap32(value)
    memcpy(p, &v, 4)

cdef inline void store_i64(unsigned char* p, int64_t value) noexcept nogil:
    cdef uint64_t v = kl_bswap64(<uint64_t>value)
    memcpy(p, &v, 8)


cdef struct Cursor:
    const unsigned char* pos
    const unsigned char* end
    Status status


cdef inline void cursor_init(Cursor* c, const unsigned char* data, Py_ssize_t size) noexcept nogil:
    c.pos = data
    c.end = data + size
    c.status = OK

cdef inline Py_ssize_t remaining(const Cursor* c) noexcept nogil:
    return c.end - c.pos

cdef inline bint need(Cursor* c, Py_ssize_t n) noexcept nogil:
    """Return whether n more bytes may be read. If not, the cursor fails permanently."""
    if c.status != OK:
        return False
    if n < 0:
        c.status = NEGATIVE
        return False
    if n > c.end - c.pos:
        c.status = TRUNCATED
        return False
    return True

cdef inline int8_t read_i8(Cursor* c) noexcept nogil:
    if not need(c, 1):
        return 0
    c.pos += 1
    return <int8_t>(c.pos - 1)[0]

cdef inline int16_t read_i16(Cursor* c) noexcept nogil:
    if not need(c, 2):
        return 0
    c.pos += 2
    return load_i16(c.pos - 2)

cdef inline int32_t read_i32(Cursor* c) noexcept nogil:
    if not need(c, 4):
        return 0
    c.pos += 4
    return load_i32(c.pos - 4)

cdef inline uint32_t read_u32(Cursor* c) noexcept nogil:
    if not need(c, 4):
        return 0
    c.pos += 4
    return load_u32(c.pos - 4)

cdef inline int64_t read_i64(Cursor* c) noexcept nogil:
    if not need(c, 8):
        return 0
    c.pos += 8
    return load_i64(c.pos - 8)

cdef inline const unsigned char* read_raw(Cursor* c, Py_ssize_t n) noexcept nogil:
    """Return the address of n bytes and move past them; NULL on failure."""
    if not need(c, n):
        return NULL
    c.pos += n
    return c.pos - n

cdef inline uint32_t read_uvarint(Cursor* c) noexcept nogil:
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef unsigned char byte
    if c.status != OK:
        return 0
    while True:
        if c.pos >= c.end:
            c.status = TRUNCATED
            return 0
        byte = c.pos[0]
        c.pos += 1
        if shift == 28 and byte > 0x0F:
            c.status = OVERLONG
            return 0
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7

cdef inline uint64_t read_uvarlong(Cursor* c) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef unsigned char byte
    if c.status != OK:
        return 0
    while True:
        if c.pos >= c.end:
            c.status = TRUNCATED
            return 0
        byte = c.pos[0]
        c.pos += 1
        if shift == 63 and byte > 0x01:
            c.status = OVERLONG
            return 0
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7

cdef inline int32_t read_varint(Cursor* c) noexcept nogil:
    """Read a zig-zag varint, as in record fields."""
    cdef uint32_t raw = read_uvarint(c)
    return <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)

cdef inline int64_t read_varlong(Cursor* c) noexcept nogil:
    cdef uint64_t raw = read_uvarlong(c)
    return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)

cdef inline int32_t read_count(Cursor* c, Py_ssize_t item_size_min) noexcept nogil:
    """Read the int32 count of an array, limited by the remaining bytes. -1 is null; other negative counts fail."""
    cdef int32_t count = read_i32(c)
    if c.status != OK:
        return 0
    if count < -1:
        c.status = NEGATIVE
        return 0
    if count > 0 and <Py_ssize_t>count * item_size_min > c.end - c.pos:
        c.status = TOO_MANY
        return 0
    return count

cdef inline int32_t read_compact_count(Cursor* c, Py_ssize_t item_size_min) noexcept nogil:
    """Read the count of a compact array, limited by the remaining bytes. It is stored plus one; null returns -1."""
    cdef uint32_t raw = read_uvarint(c)
    if c.status != OK:
        return 0
    if raw == 0:
        return -1
    if <uint64_t>(raw - 1) * <uint64_t>item_size_min > <uint64_t>(c.end - c.pos):
        c.status = TOO_MANY
        return 0
    if raw - 1 > 0x7FFFFFFF:
        c.status = TOO_MANY
        return 0
    return <int32_t>(raw - 1)

cdef inline const unsigned char* read_string(Cursor* c, bint compact, Py_ssize_t* size) noexcept nogil:
    """Read a nullable string; return its address and set its size. Null gives NULL and -1."""
    cdef Py_ssize_t n
    if compact:
        n = <Py_ssize_t>read_uvarint(c) - 1
    else:
        n = read_i16(c)
    size[0] = n
    if c.status != OK:
        return NULL
    if n < 0:
        if n < -1:
            c.status = NEGATIVE
        return NULL
    return read_raw(c, n)

cdef inline void skip_tags(Cursor* c) noexcept nogil:
    """Skip a tag buffer (KIP-482)."""
    cdef uint32_t count = read_uvarint(c)
    cdef uint32_t size
    cdef uint32_t _i
    if c.status == OK and <uint64_t>count * 2 > <uint64_t>(c.end - c.pos):
        c.status = TOO_MANY
    for _i in range(count):
        if c.status != OK:
            return
        read_uvarint(c)
        size = read_uvarint(c)
        read_raw(c, <Py_ssize_t>size)

cdef inline Py_ssize_t store_uvarint(unsigned char* p, uint32_t value) noexcept nogil:
    """Write a varint of at most 5 bytes; return its size."""
    cdef Py_ssize_t n = 0
    while value >= 0x80:
        p[n] = <unsigned char>((value & 0x7F) | 0x80)
        value >>= 7
        n += 1
    p[n] = <unsigned char>value
    return n + 1

cdef inline Py_ssize_t store_uvarlong(unsigned char* p, uint64_t value) noexcept nogil:
    """Write a varint of at most 10 bytes; return its size."""
    cdef Py_ssize_t n = 0
    while value >= 0x80:
        p[n] = <unsigned char>((value & 0x7F) | 0x80)
        value >>= 7
        n += 1
    p[n] = <unsigned char>value
    return n + 1

cdef inline Py_ssize_t store_varint(unsigned char* p, int32_t value) noexcept nogil:
    return store_uvarint(p, (<uint32_t>value << 1) ^ <uint32_t>(value >> 31))

cdef inline Py_ssize_t store_varlong(unsigned char* p, int64_t value) noexcept nogil:
    return store_uvarlong(p, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))
