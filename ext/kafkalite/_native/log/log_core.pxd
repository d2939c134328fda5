"""Keep a partition's offsets and segments in C for ordinary Produce and Fetch requests, and read records.

log_append appends. kafkalite.broker.log.partition_log, which owns a core, does everything else.
"""

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.log.followers cimport Followers, OffsetWaits
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.producers cimport ProducerTable
from kafkalite._native.log.record_format cimport RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.log.segment_read cimport ReadResult

# What an append that has just succeeded must look at besides; 0 for most logs and most of the time.
cdef enum:
    DISK_WAS_FULL = 1           # the last write met a full disk
    HAS_REPLICAS = 2            # the high watermark is moved by followers' fetches, or by who follows

# Values that a listener gets instead of a number of appended bytes.
cdef enum:
    LOOK_AGAIN = 0              # the log's start moved, or it is gone, offline, led by another or in another epoch
    REPLICATED = -1             # the high watermark moved, and no append was it

cdef enum:
    NOT_YET = -1                # in place of an error code: the high watermark is below

# What went in and out of a log since it was loaded. Guarded by the GIL.
cdef struct Traffic:
    int64_t appends, appends_failed     # batches that clients, coordinators and others gave it
    int64_t checksums_failed            # of those, and the next two
    int64_t magics_failed               # batches of another format
    int64_t numbers_failed              # offsets, count or sequence that cannot be
    int64_t keys_missing                # records, in batches that a compacted topic refused for them
    int64_t records_in, bytes_in        # appended
    int64_t bytes_refused
    int64_t fetches, fetches_failed     # these and the next: counted where somebody asks for them
    int64_t bytes_out
    int64_t conversions                 # fetches whose records were made from another format

cdef class LockedLog:
    cdef LogCore log

cdef class LogListener:
    cdef int on_advance(self, LogCore log, int64_t appended_bytes) except -1

cdef class LogCore:
    cdef readonly object owner              # its PartitionLog: asked for what may block, and told of failures
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t log_start_offset, flushed_offset, log_end_offset
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset        # the log start while `producers` is not loaded
    cdef readonly int32_t leader_epoch
    cdef public int32_t deferred_appends    # > 0: earlier appends wait on the io pool, so later ones must defer too
    cdef readonly bint offline              # storage failed: every append and read answers KAFKA_STORAGE_ERROR
    cdef readonly bint deleted              # answers UNKNOWN_TOPIC_OR_PARTITION
    cdef readonly bint led                  # False: this broker is not the leader: NOT_LEADER_OR_FOLLOWER
    cdef bint shut                          # deleted or not led: what an append and a read look at
    cdef readonly int32_t leader_id         # if not led here: the known leader, or -1
    cdef readonly Followers followers       # None: it has none, or is led elsewhere
    cdef readonly RecordFormat format
    cdef readonly tuple segments            # of Segment, rising and never empty; replaced, never changed
    cdef Traffic traffic
    cdef readonly ProducerTable producers   # None until the first append or fetch
    cdef public dict admissions             # producer id → the question whether its transaction may begin, or None

    cpdef int64_t marker_count(self) noexcept
    cdef LogSlice read_slice(self, int64_t offset, int64_t size_max, bint whole_first_batch, int64_t upper_offset,
                             ReadResult* out, bint followed=*)
    cdef int add_listener(self, LogListener listener) except -1
    cdef int remove_listener(self, LogListener listener) except -1
    cpdef bint advance(self, double now) except -1
    cdef int replicated_error(self, int64_t end_offset) noexcept
    cdef OffsetWaits waits                  # for the high watermark; None before the first wait
    cdef OffsetWaits low_waits              # for the low watermark

    # For log_core, log_append, replica and classic_log alone:
    cdef readonly Segment active            # the last segment
    cdef PyThread_type_lock lock
    cdef dict listeners                     # LogListener -> True, the first to wait first; None: no listener. The GIL's
    cdef object clock
    cdef bint system_clock                  # the clock is the machine's own: no Python call needed
    cdef set dirty_logs                     # the manager's: owners of logs with unflushed bytes
    cdef readonly bint epoch_recorded       # leader_epoch is in leader-epoch-checkpoint
    cdef int after_write                    # DISK_WAS_FULL, HAS_REPLICAS
    cdef readonly int64_t cut_count         # how often its end was taken off
    cdef readonly int64_t unflushed_count   # records since the last flush
    cdef readonly double unflushed_since      # monotonic seconds of the oldest unflushed append, 0 none
    # Topic settings, live:
    cdef readonly int64_t segment_size_max, segment_ms, index_interval, index_count_max, message_size_max
    cdef readonly int64_t timestamp_before_max_ms, timestamp_after_max_ms, flush_messages
    cdef readonly bint log_append_time, compacted, validate_records, preallocate
    cdef readonly int16_t codec             # -1: keep the producer's
    cdef readonly int64_t roll_jitter_ms

    cdef int64_t now_ms(self) except? -1
    cdef int lock_acquire(self) except -1
    cdef int lock_release(self) except -1
    cdef int shut_error(self) noexcept
    cdef int after_write_locked(self) except -1
    cdef bint _advance_locked(self, double now) except -1
    cdef int settle_waits(self) except -1
    cdef int settle_low_waits(self) except -1
    cdef int move_stable(self) except -1
    cdef int move_stable_locked(self) except -1
    cdef int _check_offsets(self) except -1
    cdef int notify(self, int64_t appended_bytes) except -1
    cdef Segment segment_of(self, int64_t offset, tuple segments)
    cdef int _check_contiguous(self, tuple segments) except -1
    cdef Segment _next_segment(self, Segment segment, tuple segments)
    cdef int after_fault(self, Segment segment, ReadResult* out) except -1
