"""Convert columns to the records of batches, and batches to columns, without a Python object per record.

A column of bytes has three arrays: the data, and where each item starts and ends in the data (int64). Items may overlap
or leave gaps. An optional fourth array has a byte per item, 1 for null.

    encode   columns ──measure──▶ exact size ──fill──▶ header space, records ──(compress)──▶ header and CRC
    decode   batches ──add, add, …──▶ growing buffers ──take──▶ arrays over those buffers, without another copy

kafkalite.wire.record calls these functions for Python code, and compresses the records.

Thread rule: functions keep no state; seal() and adopt() write into the caller's buffer. Loops over many bytes run
without the GIL. A ColumnBuilder belongs to one thread at a time.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset
from kafkalite._native.base.crc32c cimport crc32c
from kafkalite._native.base.growing cimport Growing, drop_memory, refill, reserve, take_memory
from kafkalite._native.wire.aborted_filter cimport AbortedFilter, last_offset
from kafkalite._native.wire.batch cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    RECORD_SIZE_MIN,
    TRANSACTIONAL,
    BatchHeader,
    BatchInfo,
    RecordView,
    check_crc,
    next_header,
    next_record,
    parse_header,
    record_timestamp,
)
from kafkalite._native.wire.cursor cimport (
    Cursor,
    cursor_init,
    store_i16,
    store_i32,
    store_i64,
    store_u32,
    store_varint,
    store_varlong,
)
from kafkalite._native.wire.needles cimport Needles, Places
from kafkalite._native.wire.old_message cimport OldMessage, is_old, parse_old
from kafkalite._native.wire.status cimport (
    BAD_MAGIC,
    BAD_VALUE,
    LIMIT,
    NEGATIVE,
    OK,
    TOO_MANY,
    TRAILING,
    TRUNCATED,
    Status,
)

import numpy as np

from kafkalite._native.wire.batch import BatchError

cdef extern from *:
    """
    static inline int kl_varlong_size(int64_t value) {
        uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
        return (63 - __builtin_clzll(raw | 1)) / 7 + 1;
    }
    """
    int varint_size "kl_varlong_size"(int64_t value) noexcept nogil

cdef const unsigned char* NOTHING = b""

cdef enum:
    GIL_RELEASE_SIZE = 16384    # bytes of work below which a loop keeps the GIL

cdef enum:
    KEYS = 1                    # columns that a ColumnBuilder can collect besides offsets and timestamps: FIELDS
    VALUES = 2
    HEADERS = 4

FIELDS = {"keys": KEYS, "values": VALUES, "headers": HEADERS}


@cython.final
cdef class ColumnDoor:
    """Keeps the buffers of one Python column alive while C code reads them."""

    def __cinit__(self, source):
        self.data = source.data
        self.starts = source.starts
        self.ends = source.ends
        self.count = self.starts.shape[0]
        if self.ends.shape[0] != self.count:
            raise ValueError(f"a column has {self.count} starts and {self.ends.shape[0]} ends")
        self.column.size = self.data.shape[0]
        self.column.data = &self.data[0] if self.column.size else NOTHING
        self.column.nulls = NULL
        if source.nulls is not None:
            self.nulls = source.nulls
            if self.nulls.shape[0] != self.count:
                raise ValueError(f"a column has {self.count} items and {self.nulls.shape[0]} null marks")
            if self.count:
                self.column.nulls = &self.nulls[0]
        self.column.starts = &self.starts[0] if self.count else NULL
        self.column.ends = &self.ends[0] if self.count else NULL


# The input of one encoding. Absent parts have a NULL column.
cdef struct Source:
    const Column* keys
    const Column* values
    const int64_t* timestamps           # NULL: every record has `timestamp`
    int64_t timestamp
    const int64_t* header_ends          # entry i: the first header after record i's; NULL: no headers
    const int64_t* header_starts
    const Column* header_keys
    const Column* header_values
    int64_t header_count


cdef inline int64_t nullable_size(const Column* column, Py_ssize_t i) noexcept nogil:
    """Return the size of item i in a record, including its size field; -2 as item_size returns it."""
    cdef int64_t size
    if column == NULL:
        return 1
    size = item_size(column, i)
    return varint_size(size) + (size if size > 0 else 0) if size >= -1 else -2


cdef int64_t headers_size(const Source* source, Py_ssize_t i) noexcept nogil:
    """Return the size of record i's headers, including their count; -2 if an index is out of range."""
    cdef int64_t first, end, total, key, value, h
    if source.header_ends == NULL:
        return 1
    first = source.header_starts[i]
    end = source.header_ends[i]
    if first < 0 or end < first or end > source.header_count or end - first > INT32_MAX:
        return -2
    total = varint_size(end - first)
    for h in range(first, end):
        key = item_size(source.header_keys, h)
        value = nullable_size(source.header_values, h)
        if key < 0 or value < 0:
            return -2
        total += varint_size(key) + key + value
    return total


