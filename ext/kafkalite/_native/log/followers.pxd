"""Track the replicas that follow a log, and compute its high watermark from their log ends."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    EPOCH_UNKNOWN = -2          # as a broker's epoch: unknown
    EPOCH_NOT_TOLD = -1         # in a fetch: the sender does not support broker epochs

cdef struct BrokerRow:
    int32_t id
    int64_t epoch               # of its registration, EPOCH_UNKNOWN without one
    bint alive                  # registered and not fenced
    bint eligible               # alive, and not in controlled shutdown: it may become in sync

cdef class BrokerEpochs:
    cdef BrokerRow* rows
    cdef int32_t count, capacity
    cdef int32_t place_of(self, int32_t broker_id) except -1

cdef struct Follower:
    int32_t id
    int32_t broker              # its index in BrokerEpochs.rows
    bint in_sync                # according to the controllers
    bint counts                 # in sync, or proposed for it: the high watermark waits for it
    bint announced              # joinable() has been reported
    int64_t end_offset          # its log end offset, -1 unknown
    int64_t log_start           # its log start offset, -1 unknown
    int64_t broker_epoch        # of its last fetch, EPOCH_UNKNOWN before the first
    int64_t leader_end          # the leader's log end offset at its last fetch, -1 before the first
    double fetched_at           # seconds, monotonic, of its last fetch
    double caught_up_at         # the latest time at which it had the whole log
    # Cache of the log's last answer about the end of an older epoch, valid while the log start is `known_start`:
    int32_t known_epoch         # the requested epoch, -1 none
    int32_t known_found
    int64_t known_end, known_start

cdef class Followers:
    cdef readonly BrokerEpochs brokers
    cdef readonly double lag_s_max
    cdef object on_joinable
    cdef Follower* rows
    cdef readonly int32_t count             # of followers: all replicas but the leader
    cdef readonly int32_t in_sync_count     # including the leader, as in the next field
    cdef readonly int32_t maximal_count
    cdef readonly int32_t min_in_sync       # min.insync.replicas
    cdef readonly bint proposing            # a change of the in-sync replicas is pending
    cdef readonly bint limited              # data sent to followers out of sync counts against the leader's limit
    cdef readonly int64_t epoch_start       # the start offset of the leader epoch

    cdef int _replace(self, list replica_ids, bint keep) except -1
    cdef int32_t place_of(self, int32_t replica_id) noexcept nogil
    cdef bint is_stale(self, int32_t place, int64_t broker_epoch) noexcept nogil
    cdef bint fetched(self, int32_t place, int64_t offset, int64_t log_start, int64_t broker_epoch, int64_t log_end,
                      double now) noexcept nogil
    cdef bint may_join(self, int32_t place, int64_t high_watermark) noexcept nogil
    cdef int announce(self, int32_t place, object log) except -1
    cdef int32_t enough(self) noexcept nogil
    cdef int64_t replicated_end(self, int64_t log_end, double now) noexcept nogil
    cdef int64_t low_watermark(self, int64_t log_start) noexcept nogil

cdef class OffsetWaits:
    # Callbacks that wait for an offset, in a heap.
    cdef list heap                          # of (offset, number)
    cdef dict callbacks                     # number → callback; canceled waits are removed
    cdef int64_t number
    cdef int64_t add(self, int64_t offset, object callback) except -1
    cdef bint cancel(self, int64_t number) except -1
    cdef list take(self, int64_t reached)
    cdef int settle(self, int64_t reached, int error) except -1
