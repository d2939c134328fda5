"""Append Produce batches that could not be appended at once, and answer when they are stored as acks requires.

    ASKED ────yes────▶ QUEUED ───its turn───▶ APPENDING ───stored───▶ FLUSHING ───on the disk───▶ DONE
      │                  │ ▲                  ▲ │ │ │ ▲                                            ▲
      │                  │ └─it came to─┐     │ │ │ └─appended─┐   (the batch that it came after)  │
      │                  │     nothing  │     │ │ │            │                                   │
      │                  │           AFTER_ANOTHER ◀───────────┘                                   │
      │                  │                      │                                                  │
      └──no──────────────┴──the pool stopped────┴──refused, or no flush is wanted──────────────────┘

A part is one partition's batch in a request; the drawing shows its states. It starts as ASKED, AFTER_ANOTHER, QUEUED or
FLUSHING, or as DONE if other parts are not. From APPENDING a part may also go back. It goes to ASKED if the append
would begin a transaction, and to AFTER_ANOTHER if an earlier batch of its producer began to wait for the gate
meanwhile.

With acks=all, in a log with followers, a part is REPLICATING after APPENDING, or from the start. That state ends when
the high watermark has passed the part, leadership is lost, or the request times out. Then the part is FLUSHING if no
other replica was in sync, else DONE.

The gate is the transaction coordinator. It has to admit the first batch of a transaction in a partition:

    append ─▶ APPEND_ASK ─▶ gate.admit ─┬─ 0 ─▶ append ─▶ ...
                                        ├─ an error code: the partition's
                                        └─ Deferred: ASKED. The part leads an `Admission`; batches of that producer for
                                           that log which come meanwhile follow it (LogCore.admissions), others pass

With the answer the part goes to the I/O pool, whose thread appends it and then the batches that follow it, in order of
arrival. A part that needs the gate there waits in the same way, so no thread of the pool waits for another. The part
may be queued again, for example because the log has to create a file. Later batches of that producer that are already
on the pool then find that it is not appended yet, and follow it: none overtakes it.

Thread rule: one thread at a time owns a part, which its state identifies; states and counters change under the GIL.
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
    """Return whether a part may change from one state to another, as in the drawing."""
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
    """A producer's transaction that begins in a log when the gate admits it. `len`: batches that follow."""

    def __len__(self):
        return len(self.followers)

    cdef list take(self):
        """Return the followers; later batches do not wait for this one."""
        cdef dict admissions = self.log.admissions
        cdef list followers = self.followers
        self.followers = []
        if admissions is not None and admissions.get(self.producer_id) is self:
            del admissions[self.producer_id]
            if not admissions:
                self.log.admissions = None
        return followers

    cdef int end(self) except -1:
        """Send the followers to the pool, because this batch is not appended."""
        cdef WaitingRequest request
        for request, i in self.take():
            request.submit(i)
        return 0

    def drop(self, int _error):
        """Ignore the gate's answer for a batch that was dropped meanwhile."""
        self.end()


cdef Admission admission_of(LogCore log, int64_t producer_id):
    """Return the admission that batches of the producer have to wait for, or None."""
    return None if log.admissions is None else log.admissions.get(producer_id)


cdef Admission begin_admission(LogCore log, int64_t producer_id, object answer):
    """Make batches of the producer wait. If two connections ask at once, the later admission takes the followers."""
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
    """The gate's caller for one request."""

    cdef Admission send(self, LogCore log, int64_t producer_id, int16_t producer_epoch, AdmissionResult* out):
        """Ask if a producer's transaction may begin in a log: `out` has the answer, or later the returned Admission."""
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
    """Return whether no other replica is in sync with a log."""
    return log.followers is None or log.followers.in_sync_count <= 1


# ---- what waits -----------------------------------------------------------------------------------------------------

cdef class WaitingPart:
    """One partition of a request that could not be answered at once. A subclass keeps the batch."""

    cdef int move(self, int state) except -1:
        kl_assert(may_follow(self.state, state))
        self.state = state
        return 0

    cdef int release(self) except -1:
        """Note that the append is no longer owed."""
        return 0


cdef class WaitingRequest:
    """A request whose answer waits for some of its parts. A subclass appends, and answers when all are DONE."""

    cdef int begin(self, object pool) except -1:
        """Start each part's next step."""
        cdef int i
        self.pool = pool
        self.remaining = 1
        for i in range(<int>len(self.parts)):
            self.begin_part(i)
        return self.count_down()

    cdef int begin_part(self, int i) except -1:
        """Start part i's next step, which may end at once."""
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
        """Queue part i on the I/O pool for its append, after earlier ones of its log."""
        cdef WaitingPart part = self.parts[i]
        part.move(QUEUED)
        part.log.deferred_appends += 1
        return self.put_on_pool(i)

    cdef int put_on_pool(self, int i) except -1:
        """Queue a part that is QUEUED and counted."""
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
        """Let part i follow the batch of its producer that the gate was asked about, if that still waits."""
        cdef Admission admission = admission_of(part.log, part.producer_id)
        if admission is None:
            return False
        if part.state != AFTER_ANOTHER:
            part.move(AFTER_ANOTHER)
        admission.followers.append((self, i))
        return True

    def admit(self, int i, int error):
        """Handle the gate's answer for part i, and let its followers continue. Any thread."""
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
        """Do the deferred append of part i, which the log has counted, on the I/O pool."""
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
        """Append part i. In APPENDING afterwards, it has its result or its error. In ASKED or AFTER_ANOTHER it waits,
        and in AFTER_ANOTHER another thread may own it by now."""
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
        """Flush or end part i, which is appended or refused; then handle its followers, on this thread."""
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
        """Wait until part i, if it is in the log, is safe; end it if it was refused."""
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
        """Continue with part i, which is on all in-sync replicas or never will be."""
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
        """End a part that waits for replicas, because the request's time is over. Appended batches stay."""
        if part.state == REPLICATING:
            cancel_wait(part.log, part.wait)
            part.error = REQUEST_TIMED_OUT
            self.end_part(part)
        return 0

    def expire(self, double now):
        """End the waits, because the request's time is over or the broker stops."""
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
        """Append a part's batch, blocking if needed; return one of APPEND_..., with error, end offset and flush set."""
        raise TypeError("a bare WaitingRequest has no batches")

    cdef int answer_all(self) except -1:
        """Answer the request; every part is DONE."""
        raise TypeError("a bare WaitingRequest has no answer")

    cdef int lose_answer(self) except -1:
        """Close the connection, because the answer cannot be made."""
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
    """The callback that the group commit calls with 0 or an error code once a part is on the disk."""

    def __call__(self, int error):
        cdef WaitingPart part = self.request.parts[self.index]
        if error != 0:
            part.error = error
        self.request.end_part(part)


@cython.final
cdef class ReplicationWaiter(PartWaiter):
    """The callback of wait_replicated."""

    def __call__(self, int error):
        self.request.after_replication(self.request.parts[self.index], self.index, error)


@cython.final
cdef class AdmissionWaiter(PartWaiter):
    """The callback that the gate's Deferred calls with 0 or an error code."""

    def __call__(self, int error):
        self.request.admit(self.index, error)
