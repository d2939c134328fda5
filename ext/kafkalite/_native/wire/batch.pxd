"""The layout of the record batch (format v2, magic 2), and native functions that check, patch and read batches.

    at  size                                     at  size
     0   8   base offset            (patched)    27   8   base timestamp
     8   4   batch length: bytes after it        35   8   largest timestamp
    12   4   leader epoch           (patched)    43   8   producer id
    16   1   magic: 2                            51   2   producer epoch
    17   4   CRC-32C of byte 21 to the end       53   4   base sequence
    21   2   attributes                          57   4   record count
    23   4   last offset delta                   61       records, one compressed block when a codec is set

The CRC does not cover base offset and leader epoch, so the broker may change these two fields in place.

    record   length, attributes (int8), timestamp delta, offset delta, key size, key, value size, value,
             header count, headers
    header   key size, key, value size, value

All numbers in a record except the attributes are zig-zag varints; the timestamp delta has up to 64 bits. A size of -1
means null. A header's key is never null.

Thread rule: functions keep no state, and run with or without the GIL. The caller keeps the memory alive.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t
from kafkalite._native.wire.cursor cimport (
    Cursor,
    read_i8,
    read_raw,
    read_varint,
    read_varlong,
    store_i32,
    store_i64,
)
from kafkalite._native.wire.status cimport NEGATIVE, OK, OVERLONG, TRAILING, TRUNCATED, Status

# The only definition of these values, for Python too, which finds them in kafkalite._native.wire.batch.
cpdef enum:
    BASE_OFFSET_AT = 0
    BATCH_LENGTH_AT = BASE_OFFSET_AT + 8
    LEADER_EPOCH_AT = BATCH_LENGTH_AT + 4
    MAGIC_AT = LEADER_EPOCH_AT + 4
    CRC_AT = MAGIC_AT + 1
    ATTRIBUTES_AT = CRC_AT + 4
    ATTRIBUTES_LOW_AT = ATTRIBUTES_AT + 1       # the lower byte, which contains all defined bits
    LAST_OFFSET_DELTA_AT = ATTRIBUTES_AT + 2
    BASE_TIMESTAMP_AT = LAST_OFFSET_DELTA_AT + 4
    MAX_TIMESTAMP_AT = BASE_TIMESTAMP_AT + 8
    PRODUCER_ID_AT = MAX_TIMESTAMP_AT + 8
    PRODUCER_EPOCH_AT = PRODUCER_ID_AT + 8
    BASE_SEQUENCE_AT = PRODUCER_EPOCH_AT + 2
    RECORD_COUNT_AT = BASE_SEQUENCE_AT + 4
    HEADER_SIZE = RECORD_COUNT_AT + 4               # 61: where the records begin

    LENGTH_OVERHEAD = BATCH_LENGTH_AT + 4           # 12: bytes that the batch length does not include
    BATCH_LENGTH_MIN = HEADER_SIZE - LENGTH_OVERHEAD    # 49
    CRC_FROM = ATTRIBUTES_AT                        # 21: the first byte the CRC covers
    RECORD_SIZE_MIN = 7                             # length, attributes, two deltas, two sizes, header count

    MAGIC_V2 = 2

cpdef enum:
    CODEC_MASK = 0x07           # 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    LOG_APPEND_TIME = 0x08      # every record has the largest timestamp instead of its own
    TRANSACTIONAL = 0x10
    CONTROL = 0x20              # a transaction marker, not data
    DELETE_HORIZON = 0x40       # base timestamp is the delete horizon (compaction only)

cpdef enum:
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    CODEC_MAX = CODEC_ZSTD

# A transaction marker is a control batch whose only record has this key, and a value of int16 version and int32
# coordinator epoch.
cpdef enum:
    MARKER_KEY_SIZE = 4         # int16 version, int16 type
    MARKER_ABORT = 0            # the types
    MARKER_COMMIT = 1


cdef struct BatchHeader:
    int64_t base_offset
    int64_t size                # of the whole batch in bytes: batch length + 12
    int32_t batch_length
    int32_t leader_epoch
    uint32_t crc
    int32_t last_offset_delta
    int64_t base_timestamp      # ms
    int64_t max_timestamp       # ms
    int64_t producer_id         # -1 none
    int32_t base_sequence       # -1 none
    int32_t record_count
    int16_t producer_epoch      # -1 none
    int16_t attributes
    int8_t magic


# A record inside the block that a cursor walks; the pointers live as long as that block.
cdef struct RecordView:
    int64_t timestamp_delta
    const unsigned char* key
    const unsigned char* value
    const unsigned char* headers        # the first header's first byte
    const unsigned char* end            # the first byte after the record
    int32_t offset_delta
    int32_t key_size                    # -1 null
    int32_t value_size                  # -1 null
    int32_t header_count


cdef enum RecordFault:
    FAULT_NONE = 0
    FAULT_MALFORMED = 1         # does not parse: see the status
    FAULT_DELTA = 2             # offset deltas are not 0, 1, 2 …
    FAULT_KEY = 3               # no key where one is required
    FAULT_TIMESTAMP = 4         # outside the bounds, and not -1 (none)


# Requirements of a walk beyond well-formed records.
cdef struct RecordRules:
    int64_t timestamp_min       # inclusive, ms
    int64_t timestamp_max       # inclusive, ms
    bint dense                  # offset deltas must be 0, 1, 2 … (as a producer sends them; compaction leaves gaps)
    bint key_required


cdef enum:
    RECORD_FAULTS_MAX = 20_000  # records of a refused batch that are listed; librdkafka sends at most 10,000


cdef struct NamedFault:
    int32_t index               # of the record in its batch
    RecordFault fault


cdef class RecordFaults:        # the bad records of a refused batch, made by find_faults
    cdef NamedFault* named
    cdef readonly int32_t named_count       # at most RECORD_FAULTS_MAX
    cdef readonly int32_t fault_count       # the number of bad records
    cdef readonly int32_t keyless_count     # bad for lack of a key
    cdef readonly int32_t record_count      # the number of records
    cdef readonly bint has_timestamps       # a record is bad because of its timestamp
    cdef int add(self, int32_t index, RecordFault fault) noexcept nogil


cdef struct RecordFindings:
    RecordFault fault           # of the record below
    int32_t bad_index           # -1 none
    int64_t min_timestamp       # ms; complete only if the walk succeeded
    int64_t max_timestamp
    int32_t max_timestamp_index         # of the first record with it
    int32_t max_timestamp_delta         # its offset delta


cdef struct FoundRecord:
    int64_t offset
    int64_t timestamp           # ms
    int32_t index               # within the batch; -1 if none was found


cdef class BatchInfo:           # a header for Python, made by read_info and check
    cdef BatchHeader header


# Parses the fixed part. OK, TRUNCATED (fewer than HEADER_SIZE bytes), BAD_MAGIC, or NEGATIVE (a batch length below 49).
# It does not check whether the batch is complete: compare header.size with the available bytes.
cdef Status parse_header(const unsigned char* data, Py_ssize_t size, BatchHeader* header) noexcept nogil

# Checks the CRC of a complete, parsed batch: OK or BAD_CRC.
cdef Status check_crc(const unsigned char* data, const BatchHeader* header) noexcept nogil

# Checks last offset delta + 1 == record count > 0: OK or BAD_COUNT. True for producers' batches, not for compacted
# ones.
cdef Status check_counts(const BatchHeader* header) noexcept nogil

# Does all of the above on exactly one batch: also TRUNCATED and TRAILING if `size` is not the batch's size.
cdef Status validate(const unsigned char* data, Py_ssize_t size, BatchHeader* header) noexcept nogil

# Stamps a complete batch with the broker's time: attribute bit, largest timestamp, CRC.
cdef void patch_append_time(unsigned char* data, Py_ssize_t size, int64_t now_ms) noexcept nogil

# Walks the uncompressed records of a batch. OK only if there are exactly record_count well-formed records that meet the
# rules; otherwise findings has the first bad record (index record_count for bytes after the last).
cdef Status walk_records(
    const unsigned char* records, Py_ssize_t size, const BatchHeader* header, const RecordRules* rules,
    RecordFindings* findings
) noexcept nogil

# Finds the first record with offset >= first_offset and timestamp >= target_ms or, if `newest`, the first of those with
# the largest timestamp; index -1 if there is none.
cdef Status find_record(
    const unsigned char* records, Py_ssize_t size, const BatchHeader* header, int64_t target_ms, int64_t first_offset,
    bint newest, FoundRecord* found
) noexcept nogil


cdef inline void patch_offsets(unsigned char* data, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    """Write base offset and leader epoch, which the CRC does not cover."""
    store_i64(data + BASE_OFFSET_AT, base_offset)
    store_i32(data + LEADER_EPOCH_AT, leader_epoch)


cdef inline int64_t record_timestamp(const BatchHeader* header, int64_t delta) noexcept nogil:
    """Return a record's timestamp in ms. It wraps around if a hostile delta would overflow."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>delta)


