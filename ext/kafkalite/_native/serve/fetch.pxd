"""Serve Fetch: find whole batches, respond at once or wait for enough bytes, and send copies or file ranges."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.serve.access cimport AccessView
from kafkalite._native.serve.counters cimport RequestCounters
from kafkalite._native.serve.fetch_session cimport FetchPart, FetchParts, FetchSessionCache
from kafkalite._native.serve.follower_fetch cimport Asker
from kafkalite._native.serve.leaders cimport Leaders
from kafkalite._native.serve.quota cimport Meter
from kafkalite._native.serve.topic_table cimport Topic, TopicRef, TopicTable
from kafkalite._native.serve.transfer cimport Answer, Mailbox, OutBuffer
from kafkalite._native.wire.cursor cimport Cursor

cdef enum:
    FETCH_FLEXIBLE_FROM = 12        # version
    FETCH_SESSIONS_FROM = 7

cdef enum FetchResult:
    FETCH_READY = 0         # evaluated: answer now
    FETCH_WAITS = 1         # too few bytes: park
    FETCH_BLOCKED = 2       # bytes must first be verified on the I/O pool


cdef class FetchServer:
    cdef TopicTable table
    cdef object pool
    cdef FetchSessionCache sessions
    cdef readonly Mailbox mailbox
    cdef OutBuffer out
    cdef RequestCounters counters       # None: requests are not counted
    cdef Leaders leaders                # None: the broker is not in a cluster
    cdef Meter limit                    # throttled rate for followers out of sync; None: not in a cluster
    cdef int32_t partitions_max
    cdef int32_t response_size_max
    cdef Py_ssize_t copy_size_max
    cdef FetchPlan parse(self, int16_t version, int32_t correlation_id, const unsigned char* body, Py_ssize_t size,
                         double now, object listener, object principal, AccessView access)
    cdef FetchPlan new_plan(self, int16_t version, int32_t correlation_id, double now, object listener,
                            object principal, AccessView access)


cdef class FetchPlan(FetchParts):
    cdef FetchServer server
    cdef int16_t version
    cdef int32_t correlation_id
    cdef int fd                         # of its connection while that is open, else -1
    cdef int32_t wait_ms_max
    cdef int32_t size_min
    cdef int32_t size_max
    cdef int8_t isolation
    cdef int16_t error                  # top level, v7+
    cdef AccessView access              # the client's permissions; None: no authorizer
    cdef Meter meter                    # of response bytes; None: they are not charged
    cdef double claimed                 # bytes charged to the quota before the response was written
    cdef int32_t throttle_ms            # the throttle time in the response
    cdef Topic readable                 # the last topic found readable in this evaluation: most parts share it
    cdef int32_t replica_id             # -1 for a consumer
    cdef Asker asker                    # the replica that fetches
    cdef bytes rack                     # a consumer's; None: it should fetch from the leader
    cdef bint follows                   # the client has the permission to fetch as a replica
    cdef bint tells_leaders             # the response names the leader of a part
    cdef int32_t topic_count
    cdef int32_t session_answered       # the session id in the response
    cdef bint settled                   # the session was updated for this response
    cdef list logs                      # LogCore or None per part
    cdef list slices                    # LogSlice or None per part
    cdef dict converted                 # part → (offset, high watermark, error, batches) from the pool
    cdef int64_t converted_size         # bytes of the converted batches in the response
    cdef list aborted                   # [(first offset, producer id)] or None per part; None: read_uncommitted
    cdef int64_t size                   # bytes of all slices
    cdef double now                     # monotonic seconds of the last evaluation
    cdef readonly double deadline       # the same clock
    cdef readonly Answer answer
    cdef readonly bint done
    cdef bint posted
    cdef bint blocked
    cdef bint listening
    cdef int64_t advanced               # bytes appended since the last evaluation
    cdef object run                     # the FetchRun that serves it in turns; None: it is served at once
    # Parsing:
    cdef int32_t topics_left            # topics that are not completely parsed
    cdef int32_t parts_of_topic, parts_left     # of the current topic
    cdef list forgotten                 # (topic key, partition) to remove from the session; None: nothing
    cdef bytes forgetting               # the topic of these partitions
    # Evaluation:
    cdef int32_t examined               # number of evaluated parts
    cdef int64_t shared_max             # a part with more records left is not cut to a share; -1: not known yet
    cdef int32_t blocking               # parts that the I/O pool must verify first
    cdef int64_t left                   # bytes of the response, less those that the pool must verify
    cdef bint failed                    # an error or the like needs no wait for records
    # Encoding:
    cdef bint topic_begun

    cdef int parse_body(self, const unsigned char* body, Py_ssize_t size) except -1
    cdef bint begin_topics(self, Cursor* c) except -1
    cdef bint parse_topics(self, Cursor* c, int32_t items_max) except -1
    cdef bint begin_forgotten(self, Cursor* c) noexcept
    cdef bint parse_forgotten(self, Cursor* c, int32_t items_max) except -1
    cdef bint parse_end(self, Cursor* c) except -1
    cdef int enter_session(self, list forgotten) except -1
    cdef int settle(self) except -1
    cdef int regroup(self) noexcept
    cdef int fail(self, int error, int32_t session_id) except -1
    cdef int bound(self, Meter meter, int32_t throttle_ms) except -1
    cdef int withhold(self, int32_t throttle_ms) except -1
    cdef int refusal(self, TopicRef wanted, Topic topic, int32_t index) except -1
    cdef FetchPart* next_part(self) except NULL
    cdef int evaluate(self) except -1
    cdef int begin_evaluation(self) except -1
    cdef int examine_some(self, int32_t end) except -1
    cdef int examine(self, FetchPart* part, int32_t i, int64_t size_left) except -1
    cdef int examine_classic(self, FetchPart* part, int32_t i, LogCore log, int64_t upper, int64_t size_left) except -1
    cdef Py_ssize_t begin_encoding(self, OutBuffer out) except -1
    cdef int encode_parts(self, OutBuffer out, Py_ssize_t start, int32_t begin, int32_t end, bint copy,
                          list cuts) except -1
    cdef int end_encoding(self, OutBuffer out, Py_ssize_t start) except -1
    cdef int hand_over(self, Answer answer, OutBuffer out, bint copy, list cuts) except -1
    cdef bint may_read_copy(self, LogCore log) noexcept
    cdef int note_leader(self, FetchPart* part, LogCore log) noexcept
    cdef int put_endpoints(self, OutBuffer out) except -1
    cdef int encode_readable(self, OutBuffer out, bint copy, list cuts) except -1
    cdef int count_parts(self, RequestCounters counters) except -1
    cdef int count_limited(self) noexcept
    cdef int drop_unreadable(self) except -1
    cdef int drop_part(self, int32_t i) except -1
    cdef int64_t held_size(self) noexcept
    cdef int listen(self) except -1
    cdef int unlisten(self) except -1
    cdef int release_slices(self) except -1
    cdef int answer_into(self, OutBuffer out, object connection) except -1
    cdef int fill(self, Answer answer) except -1
    cdef int park(self, Answer answer, int result) except -1
    cdef int wait(self) except -1
    cdef int watch(self, int32_t i, LogCore log) except -1
    cdef int verify(self) except -1
    cdef int collect_blocked(self, list work, int32_t begin, int32_t end) except -1
    cdef int resume(self, double now) except -1
    cdef int make_servable(self, list work) except -1
    cdef int claim(self, object connection) except -1
    cdef bint changed(self) except -1
    cdef int cancel(self) except -1


cdef inline FetchResult outcome_of(FetchPlan plan) noexcept:
    """Return how to continue with a plan whose parts were all examined."""
    if plan.blocking > 0:
        return FETCH_BLOCKED
    if plan.failed or plan.size >= plan.size_min or plan.part_count == 0 or plan.wait_ms_max <= 0:
        return FETCH_READY
    return FETCH_WAITS


cdef inline bint shares(FetchPlan plan) noexcept:
    """Return whether to limit each partition's records: a consumer fetches several, and does not wait for more
    records."""
    return plan.part_count > 1 and plan.size > 0 and plan.size_min <= 1 and not plan.privileged


cdef int share_out(FetchPlan plan, int32_t begin, int32_t end) except -1
