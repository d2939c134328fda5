"""Append a batch to a log: check it, assign its offsets, write it and make it readable.

    header and checksum ─▶ records ─▶ codec ─▶ lock ─▶ producer ─▶ segment ─▶ offsets, write, index ─▶ publish ─▶ notify

The checks are in Kafka's order: first LogValidator's, then those of UnifiedLog.append. The log's owner does the
steps that may block (see log_core). A caller that must not block gets APPEND_DEFER instead.

Thread rule: any thread, with the GIL. Functions whose names end in _locked need the log's lock.
"""

from cpython.pythread cimport NOWAIT_LOCK, PyThread_acquire_lock
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_core cimport LOOK_AGAIN, LogCore
from kafkalite._native.log.producers cimport (
    CHECK_ASK,
    CHECK_DUPLICATE,
    CHECK_GOOD,
    FROM_CLIENT,
    FROM_COORDINATOR,
    MARKER_EMPTY,
    NOT_ADMITTED,
    Marker,
    SequenceSpan,
    read_marker,
)
from kafkalite._native.log.record_format cimport (
    ITEM_GOOD, ITEM_MAGIC, ITEM_NUMBERS, ItemFault, ItemInfo, RecordFormat, RecordsVerdict,
)
from kafkalite._native.log.segment cimport Segment
from kafkalite._native.wire.batch cimport CODEC_MASK, CONTROL
from kafkalite._native.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)

cdef enum:
    # Below this a CRC takes less than giving the GIL away and back would cost another thread.
    CRC_WITHOUT_GIL_MIN = 16 * 1024


cdef inline int refuse(AppendResult* out, int error) noexcept nogil:
    """Set a Kafka error code, and return APPEND_REFUSED."""
    out.error = error
    return APPEND_REFUSED


cdef int append_records(LogCore log, unsigned char* batch, int64_t size, bint may_block, AppendResult* out,
                        const AppendTerms* terms) except -1:
    """Append the batch of one partition of a request; return the outcome, an APPEND_ constant.

    The batch is patched in place. Its bytes must stay alive, and must not be shared, during the call. Without
    `may_block`, it waits for nothing except one write to the page cache.
    """
    cdef ItemInfo info
    cdef int outcome
    cdef int64_t now_ms
    out.base_offset = out.append_time_ms = out.log_start_offset = out.end_offset = out.record_error_index = -1
    out.flush_due = out.replicates = False
    out.leader_epoch = -1
    out.error = 0
    if log.format.positional:
        note_failed(log, UNSUPPORTED_FOR_MESSAGE_FORMAT, size)
        return refuse(out, UNSUPPORTED_FOR_MESSAGE_FORMAT)
    kl_assert(log.deferred_appends >= 0)
    if log.deferred_appends > 0 and not may_block:
        return APPEND_DEFER
    out.error = check_header(log, batch, size, &info, terms.origin)
    if out.error != 0:
        note_failed(log, out.error, size, info.fault)
        return APPEND_REFUSED
    now_ms = log.now_ms()
    outcome = check_records(log, batch, &info, may_block, now_ms, out)
    if outcome != APPEND_DONE:
        if outcome == APPEND_REFUSED:
            note_failed(log, out.error, size)
        return outcome
    if log.codec >= 0 and (info.attributes & CODEC_MASK) != log.codec:
        if not may_block:
            return APPEND_DEFER
        outcome = append_recoded(log, batch, &info, now_ms, out, terms)
    else:
        log.lock_acquire()
        try:
            outcome = append_locked(log, batch, &info, may_block, now_ms, out, terms)
        finally:
            log.lock_release()
    if outcome == APPEND_DONE or outcome == APPEND_DUPLICATE:
        out.log_start_offset = log.log_start_offset
        log.traffic.appends += 1
        if outcome == APPEND_DONE:
            log.traffic.records_in += info.record_count
            log.traffic.bytes_in += info.size
            if log.listeners:
                log.notify(info.size)
            if log.waits is not None:
                log.settle_waits()          # it may have been the only one in sync
        if out.flush_due:
            log.owner.flush_due(out.end_offset)
    elif outcome == APPEND_REFUSED:
        note_failed(log, out.error, size)
    return outcome


