"""Declare a connection with Kafka 0.7's protocol, and what such connections of one worker share."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.segment_read cimport ReadResult
from kafkalite._native.serve.access cimport AccessView
from kafkalite._native.serve.connection cimport Connection
from kafkalite._native.serve.topic_table cimport Topic, TopicTable
from kafkalite._native.serve.transfer cimport Answer, OutBuffer
from kafkalite._native.wire.cursor cimport Cursor

cdef enum PartResult:
    PART_DONE = 0                       # appended, dropped or empty
    PART_FLUSHES = 1                    # appended, and its flush is to be waited for
    PART_DEFERS = 2                     # has to be done on the I/O pool
    PART_REFUSED = 3                    # ends the connection: `refusal` says why

cdef struct ClassicPart:
    const unsigned char* topic
    Py_ssize_t topic_size
    int32_t partition
    const unsigned char* data           # PRODUCE: the message set
    int64_t data_size
    int64_t offset                      # FETCH
    int32_t size_max

cdef class ClassicServer:
    cdef TopicTable table
    cdef OutBuffer out
    cdef object pool
    cdef object host                    # operations in Python: kafkalite.broker.log.classic.host
    cdef int32_t parts_max
    cdef Py_ssize_t copy_size_max
    cdef int64_t deferred_bytes_max
    cdef uint64_t random_state
    cdef ClassicPart* parts
    cdef int32_t part_count
    cdef int32_t part_capacity
    cdef str refusal
    cdef AccessView access              # permissions of the current client; None: all
    cdef double now                     # monotonic seconds
    cdef LogCore log                    # of the part appended last
    cdef int64_t end_offset

    cdef ClassicPart* next_part(self) except NULL
    cdef bint allows(self, int operation, const ClassicPart* part, Topic topic) except -1
    cdef bint read_parts(self, Cursor* c, int32_t count, bint produce) except -1
    cdef int produce_part(self, const ClassicPart* part) except -1
    cdef LogSlice fetch_part(self, const ClassicPart* part, int64_t size_left, ReadResult* out)
    cdef int32_t pick(self, Py_ssize_t count) noexcept

cdef class PendingSets:
    cdef ClassicServer server
    cdef Answer answer                  # holds the connection until then; None where nothing does
    cdef list parts                     # (topic, partition, set) still to append, on the pool
    cdef list flushes                   # (log, end offset) to wait for
    cdef list followers                 # calls for the pool, of requests that must see what is flushed here
    cdef int64_t size                   # bytes kept for the pool
    cdef int remaining
    cdef object asker                   # as of `asker_of`

    cdef int start(self) except -1
    cdef int wait_for_flushes(self) except -1

cdef class ClassicConnection(Connection):
    cdef ClassicServer server
    cdef PendingSets flushing           # the flush asked for last, done or not

    cdef bint is_flushing(self) noexcept
    cdef int hold_for_flush(self) except -1
    cdef int submit_behind_flush(self, tuple call) except -1
    cdef int serve_sets(self, Cursor* c, int32_t count) except -1
    cdef int serve_ranges(self, Cursor* c, int32_t count, bint multi) except -1
    cdef int serve_offsets(self, Cursor* c) except -1
    cdef int answer_ranges(self, list codes, list pieces, int64_t size, bint multi) except -1
