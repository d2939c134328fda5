"""Keep the partitions that a client fetches between its requests, in incremental fetch sessions (KIP-227)."""

from cpython.pythread cimport PyThread_type_lock
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from kafkalite._native.log.log_core cimport LogListener
from kafkalite._native.serve.memory cimport Charge, MemoryCeiling
from kafkalite._native.serve.topic_table cimport TopicRef

cdef enum:
    SESSION_NONE = 0        # as a session id: none
    EPOCH_INITIAL = 0       # a full fetch that opens a session
    EPOCH_FINAL = -1        # a full fetch without a session
    LEADER_TOLD = -2        # as a diverging epoch
    LOADED = -2             # instead of an error code: a request has all of its session's parts
    FETCH_AT_ONCE = 1024    # partitions: a request or a session with more is served in turns


cdef struct FetchPart:
    PyObject* topic                     # its TopicRef, which FetchPlan.topics keeps alive
    bint first_of_topic
    int32_t parts_of_topic              # in the first part of a topic; 0: the topic has no partitions
    int32_t index
    int32_t slot                        # in the session, for an incremental fetch
    bint left_out                       # of an incremental answer: the client has this state already
    int64_t offset
    int32_t size_max
    int32_t current_leader_epoch        # -1: not checked
    int32_t last_fetched_epoch          # -1: not checked
    int64_t replica_start               # where a follower's log starts, -1 a consumer's
    int error
    int32_t diverging_epoch             # -1: none; LEADER_TOLD: the answer has the current leader instead
    int64_t diverging_end_offset
    int32_t preferred                   # preferred read replica, -1: this broker
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t records_size                # bytes of records in the answer
    bint blocked                        # it waits for the I/O pool
    int32_t rounds                      # how often in a row it did
    bint noted                          # the log knows of this fetch of a follower
    int64_t log_end                     # of a follower's: the log's end when it was examined


cdef struct SessionPart:
    PyObject* topic                     # a TopicRef that FetchSession.topics keeps alive
    int32_t index
    int32_t before, following           # slots of the neighbours in the order of service, -1 none
    int32_t size_max
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int64_t offset
    int64_t replica_start
    int64_t high_watermark              # in the client's last answer, -1 none
    int64_t log_start_offset


cdef class FetchParts(LogListener):
    cdef FetchPart* parts
    cdef int32_t part_count
    cdef int32_t part_capacity
    cdef object topics                  # the TopicRef objects that parts point at
    cdef bint by_id
    cdef bint privileged                # of a follower: no consumer's session takes its place
    cdef int32_t session_id             # as requested, or 0
    cdef int32_t session_epoch
    cdef FetchSession session           # of an incremental fetch
    cdef int64_t session_turn           # of its session: another value there means that a later request has arrived
    cdef int32_t load_slot              # the next slot to be loaded
    cdef bint takes_turns               # too large to be served at once (`FetchRun`)
    cdef object listener                # with the principal, the owner of the session: no other client can use it
    cdef object principal
    cdef str client_host                # charged for a session, with the principal; None: not charged


cdef class SessionTopic:
    cdef TopicRef ref
    cdef dict slots                     # partition -> slot


cdef class FetchSession:
    cdef int32_t id
    cdef int32_t epoch                  # of the next request
    cdef int64_t turn                   # rises with each accepted request
    cdef bint by_id
    cdef bint privileged                # a follower's
    cdef object holder                  # charged for it, None: nothing is charged
    cdef Charge charge                  # for as long as it is kept
    cdef object listener                # only requests of this listener
    cdef object principal               # and of this principal may use the session or close it
    cdef dict topics                    # key -> SessionTopic
    cdef tuple refs                     # the TopicRef of each, None after a change
    cdef SessionPart* parts
    cdef int32_t part_capacity
    cdef int32_t slot_count             # slots ever used
    cdef int32_t free_slot              # first released slot, chained by `following`, -1 none
    cdef int32_t part_count
    cdef int32_t counted                # partitions as of its last use, part of the cache's total
    cdef int32_t first, last            # slots, in the order of service
    cdef double created_at, used_at     # monotonic seconds
    cdef FetchSession older, newer      # neighbours by last use

    cdef bint belongs_to(self, FetchParts request) except -1
    cdef int32_t add(self, const FetchPart* part) except -2
    cdef bint take_parts(self, FetchParts request, int32_t first, int32_t end) except -1
    cdef int forget(self, bytes key, int32_t index) except -1
    cdef int32_t take_slot(self) except -1
    cdef void append(self, int32_t slot) noexcept
    cdef void unlink(self, int32_t slot) noexcept
    cdef int begin_load(self, FetchParts request) except -1
    cdef bint load(self, FetchParts request, int32_t count) noexcept
    cdef void settle(self, FetchPart* parts, int32_t count) noexcept


cdef class FetchSessionCache:
    cdef PyThread_type_lock lock
    cdef dict sessions                  # id -> FetchSession
    cdef FetchSession oldest, newest    # by last use
    cdef object shares                  # Shares of the sessions
    cdef object partition_shares        # and of their partitions
    cdef list removed                   # large sessions that are not freed yet; None: there are none
    cdef object pool                    # where these are freed; None: at once
    cdef MemoryCeiling memory           # None: it is not counted
    cdef int32_t slots_max
    cdef int32_t partitions_max
    cdef double eviction_s
    cdef readonly int64_t partition_count
    cdef readonly int64_t evicted_count

    cdef int acquire(self) except -1
    cdef int release(self) except -1
    cdef int32_t open(self, FetchParts request, double now) except -1
    cdef FetchSession new_session(self, FetchParts request, double now)
    cdef FetchSession begin_open(self, FetchParts request, double now)
    cdef int32_t publish(self, FetchSession session, double now) except -1
    cdef int32_t finish_open(self, FetchSession session, double now) except -1
    cdef bint has_memory(self, FetchSession session, object holder, int32_t part_count) except -1
    cdef int close(self, FetchParts request) except -1
    cdef int advance(self, FetchParts request, list forgotten, double now) except -1
    cdef int complete(self, FetchSession session, FetchParts request, bint kept, double now) except -1
    cdef int add_some(self, FetchParts request, int32_t first, int32_t end) except -1
    cdef int forget_some(self, FetchParts request, list forgotten) except -1
    cdef int finish_advance(self, FetchParts request, bint kept, double now) except -1
    cdef int load_some(self, FetchParts request, int32_t count) except -1
    cdef bint settle(self, FetchParts request) except -1
    cdef int remove(self, FetchSession session) except -1
    cdef int32_t partitions_for(self, object holder, int32_t size, bint privileged) except -1
    cdef int enlist(self, FetchSession session, double now) except -1
    cdef int unlink(self, FetchSession session) except -1
    cdef bint make_room(self, int32_t size, object holder, bint privileged, double now) except -1
    cdef FetchSession evictable(self, int32_t size, bint privileged, double now)
