"""Define the interface of a stored record format, and implement it for record batches (`v2`).

A log knows only segments, positions and offsets. A format parses one stored item (a batch, or a message of Kafka 0.7),
checks its checksum, and writes offset and leader epoch into bytes that are about to be appended. classic_log implements
the format `classic` of Kafka 0.7.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

cdef enum ItemFault:
    ITEM_GOOD = 0                   # or refused for something else
    ITEM_MAGIC = 1                  # of another format
    ITEM_NUMBERS = 2                # offsets, count or sequence cannot be; or the client may not write such a batch

# The header fields that a format reads from one stored item.
cdef struct ItemInfo:
    int64_t position                # in the segment
    int64_t size                    # bytes, overhead included
    int64_t base_offset
    int64_t next_offset             # first offset after the batch
    int64_t base_timestamp          # ms; -1 none
    int64_t max_timestamp           # ms; -1 none
    int64_t producer_id             # -1 none
    int32_t base_sequence           # -1 none
    int32_t last_offset_delta
    int32_t record_count
    int32_t leader_epoch
    uint32_t crc
    int16_t producer_epoch
    int16_t attributes
    ItemFault fault                 # what check() and check_fields() found, where an error code tells too little

cdef enum ParseResult:
    PARSED = 0
    PARSE_INCOMPLETE = 1            # fewer bytes left than the item needs
    PARSE_INVALID = 2               # these bytes are not an item of this format

# The result of the walk over the uncompressed records of an appended item.
cdef struct RecordsVerdict:
    int error                       # Kafka error code, 0 good
    int64_t bad_index               # of the first bad record, -1 none
    int64_t max_timestamp           # ms, over all records

cdef class RecordFormat:
    cdef readonly str name          # value of the topic setting `message.format`
    cdef readonly str suffix        # of segment files
    cdef readonly int size_min      # bytes of the smallest item
    cdef readonly bint positional   # an offset is a byte position: that of the segment, plus the one in its file
    cdef int parse(self, const unsigned char* data, int64_t left, int64_t place, ItemInfo* out) noexcept nogil
    cdef bint intact(self, const unsigned char* data, const ItemInfo* info) noexcept nogil
    cdef int check(self, const unsigned char* data, int64_t size, int64_t size_max, ItemInfo* out) noexcept nogil
    cdef int check_fields(self, ItemInfo* info, bint internal) noexcept nogil
    cdef void check_records(self, const unsigned char* data, const ItemInfo* info, bint key_required,
                            int64_t timestamp_min, int64_t timestamp_max, RecordsVerdict* verdict) noexcept nogil
    cdef void correct_timestamp(self, unsigned char* data, ItemInfo* info, int64_t max_timestamp) noexcept nogil
    cdef void place(self, unsigned char* data, ItemInfo* info, int64_t base_offset,
                    int32_t leader_epoch) noexcept nogil
    cdef void stamp(self, unsigned char* data, ItemInfo* info, int64_t time_ms) noexcept nogil

cdef class V2Format(RecordFormat):
    pass

cdef RecordFormat V2
