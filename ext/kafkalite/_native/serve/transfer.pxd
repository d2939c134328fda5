"""Send responses from the broker's memory and from segment files to sockets."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.serve.counters cimport Timing, Turns
from kafkalite._native.serve.memory cimport Holding
from kafkalite._native.tls.tls_session cimport TlsSession


cdef class OutBuffer:
    """A growable C buffer, whose contents are `data[:size]`. It belongs to one thread."""
    cdef unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Holding* holding        # charged for a large buffer that is kept; NULL: not charged

    cdef int use_holding(self, Holding* holding) except -1
    cdef int grow(self, Py_ssize_t capacity) except -1
    cdef int shrink(self) except -1
    cdef int reserve(self, Py_ssize_t extra) except -1
    cdef int put(self, const unsigned char* source, Py_ssize_t size) except -1
    cdef int put_i8(self, int value) except -1
    cdef int put_i16(self, int16_t value) except -1
    cdef int put_i32(self, int32_t value) except -1
    cdef int put_i64(self, int64_t value) except -1
    cdef int put_uvarint(self, unsigned int value) except -1
    cdef int put_string(self, const unsigned char* source, Py_ssize_t size, bint compact) except -1
    cdef int put_array_size(self, Py_ssize_t count, bint compact) except -1
    cdef Py_ssize_t begin_frame(self, int32_t correlation_id, bint flexible) except -1
    cdef int end_frame(self, Py_ssize_t start) except -1


cpdef int32_t frame_length(int64_t size) except -1


cdef int copy_records(OutBuffer out, LogSlice piece) except -1


cdef class Mailbox:
    """Items that other threads leave for one network worker; transfer.pyx explains the wake-up."""
    cdef object items            # collections.deque
    cdef bint sleeping
    cdef public Turns turns      # None if turns are not timed
    cdef volatile int waiting    # items were posted and not taken: readable without the GIL
    cdef readonly int wake_fd    # eventfd, registered in the worker's selector
    cdef int post(self, object item) except -1


cdef class Answer:
    """One response frame, or the place of one in the connection's order."""
    cdef object connection       # the Connection that sends it; None once sent or dropped
    cdef Mailbox mailbox
    cdef bint ready
    cdef bint silent             # acks=0: holds a place in the in-flight count, sends nothing
    cdef readonly bytes data     # the frame; with slices, its bytes outside the file ranges
    cdef list slices             # LogSlice, sent after data[:cuts[i]]
    cdef list cuts
    cdef Py_ssize_t part         # progress: index of the current slice
    cdef Py_ssize_t sent         # progress: bytes of `data` sent
    cdef int64_t slice_sent      # progress: bytes of the current slice sent
    cdef int64_t size            # bytes that this answer sends
    cdef bint counted            # `data` is part of its connection's queued_bytes
    cdef Timing timing           # None if requests are not timed
    cdef Holding* holding        # charged for its memory; NULL: not charged
    cdef int kind                # the kind of memory charged now
    cdef int64_t charged         # the bytes charged
    cdef object abandoned        # called if it is dropped before it is ready; None: nothing

    cdef int hold_for(self, Holding* holding) except -1
    cdef int charge_waiting(self, int kind, int64_t size) except -1
    cdef int announce(self) except -1
    cdef int fill(self, bytes data, list slices, list cuts) except -1
    cdef int send_some(self, int fd, int64_t budget) except -2
    cdef int send_sealed(self, int fd, int64_t budget, TlsSession tls) except -2
    cdef LogSlice long_slice(self)
    cdef Py_ssize_t collect(self, unsigned char* target, Py_ssize_t room) except -2
    cdef void advance(self, Py_ssize_t size)
    cdef void drop(self)
