"""Check, patch and read record batches of format v2 (magic 2); batch.pxd shows the layout.

The first part is C functions for the log and the network. The second part is Python wrappers, which take any contiguous
buffer and raise BatchError. columns.pyx converts records to and from columns; kafkalite.wire.record.compression
compresses.

Thread rule: functions keep no state. The caller keeps the memory alive.
"""

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t
from libc.stdlib cimport free, realloc
from kafkalite._native.base.crc32c cimport crc32c
from kafkalite._native.wire.cursor cimport (
    Cursor,
    cursor_init,
    load_i16,
    load_i32,
    load_i64,
    load_u32,
    store_i16,
    store_i64,
    store_u32,
)
from kafkalite._native.wire.status cimport (
    BAD_COUNT,
    BAD_CRC,
    BAD_MAGIC,
    BAD_VALUE,
    NEGATIVE,
    OK,
    OVERLONG,
    TOO_MANY,
    TRAILING,
    TRUNCATED,
    Status,
)

from kafkalite.model import NO_TIMESTAMP as _NO_TIMESTAMP

cdef enum:
    NO_TIMESTAMP = -1       # no timestamp given: exempt from bounds, as in Kafka

assert NO_TIMESTAMP == _NO_TIMESTAMP

cdef const unsigned char* EMPTY = b""


cdef Status parse_header(const unsigned char* data, Py_ssize_t size, BatchHeader* header) noexcept nogil:
    if size > MAGIC_AT and data[MAGIC_AT] != MAGIC_V2:
        return BAD_MAGIC
    if size < HEADER_SIZE:
        return TRUNCATED
    header.magic = <int8_t>data[MAGIC_AT]
    header.base_offset = load_i64(data + BASE_OFFSET_AT)
    header.batch_length = load_i32(data + BATCH_LENGTH_AT)
    header.size = <int64_t>header.batch_length + LENGTH_OVERHEAD
    header.leader_epoch = load_i32(data + LEADER_EPOCH_AT)
    header.crc = load_u32(data + CRC_AT)
    header.attributes = load_i16(data + ATTRIBUTES_AT)
    header.last_offset_delta = load_i32(data + LAST_OFFSET_DELTA_AT)
    header.base_timestamp = load_i64(data + BASE_TIMESTAMP_AT)
    header.max_timestamp = load_i64(data + MAX_TIMESTAMP_AT)
    header.producer_id = load_i64(data + PRODUCER_ID_AT)
    header.producer_epoch = load_i16(data + PRODUCER_EPOCH_AT)
    header.base_sequence = load_i32(data + BASE_SEQUENCE_AT)
    header.record_count = load_i32(data + RECORD_COUNT_AT)
    return OK if header.batch_length >= BATCH_LENGTH_MIN else NEGATIVE


cdef Status check_crc(const unsigned char* data, const BatchHeader* header) noexcept nogil:
    return OK if crc32c(data + CRC_FROM, <size_t>(header.size - CRC_FROM)) == header.crc else BAD_CRC


cdef Status check_counts(const BatchHeader* header) noexcept nogil:
    if header.record_count <= 0 or <int64_t>header.last_offset_delta + 1 != header.record_count:
        return BAD_COUNT
    return OK


cdef Status validate(const unsigned char* data, Py_ssize_t size, BatchHeader* header) noexcept nogil:
    cdef Status status = parse_header(data, size, header)
    if status != OK:
        return status
    if header.size != size:
        return TRUNCATED if header.size > size else TRAILING
    status = check_crc(data, header)
    if status != OK:
        return status
    return check_counts(header)


cdef void patch_append_time(unsigned char* data, Py_ssize_t size, int64_t now_ms) noexcept nogil:
    store_i16(data + ATTRIBUTES_AT, <int16_t>(load_i16(data + ATTRIBUTES_AT) | LOG_APPEND_TIME))
    store_i64(data + MAX_TIMESTAMP_AT, now_ms)
    store_u32(data + CRC_AT, crc32c(data + CRC_FROM, <size_t>(size - CRC_FROM)))


cdef inline Status walk_headers(const RecordView* record) noexcept nogil:
    """Walk the headers of one record: each must be well-formed, with nothing after the last."""
    cdef Cursor c
    cdef const unsigned char* key
    cdef const unsigned char* value
    cdef int32_t key_size, value_size, _i
    cursor_init(&c, record.headers, record.end - record.headers)
    for _i in range(record.header_count):
        if next_header(&c, &key, &key_size, &value, &value_size) != OK:
            return c.status
    return OK if c.pos == c.end else TRAILING


