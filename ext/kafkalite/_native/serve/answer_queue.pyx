"""Queue the responses of one connection, in the order of its requests.

    add           adds an empty entry for a request that is parked, or that follows a parked one
    put_first     puts the rest of a partial send before all entries
    gather        moves small ready responses from the head into the out buffer, so that one send takes them all
    forget_head   removes the first response, after it was sent or moved

The bytes of responses that are ready are counted. A response that is ready while the queue is empty never enters it:
its bytes stay in the worker's out buffer.

Thread rule: everything runs on the connection's worker, except parked().
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from collections import deque

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.serve.memory cimport SMALL_SIZE, Holding
from kafkalite._native.serve.transfer cimport Answer, OutBuffer
from kafkalite._native.serve.worker_parts cimport RECEIVE_CAPACITY, WorkerParts


@cython.final
cdef class AnswerQueue:
    """The queue of one connection, which sends the responses from the head."""

    def __cinit__(self, WorkerParts io not None):
        self.io = io

    def parked(self):
        """Return API key → number of waiting requests, if requests are counted. Any thread."""
        cdef dict found = {}
        cdef Answer answer
        for answer in list(self.queue or ()):
            if not answer.ready and answer.timing is not None:
                found[answer.timing.key] = found.get(answer.timing.key, 0) + 1
        return found

    cdef Answer new_answer(self, object connection, Holding* holding):
        cdef Answer answer = Answer.__new__(Answer)
        answer.connection = connection
        answer.mailbox = self.io.mailbox
        answer.hold_for(holding)
        return answer

    cdef Answer add(self, object connection, Holding* holding):
        """Append an empty entry for the current request's response. Its memory is charged to `holding`."""
        cdef Answer answer = self.new_answer(connection, holding)
        kl_assert(self.in_flight >= 0)
        if self.queue is None:
            self.queue = deque()
        self.queue.append(answer)
        self.in_flight += 1
        self.sole = NULL
        if self.io.counters is not None:
            answer.timing = self.io.counters.park()
        return answer

    cdef int move_out(self, Answer answer, Py_ssize_t start) except -1:
        """Move the frame that begins at `start` in the out buffer into `answer`."""
        cdef OutBuffer out = self.io.out
        kl_assert(0 <= start)
        kl_assert(start <= out.size)
        answer.fill(PyBytes_FromStringAndSize(<const char*>out.data + start, out.size - start), None, None)
        out.size = start
        return self.count(answer)

    cdef int put_first(self, object connection, Holding* holding, Py_ssize_t sent) except -1:
        """Queue the unsent rest of the out buffer, which begins at `sent`, before all other responses."""
        cdef OutBuffer out = self.io.out
        cdef Answer rest = self.new_answer(connection, holding)
        rest.fill(PyBytes_FromStringAndSize(<const char*>out.data + sent, out.size - sent), None, None)
        self.queue = deque((rest, *(self.queue or ())))
        self.in_flight += 1
        return self.count(rest)

    cdef int count(self, Answer answer) except -1:
        """Count the bytes of a ready response. Close the connection if there is no memory for them."""
        if not answer.counted and not answer.silent:
            answer.counted = True
            self.queued_bytes += PyBytes_GET_SIZE(answer.data)
            if self.io.ceiling.held > self.io.ceiling.size_max and PyBytes_GET_SIZE(answer.data) > SMALL_SIZE:
                answer.connection.close("no memory for a response of %d bytes (broker.memory.max)",
                                        PyBytes_GET_SIZE(answer.data))
        return 0

    cdef bint waits(self):
        """Return whether the first response is not ready."""
        return self.in_flight > 0 and not (<Answer>self.queue[0]).ready

    cdef int gather(self) except -1:
        """Move small ready responses from the head into the out buffer, so that one send takes them all."""
        cdef OutBuffer out = self.io.out
        cdef Answer answer
        while self.in_flight > 0 and out.size < RECEIVE_CAPACITY:
            answer = <Answer>self.queue[0]
            if not answer.ready:
                break
            if not answer.silent:
                if answer.slices is not None or answer.sent > 0 or answer.size > GATHER_SIZE_MAX:
                    break
                out.put(<const unsigned char*>PyBytes_AS_STRING(answer.data), PyBytes_GET_SIZE(answer.data))
            self.forget_head(answer)
        return 0

    cdef int forget_head(self, Answer answer) except -1:
        """Remove the first response, which was sent or moved to the out buffer."""
        self.queue.popleft()
        self.in_flight -= 1
        if answer.counted:
            self.queued_bytes -= PyBytes_GET_SIZE(answer.data)
        kl_assert(self.in_flight >= 0)
        kl_assert(self.queued_bytes >= 0)
        if answer.timing is not None:
            self.io.counters.finish(answer.timing, answer.connection)
        answer.drop()
        return 0

    cdef int trim(self) except -1:
        """Free the memory of an empty queue."""
        if self.in_flight == 0:
            self.queue = None
        return 0

    cdef int drop(self) except -1:
        """Remove all responses, because the connection is closed."""
        cdef Answer answer
        cdef object dropped = self.queue
        self.queue = None
        self.in_flight = 0
        self.queued_bytes = 0
        for answer in dropped or ():
            answer.drop()
        return 0
