"""The states of Produce batches that cannot be appended at once; deferred_produce.pyx explains them."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore

# For Python too.
cpdef enum:
    ADMITS_FROM = 12            # first Produce whose transactions are KIP-890's: writing adds the partition

# The state of one part of a request, for Python too.
cpdef enum:
    DONE = 0                    # it has its result or its error
    ASKED = 1                   # the gate decides whether its transaction may begin
    AFTER_ANOTHER = 2           # an earlier batch of its producer is ASKED, or has not been appended since then
    QUEUED = 3                  # on the I/O pool, in the order of its log
    APPENDING = 4               # a thread of the pool has it
    FLUSHING = 5                # it is in the log; the group commit was requested
    REPLICATING = 6             # it is in the log; the high watermark has to pass it

cpdef bint may_follow(int before, int after) noexcept nogil

cdef inline bint is_owed(int state) noexcept nogil:
    """Return whether another thread must still append the batch."""
    return state == ASKED or state == AFTER_ANOTHER or state == QUEUED

cdef struct AdmissionResult:
    int error                   # Kafka's code if the gate refuses, otherwise 0
    int64_t admitted            # what LogCore.append takes for an admitted batch; else NOT_ADMITTED

cdef class Admission:
    # The question about one producer's transaction in one log, until its first batch is appended or refused.
    cdef LogCore log
    cdef int64_t producer_id
    cdef object answer          # the gate's Deferred
    cdef list followers         # (WaitingRequest, index) of later batches, in order
    cdef list take(self)
    cdef int end(self) except -1

cdef Admission admission_of(LogCore log, int64_t producer_id)

cdef class AdmissionRequest:
    # How the gate is asked on behalf of one request; never changes.
    cdef object gate
    cdef str transactional_id
    cdef int16_t version
    cdef int origin             # one of FROM_..., as LogCore.append takes it
    cdef Admission send(self, LogCore log, int64_t producer_id, int16_t producer_epoch, AdmissionResult* out)

cdef class WaitingPart:
    cdef int state
    cdef LogCore log            # None if it was DONE from the start
    cdef int error              # Kafka's code, 0 none
    cdef int64_t end_offset     # once it is appended
    cdef bint wants_flush       # regardless of in-sync replicas
    cdef bint wants_replicas    # acks=all, in a log with followers
    cdef bint flushes_alone     # if no other replica is in sync
    cdef int32_t leader_epoch   # when such a part was appended
    cdef int64_t wait           # while REPLICATING: the wait's number
    cdef int64_t producer_id    # of its batch, -1 none
    cdef int16_t producer_epoch
    cdef int64_t admitted       # as LogCore.append takes it
    cdef Admission admission    # it leads this one from ASKED until it is appended or refused
    cdef int move(self, int state) except -1
    cdef int release(self) except -1

cdef class WaitingRequest:
    cdef list parts             # of WaitingPart, in request order
    cdef readonly bint done     # it is answered
    cdef bint expired           # its time is over: only what must not be abandoned is waited for
    cdef int remaining          # parts not DONE, plus one until begin() has run
    cdef AdmissionRequest ask   # None: it has no transactional part
    cdef object pool
    cdef int begin(self, object pool) except -1
    cdef int begin_part(self, int i) except -1
    cdef int submit(self, int i) except -1
    cdef int put_on_pool(self, int i) except -1
    cdef bint follow(self, WaitingPart part, int i) except -1
    cdef int append_part(self, WaitingPart part, int i) except -1
    cdef int end_append(self, WaitingPart part, int i) except -1
    cdef int after_append(self, WaitingPart part, int i) except -1
    cdef int end_wait(self, WaitingPart part) except -1
    cdef int after_replication(self, WaitingPart part, int i, int error) except -1
    cdef int end_part(self, WaitingPart part) except -1
    cdef int count_down(self) except -1
    # Implemented by a subclass:
    cdef int append(self, WaitingPart part) except -1
    cdef int answer_all(self) except -1
    cdef int lose_answer(self) except -1
