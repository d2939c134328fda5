"""Append Produce batches that cannot be appended at once, and respond when they are stored as acks requires.

A part is the batch of one partition in a request. Its state shows what it waits for:

    state           ends when                                        next state
    ASKED           the gate answers                                 QUEUED, or DONE if it refuses
    AFTER_ANOTHER   the earlier batch of its producer has ended      APPENDING, or QUEUED if the gate refused it
    QUEUED          the I/O pool reaches it                          APPENDING, or DONE if the pool has stopped
    APPENDING       appended                                         FLUSHING; DONE if no flush is wanted; REPLICATING
                                                                     with acks=all in a log with followers
                    refused                                          DONE
                    it would begin a transaction                     ASKED
                    an earlier batch of its producer is ASKED        AFTER_ANOTHER
    REPLICATING     the high watermark has passed it                 DONE; FLUSHING if no other replica is in sync, or a
                                                                     flush is due
                    leadership is lost, or the request times out     DONE
    FLUSHING        it is on the disk                                DONE

The request is answered when all its parts are DONE.

The gate is the transaction coordinator, which must admit the first batch of a transaction in a partition. Until it
answers, later batches of the same producer wait, but other producers' batches do not.

Thread rule: one thread at a time owns a part; its state shows which. States and counters change under the GIL.
"""

cimport cython

import logging

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.leading cimport cancel_wait, wait_replicated
from kafkalite._native.log.log_append cimport APPEND_ASK
from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.producers cimport NOT_ADMITTED
from kafkalite._native.wire.error_codes cimport REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR

from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.produce"))


cpdef bint may_follow(int before, int after) noexcept nogil:
    """Return whether a part may change from one state to another, as in the module's table."""
    if before == ASKED:
        return after == QUEUED or after == DONE
    if before == AFTER_ANOTHER:
        return after == QUEUED or after == APPENDING
    if before == QUEUED:
        return after == APPENDING or after == DONE
    if before == APPENDING:
        return after == ASKED or after == AFTER_ANOTHER or after == REPLICATING or after == FLUSHING or after == DONE
    if before == REPLICATING:
        return after == FLUSHING or after == DONE
    return before == FLUSHING and after == DONE


# ---- the gate -------------------------------------------------------------------------------------------------------

@cython.final
cdef class Admission:
    """A producer's transaction that waits for the gate. Its `len()` is the number of batches that follow.

    The later batches of this producer in this log follow in order, so no batch overtakes another.

    The first batch may have to be queued again, for example to create a file. Later batches of the producer that are
    already on the pool then detect that the first one is not appended, and follow it.
    """

    def __len__(self):
        return len(self.followers)

    cdef list take(self):
        """Return the batches that follow. Later batches do not wait for this one any more."""
        cdef dict admissions = self.log.admissions
        cdef list followers = self.followers
        self.followers = []
        if admissions is not None and admissions.get(self.producer_id) is self:
            del admissions[self.producer_id]
            if not admissions:
                self.log.admissions = None
        return followers

    cdef int end(self) except -1:
        """Queue the batches that follow on the I/O pool, because this batch is not appended."""
        cdef WaitingRequest request
        for request, i in self.take():
            request.submit(i)
        return 0

    def drop(self, int _error):
        """Ignore the gate's answer for a batch that was refused meanwhile."""
        self.end()


cdef Admission admission_of(LogCore log, int64_t producer_id):
    """Return the Admission for which batches of a producer must wait, or None."""
    return None if log.admissions is None else log.admissions.get(producer_id)


cdef Admission begin_admission(LogCore log, int64_t producer_id, object answer):
    """Make later batches of a producer wait for the gate's answer.

    If two connections ask at once, the later Admission takes over the batches that follow.
    """
    cdef Admission admission = Admission.__new__(Admission)
    cdef Admission before = admission_of(log, producer_id)
    admission.log = log
    admission.producer_id = producer_id
    admission.answer = answer
    admission.followers = [] if before is None else before.take()
    if log.admissions is None:
        log.admissions = {}
    log.admissions[producer_id] = admission
    return admission


@cython.final
cdef class AdmissionRequest:
    """Calls the gate for one request.

    `gate.admit` returns 0 to append the batch, an error code to refuse it, or a Deferred. With a Deferred, the part is
    ASKED until the gate answers. A thread of the I/O pool that needs the gate does not block either.
    """

    cdef Admission send(self, LogCore log, int64_t producer_id, int16_t producer_epoch, AdmissionResult* out):
        """Ask the gate whether a transaction may begin in a log. The answer is in `out`, or comes later in the returned
        Admission."""
        out.error = 0
        out.admitted = log.marker_count()
        try:
            answer = self.gate.admit(
                self.transactional_id, producer_id, producer_epoch, log.topic, log.partition, self.version)
        except Exception:
            logger.exception("transaction check of producer %d on %s-%d failed", producer_id, log.topic, log.partition)
            answer = UNKNOWN_SERVER_ERROR
        if not isinstance(answer, int):
            if not answer.done:
                return begin_admission(log, producer_id, answer)
            answer = answer.response
        out.error = answer
        if out.error != 0:
            out.admitted = NOT_ADMITTED
        return None


