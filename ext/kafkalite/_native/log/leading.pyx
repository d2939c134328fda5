"""Handle followers' fetches of a log that this broker leads, and end the waits for the log's watermarks.

A follower's fetch (`note_fetch`) has these effects:

    1  Followers notes the follower's position
    2  if the follower may become in sync, Followers.on_joinable is called, in Python
    3  if the high watermark rises, the waits of wait_replicated up to this offset end
    4  if the low watermark rises, the waits of wait_low up to this offset end

A wait ends with a call of its callback.

Thread rule: any thread, with the GIL and without the log's lock.
"""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.followers cimport Follower, Followers, OffsetWaits
from kafkalite._native.log.log_core cimport NOT_YET, LogCore
from kafkalite._native.wire.error_codes cimport NOT_LEADER_OR_FOLLOWER


cdef int note_fetch(LogCore log, int32_t replica_id, int64_t offset, int64_t log_start, int64_t broker_epoch,
                    int64_t log_end, double now) except -1:
    """Record a follower's fetch from `offset`, while the leader's log ends at `log_end`. `now` is in monotonic seconds.

    Returns 0, or NOT_LEADER_OR_FOLLOWER if the replica is not a follower, or if its broker epoch is older than the
    registered one.
    """
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
    """Find the end offset of a leader epoch for a follower. Return False if it is unknown.

    The current epoch ends at the log end. For an earlier epoch the log's owner is asked, once: the answer is kept,
    because a follower may ask often.
    """
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
    place = -1 if followers is None else followers.place_of(replica_id)     # other threads may have run
    if place >= 0 and found[0] >= 0:
        row = &followers.rows[place]
        row.known_epoch, row.known_found, row.known_end, row.known_start = epoch, found[0], end_offset[0], start
    return found[0] >= 0


cpdef int64_t wait_replicated(LogCore log, int64_t end_offset, int32_t leader_epoch, object callback) except -1:
    """Call `callback` with 0 when the high watermark reaches `end_offset`, or with an error code if it cannot.

    `end_offset` is the log end offset after an append in `leader_epoch`. The error is NOT_LEADER_OR_FOLLOWER if
    leadership was lost, NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few replicas are in sync by then,
    UNKNOWN_TOPIC_OR_PARTITION if the log was deleted, or KAFKA_STORAGE_ERROR if it is offline.

    Returns the number of the wait, or 0 if the callback was called at once. The callback may run on any thread, without
    the log's lock, and must not block. Source: DelayedProduce of Kafka 4.1.
    """
    cdef int error = log.replicated_error(end_offset)
    if log.leader_epoch != leader_epoch and not log.shut:
        error = NOT_LEADER_OR_FOLLOWER          # the records before end_offset may be truncated
    if error != NOT_YET:
        callback(error)
        return 0
    if log.waits is None:
        log.waits = OffsetWaits.__new__(OffsetWaits)
    return log.waits.add(end_offset, callback)


cpdef int cancel_wait(LogCore log, int64_t number) except -1:
    """Cancel a wait of wait_replicated(). Return 1, or 0 if it has ended."""
    return 0 if log.waits is None else log.waits.cancel(number)


def fetched_by(LogCore log not None, int32_t replica_id, int64_t offset, int64_t log_start, int64_t broker_epoch,
               double now):
    """Call note_fetch() with the current log end offset."""
    return note_fetch(log, replica_id, offset, log_start, broker_epoch, log.log_end_offset, now)


def low_watermark(LogCore log not None):
    """Return the lowest log start of this log and its live followers, or -1 while one is unknown."""
    return log.log_start_offset if log.followers is None else log.followers.low_watermark(log.log_start_offset)


def wait_low(LogCore log not None, int64_t offset, callback):
    """Call `callback` with 0 when the low watermark reaches `offset`, or with an error code if it cannot.

    DeleteRecords uses this. The error means that the log was deleted (UNKNOWN_TOPIC_OR_PARTITION), that another broker
    leads it, or that its storage failed. Returns the number of the wait. Source: DelayedDeleteRecords of Kafka 4.1.
    """
    cdef int64_t number
    if log.low_waits is None:
        log.low_waits = OffsetWaits.__new__(OffsetWaits)
    number = log.low_waits.add(offset, callback)
    log.settle_low_waits()
    return number


def cancel_low_wait(LogCore log not None, int64_t number):
    """Cancel a wait of wait_low(). Return False if it has ended."""
    return log.low_waits is not None and log.low_waits.cancel(number)


def settle_low_waits(LogCore log not None):
    """End the waits whose offset the low watermark has reached because a broker or replica is gone."""
    if log.low_waits is not None:
        log.settle_low_waits()
