"""What a partition remembers of its idempotent producers (kafka-wire 6.1)."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.record_format cimport BatchInfo

cdef enum:
    WINDOW = 5                  # batches remembered for each producer, as clients may have in flight
    CHECK_DUPLICATE = 32767     # answer of check(): the batch is in the log already

cdef struct SequenceSpan:
    int32_t first_sequence
    int32_t last_sequence
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp           # ms: the batch's largest

cdef class ProducerEntry:
    cdef readonly int64_t producer_id
    cdef readonly int16_t epoch
    cdef readonly int32_t coordinator_epoch     # of the last transaction marker, -1 none
    cdef readonly int64_t transaction_offset    # first offset of the open transaction, -1 none
    cdef readonly int64_t last_offset           # of its newest batch or marker
    cdef readonly int64_t last_timestamp        # ms: of that batch
    cdef readonly int64_t seen_ms               # wall clock of the last append, for expiry
    cdef readonly int span_count
    cdef SequenceSpan spans[WINDOW]             # oldest first
    cdef int push(self, const BatchInfo* info, int64_t now_ms) except -1

cdef class ProducerTable:
    cdef dict entries                           # producer id -> ProducerEntry
    cdef public int64_t count_max               # above it the producers silent longest are forgotten
    cdef public bint dirty                      # changed since the last snapshot
    cdef int check(self, const BatchInfo* info, SequenceSpan* duplicate) except -1
    cdef int update(self, const BatchInfo* info, int64_t now_ms) except -1
    cdef ProducerEntry entry_of(self, const BatchInfo* info)
    cdef int update_marker(self, const BatchInfo* info, int64_t now_ms) except -1
