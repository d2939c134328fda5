"""Define the interface of a stored record format, and implement it for record batches (`v2`).

A record batch has the same bytes on disk and on the wire; batch.pxd shows its layout. The module `batch` reads its
records.

Thread rule: a format has no state, so any thread may use it, without the GIL.
"""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.base.crc32c cimport crc32c
from kafkalite._native.wire.batch cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CODEC_MAX,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    FAULT_TIMESTAMP,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    OK,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    BatchHeader,
    RecordFindings,
    RecordRules,
    parse_header,
    walk_records,
)
from kafkalite._native.wire.cursor cimport (
    load_i16, load_i32, load_i64, load_u32, store_i16, store_i32, store_i64, store_u32,
)
from kafkalite._native.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)


cdef class RecordFormat:
    """The base class of record formats. It rejects all bytes."""

    cdef int parse(self, const unsigned char* data, int64_t left, int64_t place, ItemInfo* out) noexcept nogil:
        """Parse the item at `data` without trusting any field. The caller sets `position`.

        `place` is the segment's base offset plus the position, which is the offset in a positional format.
        """
        return PARSE_INVALID

    cdef bint intact(self, const unsigned char* data, const ItemInfo* info) noexcept nogil:
        """Return whether the checksum of a parsed item is right."""
        return False

    cdef int check(self, const unsigned char* data, int64_t size, int64_t size_max, ItemInfo* out) noexcept nogil:
        """Check a produced item except for its checksum, and fill `out`; return 0 or a Kafka error code."""
        return INVALID_RECORD

    cdef int check_fields(self, ItemInfo* info, bint internal) noexcept nogil:
        """Check the header's other fields, after the checksum; return 0 or an error code.

        `internal`: the batch is from a coordinator of this broker, which has a producer id but no sequence.
        """
        return INVALID_RECORD

    cdef void check_records(self, const unsigned char* data, const ItemInfo* info, bint key_required,
                            int64_t timestamp_min, int64_t timestamp_max, RecordsVerdict* verdict) noexcept nogil:
        """Check the records of an uncompressed item. Timestamps are in ms, and both bounds are inclusive."""
        verdict.error = INVALID_RECORD
        verdict.bad_index = -1

    cdef void correct_timestamp(self, unsigned char* data, ItemInfo* info, int64_t max_timestamp) noexcept nogil:
        """Set the header's largest timestamp to the one that its records really have."""

    cdef void place(self, unsigned char* data, ItemInfo* info, int64_t base_offset,
                    int32_t leader_epoch) noexcept nogil:
        """Write offset and leader epoch into bytes about to be appended, and into `info`."""

    cdef void stamp(self, unsigned char* data, ItemInfo* info, int64_t time_ms) noexcept nogil:
        """Write an append time in ms into an item, and correct its checksum."""


cdef inline void load_fields(const unsigned char* data, ItemInfo* out) noexcept nogil:
    """Read the fields of a batch header after offset and length."""
    out.leader_epoch = load_i32(data + LEADER_EPOCH_AT)
    out.crc = load_u32(data + CRC_AT)
    out.attributes = load_i16(data + ATTRIBUTES_AT)
    out.last_offset_delta = load_i32(data + LAST_OFFSET_DELTA_AT)
    out.base_timestamp = load_i64(data + BASE_TIMESTAMP_AT)
    out.max_timestamp = load_i64(data + MAX_TIMESTAMP_AT)
    out.producer_id = load_i64(data + PRODUCER_ID_AT)
    out.producer_epoch = load_i16(data + PRODUCER_EPOCH_AT)
    out.base_sequence = load_i32(data + BASE_SEQUENCE_AT)
    out.record_count = load_i32(data + RECORD_COUNT_AT)