cdef inline int64_t body_size(
    const Source* source, Py_ssize_t i, int64_t delta, int64_t timestamp_delta
) noexcept nogil:
    """Return the value of a record's length field; -2 as item_size returns it."""
    cdef int64_t key = nullable_size(source.keys, i)
    cdef int64_t value = nullable_size(source.values, i)
    cdef int64_t headers = headers_size(source, i)
    if key < 0 or value < 0 or headers < 0:
        return -2
    return 1 + varint_size(timestamp_delta) + varint_size(delta) + key + value + headers


cdef inline int64_t timestamp_of(const Source* source, Py_ssize_t i) noexcept nogil:
    return source.timestamps[i] if source.timestamps != NULL else source.timestamp


cdef inline int64_t subtract(int64_t a, int64_t b) noexcept nogil:
    """Subtract with wrap-around, like the reader's addition."""
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef Py_ssize_t measure(
    const Source* source, Py_ssize_t first, Py_ssize_t end, int64_t size_max, int64_t* total
) noexcept nogil:
    """Return how many records from `first` on fit in `size_max` bytes, at least one, and set `total` to their size.

    Returns -1 - index for an invalid record.
    """
    cdef int64_t base = timestamp_of(source, first)
    cdef int64_t size
    cdef Py_ssize_t i
    total[0] = 0
    for i in range(first, end):
        size = body_size(source, i, i - first, subtract(timestamp_of(source, i), base))
        if size < 0 or size > INT32_MAX:
            return -1 - i
        size += varint_size(size)
        if i > first and size > size_max - total[0]:
            return i - first
        total[0] += size
    return end - first


cdef inline unsigned char* put_item(unsigned char* p, const Column* column, Py_ssize_t i) noexcept nogil:
    cdef int64_t size = item_size(column, i) if column != NULL else -1
    p += store_varint(p, <int32_t>size)
    if size > 0:
        memcpy(p, column.data + column.starts[i], <size_t>size)
        p += size
    return p


cdef unsigned char* put_headers(unsigned char* p, const Source* source, Py_ssize_t i) noexcept nogil:
    cdef int64_t h
    if source.header_ends == NULL:
        p[0] = 0
        return p + 1
    p += store_varint(p, <int32_t>(source.header_ends[i] - source.header_starts[i]))
    for h in range(source.header_starts[i], source.header_ends[i]):
        p = put_item(p, source.header_keys, h)
        p = put_item(p, source.header_values, h)
    return p


cdef int64_t fill(unsigned char* p, const Source* source, Py_ssize_t first, Py_ssize_t count) noexcept nogil:
    """Write the records that measure() counted; return their largest timestamp."""
    cdef int64_t base = timestamp_of(source, first)
    cdef int64_t largest = base
    cdef int64_t timestamp, delta
    cdef Py_ssize_t i
    for i in range(first, first + count):
        timestamp = timestamp_of(source, i)
        if timestamp > largest:
            largest = timestamp
        delta = subtract(timestamp, base)
        p += store_varint(p, <int32_t>body_size(source, i, i - first, delta))
        p[0] = 0
        p += 1
        p += store_varlong(p, delta)
        p += store_varint(p, <int32_t>(i - first))
        p = put_item(p, source.keys, i)
        p = put_item(p, source.values, i)
        p = put_headers(p, source, i)
    return largest


