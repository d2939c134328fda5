"""Compaction's two walks over batches: noting keys, and writing what is kept.

    index_batches    dirty batches ─▶ KeyMap: the newest offset of each key
    BatchFilter      every batch   ─▶ the batch as it is │ with fewer records │ without records │ nothing

A record stays when the map has no newer one of its key, and, if it is a tombstone (no value), until its delete horizon
has passed. The horizon is set when compaction first reaches the tombstone: attribute bit 6, and the base timestamp is
the horizon, so that every timestamp delta of the batch is written anew (KIP-534). Otherwise kept records are copied
byte for byte: base offset, last offset delta, base timestamp, sequence and epochs of a batch stay what they were, so
offsets and producer state derived from the result are those of the original.

A batch that loses its last record goes, unless it is the last one of an active producer or ends the cleaned range; then
its header stays with no records behind it. A batch whose records do not parse although its CRC is right is kept whole.

Plain batches are handled here from end to end without the GIL. Compressed ones, those of transactions and markers stop
the walk: the caller decides, unpacks, asks `judge`, packs and hands back the bytes.

Thread rule: a filter and its map belong to one cleaner thread. The segment is pinned during a call only.
"""

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kafkalite._native.batch cimport (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    TRANSACTIONAL,
    BatchHeader,
    RecordView,
    next_record,
    parse_header,
    record_timestamp,
    record_varint,
)
from kafkalite._native.crc32c cimport crc32c
from kafkalite._native.cursor cimport (
    Cursor,
    cursor_init,
    load_i16,
    read_i8,
    read_varlong,
    store_i16,
    store_i32,
    store_i64,
    store_u32,
    store_varint,
    store_varlong,
)
from kafkalite._native.file_ops cimport file_pwrite
from kafkalite._native.key_map cimport KeyMap, KeyTable, table_get, table_put
from kafkalite._native.record_format cimport PARSED, BatchInfo
from kafkalite._native.segment cimport Segment
from kafkalite._native.status cimport OK, TRAILING, Status

import os as _os

cdef enum:
    PAUSE_BYTES = 4 * 1024 * 1024       # read without giving the caller a chance to stop or slow down
    REBASE_GROWTH = 16                  # a record grows by at most so many bytes when its timestamp delta is rewritten
    SPECIAL = CODEC_MASK | TRANSACTIONAL | CONTROL
    HEADERS_CHUNK = 512
    NO_MEMORY = -1

END = STOP_END
BATCH_SPECIAL = STOP_SPECIAL
MAP_FULL = STOP_FULL
DAMAGED = STOP_DAMAGED
PAUSE = STOP_PAUSE

JUDGED_EMPTY = 0
JUDGED_UNCHANGED = 1
JUDGED_CHANGED = 2
JUDGED_MALFORMED = 3


# ---- noting keys ----------------------------------------------------------------------------------------------------

cdef int64_t note_keys(KeyTable* table, const BatchHeader* header, const unsigned char* records, int64_t size,
                       int64_t start_offset) noexcept nogil:
    """-1 when all keys were noted, or the offset of the first record for which there was no room.

    At records that do not parse it ends: their batch will be kept whole.
    """
    cdef Cursor c
    cdef RecordView record
    cdef int64_t offset
    cdef int32_t _i
    cursor_init(&c, records, <Py_ssize_t>size)
    for _i in range(header.record_count):
        if next_record(&c, &record) != OK:
            return -1
        offset = header.base_offset + record.offset_delta
        if record.key_size >= 0 and offset >= start_offset:
            if not table_put(table, record.key, record.key_size, offset):
                return offset
    return -1


