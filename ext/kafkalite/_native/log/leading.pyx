"""A log that this broker leads and others follow: what their fetches do, who waits for them.

    a follower's fetch ─▶ note_fetch ─┬─▶ Followers ─▶ the high watermark moves ─▶ who waits for it is called
                                      ├─▶ it may become in sync ─▶ Followers.on_joinable, in Python
                                      └─▶ who waits for the low watermark is called

Thread rule: LogCore's; any thread, with the GIL and without the log's lock.
"""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.followers cimport Follower, Followers, OffsetWaits
from kafkalite._native.log.log_core cimport NOT_YET, LogCore
from kafkalite._native.wire.error_codes cimport NOT_LEADER_OR_FOLLOWER


cdef int note_fetch(LogCore log, int32_t replica_id, int64_t offset, int64_t log_start, int64_t broker_epoch,
                    int64_t log_end, double now) except -1:
    """A follower has fetched from an offset, when the log ended at `log_end`; `now` in monotonic seconds. An error code
    where its fetch is of an earlier life of its broker, or it is no follower any more."""
    cdef Followers followers = log.followers
    cdef int32_t place = -1 if followers is None else followers.place_of(replica_id)
    cdef bint moved
    if place < 0 or followers.is_stale(place, broker_epoch):
        return NOT_LEADER_OR_FOLLOWER
    moved = followers.fetched(place, offset, log_start, broker_epoch, log_end, now)
    if followers.may_join(place, log.high_watermark):
        followers.announce(place, log.owner)
    if moved:
        log.advance(now)
    if log.low_waits is not None:
        log.settle_low_waits()
    return 0


cdef bint find_epoch_end(LogCore log, int32_t replica_id, int32_t epoch, int32_t* found,
                         int64_t* end_offset) except -1:
    """Find the end offset of an epoch for a follower, which may ask often. Return False if it is unknown.

    Only earlier epochs need the log's owner; the current epoch ends at the log end."""
    cdef Followers followers = log.followers
    cdef int32_t place = -1 if followers is None else followers.place_of(replica_id)
    cdef int64_t start = log.log_start_offset
    cdef Follower* row
    if epoch == log.leader_epoch:
        found[0] = epoch
        end_offset[0] = log.log_end_offset
        return True
    if place >= 0:
        row = &followers.rows[place]
        if row.known_epoch == epoch and row.known_start == start:
            found[0] = row.known_found
            end_offset[0] = row.known_end
            return True
    found[0], end_offset[0] = log.owner.epoch_end(epoch)
    place = -1 if followers is None else followers.place_of(replica_id)     # others may have had their turn
    if place >= 0 and found[0] >= 0:
        row = &followers.rows[place]
        row.known_epoch, row.known_found, row.known_end, row.known_start = epoch, found[0], end_offset[0], start
    return found[0] >= 0


cpdef int64_t wait_replicated(LogCore log, int64_t end_offset, int32_t leader_epoch, object callback) except -1:
    """Calls `callback` with an error code, 0 for none, once the high watermark is at an offset that was the log's end
    in that leader epoch, or never will be; at once where that is known. The wait's number, 0 if it is over.

    NOT_LEADER_OR_FOLLOWER when leadership was lost, NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few are in sync by then.
    The callback is called by any thread, without the lock, and must not block. Source: DelayedProduce of Kafka 4.1.
    """
    cdef int error = log.replicated_error(end_offset)
    if log.leader_epoch != leader_epoch and not log.shut:
        error = NOT_LEADER_OR_FOLLOWER          # what it was the end of may have been cut
    if error != NOT_YET:
        callback(error)
        return 0
    if log.waits is None:
        log.waits = OffsetWaits.__new__(OffsetWaits)
    return log.waits.add(end_offset, callback)


cpdef int cancel_wait(LogCore log, int64_t number) except -1:
    """Gives up a wait of wait_replicated: its callback is not called any more."""
    return 0 if log.waits is None else log.waits.cancel(number)


def fetched_by(LogCore log not None, int32_t replica_id, int64_t offset, int64_t log_start, int64_t broker_epoch,
               double now):
    """note_fetch of a follower to whom the log is read up to its end."""
    return note_fetch(log, replica_id, offset, log_start, broker_epoch, log.log_end_offset, now)


def low_watermark(LogCore log not None):
    """The least start of the log and of its replicas that are alive, -1 while one of them has not told."""
    return log.log_start_offset if log.followers is None else log.followers.low_watermark(log.log_start_offset)


def wait_low(LogCore log not None, int64_t offset, callback):
    """Calls `callback` with an error code, 0 for none, once the low watermark is at an offset, or never will be: the
    log was deleted (UNKNOWN_TOPIC_OR_PARTITION), is led elsewhere, or its storage failed. The wait's number.

    For DeleteRecords. Source: DelayedDeleteRecords of Kafka 4.1.
    """
    cdef int64_t number
    if log.low_waits is None:
        log.low_waits = OffsetWaits.__new__(OffsetWaits)
    number = log.low_waits.add(offset, callback)
    log.settle_low_waits()
    return number


def cancel_low_wait(LogCore log not None, int64_t number):
    """Gives up a wait of wait_low; False where it was over."""
    return log.low_waits is not None and log.low_waits.cancel(number)


def settle_low_waits(LogCore log not None):
    """Calls those who wait for a low watermark that is reached, without a fetch: a broker or a replica has gone."""
    if log.low_waits is not None:
        log.settle_low_waits()
