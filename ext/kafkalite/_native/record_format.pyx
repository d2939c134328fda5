"""What a stored record format supplies to the log: the seam between `v2` and the 0.7 `classic` format.

Record batch v2, big-endian, as it stands on the wire and on the disk:

    0  baseOffset i64         placed by the broker      27 baseTimestamp i64
    8  batchLength i32        counts from byte 12       35 maxTimestamp i64
    12 partitionLeaderEpoch i32, placed by the broker   43 producerId i64
    16 magic i8 = 2                                     51 producerEpoch i16
    17 crc u32                over bytes 21 to the end  53 baseSequence i32
    21 attributes i16                                   57 recordsCount i32
    23 lastOffsetDelta i32                              61 records

A format object has no state and may be used by any thread, without the GIL. Records inside a batch are the business of
`batch`, whose walk is called here.
"""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.batch cimport (
    FAULT_TIMESTAMP,
    OK,
    BatchHeader,
    RecordFindings,
    RecordRules,
    parse_header,
    walk_records,
)
from kafkalite._native.crc32c cimport crc32c
from kafkalite._native.cursor cimport load_i16, load_i32, load_i64, load_u32, store_i16, store_i32, store_i64, store_u32
from kafkalite._native.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)

cdef enum:
    CODEC_MAX = 4

    MAGIC_AT = 16
    MAGIC_V2 = 2


cdef class RecordFormat:
    """Base of the formats. One without behaviour of its own refuses every byte."""

    cdef int parse(self, const unsigned char* data, int64_t left, int64_t place, BatchInfo* out) noexcept nogil:
        """Reads the item at `data` (its `position` is the caller's) without trusting a single field.

        `place` is the segment's base offset plus the position, the offset where the format is positional.
        """
        return PARSE_INVALID

    cdef bint intact(self, const unsigned char* data, const BatchInfo* info) noexcept nogil:
        """Whether the checksum of a parsed item is right."""
        return False

    cdef int check(self, const unsigned char* data, int64_t size, int64_t size_max, BatchInfo* out) noexcept nogil:
        """What is checked before the checksum of a produced item: 0 or a Kafka error code. Fills `out`."""
        return INVALID_RECORD

    cdef int check_fields(self, const BatchInfo* info, bint internal) noexcept nogil:
        """What is checked behind the checksum, from the header alone: 0 or a Kafka error code. `internal`: a batch of a
        coordinator of ours, which has a producer and yet no sequence."""
        return INVALID_RECORD

    cdef void check_records(self, const unsigned char* data, const BatchInfo* info, bint key_required,
                            int64_t timestamp_min, int64_t timestamp_max, RecordsVerdict* verdict) noexcept nogil:
        """Walks the records of an item that is not compressed; timestamps in ms, both bounds inclusive."""
        verdict.error = INVALID_RECORD
        verdict.bad_index = -1

    cdef void correct_timestamp(self, unsigned char* data, BatchInfo* info, int64_t max_timestamp) noexcept nogil:
        """Makes the header tell the largest timestamp that its records really have."""

    cdef void place(self, unsigned char* data, BatchInfo* info, int64_t base_offset,
                    int32_t leader_epoch) noexcept nogil:
        """Puts offset and leader epoch into bytes about to be appended, and into `info`."""

    cdef void stamp(self, unsigned char* data, BatchInfo* info, int64_t time_ms) noexcept nogil:
        """Makes time_ms the append time of the item, and its checksum right again."""


