"""Compact batches in two passes: index the keys, then write the records that are kept.

    index_batches    dirty batches ─▶ KeyMap: the newest offset of each key
    BatchFilter      every batch   ─▶ the same batch │ a batch with fewer records │ a header without records │ no batch

Of the indexed offsets, a record is kept if it has a key, and the map has no newer record of this key; later records are
all kept. A tombstone (null value) is removed after its delete horizon (KIP-534).

A rewritten batch keeps its first and last offset, sequence and epochs. So producer state is the same before and after.

Thread rule: a filter and its map belong to one cleaner thread. Batches are processed without the GIL, except in the
codecs.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kafkalite._native.base.crc32c cimport crc32c
from kafkalite._native.base.file_ops cimport file_pwrite
from kafkalite._native.log.key_map cimport KeyHash, KeyMap, KeyTable, key_hash, table_get, table_prefetch, table_put
from kafkalite._native.log.record_format cimport PARSED, ItemInfo, RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.wire.batch cimport (
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
from kafkalite._native.wire.cursor cimport (
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
from kafkalite._native.wire.status cimport OK, TRAILING, Status

import os as _os

cdef enum:
    PAUSE_BYTES = 4 * 1024 * 1024       # read without giving the caller a chance to stop or slow down
    WINDOW = 32                         # keys looked up at a time, so that waits for the map's memory overlap
    HEADERS_CHUNK = 512
    SPARE_MAX = 1024 * 1024             # bytes of output that are reserved beyond what a batch needs
    KEPT_CAPACITY = 4 * 1024 * 1024     # a larger buffer is freed after a write
    NO_MEMORY = -1

END = STOP_END
BATCH_MARKER = STOP_MARKER
MAP_FULL = STOP_FULL
DAMAGED = STOP_DAMAGED
PAUSE = STOP_PAUSE


cdef bint holds(const int64_t* offsets, int64_t count, int64_t offset) noexcept nogil:
    """Return whether a sorted array contains an offset."""
    cdef int64_t low = 0
    cdef int64_t high = count
    cdef int64_t middle
    while low < high:
        middle = (low + high) >> 1
        if offsets[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low < count and offsets[low] == offset


# ---- index keys -----------------------------------------------------------------------------------------------------

cdef int64_t note_keys(KeyTable* table, const BatchHeader* header, const unsigned char* records, int64_t size,
                       int64_t start_offset) noexcept nogil:
    """Add the keys of records to the map. Return -1, or the offset of the first record that did not fit.

    It stops silently at malformed records, whose batch will be kept whole.
    """
    cdef Cursor c
    cdef RecordView record
    cdef KeyHash hashes[WINDOW]
    cdef int64_t offsets[WINDOW]
    cdef int64_t offset
    cdef int32_t left = header.record_count
    cdef int count, i
    cursor_init(&c, records, <Py_ssize_t>size)
    while left > 0:
        count = 0
        while left > 0 and count < WINDOW:
            left -= 1
            if next_record(&c, &record) != OK:
                left = 0
                break
            offset = header.base_offset + record.offset_delta
            if record.key_size >= 0 and offset >= start_offset:
                hashes[count] = key_hash(table.secret, record.key, record.key_size)
                offsets[count] = offset
                table_prefetch(table, &hashes[count])
                count += 1
        for i in range(count):
            if not table_put(table, &hashes[i], offsets[i]):
                return offsets[i]
    return -1


cdef bint never_noted(const Dirty* dirty, const ItemInfo* info) noexcept nogil:
    """Return whether a batch is not indexed: a marker, or a batch of an aborted transaction."""
    if info.attributes & CONTROL:
        return True
    return info.attributes & TRANSACTIONAL and holds(dirty.aborted, dirty.aborted_count, info.base_offset)


cdef int note_batches(KeyTable* table, RecordFormat format, const unsigned char* map, int64_t* position, int64_t end,
                      const Dirty* dirty, ItemInfo* info, int64_t* full_offset) noexcept nogil:
    """Index the keys of uncompressed batches; return a Stop. A compressed batch stops it too; `info` is then its
    header."""
    cdef BatchHeader header
    cdef const unsigned char* data
    cdef int64_t pause = position[0] + PAUSE_BYTES
    while position[0] < end:
        data = map + position[0]
        if position[0] >= pause:
            return STOP_PAUSE
        if format.parse(data, end - position[0], 0, info) != PARSED or not format.intact(data, info):
            return STOP_DAMAGED
        if info.base_offset >= dirty.upper:
            return STOP_END
        if info.next_offset > dirty.start_offset and info.record_count > 0 and not never_noted(dirty, info):
            if info.attributes & CODEC_MASK:
                return STOP_PACKED
            parse_header(data, <Py_ssize_t>info.size, &header)
            full_offset[0] = note_keys(table, &header, data + HEADER_SIZE, info.size - HEADER_SIZE, dirty.start_offset)
            if full_offset[0] >= 0:
                return STOP_FULL
        position[0] += info.size
    return STOP_END


cdef int64_t note_packed(KeyTable* table, const unsigned char* data, const ItemInfo* info, int64_t start_offset,
                         unpack) except -2:
    """Index the keys of a compressed batch. Returns as note_keys() does."""
    cdef BatchHeader header
    cdef const unsigned char[::1] records
    cdef int64_t result = -1
    unpacked = unpack(info.attributes & CODEC_MASK, lend(data + HEADER_SIZE, info.size - HEADER_SIZE), info.base_offset)
    if unpacked is None:
        return -1
    records = unpacked
    if records.shape[0]:
        parse_header(data, <Py_ssize_t>info.size, &header)
        with nogil:
            result = note_keys(table, &header, &records[0], records.shape[0], start_offset)
    return result


cdef object lend(const unsigned char* data, int64_t size):
    """Return a memoryview that is valid during one call only."""
    return PyMemoryView_FromMemory(<char*>data, <Py_ssize_t>size, PyBUF_READ)


def index_batches(KeyMap keys not None, Segment segment not None, int64_t position, int64_t end, *,
                  int64_t start_offset, int64_t upper, const int64_t[::1] aborted not None, unpack):
    """Index the keys of batches, from a batch boundary on; return (Stop, position, offset).

    If the map is full, the offset is the first one that is not indexed; otherwise it has no meaning. Not indexed are
    records below `start_offset`, batches from `upper` on, markers, and batches whose base offsets are in `aborted`
    (sorted).
    """
    cdef ItemInfo info
    cdef Dirty dirty
    cdef int stop = STOP_PACKED
    cdef int64_t full_offset = -1
    cdef int64_t pause = position + PAUSE_BYTES
    dirty.start_offset = start_offset
    dirty.upper = upper
    dirty.aborted_count = aborted.shape[0]
    dirty.aborted = &aborted[0] if aborted.shape[0] else NULL
    format = segment.format
    segment.pin()
    try:
        while stop == STOP_PACKED:
            with nogil:
                stop = note_batches(&keys.table, format, segment.map, &position, end, &dirty, &info, &full_offset)
            if stop == STOP_PACKED:
                full_offset = note_packed(&keys.table, segment.map + position, &info, start_offset, unpack)
                if full_offset >= 0:
                    stop = STOP_FULL
                else:
                    position += info.size
                    if position >= pause:
                        stop = STOP_PAUSE
        segment.check_read()
    finally:
        segment.unpin()
    return stop, position, full_offset


def transaction_batches(Segment segment not None, int64_t position):
    """Read headers; return (headers of transactional batches and markers, whether any batch has a producer, next
    position).

    The next position is -1 at the end, or at bytes that are not a batch.
    """
    cdef ItemInfo found[HEADERS_CHUNK]
    cdef const unsigned char* map
    cdef ItemInfo* info
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
                if position >= end or format.parse(map + position, end - position, 0, info) != PARSED:
                    position = -1
                    break
                info.position = position
                position += info.size
                if info.producer_id >= 0:
                    producers = True
                if info.attributes & (TRANSACTIONAL | CONTROL):
                    count += 1
        segment.check_read()
    finally:
        segment.unpin()
    return [found[i] for i in range(count)], producers, position


def marker_type(Segment segment not None, int64_t position):
    """Return the type of a control batch: 0 abort, 1 commit, others as in Kafka; -1 if it has no record."""
    cdef BatchHeader header
    cdef Cursor c
    cdef RecordView record
    cdef int found = -1
    segment.pin()
    try:
        if (parse_header(segment.map + position, <Py_ssize_t>(segment.size - position), &header) == OK
                and header.size <= segment.size - position and header.record_count >= 1):
            cursor_init(&c, segment.map + position + HEADER_SIZE, <Py_ssize_t>(header.size - HEADER_SIZE))
            if next_record(&c, &record) == OK and record.key_size >= 4:
                found = load_i16(record.key + 2)
        segment.check_read()
    finally:
        segment.unpin()
    return found


# ---- write kept records ---------------------------------------------------------------------------------------------

cdef bint keeps(const KeyTable* table, const Rules* rules, const BatchHeader* header, const Candidate* record,
                Kept* kept) noexcept nogil:
    """Return whether a record is kept. Count removed records by reason."""
    if not record.mapped:
        return True
    if record.key_size < 0:
        kept.keyless += 1
        return False
    if table_get(table, &record.hash) > record.offset:
        kept.superseded += 1
        return False
    if record.value_size < 0:
        if header.attributes & DELETE_HORIZON and rules.may_forget and rules.now_ms >= header.base_timestamp:
            kept.forgotten += 1
            return False
        kept.tombstone = True
    return True


cdef Status next_candidates(const KeyTable* table, const Rules* rules, const BatchHeader* header, Cursor* c,
                            int count, Candidate* found) noexcept nogil:
    """Read the next `count` records, and prefetch the map's entries of their keys."""
    cdef RecordView record
    cdef Candidate* candidate
    cdef int i
    for i in range(count):
        candidate = &found[i]
        candidate.start = c.pos
        if next_record(c, &record) != OK:
            return c.status
        candidate.end = c.pos
        candidate.offset = header.base_offset + record.offset_delta
        candidate.timestamp = record_timestamp(header, record.timestamp_delta)
        candidate.key_size = record.key_size
        candidate.value_size = record.value_size
        candidate.mapped = not rules.keep_all and candidate.offset < rules.mapped_end
        if candidate.mapped and record.key_size >= 0:
            candidate.hash = key_hash(table.secret, record.key, record.key_size)
            table_prefetch(table, &candidate.hash)
    return OK


