"""Keep a partition's offsets and segments in C for ordinary Produce and Fetch requests, and read records.

log_append appends. kafkalite.broker.log.partition_log, which owns a core, does everything else.

The offsets are ordered:

    log_start <= flushed <= log_end
    log_start <= last_stable <= high_watermark <= log_end

There are three kinds of logs:

    standalone    high_watermark is log_end
    replicated    high_watermark is where all in-sync replicas have the records
    positional    high_watermark is flushed (Kafka 0.7)

Thread rules:

    lock        orders all changes of the log: append, roll, log start, producers, segments
    reads       take no lock. `segments` and the offsets are stored together under the GIL
    listeners   are called with the GIL, without the lock, on the thread that moved an offset. They must not block
"""

cimport cython
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    WAIT_LOCK,
)
from libc.errno cimport EIO
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kafkalite._native.base.debug cimport KL_DEBUG, kl_assert
from kafkalite._native.log.followers cimport Followers
from kafkalite._native.log.log_slice cimport LogSlice, make_slice
from kafkalite._native.log.producers cimport ProducerTable
from kafkalite._native.log.record_format cimport RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.log.segment_read cimport (
    READ_DEFER, READ_FOUND, READ_NOTHING, READ_PAST_END, ReadResult, refuse_read, slice_segment,
)
from kafkalite._native.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)


@cython.final
cdef class LockedLog:
    """Holds a log's lock during a `with` block."""

    def __enter__(self):
        self.log.lock_acquire()

    def __exit__(self, *_error):
        self.log.lock_release()


cdef class LogListener:
    """The base class of objects that are notified when the readable end of a log moves."""

    cdef int on_advance(self, LogCore log, int64_t appended_bytes) except -1:
        """Handle a change, with the GIL and without a log's lock. `appended_bytes` may also be LOOK_AGAIN or
        REPLICATED."""
        return 0