def index_batches(KeyMap keys not None, Segment segment not None, int64_t position, int64_t end, int64_t start_offset):
    """Notes the keys of plain batches from a batch boundary on: (why it stopped, position, offset).

    The offset is the first one not noted when the map is full; otherwise it means nothing. Records below start_offset
    are left out.
    """
    cdef BatchInfo info
    cdef BatchHeader header
    cdef int stop = STOP_END
    cdef int64_t pause = position + PAUSE_BYTES
    cdef int64_t full_offset = -1
    cdef const unsigned char* map
    format = segment.format
    segment.pin()
    try:
        map = segment.map
        with nogil:
            while position < end:
                if position >= pause:
                    stop = STOP_PAUSE
                    break
                if format.parse(map + position, end - position, &info) != PARSED:
                    stop = STOP_DAMAGED
                    break
                if not format.intact(map + position, &info):
                    stop = STOP_DAMAGED
                    break
                if info.attributes & SPECIAL:
                    stop = STOP_SPECIAL
                    break
                if info.next_offset > start_offset:
                    parse_header(map + position, <Py_ssize_t>info.size, &header)
                    full_offset = note_keys(&keys.table, &header, map + position + HEADER_SIZE,
                                            info.size - HEADER_SIZE, start_offset)
                    if full_offset >= 0:
                        stop = STOP_FULL
                        break
                position += info.size
    finally:
        segment.unpin()
    return stop, position, full_offset


def index_records(KeyMap keys not None, Segment segment not None, int64_t position,
                  const unsigned char[::1] records not None, int64_t start_offset):
    """Notes the keys of one batch, whose unpacked records are given: -1, or the first offset there was no room for."""
    cdef BatchHeader header
    cdef int64_t result = -1
    cdef int64_t size = records.shape[0]
    if size == 0:
        return -1
    segment.pin()
    try:
        if parse_header(segment.map + position, <Py_ssize_t>(segment.size - position), &header) == OK:
            with nogil:
                result = note_keys(&keys.table, &header, &records[0], size, start_offset)
    finally:
        segment.unpin()
    return result


def transaction_batches(Segment segment not None, int64_t position):
    """(headers of batches of transactions and markers, whether any batch has a producer, where to go on).

    By headers alone; the last is -1 at the end, or at bytes that are no batch.
    """
    cdef BatchInfo found[HEADERS_CHUNK]
    cdef const unsigned char* map
    cdef BatchInfo* info
    cdef int64_t end = segment.size
    cdef int64_t pause = position + PAUSE_BYTES
    cdef int count = 0
    cdef bint producers = False
    format = segment.format
    segment.pin()
    try:
        map = segment.map
        with nogil:
            while count < HEADERS_CHUNK and position < pause:
                info = &found[count]
                if position >= end or format.parse(map + position, end - position, info) != PARSED:
                    position = -1
                    break
                info.position = position
                position += info.size
                if info.producer_id >= 0:
                    producers = True
                if info.attributes & (TRANSACTIONAL | CONTROL):
                    count += 1
    finally:
        segment.unpin()
    return [found[i] for i in range(count)], producers, position


def marker_type(Segment segment not None, int64_t position):
    """The type in a control batch's key: 0 abort, 1 commit, others as Kafka has them; -1 when it has no record."""
    cdef BatchHeader header
    cdef Cursor c
    cdef RecordView record
    segment.pin()
    try:
        if parse_header(segment.map + position, <Py_ssize_t>(segment.size - position), &header) != OK:
            return -1
        if header.size > segment.size - position or header.record_count < 1:
            return -1
        cursor_init(&c, segment.map + position + HEADER_SIZE, <Py_ssize_t>(header.size - HEADER_SIZE))
        if next_record(&c, &record) != OK or record.key_size < 4:
            return -1
        return load_i16(record.key + 2)
    finally:
        segment.unpin()


# ---- writing what is kept -------------------------------------------------------------------------------------------

cdef bint keeps(const KeyTable* table, const Rules* rules, const BatchHeader* header, const RecordView* record,
                Kept* kept) noexcept nogil:
    """Whether a record stays; counts what goes."""
    cdef int64_t offset = header.base_offset + record.offset_delta
    if rules.keep_all or offset >= rules.mapped_end:
        return True
    if record.key_size < 0:
        kept.keyless += 1
        return False
    if table_get(table, record.key, record.key_size) > offset:
        kept.superseded += 1
        return False
    if record.value_size < 0:
        if header.attributes & DELETE_HORIZON and rules.may_forget and rules.now_ms >= header.base_timestamp:
            kept.forgotten += 1
            return False
        kept.tombstone = True
    return True