cdef class V2Format(RecordFormat):
    """Record batches of magic 2."""

    def __cinit__(self):
        self.name = "v2"
        self.suffix = ".log"
        self.size_min = BATCH_HEADER_SIZE

    cdef int parse(self, const unsigned char* data, int64_t left, int64_t place, BatchInfo* out) noexcept nogil:
        cdef int32_t length
        if left < BATCH_HEADER_SIZE:
            return PARSE_INCOMPLETE
        length = load_i32(data + 8)
        if data[MAGIC_AT] != MAGIC_V2 or length < BATCH_HEADER_SIZE - BATCH_OVERHEAD:
            return PARSE_INVALID
        out.size = <int64_t>length + BATCH_OVERHEAD
        if out.size > left:
            return PARSE_INCOMPLETE
        out.base_offset = load_i64(data)
        out.leader_epoch = load_i32(data + 12)
        out.crc = load_u32(data + 17)
        out.attributes = load_i16(data + 21)
        out.last_offset_delta = load_i32(data + 23)
        out.base_timestamp = load_i64(data + 27)
        out.max_timestamp = load_i64(data + 35)
        out.producer_id = load_i64(data + 43)
        out.producer_epoch = load_i16(data + 51)
        out.base_sequence = load_i32(data + 53)
        out.record_count = load_i32(data + 57)
        # 2^62 keeps every sum of an offset and a delta inside int64.
        if out.base_offset < 0 or out.base_offset > (<int64_t>1 << 62) or out.last_offset_delta < 0:
            return PARSE_INVALID
        out.next_offset = out.base_offset + out.last_offset_delta + 1
        return PARSED

    cdef bint intact(self, const unsigned char* data, const BatchInfo* info) noexcept nogil:
        return crc32c(data + CRC_START, <size_t>(info.size - CRC_START)) == info.crc

    cdef int check(self, const unsigned char* data, int64_t size, int64_t size_max, BatchInfo* out) noexcept nogil:
        """In Kafka's order: one batch of magic 2, base offset 0, size, completeness."""
        cdef int64_t total
        if size <= MAGIC_AT or data[MAGIC_AT] != MAGIC_V2:
            return INVALID_RECORD
        total = <int64_t>load_i32(data + 8) + BATCH_OVERHEAD
        if BATCH_HEADER_SIZE <= total < size:
            return INVALID_RECORD               # a second batch, or bytes behind the first
        if load_i64(data) != 0:
            return INVALID_RECORD
        if total > size_max:
            return MESSAGE_TOO_LARGE
        if total < BATCH_HEADER_SIZE or total != size:
            return CORRUPT_MESSAGE
        # A negative lastOffsetDelta is a parse failure but a wrong CRC must be told first, so `parse` cannot be used.
        out.position = 0
        out.size = total
        out.base_offset = 0
        out.leader_epoch = load_i32(data + 12)
        out.crc = load_u32(data + 17)
        out.attributes = load_i16(data + 21)
        out.last_offset_delta = load_i32(data + 23)
        out.base_timestamp = load_i64(data + 27)
        out.max_timestamp = load_i64(data + 35)
        out.producer_id = load_i64(data + 43)
        out.producer_epoch = load_i16(data + 51)
        out.base_sequence = load_i32(data + 53)
        out.record_count = load_i32(data + 57)
        out.next_offset = <int64_t>out.last_offset_delta + 1
        return 0

    cdef int check_fields(self, const BatchInfo* info, bint internal) noexcept nogil:
        if info.record_count <= 0 or info.last_offset_delta != info.record_count - 1:
            return INVALID_RECORD
        if info.attributes & ATTRIBUTE_CONTROL:
            return INVALID_RECORD
        if info.producer_id >= 0 and ((info.base_sequence < 0 and not internal) or info.producer_epoch < 0):
            return INVALID_RECORD
        if (info.attributes & ATTRIBUTE_CODEC) > CODEC_MAX:
            return UNSUPPORTED_COMPRESSION_TYPE
        if info.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            return INVALID_TIMESTAMP            # only the broker may set it
        return 0

    cdef void check_records(self, const unsigned char* data, const BatchInfo* info, bint key_required,
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
        if walk_records(data + BATCH_HEADER_SIZE, <Py_ssize_t>(info.size - BATCH_HEADER_SIZE), &header, &rules,
                        &findings) != OK:
            verdict.error = INVALID_TIMESTAMP if findings.fault == FAULT_TIMESTAMP else INVALID_RECORD
            verdict.bad_index = findings.bad_index
        verdict.max_timestamp = findings.max_timestamp

    cdef void correct_timestamp(self, unsigned char* data, BatchInfo* info, int64_t max_timestamp) noexcept nogil:
        info.max_timestamp = max_timestamp
        store_i64(data + 35, max_timestamp)
        info.crc = crc32c(data + CRC_START, <size_t>(info.size - CRC_START))
        store_u32(data + 17, info.crc)

    cdef void place(self, unsigned char* data, BatchInfo* info, int64_t base_offset,
                    int32_t leader_epoch) noexcept nogil:
        store_i64(data, base_offset)
        store_i32(data + 12, leader_epoch)
        info.base_offset = base_offset
        info.next_offset = base_offset + info.last_offset_delta + 1
        info.leader_epoch = leader_epoch

    cdef void stamp(self, unsigned char* data, BatchInfo* info, int64_t time_ms) noexcept nogil:
        info.attributes |= ATTRIBUTE_LOG_APPEND_TIME
        info.max_timestamp = time_ms
        store_i16(data + 21, info.attributes)
        store_i64(data + 35, time_ms)
        info.crc = crc32c(data + CRC_START, <size_t>(info.size - CRC_START))
        store_u32(data + 17, info.crc)


cdef RecordFormat V2 = V2Format()
v2 = V2