cdef int note_failed(LogCore log, int error, int64_t size, ItemFault fault=ITEM_GOOD) noexcept:
    """Count a refused batch in the log's metrics."""
    log.traffic.appends += 1
    log.traffic.appends_failed += 1
    log.traffic.bytes_refused += size
    log.traffic.checksums_failed += error == CORRUPT_MESSAGE
    log.traffic.magics_failed += fault == ITEM_MAGIC
    log.traffic.numbers_failed += fault == ITEM_NUMBERS
    return 0


cdef int check_header(LogCore log, unsigned char* batch, int64_t size, ItemInfo* info, int origin) except? -32000:
    cdef bint intact
    cdef int error = log.format.check(batch, size, log.message_size_max, info)
    if error != 0:
        return error
    if size >= CRC_WITHOUT_GIL_MIN:
        format = log.format
        with nogil:
            intact = format.intact(batch, info)
    else:
        intact = log.format.intact(batch, info)
    if not intact:
        return CORRUPT_MESSAGE
    return log.format.check_fields(info, origin == FROM_COORDINATOR)


cdef int check_records(LogCore log, unsigned char* batch, ItemInfo* info, bint may_block, int64_t now_ms,
                       AppendResult* out) except -1:
    """Check the records of a batch whose header and checksum are valid; return APPEND_DONE if they pass."""
    cdef RecordsVerdict verdict
    cdef RecordFormat format
    cdef int64_t timestamp_min = INT64_MIN
    cdef int64_t timestamp_max = INT64_MAX
    cdef bint key_required = log.compacted
    cdef bint stamped = log.log_append_time
    cdef bint look = log.validate_records or key_required
    if not stamped:
        if log.timestamp_after_max_ms < INT64_MAX - now_ms:
            timestamp_max = now_ms + log.timestamp_after_max_ms
        if log.timestamp_before_max_ms != INT64_MAX:
            timestamp_min = now_ms - log.timestamp_before_max_ms
        look = look or info.max_timestamp > timestamp_max or timestamp_min != INT64_MIN
    if not look:
        return APPEND_DONE
    format = log.format
    if info.attributes & CODEC_MASK:
        if not may_block:
            return APPEND_DEFER
        check_compressed(log, batch, info, timestamp_min, timestamp_max, &verdict)
    elif info.size >= CRC_WITHOUT_GIL_MIN:
        with nogil:
            format.check_records(batch, info, key_required, timestamp_min, timestamp_max, &verdict)
    else:
        format.check_records(batch, info, key_required, timestamp_min, timestamp_max, &verdict)
    if verdict.error != 0:
        out.record_error_index = verdict.bad_index
        out.timestamp_min = timestamp_min
        out.timestamp_max = timestamp_max
        return refuse(out, verdict.error)
    if verdict.max_timestamp != info.max_timestamp and not stamped:
        format.correct_timestamp(batch, info, verdict.max_timestamp)
    return APPEND_DONE


cdef int check_compressed(LogCore log, const unsigned char* batch, const ItemInfo* info, int64_t timestamp_min,
                          int64_t timestamp_max, RecordsVerdict* out) except -1:
    error, index, max_timestamp = log.owner.check_compressed(
        <bytes>batch[:info.size], log.compacted, timestamp_min, timestamp_max)
    out.error = error
    out.bad_index = index
    out.max_timestamp = max_timestamp
    return 0


cdef int append_recoded(LogCore log, unsigned char* batch, ItemInfo* info, int64_t now_ms, AppendResult* out,
                        const AppendTerms* terms) except -1:
    """Convert a checked batch to the topic's codec, then append it."""
    cdef bytearray recoded = log.owner.recode(<bytes>batch[:info.size], log.codec)
    cdef unsigned char* data = <unsigned char*><char*>recoded
    cdef int64_t size = len(recoded)
    # Its size may have grown: Kafka also compares the stored batch with the limit.
    out.error = log.format.check(data, size, log.message_size_max, info)
    if out.error != 0:
        return APPEND_REFUSED
    log.lock_acquire()
    try:
        return append_locked(log, data, info, True, now_ms, out, terms)
    finally:
        log.lock_release()


