"""Declare the two passes of compaction: index the keys, then write the records that are kept.

kafkalite.broker.log.compaction calls both.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.log.key_map cimport KeyHash, KeyMap
from kafkalite._native.log.record_format cimport ItemInfo, RecordFormat
from kafkalite._native.log.segment cimport Segment

# Why a walk returned. Its position is where it stopped.
cdef enum Stop:
    STOP_END = 0            # at the end that it was given
    STOP_MARKER = 1         # before an intact marker: the caller's
    STOP_FULL = 2           # the key map is full
    STOP_DAMAGED = 3        # before bytes that are no intact batch
    STOP_PAUSE = 4          # enough bytes are processed that the caller may want to do something else
    STOP_PACKED = 5         # before a compressed batch: it takes the GIL

# What becomes of a batch.
cdef enum BatchDecision:
    KEEP_NOTHING = 0        # no record stays
    KEEP_WHOLE = 1          # it stays as it is; also when its records do not parse
    KEEP_CHANGED = 2        # some records stay, or all with a delete horizon

cdef enum MarkerDecision:   # of a marker
    MARKER_COPY = 0
    MARKER_POSTPONE = 1     # it stays until its delete horizon
    MARKER_DROP = 2

# Which batches the keys are noted of.
cdef struct Dirty:
    int64_t start_offset    # records below are left out
    int64_t upper           # batches from here on are left out
    const int64_t* aborted  # base offsets of batches of aborted transactions, rising
    int64_t aborted_count

# A record that is being decided about.
cdef struct Candidate:
    KeyHash hash            # if mapped, and it has a key
    const unsigned char* start
    const unsigned char* end
    int64_t offset
    int64_t timestamp       # ms
    int32_t key_size        # -1 null
    int32_t value_size      # -1 null
    bint mapped             # the map knows newer records of its key, if there are any

# What becomes of the records of a batch.
cdef struct Rules:
    int64_t mapped_end      # records from here on are not in the map yet: they stay
    int64_t now_ms
    bint may_forget         # tombstones whose time has come may go
    bint keep_all

cdef struct Kept:
    int64_t size            # bytes of the kept records
    int64_t max_timestamp   # of the kept records, ms
    int32_t count
    bint tombstone          # one of them is a tombstone that compaction has reached
    int32_t superseded, forgotten, keyless      # dropped, by reason

cdef class BatchFilter:
    cdef readonly KeyMap keys
    cdef Rules rules
    cdef readonly int64_t horizon_ms        # what tombstones reached for the first time are given
    cdef readonly int64_t retain_end        # a batch that ends here is kept even if empty
    cdef int64_t producer_count
    cdef int64_t* producer_ids              # rising
    cdef int64_t* producer_ends             # first offset after the last batch of each
    cdef object unpack
    cdef object pack
    cdef const int64_t[::1] aborted_view    # keeps the next alive
    cdef const int64_t* aborted             # base offsets of batches of aborted transactions, rising
    cdef int64_t aborted_count
    # Bytes ready to be written:
    cdef unsigned char* out
    cdef readonly int64_t out_size
    cdef int64_t out_capacity
    cdef unsigned char* scratch
    cdef int64_t scratch_capacity
    cdef Kept kept                          # of the batch judged last
    cdef unsigned char* kept_records        # its records that stay: in scratch, or in what was unpacked
    cdef readonly int64_t record_count, kept_count, superseded_count, forgotten_count, keyless_count
    cdef readonly int64_t malformed_count   # batches kept whole since their records cannot be read
    cdef readonly int64_t changed_count     # batches dropped or rewritten

    cdef int _reserve(self, int64_t size) noexcept nogil
    cdef int _reserve_scratch(self, int64_t size) noexcept nogil
    cdef bint _stays_empty(self, const ItemInfo* info) noexcept nogil
    cdef void _count(self, const ItemInfo* info) noexcept nogil
    cdef int _drop(self, const unsigned char* data, const ItemInfo* info) noexcept nogil
    cdef int _judge(self, const unsigned char* data, const ItemInfo* info, const unsigned char* records,
                    int64_t size, bint in_place) noexcept nogil
    cdef void _shrink(self) noexcept nogil
    cdef bint _new_tombstones(self, const ItemInfo* info) noexcept nogil
    cdef int _filter_plain(self, const unsigned char* data, const ItemInfo* info) noexcept nogil
    cdef int _filter_packed(self, const unsigned char* data, const ItemInfo* info) except -2
    cdef int _pack_kept(self, const unsigned char* data, const ItemInfo* info) except -2
    cdef int _filter_chunk(self, RecordFormat format, const unsigned char* map, int64_t* position, int64_t end,
                           int64_t out_max, ItemInfo* info) noexcept nogil
    cdef int _marker(self, Segment segment, int64_t position, MarkerDecision decision) except -1
    cdef int _copy(self, const unsigned char* data, int64_t size) noexcept nogil
    cdef int _write_empty(self, const unsigned char* data, const ItemInfo* info) noexcept nogil
    cdef int _write_kept(self, const unsigned char* data, const ItemInfo* info, bint horizon) noexcept nogil
    cdef void _finish_batch(self, unsigned char* at, const unsigned char* data, int64_t size, int16_t attributes,
                            int64_t base_timestamp, int64_t max_timestamp, int32_t count) noexcept nogil