def encode_records(
    values not None, keys, const int64_t[::1] timestamps, int64_t timestamp, headers, Py_ssize_t first, Py_ssize_t end,
    int64_t size_max
):
    """Encode as many records from `first` up to `end` as fit in `size_max` bytes, at least one.

    `headers` has record_starts and record_ends, which are int64 arrays of indexes into its columns keys and values.

    Returns (bytearray, record count, first timestamp, largest timestamp). The bytearray has HEADER_SIZE free bytes
    before the records. Raises ValueError for an item outside of its data.
    """
    cdef Source source
    cdef ColumnDoor value_door = ColumnDoor(values)
    cdef ColumnDoor key_door = None if keys is None else ColumnDoor(keys)
    cdef ColumnDoor header_key_door, header_value_door
    cdef const int64_t[::1] header_starts, header_ends
    cdef int64_t total = 0, largest = 0
    cdef Py_ssize_t count
    cdef unsigned char[::1] output
    memset(&source, 0, sizeof(source))
    source.values = &value_door.column
    if key_door is not None:
        source.keys = &key_door.column
    if timestamps is not None and timestamps.shape[0]:
        source.timestamps = &timestamps[0]
    source.timestamp = timestamp
    require_count("values", value_door.count, end)
    if key_door is not None:
        require_count("keys", key_door.count, end)
    if timestamps is not None:
        require_count("timestamps", timestamps.shape[0], end)
    if first < 0 or first >= end:
        raise ValueError(f"no record lies between {first} and {end}")
    if headers is not None:
        header_key_door = ColumnDoor(headers.keys)
        header_value_door = ColumnDoor(headers.values)
        header_starts = headers.record_starts
        header_ends = headers.record_ends
        require_count("header starts", header_starts.shape[0], end)
        require_count("header ends", header_ends.shape[0], end)
        require_count("header values", header_value_door.count, header_key_door.count)
        source.header_starts = &header_starts[0]
        source.header_ends = &header_ends[0]
        source.header_keys = &header_key_door.column
        source.header_values = &header_value_door.column
        source.header_count = header_key_door.count
    with nogil:
        count = measure(&source, first, min(end, first + INT32_MAX), size_max, &total)
    if count < 0:
        raise ValueError(f"record {-1 - count} has a part that lies outside its data or is larger than 2 GiB")
    if total > INT32_MAX - HEADER_SIZE:
        raise ValueError(f"a batch of {total} bytes is more than the format allows")
    draft = bytearray(HEADER_SIZE + total)
    output = draft
    with nogil:
        largest = fill(&output[HEADER_SIZE], &source, first, count)
    return draft, count, timestamp_of(&source, first), largest


cdef int require_count(str what, Py_ssize_t count, Py_ssize_t end) except -1:
    if count < end:
        raise ValueError(f"{count} {what} for {end} records")
    return 0


def seal(
    unsigned char[::1] draft not None, *, int16_t attributes, int32_t count, int64_t base_timestamp,
    int64_t max_timestamp, int64_t base_offset=0, int32_t leader_epoch=-1, int64_t producer_id=-1,
    int16_t producer_epoch=-1, int32_t base_sequence=-1
):
    """Write the batch header and its CRC into the free bytes before the records. `attributes` must match these
    records."""
    cdef Py_ssize_t size = draft.shape[0]
    if size < HEADER_SIZE or size > INT32_MAX:
        raise ValueError(f"a batch of {size} bytes")
    if count < 1:
        raise ValueError("a batch without a record")
    cdef unsigned char* p = &draft[0]
    store_i64(p + BASE_OFFSET_AT, base_offset)
    store_i32(p + BATCH_LENGTH_AT, <int32_t>(size - LENGTH_OVERHEAD))
    store_i32(p + LEADER_EPOCH_AT, leader_epoch)
    p[MAGIC_AT] = MAGIC_V2
    store_i16(p + ATTRIBUTES_AT, attributes)
    store_i32(p + LAST_OFFSET_DELTA_AT, count - 1)
    store_i64(p + BASE_TIMESTAMP_AT, base_timestamp)
    store_i64(p + MAX_TIMESTAMP_AT, max_timestamp)
    store_i64(p + PRODUCER_ID_AT, producer_id)
    store_i16(p + PRODUCER_EPOCH_AT, producer_epoch)
    store_i32(p + BASE_SEQUENCE_AT, base_sequence)
    store_i32(p + RECORD_COUNT_AT, count)
    if size < GIL_RELEASE_SIZE:
        store_u32(p + CRC_AT, crc32c(p + CRC_FROM, <size_t>(size - CRC_FROM)))
        return
    with nogil:
        store_u32(p + CRC_AT, crc32c(p + CRC_FROM, <size_t>(size - CRC_FROM)))