cdef Status judge_records(const KeyTable* table, const Rules* rules, const BatchHeader* header,
                          const unsigned char* records, int64_t size, unsigned char* out, Kept* kept) noexcept nogil:
    """Move the kept records to `out`, which has room for `size` bytes or is `records` itself.

    A status other than OK means that the records are malformed.
    """
    cdef Cursor c
    cdef Candidate window[WINDOW]
    cdef const unsigned char* run = records     # the first kept byte that is not copied yet
    cdef int32_t left = header.record_count
    cdef int count, i
    kept.size = 0
    kept.count = kept.superseded = kept.forgotten = kept.keyless = 0
    kept.tombstone = False
    kept.max_timestamp = -1
    cursor_init(&c, records, <Py_ssize_t>size)
    while left > 0:
        count = <int>min(left, <int32_t>WINDOW)
        left -= count
        if next_candidates(table, rules, header, &c, count, window) != OK:
            return c.status
        for i in range(count):
            if keeps(table, rules, header, &window[i], kept):
                if kept.count == 0 or window[i].timestamp > kept.max_timestamp:
                    kept.max_timestamp = window[i].timestamp
                kept.count += 1
            else:
                memmove(out + kept.size, run, <size_t>(window[i].start - run))
                kept.size += window[i].start - run
                run = window[i].end
    if c.pos != c.end:
        return TRAILING
    memmove(out + kept.size, run, <size_t>(c.pos - run))
    kept.size += c.pos - run
    return OK


