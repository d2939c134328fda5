"""Append message sets to a log in Kafka 0.7's format, and read ranges of its bytes.

    offset      the byte position in the endless stream of the partition: segment base + position
    append      all messages of a set or none. MESSAGE_TOO_LARGE or CORRUPT_MESSAGE refuses the set; a partial message
                at the end is cut off
    visible     only flushed bytes: the high watermark is the flushed offset, and moves with a flush
    read        any range of visible bytes inside one segment, also from the middle of a message; 0.7's consumers check
                checksums

LogCore and its owner do the rest as for record batches: segments, rolling, flushing, recovery and retention.

Thread rule: the rules of LogCore apply.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from kafkalite._native.base.crc32c cimport crc32c
from kafkalite._native.classic.message_set cimport (
    ENTRY_GOOD,
    ENTRY_PARTIAL,
    Entry,
    SetFindings,
    entry_intact,
    read_entry,
    walk_set,
)
from kafkalite._native.log.log_append cimport APPEND_DEFER, APPEND_DONE, APPEND_REFUSED, note_failed, writable_locked
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice, make_slice
from kafkalite._native.log.record_format cimport PARSE_INCOMPLETE, PARSE_INVALID, PARSED, ItemInfo, RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.log.segment_read cimport READ_DEFER, READ_FOUND, READ_NOTHING, ReadResult, refuse_read
from kafkalite._native.wire.batch cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
)
from kafkalite._native.wire.cursor cimport store_i16, store_i32, store_i64, store_u32, store_varint
from kafkalite._native.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

cdef enum:
    ENTRY_SIZE_MIN = 9
    RECORD_OVERHEAD_MAX = 5 + 1 + 1 + 5 + 1 + 5 + 1    # length, attributes, time, offset, key, size, headers
    WITHOUT_GIL_SIZE = 16 * 1024    # bytes from which a set is checked without the GIL


cdef class ClassicFormat(RecordFormat):
    """The format of Kafka 0.7: an item is one message of magic 0 or 1, and its offset is its position."""

    def __cinit__(self):
        self.name = "classic"
        self.suffix = ".kafka"
        self.size_min = ENTRY_SIZE_MIN
        self.positional = True

    cdef int parse(self, const unsigned char* data, int64_t left, int64_t place, ItemInfo* out) noexcept nogil:
        cdef Entry entry
        cdef int result = read_entry(data, left, &entry)
        if result != ENTRY_GOOD:
            return PARSE_INCOMPLETE if result == ENTRY_PARTIAL else PARSE_INVALID
        fill_info(out, place, entry.size, 1)
        out.crc = entry.crc
        out.attributes = entry.attributes
        return PARSED

    cdef bint intact(self, const unsigned char* data, const ItemInfo* info) noexcept nogil:
        cdef Entry entry
        return read_entry(data, info.size, &entry) == ENTRY_GOOD and entry_intact(&entry)


cdef void fill_info(ItemInfo* info, int64_t offset, int64_t size, int32_t count) noexcept nogil:
    """Fill the fields of an item for the index and the log. Messages have no producer and no timestamp."""
    memset(info, 0, sizeof(ItemInfo))
    info.size = size
    info.base_offset = offset
    info.next_offset = offset + size
    info.base_timestamp = info.max_timestamp = -1
    info.producer_id = -1
    info.producer_epoch = -1
    info.base_sequence = -1
    info.leader_epoch = -1
    info.record_count = count


cdef RecordFormat CLASSIC = ClassicFormat()
classic = CLASSIC


cdef int append_set(LogCore log, const unsigned char* data, int64_t size, bint may_block,
                    SetAppend* out) except -1:
    """Append the whole messages of a set; return APPEND_DONE, APPEND_REFUSED or APPEND_DEFER.

    As in 0.7, sizes are checked first, then checksums including those inside wrappers. A partial message at the end is
    cut off.
    """
    cdef SetFindings found
    cdef bytes rewritten
    out.base_offset = out.end_offset = -1
    out.size = 0
    out.flush_due = False
    if size < WITHOUT_GIL_SIZE:
        out.error = check_set(data, size, log.message_size_max, &found)
    else:
        with nogil:
            out.error = check_set(data, size, log.message_size_max, &found)
    if out.error != 0:
        note_failed(log, out.error, size)
        return APPEND_REFUSED
    if found.valid_size == 0:
        return APPEND_DONE
    if found.compressed_count == 0:
        return _append_checked(log, data, &found, may_block, out)
    if not may_block:
        return APPEND_DEFER
    # Wrappers are unpacked: on the I/O pool, since the walk above found some and a worker must not wait for them.
    error, count, rewritten = log.owner.check_wrappers(<bytes>data[:found.valid_size])
    if error != 0:
        return refuse(out, error)
    if rewritten is not None:
        data = <const unsigned char*><const char*>rewritten
        walk_set(data, len(rewritten), False, &found)
    found.count = count
    return _append_checked(log, data, &found, may_block, out)


cdef inline int refuse(SetAppend* out, int error) noexcept nogil:
    out.error = error
    return APPEND_REFUSED


cdef int check_set(const unsigned char* data, int64_t size, int64_t payload_size_max,
                   SetFindings* found) noexcept nogil:
    """Check the outer messages of a set; return 0 or an error code. As in 0.7, too large comes before a bad
    checksum."""
    cdef int error = 0
    walk_set(data, size, True, found)
    if found.fault != ENTRY_GOOD:
        error = CORRUPT_MESSAGE
        walk_set(data, size, False, found)      # a message that is too large may follow the fault
    return MESSAGE_TOO_LARGE if found.payload_size_max > payload_size_max else error


cdef int _append_checked(LogCore log, const unsigned char* data, const SetFindings* found, bint may_block,
                         SetAppend* out) except -1:
    cdef ItemInfo info
    cdef int outcome
    log.lock_acquire()
    try:
        fill_info(&info, log.log_end_offset, found.valid_size, <int32_t>min(found.count, <int64_t>0x7FFFFFFF))
        outcome = _append_locked(log, data, &info, found.last_position, may_block, out)
        if outcome == APPEND_DONE:
            out.base_offset = info.base_offset
            out.end_offset = info.next_offset
            out.size = info.size
            log.traffic.appends += 1
            log.traffic.records_in += info.record_count
            log.traffic.bytes_in += info.size
            out.flush_due = log.unflushed_count >= log.flush_messages
            if out.flush_due:
                log.unflushed_count = 0     # the caller requests this flush; the next is counted from here
    finally:
        log.lock_release()
    return outcome


cdef int _append_locked(LogCore log, const unsigned char* data, ItemInfo* info, int64_t last_position,
                        bint may_block, SetAppend* out) except -1:
    """Write and index checked bytes at the end of the log. A flush makes them visible, and notifies the listeners."""
    cdef Segment segment
    cdef int64_t written
    cdef int64_t size_max = log.segment_size_max
    cdef bint whole = log.preallocate
    if log.deleted:
        return refuse(out, UNKNOWN_TOPIC_OR_PARTITION)
    if log.offline:
        return refuse(out, KAFKA_STORAGE_ERROR)
    segment = writable_locked(log, info, may_block, log.now_ms())
    if segment is None:
        return refuse(out, KAFKA_STORAGE_ERROR) if may_block else APPEND_DEFER
    segment.pin()
    try:
        with nogil:
            written = segment.write(data, info.size, size_max, whole)
        if written < 0:
            log.owner.write_failed_locked(<int>-written)
            return refuse(out, KAFKA_STORAGE_ERROR)
        if log.after_write:
            log.owner.storage_recovered_locked()
        segment.advance(info, log.index_interval)
        segment.last_position += last_position
    finally:
        segment.unpin()
    log.log_end_offset = info.next_offset
    log.unflushed_count += info.record_count
    if log.unflushed_since == 0.0:
        log.unflushed_since = log.clock.monotonic()
        log.dirty_logs.add(log.owner)
    return 0


cdef LogSlice read_range(LogCore log, int64_t offset, int64_t size_max, ReadResult* out):
    """Return at most `size_max` flushed bytes from `offset` on, from one segment; None unless the outcome is
    READ_FOUND.

    Errors: OFFSET_OUT_OF_RANGE outside of the flushed log, KAFKA_STORAGE_ERROR, and UNKNOWN_TOPIC_OR_PARTITION if the
    log is deleted. READ_DEFER: open the segment on the I/O pool, then call this again.
    """
    cdef Segment segment
    cdef int64_t position, end
    cdef int64_t visible = log.flushed_offset
    out.outcome = READ_NOTHING
    out.error = 0
    if log.deleted:
        refuse_read(out, UNKNOWN_TOPIC_OR_PARTITION)
        return None
    if log.offline:
        refuse_read(out, KAFKA_STORAGE_ERROR)
        return None
    if not log.active.has_file and log.log_end_offset == 0:
        return None                             # nothing was ever written
    if offset < log.log_start_offset or offset > visible:
        refuse_read(out, OFFSET_OUT_OF_RANGE)
        return None
    if offset == visible or size_max <= 0:
        return None
    segment = log.segment_of(offset, log.segments)
    position = offset - segment.base_offset
    end = min(segment.size, visible - segment.base_offset)
    if position >= end:
        refuse_read(out, KAFKA_STORAGE_ERROR)   # bytes that were flushed once and are gone
        return None
    end = position + min(end - position, size_max)
    if not segment.try_pin():
        out.outcome = READ_DEFER
        return None
    out.outcome = READ_FOUND
    return make_slice(log.owner, segment, position, end - position)


# ---- for clients of today -------------------------------------------------------------------------------------------

def make_batch(list records not None, int64_t last_offset):
    """Build a record batch from (offset, payload) pairs in rising order. `last_offset` is the last offset of the batch.

    Offsets may have gaps. Records have no key and no headers; timestamps and leader epoch are -1, because 0.7's
    messages have none. Raises ValueError if a batch cannot contain the records.
    """
    cdef int64_t base, offset, delta
    cdef int64_t size = HEADER_SIZE
    cdef bytes payload, result
    cdef unsigned char* start
    cdef unsigned char* p
    cdef Py_ssize_t payload_size
    cdef int32_t body_size
    if not records:
        raise ValueError("a batch has at least one record")
    base = records[0][0]
    for _offset, payload in records:
        size += PyBytes_GET_SIZE(payload) + RECORD_OVERHEAD_MAX
    if last_offset - base > INT32_MAX or size > INT32_MAX:
        raise ValueError("too many messages for a batch")
    result = PyBytes_FromStringAndSize(NULL, size)
    start = <unsigned char*>PyBytes_AS_STRING(result)
    p = start + HEADER_SIZE
    for offset, payload in records:
        delta = offset - base
        payload_size = PyBytes_GET_SIZE(payload)
        body_size = <int32_t>(5 + uvarint_size(zigzag(delta)) - 1 + uvarint_size(zigzag(payload_size)) + payload_size)
        p += store_varint(p, body_size)
        p[0] = 0                                # attributes
        p[1] = 0                                # timestamp delta
        p += 2
        p += store_varint(p, <int32_t>delta)
        p[0] = 1                                # no key
        p += 1
        p += store_varint(p, <int32_t>payload_size)
        memcpy(p, PyBytes_AS_STRING(payload), <size_t>payload_size)
        p += payload_size
        p[0] = 0                                # no headers
        p += 1
    size = p - start
    store_i64(start + BASE_OFFSET_AT, base)
    store_i32(start + BATCH_LENGTH_AT, <int32_t>(size - LENGTH_OVERHEAD))
    store_i32(start + LEADER_EPOCH_AT, -1)
    start[MAGIC_AT] = MAGIC_V2
    store_i16(start + ATTRIBUTES_AT, 0)
    store_i32(start + LAST_OFFSET_DELTA_AT, <int32_t>(last_offset - base))
    store_i64(start + BASE_TIMESTAMP_AT, -1)
    store_i64(start + MAX_TIMESTAMP_AT, -1)
    store_i64(start + PRODUCER_ID_AT, -1)
    store_i16(start + PRODUCER_EPOCH_AT, -1)
    store_i32(start + BASE_SEQUENCE_AT, -1)
    store_i32(start + RECORD_COUNT_AT, <int32_t>len(records))
    store_u32(start + CRC_AT, crc32c(start + CRC_FROM, <size_t>(size - CRC_FROM)))
    return result[:size]


cdef inline uint64_t zigzag(int64_t value) noexcept:
    return <uint64_t>value << 1


cdef inline int uvarint_size(uint64_t value) noexcept:
    cdef int n = 1
    while value >= 0x80:
        value >>= 7
        n += 1
    return n


# ---- Python's view --------------------------------------------------------------------------------------------------

def append(LogCore log not None, data, *, bint may_block=True):
    """Append a set; return (outcome, error, base offset, end offset, flush due). Outcome and error: see
    append_batch()."""
    cdef SetAppend out
    cdef bytes copy = bytes(data)
    cdef int outcome = append_set(log, <const unsigned char*><const char*>copy, len(copy), may_block, &out)
    return outcome, out.error, out.base_offset, out.end_offset, out.flush_due


def read(LogCore log not None, int64_t offset, int64_t size_max=INT64_MAX):
    """Read a byte range; return (outcome, error, LogSlice or None) as LogCore.slice_at(). The caller releases the
    slice."""
    cdef ReadResult result
    found = read_range(log, offset, size_max, &result)
    return result.outcome, result.error, found