def adopt(
    unsigned char[::1] batch not None, *, bint transactional, int64_t producer_id, int16_t producer_epoch,
    int32_t base_sequence
):
    """Rewrite a complete batch of another log as a batch of this producer.

    Records and codec stay; the other header fields are written as by seal(). Raises ValueError if the buffer is not
    exactly one batch.
    """
    cdef BatchHeader header
    cdef Py_ssize_t size = batch.shape[0]
    if size < HEADER_SIZE or parse_header(&batch[0], size, &header) != OK or header.size != size:
        raise ValueError(f"{size} bytes that are not one batch")
    seal(
        batch,
        attributes=<int16_t>(header.attributes & CODEC_MASK) | (TRANSACTIONAL if transactional else 0),
        count=header.record_count,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


# --- decoding ---------------------------------------------------------------------------------------------------------

cdef object take_array(Growing* g, object dtype):
    """Return the contents as an array, and give `g` a new buffer of that size if one is available."""
    cdef size_t size = g.size
    array = np.frombuffer(take_memory(g), dtype)
    refill(g, size)
    return array


# A column under construction: n + 1 offsets, the first of which is 0.
cdef struct GrowingColumn:
    Growing data
    Growing offsets
    Growing nulls
    int64_t null_count


cdef inline void push_i64(Growing* g, int64_t value) noexcept nogil:
    (<int64_t*>(g.data + g.size))[0] = value
    g.size += 8


cdef inline bint push_item(GrowingColumn* column, const unsigned char* data, int32_t size) noexcept nogil:
    """Append an item, for which reserve_items() made room. Return False if there is no memory for its data."""
    column.nulls.data[column.nulls.size] = size < 0
    column.nulls.size += 1
    column.null_count += size < 0
    if size > 0:
        if not reserve(&column.data, <size_t>size):
            return False
        memcpy(column.data.data + column.data.size, data, <size_t>size)
        column.data.size += <size_t>size
    push_i64(&column.offsets, <int64_t>column.data.size)
    return True


cdef bint reserve_items(GrowingColumn* column, size_t count) noexcept nogil:
    """Make room for the offsets and null marks of `count` more items."""
    if not reserve(&column.offsets, 8 * (count + 1)) or not reserve(&column.nulls, count):
        return False
    if column.offsets.size == 0:
        push_i64(&column.offsets, 0)
    return True


cdef struct ColumnMark:
    size_t data, offsets, nulls
    int64_t null_count


cdef struct BuilderMark:
    Py_ssize_t count
    ColumnMark keys, values, header_keys, header_values


cdef inline ColumnMark mark(const GrowingColumn* column) noexcept nogil:
    return ColumnMark(column.data.size, column.offsets.size, column.nulls.size, column.null_count)


cdef inline void reset(GrowingColumn* column, ColumnMark m) noexcept nogil:
    column.data.size = m.data
    column.offsets.size = m.offsets
    column.nulls.size = m.nulls
    column.null_count = m.null_count


cdef object take_column(GrowingColumn* column):
    """Return (data, offsets, nulls or None) of a column, and reset it."""
    cdef bint any_null = column.null_count > 0
    cdef size_t size = column.data.size
    column.null_count = 0
    data = take_memory(&column.data)
    refill(&column.data, size)
    return (
        data,
        take_array(&column.offsets, np.int64),
        take_array(&column.nulls, np.uint8) if any_null else drop(&column.nulls),
    )


cdef object drop(Growing* g):
    drop_memory(g)


cdef void release(GrowingColumn* column) noexcept:
    drop_memory(&column.data)
    drop_memory(&column.offsets)
    drop_memory(&column.nulls)


cdef int raise_for(Status status, int32_t bad) except -1:
    if status == LIMIT:
        raise MemoryError("room for decoded records")
    if status != OK:
        raise BatchError(status, bad)
    return 0


def following_offset(const unsigned char[::1] buffer not None, int64_t offset):
    """Return the offset after the last complete batch in `buffer`, and at least `offset`. Only headers are read."""
    return last_mark(buffer, offset)[0]


def last_mark(const unsigned char[::1] buffer not None, int64_t offset, int64_t end=INT64_MAX):
    """Read the batch headers in `buffer`; return (following_offset(), mark, epoch starts).

    The mark is (leader epoch, base offset, CRC) of the last complete batch that begins before `end`. If this is an
    entry of magic 0 or 1, which has no epoch, all three are -1. Epoch starts are (base offset, epoch), including the
    first batch's.
    """
    cdef Py_ssize_t size = buffer.shape[0]
    cdef const unsigned char* data = &buffer[0] if size else NOTHING
    cdef Py_ssize_t position = 0
    cdef int32_t epoch = -1
    cdef int64_t base = -1, crc = -1
    cdef BatchHeader header
    cdef OldMessage message
    epochs = []
    while True:
        if is_old(data + position, size - position):
            if parse_old(data + position, size - position, &message, False) != OK:
                break
            if message.offset < end:
                if epoch >= 0 or not epochs:
                    epochs.append((message.offset, -1))
                epoch, base, crc = -1, -1, -1
            offset = max(offset, message.offset + 1)
            position += <Py_ssize_t>message.size
            continue
        if parse_header(data + position, size - position, &header) != OK or header.size > size - position:
            break
        if header.base_offset < end:
            if header.leader_epoch != epoch or not epochs:
                epochs.append((header.base_offset, header.leader_epoch))
            epoch, base, crc = header.leader_epoch, header.base_offset, header.crc
        offset = max(offset, last_offset(&header) + 1)
        position += <Py_ssize_t>header.size
    return offset, (epoch, base, crc), tuple(epochs)


def wrapper_at(const unsigned char[::1] buffer not None, Py_ssize_t position, *, bint check_crcs):
    """Describe the compressed entry of magic 0 or 1 (a wrapper) at which add_run stopped. Raises BatchError.

    Returns (start and end of the compressed set, codec, magic, offset, timestamp, end of the entry), or None if no
    complete entry begins there. The timestamp in ms applies to all messages inside (LOG_APPEND_TIME), or is None.
    """
    cdef Py_ssize_t left = buffer.shape[0] - position
    cdef const unsigned char* data
    cdef OldMessage message
    cdef Status status
    if position < 0 or left <= 0:
        return None
    data = &buffer[position]
    if not is_old(data, left):
        return None
    status = parse_old(data, left, &message, check_crcs)
    if status == TRUNCATED:
        return None
    if status == OK and message.value == NULL:
        status = BAD_VALUE
    raise_for(status, -1)
    first = position + (message.value - data)
    stamp = message.timestamp if message.append_time else None
    end = position + message.size
    return first, first + message.value_size, message.codec, message.magic, message.offset, stamp, end


@cython.final
cdef class ColumnBuilder:
    """Collects the records of batches as columns. One thread at a time.

        add     adds all wanted records of a batch, or raises and adds none
        take    returns the columns and resets the builder

    With needles, only records that match one are collected, but all examined ones are counted. A batch whose bytes
    contain no needle is not parsed.
    """

    cdef Growing offsets, timestamps, types
    cdef GrowingColumn keys, values, header_keys, header_values
    cdef int fields                     # the wanted ones of KEYS, VALUES, HEADERS
    cdef Growing header_ends            # per record, with entry 0 being 0: n + 1 entries
    cdef readonly Py_ssize_t count      # records collected
    cdef readonly int64_t damaged_at    # after add_run raised: the offset of the unreadable batch
    cdef Needles needles                # None: all records are collected
    cdef readonly int64_t seen_count    # with needles: number of examined records
    cdef readonly int64_t marker_count  # with needles: number of transaction markers
    cdef readonly int64_t aborted_count     # with needles: offsets in batches of aborted transactions

    def __cinit__(self, fields=None, Needles needles=None):
        """Collect the columns `fields`, names of FIELDS, by default all."""
        cdef int wanted = 0
        self.needles = needles
        for name in FIELDS if fields is None else fields:
            wanted |= <int>FIELDS[name]
        self.fields = wanted

    def __dealloc__(self):
        drop_memory(&self.offsets)
        drop_memory(&self.timestamps)
        drop_memory(&self.types)
        drop_memory(&self.header_ends)
        release(&self.keys)
        release(&self.values)
        release(&self.header_keys)
        release(&self.header_values)

    @property
    def size(self):
        """The bytes of the collected keys, values and headers."""
        return self.bytes_collected()

    def add(
        self, BatchInfo info not None, const unsigned char[::1] records not None, int64_t first_offset=INT64_MIN,
        int64_t end_offset=INT64_MAX
    ):
        """Add the records with first_offset <= offset < end_offset; return their number. Raises BatchError.

        `records` is the uncompressed records block of the batch.
        """
        cdef Py_ssize_t size = records.shape[0]
        cdef const unsigned char* data = &records[0] if size else NOTHING
        cdef Py_ssize_t before = self.count
        cdef int32_t bad = -1
        cdef Status status
        if size < GIL_RELEASE_SIZE:
            status = self.collect(data, size, &info.header, first_offset, end_offset, &bad)
        else:
            with nogil:
                status = self.collect(data, size, &info.header, first_offset, end_offset, &bad)
        raise_for(status, bad)
        return self.count - before

    def add_run(
        self, const unsigned char[::1] buffer not None, Py_ssize_t position, int64_t offset, int64_t end_offset, *,
        bint check_crcs, AbortedFilter aborted=None, int64_t count_max=INT64_MAX, int64_t size_max=INT64_MAX
    ):
        """Add batches from `position` on, until the builder has `count_max` records or `size_max` bytes.

        It stops at a compressed or incomplete batch, which the caller must handle. Control batches, and batches that
        `aborted` drops, are skipped. Entries of magic 0 and 1 are handled in the same way.

        Returns the (position, offset) at which to continue; the offset is `end_offset` if that is reached. Raises
        BatchError, with all batches before the bad one added.
        """
        cdef Py_ssize_t size = buffer.shape[0]
        cdef const unsigned char* data = &buffer[0] if size else NOTHING
        cdef BatchHeader header
        cdef int32_t bad = -1
        cdef Py_ssize_t step = 0
        cdef Status status = OK
        header.base_offset = offset
        with nogil:
            while status == OK and 0 <= position <= size:
                if is_old(data + position, size - position):
                    status = self.take_old(data + position, size - position, check_crcs, end_offset, &offset, &step)
                    if status != OK or step == 0:
                        break
                    position += step
                    if self.is_full(count_max, size_max):
                        break
                    continue
                status = parse_header(data + position, size - position, &header)
                if status != OK or header.size > size - position:
                    break
                if last_offset(&header) >= offset:
                    if header.base_offset >= end_offset or self.is_full(count_max, size_max):
                        offset = max(offset, min(header.base_offset, end_offset))   # compaction left a gap up to there
                        break
                    if header.attributes & CODEC_MASK and not header.attributes & CONTROL:
                        break
                    if check_crcs:
                        status = check_crc(data + position, &header)
                    if status == OK:
                        status = self.take_batch(data + position, &header, offset, end_offset, aborted, &bad)
                    if status != OK:
                        break
                    offset = min(last_offset(&header) + 1, end_offset)
                position += <Py_ssize_t>header.size
        if status != TRUNCATED or bad >= 0:
            self.damaged_at = offset if status == BAD_MAGIC or status == NEGATIVE else max(offset, header.base_offset)
            raise_for(status, bad)
        return position, offset

    cdef bint is_full(self, int64_t count_max, int64_t size_max) noexcept nogil:
        return self.count >= count_max or <int64_t>self.bytes_collected() >= size_max

    cdef size_t bytes_collected(self) noexcept nogil:
        return (self.keys.data.size + self.values.data.size
                + self.header_keys.data.size + self.header_values.data.size)

    cdef Status take_old(
        self, const unsigned char* entry, Py_ssize_t left, bint check_crcs, int64_t end_offset, int64_t* offset,
        Py_ssize_t* size
    ) noexcept nogil:
        """Add one entry of magic 0 or 1, and set `size` to its size. 0: it is compressed, and the caller must handle
        it."""
        cdef OldMessage message
        cdef Status status = parse_old(entry, left, &message, False)
        size[0] = 0
        if status != OK:
            return status
        if message.offset >= offset[0]:
            if message.codec != 0:          # the offset is that of the last message inside
                return OK
            if message.offset >= end_offset:
                offset[0] = end_offset
                return OK
            offset[0] = message.offset
            status = parse_old(entry, left, &message, check_crcs)
            if status == OK:
                status = self.push_old(&message, message.timestamp, message.append_time)
            if status != OK:
                return status
            offset[0] += 1
        size[0] = <Py_ssize_t>message.size
        return OK

    cdef Status push_old(self, const OldMessage* message, int64_t timestamp, bint append_time) noexcept nogil:
        if self.needles is not None:
            self.seen_count += 1
            if not self.needles.found_in_fields(message.key, message.key_size, message.value, message.value_size):
                return OK
        if not self.reserve_records(1):
            return LIMIT
        if self.fields & KEYS and not push_item(&self.keys, message.key, message.key_size):
            return LIMIT
        if self.fields & VALUES and not push_item(&self.values, message.value, message.value_size):
            return LIMIT
        self.push_record(message.offset, timestamp, append_time)
        return OK

    cdef void push_record(self, int64_t offset, int64_t timestamp, bint append_time) noexcept nogil:
        """Append the fields that every record has. There must be room, and the record's headers must be appended
        before."""
        push_i64(&self.offsets, offset)
        push_i64(&self.timestamps, timestamp)
        self.types.data[self.types.size] = <char>append_time
        self.types.size += 1
        push_i64(&self.header_ends, <int64_t>self.header_keys.nulls.size)
        self.count += 1

    def add_inner(
        self, const unsigned char[::1] inner not None, int64_t wrapper_offset, *, int magic, timestamp,
        int64_t first_offset, int64_t end_offset, bint check_crcs
    ):
        """Add the wanted messages of a wrapper's decompressed set, all or none; see wrapper_at(). Raises BatchError."""
        cdef Py_ssize_t size = inner.shape[0]
        cdef const unsigned char* data = &inner[0] if size else NOTHING
        cdef bint stamped = timestamp is not None
        cdef int64_t stamp = timestamp if stamped else -1
        cdef BuilderMark before = self.mark_all()
        cdef Status status
        with nogil:
            status = self.walk_inner(
                data, size, wrapper_offset, magic, stamped, stamp, first_offset, end_offset, check_crcs
            )
            if status != OK:
                self.reset_all(&before)
        raise_for(status, -1)

    cdef Status walk_inner(
        self, const unsigned char* data, Py_ssize_t size, int64_t wrapper_offset, int magic, bint stamped,
        int64_t stamp, int64_t first_offset, int64_t end_offset, bint check_crcs
    ) noexcept nogil:
        cdef OldMessage message
        cdef Py_ssize_t position = 0
        cdef int64_t base = 0
        cdef Status status
        while position < size:          # to the last message, whose offset is the wrapper's
            status = parse_old(data + position, size - position, &message, check_crcs)
            if status != OK or message.codec != 0 or message.magic != magic:
                return BAD_VALUE if status == OK or status == TRUNCATED else status
            position += <Py_ssize_t>message.size
            if magic == 1:
                base = subtract(wrapper_offset, message.offset)
        position = 0
        while position < size:
            parse_old(data + position, size - position, &message, False)
            position += <Py_ssize_t>message.size
            message.offset = <int64_t>(<uint64_t>message.offset + <uint64_t>base)
            if message.offset < first_offset or message.offset >= end_offset:
                continue
            status = self.push_old(
                &message, stamp if stamped else message.timestamp, stamped or message.append_time
            )
            if status != OK:
                return status
        return OK

    cdef BuilderMark mark_all(self) noexcept nogil:
        """Return how much is collected, so that reset_all() can return to this state."""
        cdef BuilderMark m
        m.count = self.count
        m.keys = mark(&self.keys)
        m.values = mark(&self.values)
        m.header_keys = mark(&self.header_keys)
        m.header_values = mark(&self.header_values)
        return m

    cdef void reset_all(self, const BuilderMark* m) noexcept nogil:
        """Remove what was collected after the mark."""
        self.count = m.count
        self.offsets.size = self.timestamps.size = 8 * <size_t>m.count
        self.types.size = <size_t>m.count
        if self.header_ends.size:
            self.header_ends.size = 8 * <size_t>(m.count + 1)
        reset(&self.keys, m.keys)
        reset(&self.values, m.values)
        reset(&self.header_keys, m.header_keys)
        reset(&self.header_values, m.header_values)

    cdef Status take_batch(
        self, const unsigned char* batch, const BatchHeader* header, int64_t offset, int64_t end_offset,
        AbortedFilter aborted, int32_t* bad
    ) noexcept nogil:
        """Add one uncompressed batch, for add_run()."""
        cdef Py_ssize_t size = <Py_ssize_t>(header.size - HEADER_SIZE)
        cdef bint dropped = aborted is not None and aborted.drops(header)
        cdef Status status = OK
        if header.attributes & CONTROL:
            if aborted is not None:
                status = aborted.see_marker(batch + HEADER_SIZE, size, header)
                bad[0] = -1 if status == OK else 0
            self.marker_count += offset <= header.base_offset < end_offset
        elif not dropped:
            status = self.collect(batch + HEADER_SIZE, size, header, offset, end_offset, bad)
        else:
            self.count_aborted(header, offset, end_offset)
        return status

    cdef void count_aborted(self, const BatchHeader* header, int64_t offset, int64_t end_offset) noexcept nogil:
        self.aborted_count += min(last_offset(header) + 1, end_offset) - max(header.base_offset, offset)

    def note_aborted(self, BatchInfo info not None, int64_t offset, int64_t end_offset):
        """Count a compressed batch that an AbortedFilter dropped, as add_run() counts others."""
        self.count_aborted(&info.header, offset, end_offset)

    cdef Status collect(
        self, const unsigned char* records, Py_ssize_t size, const BatchHeader* header, int64_t first_offset,
        int64_t end_offset, int32_t* bad
    ) noexcept nogil:
        """Add all wanted records of one batch, or none."""
        cdef BuilderMark before
        cdef Status status
        if header.record_count < 0 or header.record_count > size // RECORD_SIZE_MIN:
            return TOO_MANY
        if header.record_count == 0:
            return TRAILING if size else OK
        if not self.reserve_records(<size_t>header.record_count):
            return LIMIT
        before = self.mark_all()
        if self.needles is None:
            status = self.walk(records, size, header, first_offset, end_offset, bad)
        else:
            status = self.walk_found(records, size, header, first_offset, end_offset, bad)
        if status == OK:
            bad[0] = -1
            return OK
        self.reset_all(&before)
        return status

    cdef bint reserve_records(self, size_t count) noexcept nogil:
        """Make room for `count` more records in each array that has an entry per record, and write entry 0 if it is
        new."""
        if not (
            reserve(&self.offsets, 8 * count)
            and reserve(&self.timestamps, 8 * count)
            and reserve(&self.types, count)
            and reserve(&self.header_ends, 8 * (count + 1))
            and reserve_items(&self.keys, count)
            and reserve_items(&self.values, count)
            and reserve_items(&self.header_keys, 0)
            and reserve_items(&self.header_values, 0)
        ):
            return False
        if self.header_ends.size == 0:
            push_i64(&self.header_ends, 0)
        return True

    cdef Status walk(
        self, const unsigned char* records, Py_ssize_t size, const BatchHeader* header, int64_t first_offset,
        int64_t end_offset, int32_t* bad
    ) noexcept nogil:
        cdef Cursor c
        cdef RecordView record
        cdef int64_t offset
        cdef Status status
        cdef bint append_time = header.attributes & LOG_APPEND_TIME != 0
        cdef int fields = self.fields
        cursor_init(&c, records, size)
        for bad[0] in range(header.record_count):
            if next_record(&c, &record) != OK:
                return c.status
            offset = header.base_offset + record.offset_delta
            if offset < first_offset or offset >= end_offset:
                continue
            if fields & KEYS and not push_item(&self.keys, record.key, record.key_size):
                return LIMIT
            if fields & VALUES and not push_item(&self.values, record.value, record.value_size):
                return LIMIT
            if fields & HEADERS and record.header_count != 0:
                status = self.walk_headers(&record)
                if status != OK:
                    return status
            self.push_record(offset, record_timestamp(header, record.timestamp_delta), append_time)
        return OK if c.pos == c.end else TRAILING

    cdef Status walk_found(
        self, const unsigned char* records, Py_ssize_t size, const BatchHeader* header, int64_t first_offset,
        int64_t end_offset, int32_t* bad
    ) noexcept nogil:
        """Add the records that match a needle. After the last needle in a batch, the rest of it is counted without
        parsing."""
        cdef Cursor c
        cdef RecordView record
        cdef Places places
        cdef const unsigned char* end = records + size
        cdef const unsigned char* at = self.needles.first_from(&places, records, end, True)
        cdef bint whole = header.base_offset >= first_offset and last_offset(header) < end_offset
        cdef int64_t offset, seen = 0
        cdef Status status = OK
        cursor_init(&c, records, size)
        for bad[0] in range(header.record_count):
            if at == end and whole and self.needles.count:
                seen += header.record_count - bad[0]
                break
            if next_record(&c, &record) != OK:
                return c.status
            offset = header.base_offset + record.offset_delta
            if offset < first_offset or offset >= end_offset:
                continue
            seen += 1
            if record.end <= at and self.needles.count:
                continue
            at = self.needles.first_from(&places, record.end, end, False)
            if self.needles.found_in(&record):
                status = self.push_found(header, &record, offset)
                if status != OK:
                    return status
        self.seen_count += seen
        return OK

    cdef Status push_found(self, const BatchHeader* header, const RecordView* record, int64_t offset) noexcept nogil:
        """Append one record, for which there is room."""
        cdef Status status = OK
        if self.fields & KEYS and not push_item(&self.keys, record.key, record.key_size):
            return LIMIT
        if self.fields & VALUES and not push_item(&self.values, record.value, record.value_size):
            return LIMIT
        if self.fields & HEADERS and record.header_count != 0:
            status = self.walk_headers(record)
        self.push_record(
            offset, record_timestamp(header, record.timestamp_delta), header.attributes & LOG_APPEND_TIME != 0
        )
        return status

    cdef Status walk_headers(self, const RecordView* record) noexcept nogil:
        cdef Cursor c
        cdef const unsigned char* key
        cdef const unsigned char* value
        cdef int32_t key_size, value_size, _i
        cursor_init(&c, record.headers, record.end - record.headers)
        if not reserve_items(&self.header_keys, <size_t>record.header_count):
            return LIMIT
        if not reserve_items(&self.header_values, <size_t>record.header_count):
            return LIMIT
        for _i in range(record.header_count):
            if next_header(&c, &key, &key_size, &value, &value_size) != OK:
                return c.status
            if not push_item(&self.header_keys, key, key_size) or not push_item(&self.header_values, value, value_size):
                return LIMIT
        return OK if c.pos == c.end else TRAILING

    def take(self):
        """Return the collected columns (offsets, timestamps, keys, values, headers, types), and reset the builder.

        keys and values are (memoryview, n + 1 offsets, nulls or None), empty if not wanted. headers is (n + 1 record
        offsets, keys, values) or None. types has 1 for LOG_APPEND_TIME.
        """
        if not self.reserve_records(0):
            raise MemoryError("room for decoded records")
        cdef bint any_header = self.header_keys.nulls.size > 0
        header_ends = take_array(&self.header_ends, np.int64)
        header_keys = take_column(&self.header_keys)
        header_values = take_column(&self.header_values)
        self.count = 0
        return (
            take_array(&self.offsets, np.int64),
            take_array(&self.timestamps, np.int64),
            take_column(&self.keys),
            take_column(&self.values),
            (header_ends, header_keys, header_values) if any_header else None,
            take_array(&self.types, np.uint8),
        )