cdef inline RecordFault judge(
    const RecordView* record, const RecordRules* rules, int32_t index, int64_t timestamp
) noexcept nogil:
    if rules.dense and record.offset_delta != index:
        return FAULT_DELTA
    if rules.key_required and record.key_size < 0:
        return FAULT_KEY
    if (timestamp < rules.timestamp_min or timestamp > rules.timestamp_max) and timestamp != NO_TIMESTAMP:
        return FAULT_TIMESTAMP
    return FAULT_NONE


cdef Status walk_records(
    const unsigned char* records, Py_ssize_t size, const BatchHeader* header, const RecordRules* rules,
    RecordFindings* findings
) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef int64_t timestamp
    cdef int32_t index
    findings.fault = FAULT_MALFORMED
    findings.bad_index = 0
    findings.min_timestamp = findings.max_timestamp = -1
    findings.max_timestamp_index = findings.max_timestamp_delta = -1
    if header.record_count < 0 or header.record_count > size // RECORD_SIZE_MIN:
        return TOO_MANY
    cursor_init(&c, records, size)
    for index in range(header.record_count):
        findings.bad_index = index
        if next_record(&c, &record) != OK:
            return c.status
        if record.header_count != 0:
            c.status = walk_headers(&record)
            if c.status != OK:
                return c.status
        timestamp = record_timestamp(header, record.timestamp_delta)
        findings.fault = judge(&record, rules, index, timestamp)
        if findings.fault != FAULT_NONE:
            return BAD_COUNT if findings.fault == FAULT_DELTA else BAD_VALUE
        findings.fault = FAULT_MALFORMED
        if index == 0 or timestamp > findings.max_timestamp:
            findings.max_timestamp = timestamp
            findings.max_timestamp_index = index
            findings.max_timestamp_delta = record.offset_delta
        if index == 0 or timestamp < findings.min_timestamp:
            findings.min_timestamp = timestamp
    findings.bad_index = header.record_count
    if c.pos != c.end:
        return TRAILING
    findings.bad_index = -1
    findings.fault = FAULT_NONE
    return OK


cdef Status find_record(
    const unsigned char* records, Py_ssize_t size, const BatchHeader* header, int64_t target_ms, int64_t first_offset,
    bint newest, FoundRecord* found
) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef int64_t timestamp, offset
    cdef int32_t index
    found.index = -1
    found.offset = found.timestamp = -1
    cursor_init(&c, records, size)
    for index in range(header.record_count):
        if next_record(&c, &record) != OK:
            return c.status
        timestamp = record_timestamp(header, record.timestamp_delta)
        offset = header.base_offset + record.offset_delta
        if timestamp < target_ms or offset < first_offset:
            continue
        if found.index < 0 or timestamp > found.timestamp:
            found.index = index
            found.offset = offset
            found.timestamp = timestamp
        if not newest:
            return OK
    return OK


STATUS_TEXT = {
    TRUNCATED: "truncated",
    OVERLONG: "a varint or count is too large",
    NEGATIVE: "a length is too small",
    TOO_MANY: "more records than the bytes can hold",
    BAD_MAGIC: "the magic byte is not 2",
    BAD_CRC: "the CRC does not match",
    BAD_COUNT: "the record count or an offset delta contradicts the header",
    TRAILING: "trailing bytes",
    BAD_VALUE: "a record violates a rule of its topic",
}


class BatchError(ValueError):
    """A batch, or a record in it, is malformed or breaks a rule.

    `index` is the index of the bad record, or -1 for the header. `status` is a code of status.pxd; the codes are also
    attributes of this class.
    """

    def __init__(self, int status, int index=-1):
        where = "batch" if index < 0 else f"record {index} of the batch"
        super().__init__(f"{where}: {STATUS_TEXT.get(status, f'status {status}')}")
        self.status = status
        self.index = index


BatchError.TRUNCATED = TRUNCATED
BatchError.OVERLONG = OVERLONG
BatchError.NEGATIVE = NEGATIVE
BatchError.TOO_MANY = TOO_MANY
BatchError.BAD_MAGIC = BAD_MAGIC
BatchError.BAD_CRC = BAD_CRC
BatchError.BAD_COUNT = BAD_COUNT
BatchError.TRAILING = TRAILING
BatchError.BAD_VALUE = BAD_VALUE