cdef inline int32_t record_varint(Cursor* c) noexcept nogil:
    """Read as read_varint does, but faster for the common varints of one or two bytes. The cursor must not have
    failed."""
    cdef uint32_t raw
    if c.end - c.pos >= 2:
        raw = c.pos[0]
        if raw < 0x80:
            c.pos += 1
            return <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
        if c.pos[1] < 0x80:
            raw = (raw & 0x7F) | (<uint32_t>c.pos[1] << 7)
            c.pos += 2
            return <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
    return read_varint(c)


cdef inline int64_t record_varlong(Cursor* c) noexcept nogil:
    """Read as read_varlong does, but faster for one or two bytes: most timestamps are within 8 s of their batch's."""
    cdef uint64_t raw
    if c.end - c.pos >= 2:
        raw = c.pos[0]
        if raw < 0x80:
            c.pos += 1
            return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        if c.pos[1] < 0x80:
            raw = (raw & 0x7F) | (<uint64_t>c.pos[1] << 7)
            c.pos += 2
            return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return read_varlong(c)


cdef inline int32_t record_size(Cursor* c) noexcept nogil:
    """Read the size of a nullable key or value. The cursor fails if it is below -1, or above the remaining bytes."""
    cdef int32_t size = record_varint(c)
    if c.status == OK:
        if size < -1:
            c.status = NEGATIVE
        elif size > c.end - c.pos:
            c.status = TRUNCATED
    return size if c.status == OK else -1