cdef int ready_locked(LogCore log, bint may_block, int* error) except -1:
    """Return APPEND_DONE if the log accepts appends. Load its producers first, if necessary."""
    if log.shut:
        error[0] = log.shut_error()
        return APPEND_REFUSED
    if log.offline:
        error[0] = KAFKA_STORAGE_ERROR
        return APPEND_REFUSED
    if log.producers is None:
        if not may_block:
            return APPEND_DEFER
        if not log.owner.load_producers_locked():
            error[0] = KAFKA_STORAGE_ERROR
            return APPEND_REFUSED
    return APPEND_DONE


cdef int append_locked(LogCore log, unsigned char* batch, ItemInfo* info, bint may_block, int64_t now_ms,
                       AppendResult* out, const AppendTerms* terms) except -1:
    cdef SequenceSpan original
    cdef Segment segment
    cdef int verdict
    cdef int outcome = ready_locked(log, may_block, &out.error)
    if outcome != APPEND_DONE:
        return outcome
    if terms.in_epoch != log.leader_epoch and terms.in_epoch != ANY_EPOCH:
        return refuse(out, NOT_LEADER_OR_FOLLOWER)
    if log.followers is not None:
        if terms.acks_all and log.followers.in_sync_count < log.followers.enough():
            return refuse(out, NOT_ENOUGH_REPLICAS)
        out.replicates = True
        out.leader_epoch = log.leader_epoch
    if info.producer_id >= 0:
        verdict = log.producers.check(info, terms.origin, terms.admitted, &original, &out.error)
        if verdict == CHECK_DUPLICATE:
            out.base_offset = original.first_offset
            out.end_offset = original.last_offset + 1
            out.append_time_ms = original.timestamp if log.log_append_time else -1
            return APPEND_DUPLICATE
        if verdict != CHECK_GOOD:
            return APPEND_ASK if verdict == CHECK_ASK else APPEND_REFUSED
    segment = writable_locked(log, info, may_block, now_ms)
    if segment is None:
        return refuse(out, KAFKA_STORAGE_ERROR) if may_block else APPEND_DEFER
    segment.pin()
    try:
        return write_locked(log, segment, batch, info, NULL, now_ms, out)
    finally:
        segment.unpin()


cdef int append_marker_locked(LogCore log, unsigned char* batch, ItemInfo* info, const Marker* marker, bint strict,
                              int32_t in_epoch, int64_t now_ms, AppendResult* out) except -1:
    cdef Segment segment
    cdef int outcome = ready_locked(log, True, &out.error)
    if outcome != APPEND_DONE:
        return outcome
    if in_epoch != log.leader_epoch and in_epoch != ANY_EPOCH:
        return refuse(out, NOT_LEADER_OR_FOLLOWER)
    out.error = log.producers.check_marker(info, marker, strict)
    if out.error != 0:
        return APPEND_REFUSED
    segment = writable_locked(log, info, True, now_ms)
    if segment is None:
        return refuse(out, KAFKA_STORAGE_ERROR)
    segment.pin()
    try:
        return write_locked(log, segment, batch, info, marker, now_ms, out)
    finally:
        segment.unpin()


cdef Segment writable_locked(LogCore log, const ItemInfo* info, bint may_block, int64_t now_ms):
    """Return the open segment for the batch, or None if it could not be created, or only by blocking."""
    cdef Segment segment = log.active
    cdef bint roll
    roll = segment.sealed
    if segment.has_file and not roll and segment.index is not None:
        roll = (
            (segment.size > 0 and (
                segment.size + (0 if log.format.positional else info.size) > log.segment_size_max
                or segment.index.count >= log.index_count_max
                or now_ms - segment.created_ms > log.segment_ms - log.roll_jitter_ms))
            or log.log_end_offset + info.last_offset_delta - segment.base_offset > INT32_MAX)
    elif not may_block:
        return None
    if roll or not segment.has_file or segment.index is None or not log.epoch_recorded:
        if not may_block:
            return None
        segment = log.owner.prepare_segment_locked(roll)
        return segment
    if segment.fd < 0 and not may_block:
        return None
    return segment


