"""Serve a partition of a follower's fetch: check the follower, find diverging epochs, read up to the log end.

The checks are in the order of Kafka's Partition.fetchRecords (4.1). This is not in fetch.pyx, so that the code path of
consumers stays small.
"""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.followers cimport Followers
from kafkalite._native.log.leading cimport find_epoch_end, note_fetch
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.segment_read cimport READ_DEFER, ReadResult
from kafkalite._native.wire.error_codes cimport (
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)


cdef int refusal_of(LogCore log, const FetchPart* part, const Asker* asker) except -1:
    """Return why a replica may not follow a log; 0 if it may, or if the log itself reports the error."""
    if log.shut or (log.followers is not None and log.followers.place_of(asker.replica_id) >= 0):
        return 0
    # Both know this epoch, in which the replica is not a follower yet, or any more: it retries.
    return UNKNOWN_LEADER_EPOCH if part.current_leader_epoch >= 0 else NOT_LEADER_OR_FOLLOWER


cdef bint diverges(LogCore log, FetchPart* part, int32_t replica_id) except -1:
    """Return whether a reader's history, which ends with an epoch at an offset, diverges from the log.

    The part gets the point of divergence, or an error. `replica_id` is -1 for a consumer.
    """
    cdef int32_t epoch = -1
    cdef int64_t end_offset = -1
    if (not find_epoch_end(log, replica_id, part.last_fetched_epoch, &epoch, &end_offset)
            or part.offset < log.log_start_offset):
        part.error = OFFSET_OUT_OF_RANGE
        return True
    if epoch < part.last_fetched_epoch or end_offset < part.offset:
        part.diverging_epoch, part.diverging_end_offset = epoch, end_offset
        return True
    return False


cdef bint is_held_back(LogCore log, int32_t replica_id, Meter limit, double now) noexcept:
    """Return whether a follower must wait for a log's records, because the leader's replication limit is used up
    (KIP-73).

    Only a follower that is not in sync waits, for the records of a throttled partition.
    """
    cdef Followers followers = log.followers
    cdef int32_t place
    if followers is None or not followers.limited or limit.owed_ms(now) == 0:
        return False
    place = followers.place_of(replica_id)
    return place >= 0 and not followers.rows[place].in_sync


cdef int64_t limited_size(const FetchPart* part, LogCore log) noexcept:
    """Return the bytes of a part's records that count towards the replication limit. Records for followers in sync
    count, too."""
    return part.records_size if log is not None and log.followers is not None and log.followers.limited else 0


cdef LogSlice read_for(LogCore log, FetchPart* part, const Asker* asker, int64_t size_max, bint whole_first,
                       ReadResult* out):
    """Read for a follower, up to the log end, which the part stores. Returns as LogCore.read_slice().

    The part also gets the high watermark, which this fetch may have moved: its offset shows up to where the follower
    has the records. The log notes this offset once, at the first examination, because a parked fetch has an outdated
    offset later. A refused fetch is not noted, nor is one with diverging epochs (KAFKA-13141).
    """
    cdef LogSlice piece
    part.log_end = log.log_end_offset
    piece = log.read_slice(part.offset, size_max, whole_first, part.log_end, out)
    if out.outcome == READ_DEFER or out.error != 0 or part.noted:
        return piece
    part.noted = True
    out.error = note_fetch(
        log, asker.replica_id, part.offset, part.replica_start, asker.epoch, part.log_end, asker.now)
    if out.error != 0 and piece is not None:
        piece.release()
        piece = None
    part.high_watermark = max(part.high_watermark, log.high_watermark)
    return piece