@cython.final
cdef class LogCore:
    """The part of a partition's log that ordinary Produce and Fetch requests need.

    The owner, a PartitionLog, does the steps that may block or need a codec:

        prepare_segment_locked(roll)      make `active` writable: file, index, recorded epoch, roll; None: it failed
        load_producers_locked()           call set_producers(); False: it failed
        check_compressed(...), recode(...)    look into a compressed batch, give it another codec
        write_failed_locked(errno)        a write failed and was truncated
        read_failed(segment, errno)       a segment cannot be read; any thread, with or without the lock
        storage_recovered_locked()        a write succeeded again after a full disk
        flush_due(end_offset)             flush.messages requires a flush; acknowledgements wait for it separately

    The packages `serve` and `classic` also call the owner's flush_async, faults_of, check_wrappers, epoch_end,
    verify_blocking and as_batches. Ordinary requests need none of these.
    """

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no lock for a log")
        self.segments = ()
        self.segment_size_max = INT32_MAX
        self.segment_ms = INT64_MAX
        self.index_interval = 4096
        self.index_count_max = INT32_MAX
        self.message_size_max = INT32_MAX
        self.timestamp_before_max_ms = INT64_MAX
        self.timestamp_after_max_ms = INT64_MAX
        self.flush_messages = INT64_MAX
        self.codec = -1
        self.led = True
        self.leader_id = -1

    def __init__(self, owner, str topic, int32_t partition, RecordFormat format, clock, *, set dirty_logs not None,
                 bint system_clock=False, bint replicated=False):
        self.owner = owner
        self.after_write = HAS_REPLICAS if replicated else 0
        self.topic = topic
        self.partition = partition
        self.format = format
        self.clock = clock
        self.dirty_logs = dirty_logs
        self.system_clock = system_clock

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    @property
    def name(self):
        """The name in the form `topic-partition`."""
        return f"{self.topic}-{self.partition}"

    @property
    def replicated(self):
        """Whether set_high_watermark() moves the high watermark, instead of appends."""
        return bool(self.after_write & HAS_REPLICAS)

    @property
    def storage_full(self):
        """Whether the last write failed because of a full disk."""
        return bool(self.after_write & DISK_WAS_FULL)

    @storage_full.setter
    def storage_full(self, bint full):
        self.after_write = <int>(self.after_write & ~DISK_WAS_FULL | (DISK_WAS_FULL if full else 0))

    # ---- lock -------------------------------------------------------------------------------------------------------

    cdef int lock_acquire(self) except -1:
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self.lock, WAIT_LOCK)
        return 0

    cdef int lock_release(self) except -1:
        kl_assert(not PyThread_acquire_lock(self.lock, NOWAIT_LOCK))
        PyThread_release_lock(self.lock)
        return 0

    def locked(self):
        """Return a context manager that holds the log's lock. kafkalite.broker.log.manager has the order of locks.

        A thread waits for the lock without the GIL. The thread that holds it may release the GIL during a write.
        """
        cdef LockedLog held = LockedLog.__new__(LockedLog)
        held.log = self
        return held

    cdef int64_t now_ms(self) except? -1:
        cdef timespec now
        if self.system_clock:
            clock_gettime(CLOCK_REALTIME, &now)
            return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        return self.clock.time_ms()

    # ---- state -------------------------------------------------------------------------------------------------------

    cdef int shut_error(self) noexcept:
        """Return the Kafka error code of a log that was deleted or is led elsewhere."""
        return UNKNOWN_TOPIC_OR_PARTITION if self.deleted else NOT_LEADER_OR_FOLLOWER

    def gauges(self):
        """Return (bytes, number of segments, first offset, end offset, unflushed bytes), for metrics."""
        cdef Segment segment
        cdef int64_t size = 0
        cdef int64_t flushed = 0
        cdef tuple segments = self.segments
        for segment in segments:
            size += segment.size
            flushed += segment.flushed_size
        return size, len(segments), self.log_start_offset, self.log_end_offset, size - flushed

    cpdef int64_t marker_count(self) noexcept:
        """Return the number of transaction markers that this log has applied.

        A caller reads it before a transaction is admitted, and passes it to the next append as `admitted`. A marker
        that was written in between revokes the admission.
        """
        return self.producers.marker_count if self.producers is not None else 0

    # ---- watermarks --------------------------------------------------------------------------------------------------

    cdef int after_write_locked(self) except -1:
        """Report after a write that a full disk has space again, and move the watermarks."""
        if self.after_write & DISK_WAS_FULL:
            self.owner.storage_recovered_locked()
        if not self.after_write & HAS_REPLICAS:
            self.high_watermark = self.log_end_offset
        elif self.followers is not None and self.followers.maximal_count == 1:
            self._advance_locked(self.clock.monotonic())
        return self.move_stable_locked()

    cdef int move_stable_locked(self) except -1:
        """Move the last stable offset, in a replicated log too.

        It is the first offset of the oldest open transaction; without one, it is the high watermark. In a replicated
        log, a transaction counts as open until the high watermark has passed its marker.
        """
        cdef int64_t offset
        if not self.after_write & HAS_REPLICAS:
            return self.move_stable()
        offset = min(self.producers.first_undecided(), self.high_watermark)
        if offset > self.last_stable_offset:
            self.last_stable_offset = offset
        return self._check_offsets()

    cdef int move_stable(self) except -1:
        """Move the last stable offset of a log that is not replicated. It never decreases.

        An aborted transaction is recorded before this offset moves.
        """
        cdef int64_t offset = min(self.producers.first_open_offset, self.high_watermark)
        # A log start inside an open transaction has moved it past that one's first offset already.
        if offset > self.last_stable_offset:
            self.last_stable_offset = offset
        return self._check_offsets()

    cdef int _check_offsets(self) except -1:
        kl_assert(self.log_start_offset <= self.last_stable_offset)
        kl_assert(self.last_stable_offset <= self.high_watermark)
        kl_assert(self.high_watermark <= self.log_end_offset)
        kl_assert(self.flushed_offset <= self.log_end_offset)
        return 0

    # ---- read -------------------------------------------------------------------------------------------------------

    cdef Segment segment_of(self, int64_t offset, tuple segments):
        """Return the segment for `offset`: the last one that starts at or below it, or the first."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(segments)
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if (<Segment>segments[middle]).base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return <Segment>segments[max(low - 1, 0)]

    cdef LogSlice read_slice(self, int64_t offset, int64_t size_max, bint whole_first_batch, int64_t upper_offset,
                             ReadResult* out, bint followed=False):
        """Read whole batches in at most `size_max` bytes, all below `upper_offset`. Return None unless READ_FOUND.

        The first batch is the one that contains `offset`, or the next one. With `whole_first_batch` it may exceed
        `size_max`. `followed` allows reading a log that this broker does not lead. READ_DEFER: call read_blocking() on
        the I/O pool first.

        Errors: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE (quarantined), KAFKA_STORAGE_ERROR, UNSUPPORTED_FOR_MESSAGE_FORMAT,
        UNKNOWN_TOPIC_OR_PARTITION (deleted), NOT_LEADER_OR_FOLLOWER.
        """
        cdef tuple segments = self.segments
        cdef int64_t log_end = self.log_end_offset
        cdef Segment segment
        out.outcome = READ_NOTHING
        out.error = 0
        if self.shut and (self.deleted or not followed):
            refuse_read(out, self.shut_error())
        elif self.offline:
            refuse_read(out, KAFKA_STORAGE_ERROR)
        elif self.format.positional:
            refuse_read(out, UNSUPPORTED_FOR_MESSAGE_FORMAT)
        elif offset < self.log_start_offset or offset > log_end:
            refuse_read(out, OFFSET_OUT_OF_RANGE)
        if out.error != 0 or offset >= log_end or offset >= upper_offset:
            return None
        if upper_offset >= log_end:
            upper_offset = INT64_MAX
        segment = self.segment_of(offset, segments)
        while segment is not None:
            if segment.damage is not None and segment.is_quarantined(offset):
                refuse_read(out, CORRUPT_MESSAGE)
                return None
            if segment.size > 0:
                if not segment.try_pin():
                    out.outcome = READ_DEFER
                    return None
                out.outcome = READ_DEFER
                try:
                    slice_segment(segment, offset, size_max, whole_first_batch, upper_offset, segment.size, out)
                    if segment.has_fault() or (segment.index is not None and segment.index.has_fault()):
                        self.after_fault(segment, out)
                finally:
                    if out.outcome != READ_FOUND:
                        segment.unpin()
                if out.outcome == READ_FOUND:
                    return make_slice(self.owner, segment, out.start, out.end - out.start)
                if out.outcome != READ_PAST_END:
                    return None
            segment = self._next_segment(segment, segments)
        out.outcome = READ_NOTHING
        return None

    cdef int after_fault(self, Segment segment, ReadResult* out) except -1:
        """Handle a read that got zeros instead of a file's bytes. An index is rebuilt; a log goes offline."""
        if not segment.has_fault():
            segment.forget_index()
            out.outcome = READ_DEFER
        else:
            refuse_read(out, KAFKA_STORAGE_ERROR)
            self.owner.read_failed(segment, EIO)
        return out.outcome

    cdef Segment _next_segment(self, Segment segment, tuple segments):
        """Return the segment after one of `segments`, or None. It is slow, but a gap at the end of a segment is
        rare."""
        cdef Py_ssize_t i
        for i in range(len(segments) - 1):
            if segments[i] is segment:
                return <Segment>segments[i + 1]
        return None

    # ---- listeners --------------------------------------------------------------------------------------------------

    cdef int add_listener(self, LogListener listener) except -1:
        if self.listeners is None:
            self.listeners = {}
        self.listeners[listener] = True
        return 0

    cdef int remove_listener(self, LogListener listener) except -1:
        if self.listeners is not None:
            self.listeners.pop(listener, None)
            if not self.listeners:
                self.listeners = None
        return 0

    cdef int notify(self, int64_t appended_bytes) except -1:
        cdef list listeners
        cdef Py_ssize_t i
        if self.listeners is None:
            return 0
        listeners = list(self.listeners)                # which others change meanwhile
        for i in range(len(listeners)):
            (<LogListener>listeners[i]).on_advance(self, appended_bytes)
        return 0

    def wake_listeners(self):
        """Notify listeners that the log start or the readable end moved, or that the log is gone. The lock must not be
        held."""
        self.notify(LOOK_AGAIN)
        if self.waits is not None:
            self.settle_waits()
        if self.low_waits is not None:
            self.settle_low_waits()

    # ---- followers: what a leader's log needs at an append; leading.pyx has the rest ---------------------------------

    def use_followers(self, Followers followers):
        """Set the followers that advance() counts, None for none. The caller holds the log's lock."""
        self.followers = followers

    cpdef bint advance(self, double now) except -1:
        """Raise the high watermark to the replicated end; return whether it moved.

        `now` is in monotonic seconds. The lock must not be held.
        """
        if self.followers is None or self.followers.replicated_end(self.log_end_offset, now) <= self.high_watermark:
            return False
        self.lock_acquire()
        try:
            if not self._advance_locked(now):
                return False
        finally:
            self.lock_release()
        self.notify(REPLICATED)
        if self.waits is not None:
            self.settle_waits()
        return True

    cdef bint _advance_locked(self, double now) except -1:
        cdef int64_t offset
        if self.followers is None or self.shut:
            return False
        offset = self.followers.replicated_end(self.log_end_offset, now)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers is not None:
            self.producers.forget_replicated(offset)
            self.move_stable_locked()
        return True

    cdef int replicated_error(self, int64_t end_offset) noexcept:
        """Return the error code of an acks=all request that waits for `end_offset`: 0 none, NOT_YET if it must still
        wait."""
        if self.shut or self.offline:
            return self.shut_error() if self.shut else KAFKA_STORAGE_ERROR
        if self.high_watermark < end_offset:
            return NOT_YET
        if self.followers is not None and self.followers.maximal_count < self.followers.enough():
            return NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return 0

    cdef int settle_waits(self) except -1:
        """End the waits whose offset the high watermark has reached, or all of them if this broker no longer leads or
        serves the log."""
        cdef int error = self.replicated_error(0)
        cdef int64_t reached = INT64_MAX if self.shut or self.offline else self.high_watermark
        return self.waits.settle(reached, error)

    cdef int settle_low_waits(self) except -1:
        """End the waits whose offset the low watermark has reached, or all of them if the log is gone."""
        cdef int error = 0
        cdef int64_t reached = self.log_start_offset
        if self.shut or self.offline:
            error = self.shut_error() if self.shut else KAFKA_STORAGE_ERROR
            reached = INT64_MAX
        elif self.followers is not None:
            reached = self.followers.low_watermark(reached)
        return self.low_waits.settle(reached, error)

    # ---- Python's view ----------------------------------------------------------------------------------------------

    def read_copy(self, int64_t offset, int64_t size_max, *, bint whole_first_batch=True, upper_offset=None):
        """Read like read_slice(); return (outcome, error, bytes). The error is Kafka's code, 0 unless refused."""
        cdef ReadResult result
        cdef LogSlice found = self.read_slice(
            offset, size_max, whole_first_batch, INT64_MAX if upper_offset is None else upper_offset, &result)
        if found is None:
            return result.outcome, result.error, b""
        try:
            return result.outcome, result.error, found.tobytes()
        finally:
            found.release()

    def slice_at(self, int64_t offset, int64_t size_max, *, bint whole_first_batch=True):
        """Read like read_slice(); return (outcome, error, LogSlice or None). The caller releases the slice."""
        cdef ReadResult result
        found = self.read_slice(offset, size_max, whole_first_batch, INT64_MAX, &result)
        return result.outcome, result.error, found

    # ---- for the owner ----------------------------------------------------------------------------------------------

    def configure(self, *, int64_t segment_size_max, int64_t segment_ms, int64_t roll_jitter_ms,
                  int64_t index_interval, int64_t index_count_max, int64_t message_size_max, bint log_append_time,
                  int64_t timestamp_before_max_ms, int64_t timestamp_after_max_ms, bint compacted,
                  bint validate_records, int64_t flush_messages, int16_t codec=-1, bint preallocate=False):
        """Set the topic's settings for later appends."""
        self.segment_size_max = segment_size_max
        self.segment_ms = segment_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.index_interval = index_interval
        self.index_count_max = index_count_max
        self.message_size_max = message_size_max
        self.log_append_time = log_append_time
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.compacted = compacted
        self.validate_records = validate_records
        self.flush_messages = flush_messages
        self.codec = codec
        self.preallocate = preallocate

    def set_segments(self, tuple segments):
        """Replace the list of segments; the last one becomes active. Raises ValueError for an empty list."""
        cdef Segment last
        if not segments:
            raise ValueError("a log has at least one segment")
        for i in range(1, len(segments)):
            assert (<Segment>segments[i - 1]).base_offset < (<Segment>segments[i]).base_offset, "segments out of order"
        last = <Segment?>segments[len(segments) - 1]
        if KL_DEBUG:
            self._check_contiguous(segments)
        self.active = last
        self.segments = segments

    cdef int _check_contiguous(self, tuple segments) except -1:
        """Check that a new active segment starts at the log end (in a replica: at most there).

        In a positional format, each segment also starts where the previous one ends. In other formats compaction leaves
        gaps.
        """
        cdef Segment before, segment
        for i in range(1, len(segments)):
            before, segment = <Segment>segments[i - 1], <Segment>segments[i]
            kl_assert(before.base_offset < segment.base_offset)
            if self.format.positional:
                kl_assert(before.base_offset + before.size == segment.base_offset)
        if self.active is not None:
            segment = <Segment>segments[len(segments) - 1]
            kl_assert(segment.base_offset <= self.log_end_offset)
            if segment.base_offset > self.active.base_offset and not self.owner.REPLICATED:
                kl_assert(segment.base_offset == self.log_end_offset)
        return 0

    def set_offsets(self, int64_t log_start, int64_t flushed, int64_t log_end):
        """Set the offsets of a log that is being opened."""
        kl_assert(self.log_end_offset <= log_end)
        kl_assert(0 <= log_start)
        kl_assert(log_start <= flushed)
        kl_assert(flushed <= log_end)
        assert 0 <= log_start <= flushed <= log_end, f"offsets out of order: {log_start}, {flushed}, {log_end}"
        self.log_start_offset = log_start
        self.flushed_offset = flushed
        self.log_end_offset = log_end
        self.high_watermark = flushed if self.format.positional else log_end
        if self.after_write & HAS_REPLICAS:
            self.high_watermark = log_start         # until the leader reports more: replication is unknown
        self.last_stable_offset = flushed if self.format.positional else log_start

    def set_log_start(self, int64_t log_start):
        """Raise the log start offset. It never decreases."""
        kl_assert(self.log_start_offset <= log_start)
        kl_assert(log_start <= self.log_end_offset)
        assert self.log_start_offset <= log_start <= self.log_end_offset, "log start must rise and stay inside the log"
        self.log_start_offset = log_start
        if self.flushed_offset < log_start:
            self.flushed_offset = log_start
        if self.high_watermark < log_start:
            self.high_watermark = log_start
        if self.last_stable_offset < log_start:
            self.last_stable_offset = log_start
        if self.producers is not None:
            self.producers.aborted.forget_below(log_start)

    def set_flushed(self, int64_t flushed):
        """Record that offsets below `flushed` are on the disk. The flushed offset never decreases."""
        kl_assert(flushed <= self.log_end_offset)
        assert flushed <= self.log_end_offset, "flushed beyond the end"
        if flushed > self.flushed_offset:
            self.flushed_offset = flushed
            if self.format.positional:
                self.high_watermark = flushed
                self.last_stable_offset = flushed

    def set_high_watermark(self, int64_t offset):
        """Raise the high watermark of a replicated log to `offset`, at most to the log end; return whether it moved.

        It never decreases until the log itself is truncated: what consumers have seen stays visible. In Kafka's
        UnifiedLog, a follower's high watermark may fall back to its leader's, with a warning. The caller must not hold
        the lock.
        """
        if not self.after_write & HAS_REPLICAS:
            raise ValueError("the high watermark of this log is its end")
        self.lock_acquire()
        try:
            offset = min(offset, self.log_end_offset)
            if offset <= self.high_watermark:
                return False
            self.high_watermark = offset
            if self.producers is not None:
                self.producers.forget_replicated(offset)
                self.move_stable_locked()
        finally:
            self.lock_release()
        self.notify(REPLICATED)
        return True

    def set_replicated(self, bint replicated):
        """Set whether set_high_watermark() moves the high watermark, or the log end does.

        Only for a log that was created with replicas. The caller holds the log's lock.
        """
        if not replicated:
            self.after_write &= ~HAS_REPLICAS
            self.high_watermark = self.log_end_offset
        else:
            self.after_write |= HAS_REPLICAS
        if self.producers is not None:
            self.producers.set_replicated(replicated)
            self.move_stable_locked()

    def begin_flush(self):
        """Reset the counters of unflushed records; return (log end, segments) that a flush starting now makes
        durable."""
        self.unflushed_count = 0
        self.unflushed_since = 0.0
        self.dirty_logs.discard(self.owner)
        return self.log_end_offset, self.segments

    def set_producers(self, ProducerTable producers):
        """Set the state of producers, which also determines the last stable offset."""
        producers.aborted.forget_below(self.log_start_offset)
        if self.after_write & HAS_REPLICAS:
            assert producers.replicated, "a table that forgets what replicas may lose"
            producers.forget_replicated(self.high_watermark)
        self.producers = producers
        self.move_stable_locked()

    def set_leader_epoch(self, int32_t leader_epoch, bint recorded):
        """Set the leader epoch of new batches. `recorded`: the epoch is in the file leader-epoch-checkpoint."""
        self.leader_epoch = leader_epoch
        self.epoch_recorded = recorded

    def set_led(self, bint led, int32_t leader_id=-1):
        """Set whether this broker leads the partition. If not, appends and reads return NOT_LEADER_OR_FOLLOWER.

        `leader_id` is the known leader or -1. The caller holds the log's lock, or no other thread has the log yet.
        """
        self.led = led
        self.leader_id = leader_id
        self.shut = self.deleted or not led

    def set_offline(self):
        """Make appends and reads return KAFKA_STORAGE_ERROR. Return False if they already do."""
        if self.offline:
            return False
        self.offline = True
        return True

    def set_deleted(self):
        """Make appends and reads return UNKNOWN_TOPIC_OR_PARTITION."""
        self.deleted = self.shut = True