@cython.final
cdef class BatchInfo:
    """The fixed fields of one batch, for Python; see batch.pxd. `size` is in bytes, timestamps are in ms."""

    def __init__(self):
        raise TypeError("BatchInfo comes from read_info and check")

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def size(self):
        return self.header.size

    @property
    def leader_epoch(self):
        return self.header.leader_epoch

    @property
    def crc(self):
        return self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def last_offset_delta(self):
        return self.header.last_offset_delta

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def record_count(self):
        return self.header.record_count

    @property
    def last_offset(self):
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def codec(self):
        return self.header.attributes & CODEC_MASK

    @property
    def is_log_append_time(self):
        return bool(self.header.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self):
        return bool(self.header.attributes & TRANSACTIONAL)

    @property
    def is_control(self):
        return bool(self.header.attributes & CONTROL)

    def __repr__(self):
        return (
            f"BatchInfo(base_offset={self.base_offset}, last_offset={self.last_offset}, size={self.size}, "
            f"record_count={self.record_count}, codec={self.codec}, leader_epoch={self.leader_epoch}, "
            f"producer_id={self.producer_id})"
        )


cdef const unsigned char* door(const unsigned char[::1] buffer, Py_ssize_t position, Py_ssize_t* size) except? NULL:
    """Return the address of `position` in a buffer, never NULL, and set `size` to the number of bytes from there on."""
    if position < 0 or position > buffer.shape[0]:
        raise IndexError(f"position {position} outside a buffer of {buffer.shape[0]} bytes")
    size[0] = buffer.shape[0] - position
    return EMPTY if size[0] == 0 else &buffer[position]


def read_info(const unsigned char[::1] buffer not None, Py_ssize_t position=0):
    """Return the header at `position`. Its batch may extend beyond the buffer. Raises BatchError."""
    cdef Py_ssize_t size
    cdef BatchInfo info = BatchInfo.__new__(BatchInfo)
    cdef Status status = parse_header(door(buffer, position, &size), size, &info.header)
    if status != OK:
        raise BatchError(status)
    return info


def check(const unsigned char[::1] buffer not None):
    """Return the header of a buffer that contains exactly one batch. Raises BatchError for a wrong CRC or count."""
    cdef Py_ssize_t size
    cdef BatchInfo info = BatchInfo.__new__(BatchInfo)
    cdef Status status = validate(door(buffer, 0, &size), size, &info.header)
    if status != OK:
        raise BatchError(status)
    return info


def crc_matches(const unsigned char[::1] buffer not None, Py_ssize_t position=0):
    """Return whether the batch at `position` has the right CRC. False if it is incomplete or malformed."""
    cdef Py_ssize_t size
    cdef BatchHeader header
    cdef const unsigned char* data = door(buffer, position, &size)
    return parse_header(data, size, &header) == OK and header.size <= size and check_crc(data, &header) == OK


def check_records(
    BatchInfo info not None, const unsigned char[::1] records not None, *, bint dense=True, bint key_required=False,
    int64_t timestamp_min=INT64_MIN, int64_t timestamp_max=INT64_MAX
):
    """Check uncompressed records; return (smallest timestamp, largest timestamp, its offset). Raises BatchError.

    Timestamps are in ms.
    """
    cdef RecordRules rules
    cdef RecordFindings findings
    cdef Py_ssize_t size
    cdef Status status
    rules.dense = dense
    rules.key_required = key_required
    rules.timestamp_min = timestamp_min
    rules.timestamp_max = timestamp_max
    cdef const unsigned char* data = door(records, 0, &size)
    with nogil:
        status = walk_records(data, size, &info.header, &rules, &findings)
    if status != OK:
        raise BatchError(status, findings.bad_index)
    return (
        findings.min_timestamp,
        findings.max_timestamp,
        info.header.base_offset + findings.max_timestamp_delta,
    )