cdef Status judge_records(const KeyTable* table, const Rules* rules, const BatchHeader* header,
                          const unsigned char* records, int64_t size, unsigned char* out, Kept* kept) noexcept nogil:
    """Copies the records that stay to `out` (room for `size` bytes); a status other than OK: they do not parse."""
    cdef Cursor c
    cdef RecordView record
    cdef const unsigned char* start
    cdef const unsigned char* run = records     # the first byte that stays and is not copied yet
    cdef int64_t timestamp
    cdef int32_t _i
    kept.size = 0
    kept.count = kept.superseded = kept.forgotten = kept.keyless = 0
    kept.tombstone = False
    kept.max_timestamp = -1
    cursor_init(&c, records, <Py_ssize_t>size)
    for _i in range(header.record_count):
        start = c.pos
        if next_record(&c, &record) != OK:
            return c.status
        if keeps(table, rules, header, &record, kept):
            timestamp = record_timestamp(header, record.timestamp_delta)
            if kept.count == 0 or timestamp > kept.max_timestamp:
                kept.max_timestamp = timestamp
            kept.count += 1
        else:
            memcpy(out + kept.size, run, <size_t>(start - run))
            kept.size += start - run
            run = c.pos
    if c.pos != c.end:
        return TRAILING
    memcpy(out + kept.size, run, <size_t>(c.pos - run))
    kept.size += c.pos - run
    return OK


cdef int64_t rebase_records(const BatchHeader* header, int64_t base_timestamp, const unsigned char* records,
                            int64_t size, unsigned char* out) noexcept nogil:
    """Writes well-formed records with deltas to another base timestamp; the new size."""
    cdef Cursor c, inner
    cdef unsigned char* at = out
    cdef unsigned char delta[10]
    cdef Py_ssize_t delta_size, rest
    cdef int64_t timestamp
    cdef int32_t length
    cursor_init(&c, records, <Py_ssize_t>size)
    while c.pos < c.end:
        length = record_varint(&c)
        cursor_init(&inner, c.pos, length)
        c.pos += length
        read_i8(&inner)
        timestamp = record_timestamp(header, read_varlong(&inner))
        delta_size = store_varlong(delta, <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp))
        rest = inner.end - inner.pos
        at += store_varint(at, <int32_t>(1 + delta_size + rest))
        at[0] = (inner.end - length)[0]
        memcpy(at + 1, delta, <size_t>delta_size)
        memcpy(at + 1 + delta_size, inner.pos, <size_t>rest)
        at += 1 + delta_size + rest
    return at - out