cdef class V2Format(RecordFormat):
    """The format of record batches (magic 2)."""

    def __cinit__(self):
        self.name = "v2"
        self.suffix = ".log"
        self.size_min = HEADER_SIZE

    cdef int parse(self, const unsigned char* data, int64_t left, int64_t place, ItemInfo* out) noexcept nogil:
        cdef int32_t length
        if left < HEADER_SIZE:
            return PARSE_INCOMPLETE
        length = load_i32(data + BATCH_LENGTH_AT)
        if data[MAGIC_AT] != MAGIC_V2 or length < BATCH_LENGTH_MIN:
            return PARSE_INVALID
        out.size = <int64_t>length + LENGTH_OVERHEAD
        if out.size > left:
            return PARSE_INCOMPLETE
        out.base_offset = load_i64(data + BASE_OFFSET_AT)
        load_fields(data, out)
        # 2^62 keeps every sum of an offset and a delta inside int64.
        if out.base_offset < 0 or out.base_offset > (<int64_t>1 << 62) or out.last_offset_delta < 0:
            return PARSE_INVALID
        out.next_offset = out.base_offset + out.last_offset_delta + 1
        return PARSED

    cdef bint intact(self, const unsigned char* data, const ItemInfo* info) noexcept nogil:
        return crc32c(data + CRC_FROM, <size_t>(info.size - CRC_FROM)) == info.crc

    cdef int check(self, const unsigned char* data, int64_t size, int64_t size_max, ItemInfo* out) noexcept nogil:
        """Check, in Kafka's order: one batch, magic 2, base offset 0, size, completeness."""
        cdef int64_t total
        out.fault = ITEM_GOOD
        if size <= MAGIC_AT or data[MAGIC_AT] != MAGIC_V2:
            out.fault = ITEM_MAGIC
            return INVALID_RECORD
        total = <int64_t>load_i32(data + BATCH_LENGTH_AT) + LENGTH_OVERHEAD
        if HEADER_SIZE <= total < size:
            return INVALID_RECORD               # a second batch, or bytes after the first
        if load_i64(data + BASE_OFFSET_AT) != 0:
            return INVALID_RECORD
        if total > size_max:
            return MESSAGE_TOO_LARGE
        if total < HEADER_SIZE or total != size:
            return CORRUPT_MESSAGE
        # A negative lastOffsetDelta fails the parse, but a wrong CRC must be reported first, so `parse` cannot be used.
        out.position = 0
        out.size = total
        out.base_offset = 0
        load_fields(data, out)
        out.next_offset = <int64_t>out.last_offset_delta + 1
        return 0

    cdef int check_fields(self, ItemInfo* info, bint internal) noexcept nogil:
        if (info.record_count <= 0 or info.last_offset_delta != info.record_count - 1
                or info.attributes & CONTROL
                or (info.producer_id >= 0 and ((info.base_sequence < 0 and not internal) or info.producer_epoch < 0))):
            info.fault = ITEM_NUMBERS
            return INVALID_RECORD
        if (info.attributes & CODEC_MASK) > CODEC_MAX:
            return UNSUPPORTED_COMPRESSION_TYPE
        if info.attributes & LOG_APPEND_TIME:
            return INVALID_TIMESTAMP            # only the broker may set it
        return 0

    cdef void check_records(self, const unsigned char* data, const ItemInfo* info, bint key_required,
                            int64_t timestamp_min, int64_t timestamp_max, RecordsVerdict* verdict) noexcept nogil:
        cdef BatchHeader header
        cdef RecordRules rules
        cdef RecordFindings findings
        parse_header(data, <Py_ssize_t>info.size, &header)
        rules.dense = True
        rules.key_required = key_required
        rules.timestamp_min = timestamp_min
        rules.timestamp_max = timestamp_max
        verdict.error = 0
        verdict.bad_index = -1
        if walk_records(data + HEADER_SIZE, <Py_ssize_t>(info.size - HEADER_SIZE), &header, &rules,
                        &findings) != OK:
            verdict.error = INVALID_TIMESTAMP if findings.fault == FAULT_TIMESTAMP else INVALID_RECORD
            verdict.bad_index = findings.bad_index
        verdict.max_timestamp = findings.max_timestamp

    cdef void correct_timestamp(self, unsigned char* data, ItemInfo* info, int64_t max_timestamp) noexcept nogil:
        info.max_timestamp = max_timestamp
        store_i64(data + MAX_TIMESTAMP_AT, max_timestamp)
        info.crc = crc32c(data + CRC_FROM, <size_t>(info.size - CRC_FROM))
        store_u32(data + CRC_AT, info.crc)

    cdef void place(self, unsigned char* data, ItemInfo* info, int64_t base_offset,
                    int32_t leader_epoch) noexcept nogil:
        store_i64(data + BASE_OFFSET_AT, base_offset)
        store_i32(data + LEADER_EPOCH_AT, leader_epoch)
        info.base_offset = base_offset
        info.next_offset = base_offset + info.last_offset_delta + 1
        info.leader_epoch = leader_epoch

    cdef void stamp(self, unsigned char* data, ItemInfo* info, int64_t time_ms) noexcept nogil:
        info.attributes |= LOG_APPEND_TIME
        info.max_timestamp = time_ms
        store_i16(data + ATTRIBUTES_AT, info.attributes)
        store_i64(data + MAX_TIMESTAMP_AT, time_ms)
        info.crc = crc32c(data + CRC_FROM, <size_t>(info.size - CRC_FROM))
        store_u32(data + CRC_AT, info.crc)


cdef RecordFormat V2 = V2Format()
v2 = V2