cdef int write_locked(LogCore log, Segment segment, unsigned char* batch, ItemInfo* info, const Marker* marker,
                      int64_t now_ms, AppendResult* out) except -1:
    """Write the batch to the end of a pinned segment and make it readable. `marker` is set if the batch is a marker."""
    cdef int64_t written
    cdef RecordFormat format = log.format
    cdef bint stamp = log.log_append_time
    cdef int64_t offset = log.log_end_offset
    cdef int32_t epoch = log.leader_epoch
    cdef int64_t size_max = log.segment_size_max
    cdef bint whole = log.preallocate
    kl_assert(not PyThread_acquire_lock(log.lock, NOWAIT_LOCK))
    kl_assert(segment.pins > 0)
    kl_assert(<void*>segment == <void*>log.active)
    kl_assert(segment.base_offset <= offset)
    # The caller keeps `batch` alive, the pin keeps the descriptor, the lock keeps the end where it is.
    with nogil:
        if stamp:
            format.stamp(batch, info, now_ms)
        format.place(batch, info, offset, epoch)
        written = segment.write(batch, info.size, size_max, whole)
    if written < 0:
        log.owner.write_failed_locked(<int>-written)
        return refuse(out, KAFKA_STORAGE_ERROR)
    if marker != NULL:
        log.producers.update_marker(info, marker, now_ms)
    elif info.producer_id >= 0:
        log.producers.update(info, now_ms)
    kl_assert(written == info.size)
    kl_assert(info.base_offset == offset)
    kl_assert(info.next_offset > offset)
    segment.advance(info, log.index_interval)
    log.log_end_offset = info.next_offset
    if log.after_write:
        log.after_write_locked()
    else:
        log.high_watermark = info.next_offset
        log.move_stable()
    log.unflushed_count += info.record_count
    if log.unflushed_since == 0.0:
        log.unflushed_since = log.clock.monotonic()
        log.dirty_logs.add(log.owner)
    out.base_offset = offset
    out.end_offset = info.next_offset
    out.append_time_ms = now_ms if stamp else -1
    out.flush_due = log.unflushed_count >= log.flush_messages
    return APPEND_DONE


def append_batch(LogCore log not None, batch, *, bint may_block=True, int origin=FROM_CLIENT,
                 int64_t admitted=NOT_ADMITTED, int32_t in_epoch=ANY_EPOCH):
    """Append a copy of one batch. Return (outcome, error, base offset, append time, log start, end offset, bad record).

        outcome       an APPEND_ constant. APPEND_DEFER: it would block, but `may_block` is False. APPEND_ASK: it would
                      begin a transaction that was not `admitted`
        error         Kafka's code, 0 unless the batch was refused
        append time   in ms
        bad record    its index

    `origin` is one of FROM_... of kafkalite._native.log.producers. `in_epoch` is the leader epoch in which the batch is
    valid, -1 for any; in another epoch it is refused with NOT_LEADER_OR_FOLLOWER.
    """
    cdef AppendResult out
    cdef AppendTerms terms = AppendTerms(origin, admitted, in_epoch, False)
    cdef bytearray copy = bytearray(batch)
    cdef int outcome = append_records(log, <unsigned char*><char*>copy, len(copy), may_block, &out, &terms)
    return (outcome, out.error, out.base_offset, out.append_time_ms, out.log_start_offset, out.end_offset,
            out.record_error_index)


def append_marker_batch(LogCore log not None, batch, *, bint strict=False, int32_t in_epoch=ANY_EPOCH):
    """Append a copy of a control batch that ends a transaction; return (error, end offset). May block."""
    cdef AppendResult out
    cdef ItemInfo info
    cdef Marker marker
    cdef bytearray copy = bytearray(batch)
    cdef unsigned char* data = <unsigned char*><char*>copy
    cdef int error = log.format.check(data, len(copy), INT64_MAX, &info)
    if error == 0:
        read_marker(data, &info, &marker)
        if not info.attributes & CONTROL or marker.type == MARKER_EMPTY or info.producer_id < 0:
            error = INVALID_RECORD
    if error != 0:
        return error, -1
    out.end_offset = -1
    out.error = 0
    log.lock_acquire()
    try:
        append_marker_locked(log, data, &info, &marker, strict, in_epoch, log.now_ms(), &out)
    finally:
        log.lock_release()
    if out.error == 0:
        log.notify(LOOK_AGAIN)          # the last stable offset may have moved by far more than the marker
        if log.waits is not None:
            log.settle_waits()
    return out.error, out.end_offset