@cython.final
cdef class RecordFaults:
    """The individual bad records for which a batch was refused (KIP-467)."""

    def __init__(self):
        raise TypeError("RecordFaults come from find_faults")

    def __dealloc__(self):
        free(self.named)

    def items(self):
        """Return (index, fault) of the listed records, by index. A fault is a RecordFault of batch.pxd."""
        cdef int32_t i
        return [(self.named[i].index, <int>self.named[i].fault) for i in range(self.named_count)]

    cdef int add(self, int32_t index, RecordFault fault) noexcept nogil:
        """List one more record. If the list is full, ignore it. Return -1 if there is no memory."""
        cdef NamedFault* grown
        self.fault_count += 1
        self.keyless_count += fault == FAULT_KEY
        self.has_timestamps = self.has_timestamps or fault == FAULT_TIMESTAMP
        if self.named_count == RECORD_FAULTS_MAX:
            return 0
        if self.named_count & (self.named_count - 1) == 0:      # a power of two is full
            grown = <NamedFault*>realloc(self.named, <size_t>max(2 * self.named_count, 1) * sizeof(NamedFault))
            if grown == NULL:
                return -1
            self.named = grown
        self.named[self.named_count].index = index
        self.named[self.named_count].fault = fault
        self.named_count += 1
        return 0


def find_faults(
    BatchInfo info not None, const unsigned char[::1] records not None, *, bint key_required=False,
    int64_t timestamp_min=INT64_MIN, int64_t timestamp_max=INT64_MAX
):
    """Find all records of a batch that check_records would refuse; return RecordFaults.

    A malformed record hides those after it, so then only this one is returned.
    """
    cdef RecordFaults faults = RecordFaults.__new__(RecordFaults)
    cdef RecordFindings findings
    cdef RecordRules rules
    cdef RecordFault fault
    cdef RecordView record
    cdef Cursor c
    cdef Py_ssize_t size
    cdef int32_t index
    cdef int failed = 0
    cdef const unsigned char* data = door(records, 0, &size)
    faults.record_count = info.header.record_count
    rules.dense = True
    rules.key_required = False
    rules.timestamp_min = INT64_MIN
    rules.timestamp_max = INT64_MAX
    with nogil:
        if walk_records(data, size, &info.header, &rules, &findings) != OK:
            failed = faults.add(findings.bad_index, FAULT_MALFORMED)
        else:
            rules.key_required = key_required
            rules.timestamp_min = timestamp_min
            rules.timestamp_max = timestamp_max
            cursor_init(&c, data, size)
            for index in range(info.header.record_count):
                if next_record(&c, &record) != OK:              # it was well-formed a moment ago
                    break
                fault = judge(&record, &rules, index, record_timestamp(&info.header, record.timestamp_delta))
                if fault != FAULT_NONE:
                    failed = faults.add(index, fault)
                    if failed != 0:
                        break
    if failed != 0:
        raise MemoryError("no room for the bad records of a batch")
    return faults


def first_at(
    BatchInfo info not None, const unsigned char[::1] records not None, int64_t target_ms, int64_t first_offset=0
):
    """Return (timestamp in ms, offset) of the first record at `first_offset` or later whose timestamp is at least
    `target_ms`, or None."""
    return _found(info, records, target_ms, first_offset, False)


def newest(BatchInfo info not None, const unsigned char[::1] records not None, int64_t first_offset=0):
    """Return (timestamp in ms, offset) of the newest record at `first_offset` or later, or None. If several have this
    timestamp, the first counts."""
    return _found(info, records, INT64_MIN, first_offset, True)


cdef object _found(
    BatchInfo info, const unsigned char[::1] records, int64_t target_ms, int64_t first_offset, bint newest
):
    cdef FoundRecord found
    cdef Py_ssize_t size
    cdef const unsigned char* data = door(records, 0, &size)
    cdef Status status = find_record(data, size, &info.header, target_ms, first_offset, newest, &found)
    if status != OK:
        raise BatchError(status)
    return None if found.index < 0 else (found.timestamp, found.offset)


def stamp(unsigned char[::1] buffer not None, int64_t base_offset, int32_t leader_epoch):
    """Call patch_offsets on a buffer that begins with a batch."""
    if buffer.shape[0] < HEADER_SIZE:
        raise BatchError(TRUNCATED)
    patch_offsets(&buffer[0], base_offset, leader_epoch)


def stamp_append_time(unsigned char[::1] buffer not None, int64_t now_ms):
    """Call patch_append_time on a buffer that contains exactly one batch."""
    cdef BatchHeader header
    cdef Py_ssize_t size
    cdef Status status = parse_header(door(buffer, 0, &size), size, &header)
    if status == OK and header.size != size:
        status = TRUNCATED if header.size > size else TRAILING
    if status != OK:
        raise BatchError(status)
    patch_append_time(&buffer[0], size, now_ms)
