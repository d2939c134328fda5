"""Append the leader's batches to a follower's log, and truncate it where the two logs diverge."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore

# What became of records that a leader gave, for Python too.
cpdef enum:
    FOLLOW_DONE = 0
    FOLLOW_CORRUPT = 1          # a checksum is wrong, or these are no batches
    FOLLOW_OLD_FORMAT = 2       # batches of magic 0 or 1
    FOLLOW_OUT_OF_ORDER = 3     # offsets do not rise from batch to batch
    FOLLOW_UNEXPECTED = 4       # the first offset is below the log's end
    FOLLOW_FAILED = 5           # `error` says why: the storage, or the log is gone
    FOLLOW_STALE = 6            # the log follows in another epoch, or leads

# In place of the leader epoch in which a log follows.
cpdef enum:
    FOLLOWS_NOBODY = -2         # it leads
    FOLLOWS_ANYBODY = -1        # nothing was said yet

cdef struct Given:
    # The result of a walk over a leader's records.
    int outcome
    int64_t size                # bytes of the batches that may be appended
    int64_t first_offset        # of the first of them, -1 none
    int64_t last_offset         # of the first of them

cdef class Replica:
    cdef readonly LogCore log
    cdef public int32_t last_epoch          # of the log's epochs, -1 none
    cdef public int32_t follows             # the leader epoch in which it follows, or one of FOLLOWS_...; log's lock
    cdef bint _see_locked(self, int64_t high_watermark) except -1
    cdef int _append_locked(self, const unsigned char* data, const Given* given, int64_t* taken, int* error) except -1
    cdef int _take(self, const unsigned char* data, int64_t position, int64_t end, int64_t now_ms) except -1