cdef int64_t rebase_records(const BatchHeader* header, int64_t base_timestamp, const unsigned char* records,
                            int64_t size, unsigned char* out) noexcept nogil:
    """Rewrite well-formed records for a new base timestamp; return their new size. With `out` NULL, only compute the
    size."""
    cdef Cursor c, inner
    cdef unsigned char head[10]
    cdef unsigned char delta[10]
    cdef Py_ssize_t head_size, delta_size, rest
    cdef int64_t timestamp
    cdef int64_t total = 0
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
        head_size = store_varint(head, <int32_t>(1 + delta_size + rest))
        head[head_size] = (inner.end - length)[0]    # the attributes
        head_size += 1
        if out != NULL:
            memcpy(out + total, head, <size_t>head_size)
            memcpy(out + total + head_size, delta, <size_t>delta_size)
            memcpy(out + total + head_size + delta_size, inner.pos, <size_t>rest)
        total += head_size + delta_size + rest
    return total


cdef class BatchFilter:
    """Writes the kept records of a group of segments, batch by batch in order. One thread at a time.

        no record is left          the batch is removed, unless its header must stay (_stays_empty)
        aborted transaction        the batch's records are removed
        transaction marker         the filter stops, and the caller decides
        malformed records          the batch is kept whole, because its CRC is right
        wrong CRC                  the filter stops

    A compressed batch goes through `unpack`, and through `pack` if records were removed:

        unpack(codec, packed, base_offset) -> buffer, valid until the next call; None: keep the batch as it is. Kept
                                              records move to the front of a writable buffer
        pack(codec, records) -> bytes

    `producers` maps each active producer id to the offset after its last batch. `aborted` lists the base offsets of the
    batches of aborted transactions, sorted.
    """

    def __init__(self, KeyMap keys not None, *, int64_t mapped_end, int64_t retain_end, int64_t now_ms,
                 int64_t delete_retention_ms, producers, const int64_t[::1] aborted not None, unpack, pack):
        cdef int64_t i = 0
        self.unpack = unpack
        self.pack = pack
        self.aborted_view = aborted
        self.aborted = &aborted[0] if aborted.shape[0] else NULL
        self.aborted_count = aborted.shape[0]
        self.keys = keys
        self.rules.mapped_end = mapped_end
        self.rules.now_ms = now_ms
        self.rules.may_forget = True
        self.rules.keep_all = False
        self.horizon_ms = now_ms + min(delete_retention_ms, (<int64_t>1 << 62) - now_ms)
        self.retain_end = retain_end
        if producers and self.producer_ids == NULL:
            self.producer_ids = <int64_t*>malloc(<size_t>len(producers) * sizeof(int64_t))
            self.producer_ends = <int64_t*>malloc(<size_t>len(producers) * sizeof(int64_t))
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
        """Whether tombstones past their horizon are removed. False after damage, which may hide older records of the
        key."""
        return self.rules.may_forget

    @may_forget.setter
    def may_forget(self, bint value):
        self.rules.may_forget = value

    # ---- memory -----------------------------------------------------------------------------------------------------

    cdef int _reserve(self, int64_t size) noexcept nogil:
        """Reserve room for `size` more bytes of output."""
        cdef int64_t needed = self.out_size + size
        cdef int64_t capacity = needed + min(needed // 2, <int64_t>SPARE_MAX)
        cdef void* grown
        if needed <= self.out_capacity:
            return 0
        grown = realloc(self.out, <size_t>capacity)
        if grown == NULL:
            return NO_MEMORY
        self.out = <unsigned char*>grown
        self.out_capacity = capacity
        return 0

    cdef void _shrink(self) noexcept nogil:
        """Free empty buffers that a large batch has enlarged."""
        if self.out_capacity > KEPT_CAPACITY:
            free(self.out)
            self.out = NULL
            self.out_capacity = 0
        if self.scratch_capacity > KEPT_CAPACITY:
            free(self.scratch)
            self.scratch = NULL
            self.scratch_capacity = 0

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

    cdef bint _stays_empty(self, const ItemInfo* info) noexcept nogil:
        """Return whether the batch must keep its header even if no record is left.

        That is the last batch of an active producer, and the batch that ends the cleaned range.
        """
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

    cdef void _count(self, const ItemInfo* info) noexcept nogil:
        """Add the counts of the last judged batch to the totals."""
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
        """Write the header of a batch whose records are already in place."""
        memcpy(at, data, HEADER_SIZE)
        store_i32(at + BATCH_LENGTH_AT, <int32_t>(size - LENGTH_OVERHEAD))
        store_i16(at + ATTRIBUTES_AT, attributes)
        store_i64(at + BASE_TIMESTAMP_AT, base_timestamp)
        store_i64(at + MAX_TIMESTAMP_AT, max_timestamp)
        store_i32(at + RECORD_COUNT_AT, count)
        store_u32(at + CRC_AT, crc32c(at + CRC_FROM, <size_t>(size - CRC_FROM)))
        self.out_size += size

    cdef int _write_empty(self, const unsigned char* data, const ItemInfo* info) noexcept nogil:
        """Write a batch header without records, as Kafka's cleaner does."""
        if self._reserve(HEADER_SIZE) != 0:
            return NO_MEMORY
        self.changed_count += 1
        self._finish_batch(
            self.out + self.out_size, data, HEADER_SIZE,
            <int16_t>(info.attributes & (TRANSACTIONAL | CONTROL | LOG_APPEND_TIME)), -1, info.max_timestamp, 0)
        return 0

    cdef int _write_kept(self, const unsigned char* data, const ItemInfo* info, bint horizon) noexcept nogil:
        """Write an uncompressed batch with the kept records, and with a delete horizon if `horizon`.

        A batch gets a horizon when compaction first reaches its tombstones. The horizon is the batch's base timestamp,
        marked by attribute bit 6. So all timestamp deltas change. All other bytes of the records are copied.
        """
        cdef BatchHeader header
        cdef unsigned char* at
        cdef int64_t size = self.kept.size
        if horizon:
            parse_header(data, <Py_ssize_t>info.size, &header)
            size = rebase_records(&header, self.horizon_ms, self.kept_records, size, NULL)
        if self._reserve(HEADER_SIZE + size) != 0:
            return NO_MEMORY
        at = self.out + self.out_size
        self.changed_count += 1
        if horizon:
            rebase_records(&header, self.horizon_ms, self.kept_records, self.kept.size, at + HEADER_SIZE)
        else:
            memcpy(at + HEADER_SIZE, self.kept_records, <size_t>size)
        self._finish_batch(
            at, data, HEADER_SIZE + size, <int16_t>(info.attributes | (DELETE_HORIZON if horizon else 0)),
            self.horizon_ms if horizon else info.base_timestamp, self.kept.max_timestamp, self.kept.count)
        return 0

    cdef int _drop(self, const unsigned char* data, const ItemInfo* info) noexcept nogil:
        """Remove all records of a batch. Its header is still written if it must be kept."""
        if not self._stays_empty(info):
            self.changed_count += 1
            return 0
        return self._copy(data, info.size) if info.record_count == 0 else self._write_empty(data, info)

    cdef int _judge(self, const unsigned char* data, const ItemInfo* info, const unsigned char* records,
                    int64_t size, bint in_place) noexcept nogil:
        """Decide about a batch with these uncompressed records: return a BatchDecision, and set `kept` and
        `kept_records`.

        With `in_place`, the caller owns the records, and the kept ones move to their front.
        """
        cdef BatchHeader header
        self.kept_records = <unsigned char*>records
        if not in_place:
            if self._reserve_scratch(max(size, <int64_t>1)) != 0:
                return NO_MEMORY
            self.kept_records = self.scratch
        parse_header(data, <Py_ssize_t>info.size, &header)
        if judge_records(&self.keys.table, &self.rules, &header, records, size, self.kept_records, &self.kept) != OK:
            self.malformed_count += 1
            return KEEP_WHOLE
        self._count(info)
        if self.kept.count == 0:
            return KEEP_NOTHING
        if self.kept.count == info.record_count and not self._new_tombstones(info):
            return KEEP_WHOLE
        return KEEP_CHANGED

    cdef bint _new_tombstones(self, const ItemInfo* info) noexcept nogil:
        """Return whether the last judged batch has tombstones that need a delete horizon."""
        return self.kept.tombstone and not info.attributes & DELETE_HORIZON

    cdef int _filter_plain(self, const unsigned char* data, const ItemInfo* info) noexcept nogil:
        cdef int decision = self._judge(data, info, data + HEADER_SIZE, info.size - HEADER_SIZE, False)
        if decision == KEEP_WHOLE:
            return self._copy(data, info.size)
        if decision == KEEP_NOTHING:
            return self._drop(data, info)
        if decision == KEEP_CHANGED:
            return self._write_kept(data, info, self._new_tombstones(info))
        return NO_MEMORY

    cdef int _filter_packed(self, const unsigned char* data, const ItemInfo* info) except -2:
        cdef const unsigned char[::1] records
        cdef int result = KEEP_WHOLE
        cdef bint in_place
        unpacked = self.unpack(
            info.attributes & CODEC_MASK, lend(data + HEADER_SIZE, info.size - HEADER_SIZE), info.base_offset)
        if unpacked is not None:
            records = unpacked
            in_place = not memoryview(unpacked).readonly
            with nogil:
                result = self._judge(
                    data, info, &records[0] if records.shape[0] else NULL, records.shape[0], in_place)
        if result == KEEP_CHANGED:
            return self._pack_kept(data, info)
        with nogil:
            if result == KEEP_WHOLE:
                result = self._copy(data, info.size)
            elif result == KEEP_NOTHING:
                result = self._drop(data, info)
        return result

    cdef int _pack_kept(self, const unsigned char* data, const ItemInfo* info) except -2:
        """Write the last judged batch with its records compressed again. A delete horizon may make the records
        larger."""
        cdef const unsigned char[::1] block
        cdef BatchHeader header
        cdef bint horizon = self._new_tombstones(info)
        cdef const unsigned char* records = self.kept_records
        cdef int64_t size = self.kept.size
        if horizon:
            parse_header(data, <Py_ssize_t>info.size, &header)
            with nogil:
                size = rebase_records(&header, self.horizon_ms, records, size, NULL)
                if self._reserve(size) != 0:
                    return NO_MEMORY
                rebase_records(&header, self.horizon_ms, records, self.kept.size, self.out + self.out_size)
            records = self.out + self.out_size
        packed = self.pack(info.attributes & CODEC_MASK, lend(records, size))
        block = packed
        size = HEADER_SIZE + block.shape[0]
        if size > INT32_MAX or block.shape[0] == 0 or self._reserve(size) != 0:
            return NO_MEMORY
        with nogil:
            self.changed_count += 1
            memcpy(self.out + self.out_size + HEADER_SIZE, &block[0], <size_t>(size - HEADER_SIZE))
            self._finish_batch(
                self.out + self.out_size, data, size,
                <int16_t>(info.attributes | (DELETE_HORIZON if horizon else 0)),
                self.horizon_ms if horizon else info.base_timestamp, self.kept.max_timestamp, self.kept.count)
        return 0

    cdef int _filter_chunk(self, RecordFormat format, const unsigned char* map, int64_t* position, int64_t end,
                           int64_t out_max, ItemInfo* info) noexcept nogil:
        """Filter batches; return a Stop or NO_MEMORY. A compressed batch stops it too; `info` is then its header."""
        cdef const unsigned char* data
        cdef int result
        cdef int64_t pause = position[0] + PAUSE_BYTES
        while position[0] < end:
            data = map + position[0]
            if position[0] >= pause or self.out_size >= out_max:
                return STOP_PAUSE
            if format.parse(data, end - position[0], 0, info) != PARSED or not format.intact(data, info):
                return STOP_DAMAGED
            if info.attributes & CONTROL:
                return STOP_MARKER
            if info.attributes & TRANSACTIONAL and holds(self.aborted, self.aborted_count, info.base_offset):
                result = self._drop(data, info)
            elif info.attributes & CODEC_MASK and info.record_count > 0:
                return STOP_PACKED
            else:
                result = self._filter_plain(data, info)
            if result != 0:
                return NO_MEMORY
            position[0] += info.size
        return STOP_END

    def run(self, Segment segment not None, int64_t position, int64_t end, int64_t out_max):
        """Filter batches, from a batch boundary on, until `out_max` bytes of output are ready; return (Stop,
        position)."""
        cdef ItemInfo info
        cdef int64_t pause = position + PAUSE_BYTES
        cdef int stop = STOP_PACKED
        format = segment.format
        segment.pin()
        try:
            while stop == STOP_PACKED:
                with nogil:
                    stop = self._filter_chunk(format, segment.map, &position, end, out_max, &info)
                if stop == STOP_PACKED:
                    if self._filter_packed(segment.map + position, &info) != 0:
                        stop = NO_MEMORY
                    else:
                        position += info.size
                        if position >= pause:
                            stop = STOP_PAUSE
            segment.check_read()
        finally:
            segment.unpin()
        if stop == NO_MEMORY:
            raise MemoryError("no memory for a batch to be compacted")
        return stop, position

    # ---- markers: the caller decides --------------------------------------------------------------------------------

    cdef int _marker(self, Segment segment, int64_t position, MarkerDecision decision) except -1:
        cdef ItemInfo info
        cdef const unsigned char* data
        cdef int result
        cdef int64_t malformed_count = self.malformed_count
        segment.pin()
        try:
            data = segment.map + position
            if segment.format.parse(data, segment.size - position, 0, &info) != PARSED:
                segment.check_read()
                raise ValueError(f"there is no batch at {position}")
            if decision == MARKER_DROP:
                result = self._drop(data, &info)
            elif decision == MARKER_POSTPONE:
                self.rules.keep_all = True
                result = self._judge(data, &info, data + HEADER_SIZE, info.size - HEADER_SIZE, False)
                self.rules.keep_all = False
                if result == KEEP_WHOLE and self.malformed_count == malformed_count:
                    result = self._write_kept(data, &info, True)
                else:
                    result = self._copy(data, info.size)
            else:
                result = self._copy(data, info.size)
            segment.check_read()
        finally:
            segment.unpin()
        if result != 0:
            raise MemoryError("no memory for a batch to be compacted")
        return 0

    def copy(self, Segment segment not None, int64_t position):
        """Write a batch unchanged."""
        self._marker(segment, position, MARKER_COPY)

    def postpone(self, Segment segment not None, int64_t position):
        """Write an uncompressed marker with a delete horizon, so that a later compaction removes it."""
        self._marker(segment, position, MARKER_POSTPONE)

    def drop(self, Segment segment not None, int64_t position):
        """Remove a batch. Its header is still written if it must be kept."""
        self._marker(segment, position, MARKER_DROP)

    # ---- output -----------------------------------------------------------------------------------------------------

    def write(self, int fd, int64_t position):
        """Write the output to a file; return its size. Raises OSError; then any part of it may be in the file."""
        cdef int64_t written = 0
        if self.out_size:
            with nogil:
                written = file_pwrite(fd, self.out, self.out_size, position)
            if written < 0:
                raise OSError(<int>-written, _os.strerror(<int>-written))
        self.out_size = 0
        self._shrink()
        return written