cdef class BatchFilter:
    """Writes what compaction keeps of the batches of one group of segments, in order.

    `producers` maps the ids of active producers to the offset behind their last batch; at most one thread at a time.
    """

    def __init__(self, KeyMap keys not None, *, int64_t mapped_end, int64_t retain_end, int64_t now_ms,
                 int64_t delete_retention_ms, producers):
        cdef int64_t i = 0
        self.keys = keys
        self.rules.mapped_end = mapped_end
        self.rules.now_ms = now_ms
        self.rules.may_forget = True
        self.rules.keep_all = False
        self.horizon_ms = now_ms + min(delete_retention_ms, (<int64_t>1 << 62) - now_ms)
        self.retain_end = retain_end
        if producers and self.producer_ids == NULL:
            self.producer_ids = <int64_t*>malloc(len(producers) * sizeof(int64_t))
            self.producer_ends = <int64_t*>malloc(len(producers) * sizeof(int64_t))
            if self.producer_ids == NULL or self.producer_ends == NULL:
                raise MemoryError("no memory for the list of producers")
            for producer_id, end in sorted(producers.items()):
                self.producer_ids[i] = producer_id
                self.producer_ends[i] = end
                i += 1
            self.producer_count = i

    def __dealloc__(self):
        free(self.producer_ids)
        free(self.producer_ends)
        free(self.out)
        free(self.scratch)

    @property
    def may_forget(self):
        """Whether tombstones may go whose horizon has passed: not above damage, where older records may hide."""
        return self.rules.may_forget

    @may_forget.setter
    def may_forget(self, bint value):
        self.rules.may_forget = value

    # ---- memory -----------------------------------------------------------------------------------------------------

    cdef int _reserve(self, int64_t size) noexcept nogil:
        """Room for `size` more bytes of output."""
        cdef int64_t needed = self.out_size + size
        cdef void* grown
        if needed <= self.out_capacity:
            return 0
        grown = realloc(self.out, <size_t>(needed + needed // 2))
        if grown == NULL:
            return NO_MEMORY
        self.out = <unsigned char*>grown
        self.out_capacity = needed + needed // 2
        return 0

    cdef int _reserve_scratch(self, int64_t size) noexcept nogil:
        cdef void* grown
        if size <= self.scratch_capacity:
            return 0
        grown = realloc(self.scratch, <size_t>size)
        if grown == NULL:
            return NO_MEMORY
        self.scratch = <unsigned char*>grown
        self.scratch_capacity = size
        return 0

    # ---- batches ----------------------------------------------------------------------------------------------------

    cdef bint _stays_empty(self, const BatchInfo* info) noexcept nogil:
        """Whether the batch must leave its header even without records."""
        cdef int64_t low = 0
        cdef int64_t high = self.producer_count
        cdef int64_t middle
        if info.next_offset == self.retain_end:
            return True
        if info.producer_id < 0:
            return False
        while low < high:
            middle = (low + high) >> 1
            if self.producer_ids[middle] < info.producer_id:
                low = middle + 1
            else:
                high = middle
        return (low < self.producer_count and self.producer_ids[low] == info.producer_id
                and self.producer_ends[low] == info.next_offset)

    cdef void _count(self, const BatchInfo* info) noexcept nogil:
        """Takes the batch judged last into the totals."""
        self.record_count += info.record_count
        self.kept_count += self.kept.count
        self.superseded_count += self.kept.superseded
        self.forgotten_count += self.kept.forgotten
        self.keyless_count += self.kept.keyless

    cdef int _copy(self, const unsigned char* data, int64_t size) noexcept nogil:
        if self._reserve(size) != 0:
            return NO_MEMORY
        memcpy(self.out + self.out_size, data, <size_t>size)
        self.out_size += size
        return 0

    cdef void _finish_batch(self, unsigned char* at, const unsigned char* data, int64_t size, int16_t attributes,
                            int64_t base_timestamp, int64_t max_timestamp, int32_t count) noexcept nogil:
        """The header of a batch whose records stand in place already."""
        memcpy(at, data, HEADER_SIZE)
        store_i32(at + BATCH_LENGTH_AT, <int32_t>(size - LENGTH_OVERHEAD))
        store_i16(at + ATTRIBUTES_AT, attributes)
        store_i64(at + BASE_TIMESTAMP_AT, base_timestamp)
        store_i64(at + MAX_TIMESTAMP_AT, max_timestamp)
        store_i32(at + RECORD_COUNT_AT, count)
        store_u32(at + CRC_AT, crc32c(at + CRC_FROM, <size_t>(size - CRC_FROM)))
        self.out_size += size

    cdef int _write_empty(self, const unsigned char* data, const BatchInfo* info) noexcept nogil:
        """A header without records, in the form that Kafka's cleaner writes."""
        if self._reserve(HEADER_SIZE) != 0:
            return NO_MEMORY
        self.changed_count += 1
        self._finish_batch(
            self.out + self.out_size, data, HEADER_SIZE,
            <int16_t>(info.attributes & (TRANSACTIONAL | CONTROL | LOG_APPEND_TIME)), -1, info.max_timestamp, 0)
        return 0

    cdef int _write_kept(self, const unsigned char* data, const BatchInfo* info, bint horizon) noexcept nogil:
        """The uncompressed batch with the records in `scratch`, given a delete horizon if asked."""
        cdef BatchHeader header
        cdef unsigned char* at
        cdef int64_t size = self.kept.size
        if self._reserve(HEADER_SIZE + size + (REBASE_GROWTH * <int64_t>self.kept.count if horizon else 0)) != 0:
            return NO_MEMORY
        at = self.out + self.out_size
        self.changed_count += 1
        if horizon:
            parse_header(data, <Py_ssize_t>info.size, &header)
            size = rebase_records(&header, self.horizon_ms, self.scratch, size, at + HEADER_SIZE)
        else:
            memcpy(at + HEADER_SIZE, self.scratch, <size_t>size)
        self._finish_batch(
            at, data, HEADER_SIZE + size, <int16_t>(info.attributes | (DELETE_HORIZON if horizon else 0)),
            self.horizon_ms if horizon else info.base_timestamp, self.kept.max_timestamp, self.kept.count)
        return 0

    cdef int _filter_plain(self, const unsigned char* data, const BatchInfo* info) noexcept nogil:
        cdef BatchHeader header
        cdef bint horizon
        parse_header(data, <Py_ssize_t>info.size, &header)
        if self._reserve_scratch(info.size) != 0:
            return NO_MEMORY
        if judge_records(&self.keys.table, &self.rules, &header, data + HEADER_SIZE, info.size - HEADER_SIZE,
                         self.scratch, &self.kept) != OK:
            self.malformed_count += 1
            return self._copy(data, info.size)
        self._count(info)
        horizon = self.kept.tombstone and not info.attributes & DELETE_HORIZON
        if self.kept.count == 0:
            if self._stays_empty(info):
                return self._copy(data, info.size) if info.record_count == 0 else self._write_empty(data, info)
            self.changed_count += 1
            return 0
        if self.kept.count == info.record_count and not horizon:
            return self._copy(data, info.size)
        return self._write_kept(data, info, horizon)

    cdef int _filter_chunk(self, Segment segment, const unsigned char* map, int64_t* position, int64_t end,
                           int64_t* out_end) noexcept nogil:
        """Filters plain batches until something stops it; Stop, or NO_MEMORY. out_end: when to let the caller write."""
        cdef BatchInfo info
        cdef int64_t pause = position[0] + PAUSE_BYTES
        while position[0] < end:
            if position[0] >= pause or self.out_size >= out_end[0]:
                return STOP_PAUSE
            if segment.format.parse(map + position[0], end - position[0], &info) != PARSED:
                return STOP_DAMAGED
            if not segment.format.intact(map + position[0], &info):
                return STOP_DAMAGED
            if info.attributes & SPECIAL:
                return STOP_SPECIAL
            if self._filter_plain(map + position[0], &info) != 0:
                return NO_MEMORY
            position[0] += info.size
        return STOP_END

    def run(self, Segment segment not None, int64_t position, int64_t end, int64_t out_max):
        """Filters plain batches from a batch boundary on until `out_max` bytes are ready: (why it stopped, where)."""
        cdef int stop
        segment.pin()
        try:
            with nogil:
                stop = self._filter_chunk(segment, segment.map, &position, end, &out_max)
        finally:
            segment.unpin()
        if stop == NO_MEMORY:
            raise MemoryError("no memory for a batch to be compacted")
        return stop, position

    # ---- batches that the caller decides about ----------------------------------------------------------------------

    def judge(self, Segment segment not None, int64_t position, const unsigned char[::1] records not None, *,
              bint keep_all=False):
        """One of JUDGED_…, for a batch whose unpacked records are given; `kept_records` has what stays."""
        cdef BatchInfo info
        cdef BatchHeader header
        cdef Status status = TRAILING
        cdef int64_t size = records.shape[0]
        segment.pin()
        try:
            if (segment.format.parse(segment.map + position, segment.size - position, &info) == PARSED
                    and self._reserve_scratch(max(size, 1)) == 0):
                parse_header(segment.map + position, <Py_ssize_t>info.size, &header)
                self.rules.keep_all = keep_all
                with nogil:
                    status = judge_records(&self.keys.table, &self.rules, &header, &records[0] if size else NULL, size,
                                           self.scratch, &self.kept)
                self.rules.keep_all = False
        finally:
            segment.unpin()
        if status != OK:
            self.malformed_count += 1
            return JUDGED_MALFORMED
        self._count(&info)
        if self.kept.count == 0:
            return JUDGED_EMPTY
        if self.kept.count == info.record_count and not (self.kept.tombstone and not info.attributes & DELETE_HORIZON):
            return JUDGED_UNCHANGED
        return JUDGED_CHANGED

    def kept_records(self, Segment segment not None, int64_t position, *, bint marker=False):
        """(unpacked records that stay, whether they got a delete horizon) of the batch judged last."""
        cdef BatchHeader header
        cdef int64_t size = self.kept.size
        cdef bytearray result
        cdef unsigned char* at
        segment.pin()
        try:
            if parse_header(segment.map + position, <Py_ssize_t>(segment.size - position), &header) != OK:
                raise ValueError(f"there is no batch at {position}")
            if header.attributes & DELETE_HORIZON or not (self.kept.tombstone or marker):
                return <bytes>self.scratch[:size], False
            result = bytearray(size + REBASE_GROWTH * <int64_t>self.kept.count)
            at = result
            with nogil:
                size = rebase_records(&header, self.horizon_ms, self.scratch, size, at)
        finally:
            segment.unpin()
        del result[size:]
        return bytes(result), True

    def append(self, Segment segment not None, int64_t position, const unsigned char[::1] block not None, bint horizon):
        """Writes the batch judged last with `block` (packed as it was) for its records."""
        cdef BatchInfo info
        cdef int64_t size = HEADER_SIZE + block.shape[0]
        if size > INT32_MAX or block.shape[0] == 0 or self._reserve(size) != 0:
            raise MemoryError(f"a batch of {size} bytes cannot be written")
        segment.pin()
        try:
            if segment.format.parse(segment.map + position, segment.size - position, &info) != PARSED:
                raise ValueError(f"there is no batch at {position}")
            with nogil:
                self.changed_count += 1
                memcpy(self.out + self.out_size + HEADER_SIZE, &block[0], <size_t>(size - HEADER_SIZE))
                self._finish_batch(
                    self.out + self.out_size, segment.map + position, size,
                    <int16_t>(info.attributes | (DELETE_HORIZON if horizon else 0)),
                    self.horizon_ms if horizon else info.base_timestamp, self.kept.max_timestamp, self.kept.count)
        finally:
            segment.unpin()

    def copy(self, Segment segment not None, int64_t position, int64_t size):
        """Writes a batch as it is."""
        cdef int result
        segment.pin()
        try:
            with nogil:
                result = self._copy(segment.map + position, size)
        finally:
            segment.unpin()
        if result != 0:
            raise MemoryError(f"a batch of {size} bytes cannot be written")

    def drop_records(self, Segment segment not None, int64_t position):
        """A batch none of whose records stay: its header where that must stay, otherwise nothing."""
        cdef BatchInfo info
        cdef int result = 0
        segment.pin()
        try:
            if segment.format.parse(segment.map + position, segment.size - position, &info) != PARSED:
                raise ValueError(f"there is no batch at {position}")
            if not self._stays_empty(&info):
                self.changed_count += 1
            elif info.record_count == 0:
                result = self._copy(segment.map + position, info.size)
            else:
                result = self._write_empty(segment.map + position, &info)
        finally:
            segment.unpin()
        if result != 0:
            raise MemoryError("no memory for a batch to be compacted")

    # ---- output -----------------------------------------------------------------------------------------------------

    def write(self, int fd, int64_t position):
        """Writes what is ready to a file; how many bytes. OSError, after which any part of it may be there."""
        cdef int64_t written = 0
        if self.out_size:
            with nogil:
                written = file_pwrite(fd, self.out, self.out_size, position)
            if written < 0:
                raise OSError(<int>-written, _os.strerror(<int>-written))
        self.out_size = 0
        return written