cdef inline const unsigned char* record_bytes(Cursor* c, int32_t size) noexcept nogil:
    """Return the address of the `size` bytes that record_size has just checked; NULL for null."""
    if size < 0:
        return NULL
    c.pos += size
    return c.pos - size


cdef inline Status next_record(Cursor* c, RecordView* record) noexcept nogil:
    """Read one record and move past it. Its headers are skipped; see next_header and walk_records."""
    cdef Cursor inner
    cdef int32_t length = record_varint(c)
    if c.status != OK:
        return c.status
    if length < RECORD_SIZE_MIN - 1:
        c.status = NEGATIVE
        return NEGATIVE
    inner.pos = read_raw(c, length)
    if inner.pos == NULL:
        return TRUNCATED        # the only failure of read_raw for a length above 0
    inner.end = c.pos
    inner.status = OK
    read_i8(&inner)
    record.timestamp_delta = record_varlong(&inner) if inner.status == OK else 0
    record.offset_delta = record_varint(&inner) if inner.status == OK else 0
    record.key_size = record_size(&inner)
    record.key = record_bytes(&inner, record.key_size)
    record.value_size = record_size(&inner)
    record.value = record_bytes(&inner, record.value_size)
    record.header_count = record_varint(&inner) if inner.status == OK else 0
    record.headers = inner.pos
    record.end = inner.end
    if inner.status == OK and (record.header_count != 0 or inner.pos != inner.end):
        if record.header_count < 0:
            inner.status = NEGATIVE
        elif record.header_count == 0:
            inner.status = TRAILING
        elif record.header_count > (inner.end - inner.pos) // 2:     # a header takes at least two bytes
            inner.status = OVERLONG
    c.status = inner.status
    return c.status


cdef inline Status next_header(
    Cursor* c, const unsigned char** key, int32_t* key_size, const unsigned char** value, int32_t* value_size
) noexcept nogil:
    """Read one header and move past it; the key is never null."""
    key_size[0] = record_size(c)
    if c.status == OK and key_size[0] < 0:
        c.status = NEGATIVE
    if c.status != OK:
        return c.status
    key[0] = record_bytes(c, key_size[0])
    value_size[0] = record_size(c)
    value[0] = record_bytes(c, value_size[0]) if c.status == OK else NULL
    return c.status