cdef inline bint is_alone(LogCore log) noexcept:
    """Return whether no other replica of a log is in sync."""
    return log.followers is None or log.followers.in_sync_count <= 1


# ---- what waits -----------------------------------------------------------------------------------------------------

cdef class WaitingPart:
    """One partition of a request that could not be answered at once. A subclass keeps the batch."""

    cdef int move(self, int state) except -1:
        kl_assert(may_follow(self.state, state))
        self.state = state
        return 0

    cdef int release(self) except -1:
        """Free the batch, which need not be appended any more."""
        return 0


cdef class WaitingRequest:
    """A request whose response waits for some of its parts. A subclass appends, and responds when all are DONE."""

    cdef int begin(self, object pool) except -1:
        """Start the next step of each part."""
        cdef int i
        self.pool = pool
        self.remaining = 1
        for i in range(<int>len(self.parts)):
            self.begin_part(i)
        return self.count_down()

    cdef int begin_part(self, int i) except -1:
        """Start the next step of part i, in any state but APPENDING. It may end at once."""
        cdef WaitingPart part = self.parts[i]
        if part.state == DONE:
            return 0
        self.remaining += 1
        if part.state == FLUSHING:
            part.log.owner.flush_async(part.end_offset, FlushWaiter(self, i))
        elif part.state == REPLICATING:
            part.wait = wait_replicated(part.log, part.end_offset, part.leader_epoch, ReplicationWaiter(self, i))
            if self.expired:
                self.end_wait(part)
        elif part.state == ASKED:
            part.admission.answer.then(AdmissionWaiter(self, i))
        elif part.state == QUEUED:
            self.put_on_pool(i)
        elif part.state == AFTER_ANOTHER and not self.follow(part, i):
            self.submit(i)
        return 0

    cdef int submit(self, int i) except -1:
        """Queue the append of part i on the I/O pool, after earlier appends to its log."""
        cdef WaitingPart part = self.parts[i]
        part.move(QUEUED)
        part.log.deferred_appends += 1
        return self.put_on_pool(i)

    cdef int put_on_pool(self, int i) except -1:
        """Queue part i, whose state is QUEUED and which its log has counted."""
        cdef WaitingPart part = self.parts[i]
        cdef Admission admission
        try:
            self.pool.submit_ordered(part.log, self.append_on_pool, i)
        except RuntimeError:                    # the broker has stopped: the client may retry
            part.log.deferred_appends -= 1
            part.error = REQUEST_TIMED_OUT
            part.release()
            admission, part.admission = part.admission, None
            if admission is not None:
                admission.end()
            self.end_part(part)
        return 0

    cdef bint follow(self, WaitingPart part, int i) except -1:
        """Let part i follow the batch of its producer that waits for the gate. Return False if none waits any more."""
        cdef Admission admission = admission_of(part.log, part.producer_id)
        if admission is None:
            return False
        if part.state != AFTER_ANOTHER:
            part.move(AFTER_ANOTHER)
        admission.followers.append((self, i))
        return True

    def admit(self, int i, int error):
        """Handle the gate's answer for part i, and continue with the batches that follow it. Any thread."""
        cdef WaitingPart part = self.parts[i]
        cdef Admission admission
        if error == 0:
            if self.ask.version >= ADMITS_FROM:
                # The gate may have waited for the marker of the previous transaction. A marker of this transaction
                # would have a higher epoch than the batch, which shows that the batch is too late.
                part.admitted = part.log.marker_count()
            self.submit(i)
            return
        part.error = error
        part.release()
        admission, part.admission = part.admission, None
        admission.end()
        self.end_part(part)

    def append_on_pool(self, int i):
        """Append part i, which its log has counted, on the I/O pool."""
        cdef WaitingPart part = self.parts[i]
        cdef LogCore log = part.log
        cdef int state = APPENDING
        part.move(APPENDING)
        try:
            state = self.append_part(part, i)
        except Exception:
            logger.exception("append to %s-%d failed", log.topic, log.partition)
            part.error = UNKNOWN_SERVER_ERROR
        finally:
            log.deferred_appends -= 1
            kl_assert(log.deferred_appends >= 0)
        try:
            if state == APPENDING:
                self.end_append(part, i)
            elif state == ASKED:
                part.admission.answer.then(AdmissionWaiter(self, i))
        except Exception:
            self.lose_answer()
            raise

    cdef int append_part(self, WaitingPart part, int i) except -1:
        """Append part i; return its state.

        APPENDING: it has a result or an error. ASKED or AFTER_ANOTHER: it waits; in AFTER_ANOTHER, another thread may
        own it by now.
        """
        cdef AdmissionResult result
        cdef Admission admission
        if self.ask is not None and part.admitted < 0 and self.follow(part, i):
            return AFTER_ANOTHER
        if self.append(part) == APPEND_ASK:
            admission = self.ask.send(part.log, part.producer_id, part.producer_epoch, &result)
            part.error = result.error
            part.admitted = result.admitted
            if admission is not None:
                part.admission = admission
                part.move(ASKED)
                return ASKED
            if result.error == 0:
                self.append(part)
        return APPENDING

    cdef int end_append(self, WaitingPart part, int i) except -1:
        """Continue with part i, which is appended or refused. Then append the batches that follow it, on this
        thread."""
        cdef LogCore log = part.log
        cdef WaitingRequest request
        cdef list followers = None
        if part.admission is not None:
            followers = part.admission.take()
            part.admission = None
            log.deferred_appends += <int>len(followers)     # batches that arrive meanwhile stay after them
        part.release()
        self.after_append(part, i)
        if followers is not None:
            for request, j in followers:
                request.append_on_pool(j)
        return 0

    cdef int after_append(self, WaitingPart part, int i) except -1:
        """Wait until part i is replicated or on the disk, or end it if it was refused."""
        if part.error == 0 and part.wants_replicas:
            part.move(REPLICATING)
            part.wait = wait_replicated(part.log, part.end_offset, part.leader_epoch, ReplicationWaiter(self, i))
            if self.expired:
                self.end_wait(part)
        elif part.error == 0 and (part.wants_flush or part.flushes_alone):
            part.move(FLUSHING)
            part.log.owner.flush_async(part.end_offset, FlushWaiter(self, i))
        else:
            self.end_part(part)
        return 0

    cdef int after_replication(self, WaitingPart part, int i, int error) except -1:
        """Continue with part i after it was replicated, or cannot be (`error`)."""
        if part.state != REPLICATING:
            return 0                                # it was abandoned
        part.error = error
        if error == 0 and (part.wants_flush or part.flushes_alone and is_alone(part.log)):
            part.move(FLUSHING)
            part.log.owner.flush_async(part.end_offset, FlushWaiter(self, i))
        else:
            self.end_part(part)
        return 0

    cdef int end_wait(self, WaitingPart part) except -1:
        """End a part that waits for replicas, because the request has timed out. Its batch stays in the log."""
        if part.state == REPLICATING:
            cancel_wait(part.log, part.wait)
            part.error = REQUEST_TIMED_OUT
            self.end_part(part)
        return 0

    def expire(self, double now):
        """End all waits for replicas, because the request has timed out or the broker stops."""
        cdef WaitingPart part
        self.expired = True
        for part in self.parts:
            self.end_wait(part)

    cdef int end_part(self, WaitingPart part) except -1:
        part.move(DONE)
        return self.count_down()

    cdef int count_down(self) except -1:
        self.remaining -= 1
        kl_assert(self.remaining >= 0)
        if self.remaining > 0:
            return 0
        self.done = True
        try:
            return self.answer_all()
        except Exception:
            self.lose_answer()
            raise

    cdef int append(self, WaitingPart part) except -1:
        """Append a part's batch, blocking if needed; return an APPEND_ constant. Sets error, end offset and flush."""
        raise TypeError("a bare WaitingRequest has no batches")

    cdef int answer_all(self) except -1:
        """Answer the request. All parts are DONE."""
        raise TypeError("a bare WaitingRequest has no answer")

    cdef int lose_answer(self) except -1:
        """Close the connection, because the response cannot be made."""
        raise TypeError("a bare WaitingRequest has no answer")


cdef class PartWaiter:
    """A callback for one part of a request."""
    cdef WaitingRequest request
    cdef int index

    def __cinit__(self, WaitingRequest request not None, int index):
        self.request = request
        self.index = index


@cython.final
cdef class FlushWaiter(PartWaiter):
    """The callback that the group commit calls with 0 or an error code when a part is on the disk."""

    def __call__(self, int error):
        cdef WaitingPart part = self.request.parts[self.index]
        if error != 0:
            part.error = error
        self.request.end_part(part)


@cython.final
cdef class ReplicationWaiter(PartWaiter):
    """The callback of wait_replicated()."""

    def __call__(self, int error):
        self.request.after_replication(self.request.parts[self.index], self.index, error)


@cython.final
cdef class AdmissionWaiter(PartWaiter):
    """The callback that the gate's Deferred calls with 0 or an error code."""

    def __call__(self, int error):
        self.request.admit(self.index, error)
