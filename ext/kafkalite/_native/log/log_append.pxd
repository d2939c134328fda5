"""Append a batch to a log: check it, assign its offsets, write it and make it readable."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.record_format cimport ItemFault, ItemInfo
from kafkalite._native.log.segment cimport Segment

# The outcome of an append, for Python too.
cpdef enum:
    APPEND_DONE = 0             # the batch is in the log
    APPEND_DUPLICATE = 1        # the batch was in the log already: the result is the original's
    APPEND_REFUSED = 2          # see the result's `error`
    APPEND_DEFER = 3            # it must block (create, roll, unpack): retry with may_block=True on the io pool
    APPEND_ASK = 4              # it begins a transaction: retry with `admitted` once that is admitted

cdef enum:
    ANY_EPOCH = -1              # the append is valid in any leader epoch

# Conditions that the log must meet when the append is written.
cdef struct AppendTerms:
    int origin                  # one of FROM_..., see producers
    int64_t admitted            # marker_count() just before the batch's transaction was admitted
    int32_t in_epoch            # the only leader epoch in which the append is valid, or ANY_EPOCH
    bint acks_all               # refuse the append with fewer than min.insync.replicas in sync

cdef struct AppendResult:
    int error                   # Kafka's error code if refused, otherwise 0
    int64_t base_offset         # of the batch's first record (of the original's, for a duplicate); -1 on error
    int64_t append_time_ms      # the time stamped on LogAppendTime topics, otherwise -1
    int64_t log_start_offset    # -1 on error
    int64_t end_offset          # first offset after the batch, up to which acks=all waits for a flush
    int32_t leader_epoch        # of the batch in the log, -1 on error
    bint replicates             # the log had followers at the append: acks=all waits for them
    int64_t record_error_index  # index of the first bad record (KIP-467), -1 none
    int64_t timestamp_min       # with a bad record: the bounds of its timestamp, ms, inclusive
    int64_t timestamp_max
    bint flush_due              # log.flush.interval.messages requires a flush before any acknowledgement

cdef int append_records(LogCore log, unsigned char* batch, int64_t size, bint may_block, AppendResult* out,
                        const AppendTerms* terms) except -1
cdef int note_failed(LogCore log, int error, int64_t size, ItemFault fault=*) noexcept
cdef Segment writable_locked(LogCore log, const ItemInfo* info, bint may_block, int64_t now_ms)
