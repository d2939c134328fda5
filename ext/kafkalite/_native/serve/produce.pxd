"""Serve Produce: parse the request in place, append each batch, and write the response."""

from libc.stdint cimport int16_t, int32_t, int64_t
from kafkalite._native.log.log_append cimport AppendResult, AppendTerms
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.serve.access cimport AccessView
from kafkalite._native.serve.deferred_produce cimport Admission, AdmissionRequest, WaitingPart, WaitingRequest
from kafkalite._native.serve.counters cimport RequestCounters
from kafkalite._native.serve.leaders cimport Leaders
from kafkalite._native.serve.topic_table cimport Topic, TopicTable
from kafkalite._native.serve.transfer cimport Answer, OutBuffer
from kafkalite._native.wire.batch cimport RecordFaults

cdef enum:
    PRODUCE_FLEXIBLE_FROM = 9       # version
    PART_SIZE = 512                 # bytes that a waiting part takes, besides its records

cdef enum ServeResult:
    SERVED = 0          # the response frame is in the out buffer
    NO_ANSWER = 1       # acks=0, all appended
    PARKED = 2          # `pending` waits for its Answer
    MALFORMED = 3       # the connection has to be closed
    UNANSWERED = 4      # acks=0, and not all was appended: closing the connection is the only response
    TAKES_TURNS = 5     # parsed, with too many partitions for one turn: `ProduceRun` serves it


# The acks of a request, which are near its start; 0 if it is malformed.
cdef int16_t acks_of(int16_t version, const unsigned char* frame, Py_ssize_t size) noexcept


cdef struct ProducePart:
    const unsigned char* topic      # name or id, into the request
    Py_ssize_t topic_size
    int32_t index
    unsigned char* records          # into the request; patched in place by the append
    Py_ssize_t records_size         # -1: null
    bint first_of_topic
    int32_t parts_of_topic          # valid in the first part of a topic
    int state                       # one of deferred_produce's states: DONE, with its error, or what it waits for
    bint wants_replicas             # acks=all, in a log with followers
    int error
    AppendResult result


cdef class ProduceServer:
    cdef TopicTable table
    cdef object pool
    cdef OutBuffer out
    cdef ProducePart* parts
    cdef int32_t part_count
    cdef int32_t part_capacity
    cdef int32_t topic_count
    cdef int32_t partitions_max
    cdef int64_t deferred_bytes_max
    cdef bint flush_on_acks_all
    cdef RequestCounters counters   # None: requests are not counted
    cdef object gate                # admits transactions; None: they are not supported
    cdef Leaders leaders            # None: the broker is not in a cluster
    cdef PendingProduce pending
    cdef dict faults                # index of a part of the latest request → its RecordFaults; None: no record is bad
    # The request being served:
    cdef AccessView access          # its client's permissions; None: no authorizer
    cdef double now                 # monotonic seconds
    cdef object listener            # through which it came, if there are `leaders`
    cdef int32_t throttle_ms        # the throttle time in its response
    cdef int16_t acks
    cdef AppendTerms terms
    cdef int32_t timeout_ms         # how long it may wait for replicas with acks=all
    cdef const unsigned char* transactional_id      # NULL: null
    cdef Py_ssize_t transactional_id_size
    cdef bint transactional         # it contains a transactional batch
    cdef bint flush                 # its response waits for the disk
    cdef AdmissionRequest ask       # valid while transactional; None: refused
    # The part that append_transactional handled last:
    cdef Admission admission        # the admission if the gate answers later
    cdef int64_t admitted           # as LogCore.append takes it

    cdef int serve(self, int16_t version, int32_t correlation_id, unsigned char* body, Py_ssize_t size) except -1
    cdef ProduceServer hand_over(self)
    cdef LogCore serve_part(self, int32_t i, int16_t version)
    cdef PendingProduce new_pending(self, int16_t version, int32_t correlation_id)
    cdef int parse(self, int16_t version, unsigned char* body, Py_ssize_t size, int16_t* acks) except -1
    cdef ProducePart* next_part(self) except NULL
    cdef int count_parts(self) noexcept
    cdef int park(self, PendingProduce pending) except -1
    cdef Topic topic_of(self, const ProducePart* part, int16_t version)
    cdef LogCore append_part(self, ProducePart* part, int16_t version, bint acks_valid)
    cdef bint allows(self, ProducePart* part, Topic topic, bint by_id) except -1
    cdef int give_up(self, ProducePart* part) except -1
    cdef PendingPart pending_part(self, ProducePart* part, LogCore log, bint wants_flush)
    cdef bint prepare_ask(self, int16_t version) except -1
    cdef int append_transactional(self, ProducePart* part, LogCore log) except -1
    cdef int encode(self, int16_t version, int32_t correlation_id) except -1
    cdef int encode_with_leaders(self, int16_t version, int32_t correlation_id) except -1


cdef class PendingPart(WaitingPart):
    cdef ProducePart part           # its topic points into `topic`, its records are NULL
    cdef bytes topic
    cdef bytearray records          # a copy, while an append is owed
    cdef RecordFaults faults        # None: no record is bad


cdef class PendingProduce(WaitingRequest):
    cdef int16_t version
    cdef int32_t correlation_id
    cdef int16_t acks
    cdef int32_t throttle_ms
    cdef RequestCounters counters
    cdef ProduceServer server       # if there are leaders to name, as the next
    cdef object listener
    cdef readonly Answer answer
    cdef int32_t timeout_ms         # how long it waits for replicas; -1: it does not wait for them
    cdef int prepare(self, Answer answer, object pool) except -1
    cdef int start(self, Answer answer, object pool) except -1
    cdef int64_t held_size(self) except -1
    cdef void* sole(self)


cdef class ProduceRun:
    cdef ProduceServer server       # owned
    cdef void* frame                # owned; the parts point into it
    cdef int16_t version
    cdef int32_t at                 # number of parts that were appended or refused
    cdef int32_t begun              # number of parts whose wait has started if they have one
    cdef bint counted               # all waits were started and counted: the response waits only for them
    cdef PendingProduce pending

    cdef bint take_turn(self, int64_t turn_ns, double now) except -1
    cdef int serve_some(self, int32_t end) except -1
    cdef int flush_some(self, int32_t end) except -1


cdef ProduceRun run_of(ProduceServer server, int16_t version, int32_t correlation_id, Py_ssize_t moved, void* frame,
                       Answer answer)
