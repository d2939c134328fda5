"""Queue the responses of one connection, in the order of its requests."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.serve.memory cimport Holding
from kafkalite._native.serve.transfer cimport Answer
from kafkalite._native.serve.worker_parts cimport WorkerParts

cdef enum:
    GATHER_SIZE_MAX = 16384             # ready answers up to this size are joined into one send


cdef class AnswerQueue:
    cdef WorkerParts io
    cdef object queue                   # deque of Answer, in request order; None: nothing has waited recently
    cdef readonly int32_t in_flight     # answers in the queue
    cdef int64_t queued_bytes           # memory of ready answers in the queue
    cdef const void* sole               # the only log that all these answers wait for; NULL: none or several

    cdef Answer new_answer(self, object connection, Holding* holding)
    cdef Answer add(self, object connection, Holding* holding)
    cdef int move_out(self, Answer answer, Py_ssize_t start) except -1
    cdef int put_first(self, object connection, Holding* holding, Py_ssize_t sent) except -1
    cdef int count(self, Answer answer) except -1
    cdef bint waits(self)
    cdef int gather(self) except -1
    cdef int forget_head(self, Answer answer) except -1
    cdef int trim(self) except -1
    cdef int drop(self) except -1
