"""Append the leader's batches to a follower's log, and truncate it where the two logs diverge.

    append     checks all batches of a fetch without the GIL, then writes many of them per system call
    cut        publishes in one step: the new list of segments, the log end, and all that derives from the log end

Batches are stored unchanged, with the leader's offsets and epochs. The leader's checks (sequences, timestamps, keys,
sizes) are not repeated. A file is never shortened while a reader pins it.

Source: UnifiedLog.appendAsFollower and truncateTo of Kafka.

Thread rule: the rules of LogCore apply.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_append cimport writable_locked
from kafkalite._native.log.log_core cimport DISK_WAS_FULL, HAS_REPLICAS, REPLICATED, LogCore
from kafkalite._native.log.producers cimport Marker, read_marker
from kafkalite._native.log.record_format cimport PARSE_INCOMPLETE, PARSED, ItemInfo, RecordFormat
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.wire.batch cimport CONTROL, HEADER_SIZE, MAGIC_AT, MAGIC_V2
from kafkalite._native.wire.error_codes cimport KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION

cdef enum:
    RUN_SIZE_MAX = 1024 * 1024          # bytes in one write
    WALK_BATCHES = 4096                 # headers looked at before other threads get their turn


cdef void examine(RecordFormat format, const unsigned char* data, int64_t size, int32_t epoch_max,
                  Given* out) noexcept nogil:
    """Check a leader's batches, up to one that is incomplete or has an epoch above `epoch_max`.

    Offsets may have gaps, as in a compacted log, but never decrease. `epoch_max` is the epoch of the fetch. The sender
    of a batch with a higher epoch has lost leadership since the fetch (KAFKA-18723).
    """
    cdef ItemInfo info
    cdef int64_t next_offset = -1
    cdef int result
    out.outcome = FOLLOW_DONE
    out.size = 0
    out.first_offset = out.last_offset = -1
    while size - out.size >= HEADER_SIZE:
        if data[out.size + MAGIC_AT] < MAGIC_V2:
            out.outcome = FOLLOW_OLD_FORMAT
            return
        result = format.parse(data + out.size, size - out.size, 0, &info)
        if result == PARSE_INCOMPLETE:
            return
        if result != PARSED or not format.intact(data + out.size, &info):
            out.outcome = FOLLOW_CORRUPT
            return
        if info.leader_epoch > epoch_max:
            return
        if info.base_offset < next_offset:
            out.outcome = FOLLOW_OUT_OF_ORDER
            return
        if out.first_offset < 0:
            out.first_offset = info.base_offset
            out.last_offset = info.next_offset - 1
        next_offset = info.next_offset
        out.size += info.size


cdef int64_t run_end(RecordFormat format, const unsigned char* data, int64_t position, int64_t size,
                     int64_t base_offset, int64_t room) noexcept nogil:
    """Return the end of the batches from `position` on that fit into one write to one segment, at least one."""
    cdef ItemInfo info
    cdef int64_t end = position
    cdef int32_t epoch = 0
    while end < size and format.parse(data + end, size - end, 0, &info) == PARSED:
        if end == position:
            epoch = info.leader_epoch
        elif (info.leader_epoch != epoch or end + info.size - position > min(<int64_t>RUN_SIZE_MAX, room)
                or info.next_offset - 1 - base_offset > INT32_MAX):
            break
        end += info.size
    return end


cdef class Replica:
    """Appends the leader's batches to a log, and truncates batches that the leader does not have."""

    def __init__(self, LogCore log not None):
        if not log.after_write & HAS_REPLICAS:
            raise ValueError("a log without replicas cannot follow a leader")
        self.log = log
        self.last_epoch = -1
        self.follows = FOLLOWS_ANYBODY

    # ---- append -----------------------------------------------------------------------------------------------------

    def append(self, const unsigned char[::1] records, int32_t leader_epoch, int64_t high_watermark=-1):
        """Append whole batches of the leader. Return (outcome, error, first offset, last offset of the first batch,
        bytes).

        `leader_epoch` is the epoch of the fetch. `high_watermark` is the leader's; this log's rises to it, at most to
        the log end. If the outcome is not FOLLOW_DONE, no batch is appended, except that a failed write keeps the
        batches before it. May block.
        """
        cdef LogCore log = self.log
        cdef RecordFormat format = log.format
        cdef int64_t size = records.shape[0]
        cdef const unsigned char* data = &records[0] if size > 0 else NULL
        cdef int64_t taken = 0
        cdef int error = 0
        cdef bint moved = False
        cdef Given given
        with nogil:
            examine(format, data, size, leader_epoch, &given)
        if given.outcome == FOLLOW_DONE and (given.size > 0 or high_watermark > log.high_watermark):
            log.lock_acquire()
            try:
                if self.follows != FOLLOWS_ANYBODY and self.follows != leader_epoch:
                    given.outcome = FOLLOW_STALE
                elif given.size > 0:
                    given.outcome = self._append_locked(data, &given, &taken, &error)
                if given.outcome == FOLLOW_DONE:
                    moved = self._see_locked(high_watermark)
            finally:
                log.lock_release()
            if moved and log.listeners:
                log.notify(REPLICATED)
            if taken > 0 and log.unflushed_count >= log.flush_messages:
                log.owner.flush_due(log.log_end_offset)
        return given.outcome, error, given.first_offset, given.last_offset, taken

    cdef bint _see_locked(self, int64_t high_watermark) except -1:
        """Raise the high watermark, at most to the log end. Return whether it moved."""
        cdef LogCore log = self.log
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark <= log.high_watermark:
            return False
        log.high_watermark = high_watermark
        if log.producers is not None:
            log.producers.forget_replicated(high_watermark)
            log.move_stable_locked()
        return True

    cdef int _append_locked(self, const unsigned char* data, const Given* given, int64_t* taken, int* error) except -1:
        cdef LogCore log = self.log
        cdef RecordFormat format = log.format
        cdef ItemInfo info
        cdef Segment segment
        cdef int64_t end, written, size_max, now_ms, base_offset, room
        cdef bint whole
        error[0] = UNKNOWN_TOPIC_OR_PARTITION if log.deleted else KAFKA_STORAGE_ERROR
        if log.deleted or log.offline or (log.producers is None and not log.owner.load_producers_locked()):
            return FOLLOW_FAILED
        if given.first_offset < log.log_end_offset:
            error[0] = 0
            return FOLLOW_UNEXPECTED
        now_ms = log.now_ms()
        while taken[0] < given.size:
            format.parse(data + taken[0], given.size - taken[0], 0, &info)
            if info.leader_epoch >= 0 and info.leader_epoch != self.last_epoch:
                if not log.owner.epoch_began_locked(info.leader_epoch, info.base_offset):
                    return FOLLOW_FAILED
                kl_assert(self.last_epoch == info.leader_epoch)
            if info.next_offset - 1 - log.active.base_offset > INT32_MAX:
                log.log_end_offset = info.base_offset       # offsets that far apart do not fit into one segment
            segment = writable_locked(log, &info, True, now_ms)
            if segment is None:
                return FOLLOW_FAILED
            size_max = log.segment_size_max
            whole = log.preallocate
            segment.pin()
            try:
                base_offset, room = segment.base_offset, size_max - segment.size
                with nogil:
                    end = run_end(format, data, taken[0], given.size, base_offset, room)
                    written = segment.write(data + taken[0], end - taken[0], size_max, whole)
                if written < 0:
                    log.owner.write_failed_locked(<int>-written)
                    return FOLLOW_FAILED
                self._take(data, taken[0], end, now_ms)
            finally:
                segment.unpin()
            taken[0] = end
            if log.after_write & DISK_WAS_FULL:
                log.owner.storage_recovered_locked()
            log.move_stable_locked()
            if log.unflushed_since == 0.0:
                log.unflushed_since = log.clock.monotonic()
                log.dirty_logs.add(log.owner)
        error[0] = 0
        return FOLLOW_DONE

    cdef int _take(self, const unsigned char* data, int64_t position, int64_t end, int64_t now_ms) except -1:
        """Make batches readable that were written to the end of the active segment."""
        cdef LogCore log = self.log
        cdef RecordFormat format = log.format
        cdef Segment segment = log.active
        cdef ItemInfo info
        cdef Marker marker
        while position < end:
            format.parse(data + position, end - position, 0, &info)
            kl_assert(info.base_offset >= log.log_end_offset)
            if info.record_count == 0:
                info.max_timestamp = -1         # compaction left it without records: it has no time
            # The end first: a reader who takes the high watermark for the end would read up to the segment's.
            log.log_end_offset = info.next_offset
            segment.advance(&info, log.index_interval)
            log.unflushed_count += info.record_count
            if info.producer_id >= 0:
                if info.attributes & CONTROL:
                    read_marker(data + position, &info, &marker)
                    log.producers.update_marker(&info, &marker, now_ms)
                else:
                    log.producers.update(&info, now_ms)
            position += info.size
        return 0

    # ---- cut --------------------------------------------------------------------------------------------------------

    def lower(self, int64_t offset):
        """Lower the flushed offset, the high watermark and the log start to at most `offset`.

        The caller holds the log's lock and the flush lock.
        """
        cdef LogCore log = self.log
        log.log_start_offset = min(log.log_start_offset, offset)
        log.flushed_offset = max(log.log_start_offset, min(log.flushed_offset, offset))
        log.high_watermark = max(log.log_start_offset, min(log.high_watermark, offset))
        log.last_stable_offset = min(log.last_stable_offset, log.high_watermark)
        log.cut_count += 1

    def publish_cut(self, tuple segments not None, int64_t log_start, int64_t log_end, *, Segment unpinned=None,
                    bint is_restart=False):
        """Publish a truncated or restarted log: its segments, and everything that derives from its end.

        Segments that are not in the new list are deleted, as by retention. If the old file was pinned, the kept part is
        in a new file, copied before. Readers that have pinned the old file continue in it. Otherwise the file itself is
        shortened. `cut_count` increases, so that a thread between two reads of the log can detect the cut. Returns
        False, without a change, if the segment `unpinned` has a pin. The producers' state is dropped if it extends
        beyond the new end, or with `is_restart`, which replaces the log by an empty one. The caller holds the log's
        lock and the flush lock.
        """
        cdef LogCore log = self.log
        cdef tuple before = log.segments
        cdef Segment segment
        cdef bint known = not is_restart and log.producers is not None and not log.producers.reaches(log_end)
        if unpinned is not None and unpinned.pins > 0:
            return False
        # From here to the end no call gives the GIL away.
        log.segments = segments
        log.active = <Segment?>segments[len(segments) - 1]
        log.log_start_offset = log_start
        log.log_end_offset = log_end
        log.flushed_offset = max(log_start, min(log.flushed_offset, log_end))
        log.high_watermark = max(log_start, min(log.high_watermark, log_end))
        if known:
            log.last_stable_offset = max(log_start, min(log.producers.first_undecided(), log.high_watermark))
        else:
            log.producers = None
            log.last_stable_offset = log_start
        log.cut_count += 1
        for segment in before:
            if segment not in segments:
                segment.mark_deleted()
        return True


def epoch_starts(Segment segment, int64_t position, int64_t end, int32_t epoch):
    """Return (leader epoch, base offset) of each batch in [position, end) with which a new epoch begins. May block.

    `epoch` is the epoch before the first batch. It stops at bytes that are not a batch.
    """
    cdef RecordFormat format = segment.format
    cdef const unsigned char* map
    cdef ItemInfo info
    cdef int64_t base = segment.base_offset
    cdef int count
    cdef bint sound = True
    cdef bint other = False
    found = []
    segment.pin()
    try:
        map = segment.map
        while sound and position < end:
            with nogil:
                count = 0
                other = False
                while sound and not other and position < end and count < WALK_BATCHES:
                    sound = format.parse(map + position, end - position, base + position, &info) == PARSED
                    if sound:
                        other = info.leader_epoch >= 0 and info.leader_epoch != epoch
                        position += info.size
                        count += 1
            if other:
                epoch = info.leader_epoch
                found.append((epoch, info.base_offset))
        segment.check_read()
    finally:
        segment.unpin()
    return found
