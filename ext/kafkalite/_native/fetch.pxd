"""Serving Fetch 4-17: evaluate, park, answer with copies or file ranges."""

from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from kafkalite._native.cursor cimport Cursor
from kafkalite._native.log_core cimport LogCore, LogListener, LogSlice
from kafkalite._native.topic_table cimport TopicRef, TopicTable
from kafkalite._native.transfer cimport Answer, Mailbox, OutBuffer

cdef enum FetchResult:
    FETCH_READY = 0         # evaluated: answer now
    FETCH_WAITS = 1         # not enough bytes: park
    FETCH_BLOCKED = 2       # bytes must be verified on the I/O pool first


cdef struct FetchPart:
    PyObject* topic                     # its TopicRef, which FetchPlan.topics keeps alive
    bint first_of_topic
    int32_t parts_of_topic
    int32_t index
    int64_t offset
    int32_t size_max
    int32_t current_leader_epoch        # -1: not checked
    int32_t last_fetched_epoch          # -1: not checked
    int error
    int32_t diverging_epoch             # -1: none
    int64_t diverging_end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset


cdef class FetchServer:
    cdef TopicTable table
    cdef object pool
    cdef readonly Mailbox mailbox
    cdef OutBuffer out
    cdef int32_t partitions_max
    cdef int32_t response_size_max
    cdef Py_ssize_t copy_size_max
    cdef FetchPlan parse(self, int16_t version, int32_t correlation_id, const unsigned char* body, Py_ssize_t size)


cdef class FetchPlan(LogListener):
    cdef FetchServer server
    cdef list topics                    # TopicRef, in request order
    cdef int16_t version
    cdef int32_t correlation_id
    cdef int32_t wait_ms_max
    cdef int32_t size_min
    cdef int32_t size_max
    cdef int8_t isolation
    cdef int16_t error                  # top level, v7+
    cdef FetchPart* parts
    cdef int32_t part_count
    cdef int32_t part_capacity
    cdef int32_t topic_count
    cdef list logs                      # LogCore or None per part
    cdef list slices                    # LogSlice or None per part
    cdef list aborted                   # per part [(first offset, producer id)], or None for none; None: not asked for
    cdef int rounds                     # times in a row the I/O pool was asked
    cdef int64_t size                   # bytes of all slices
    cdef readonly double deadline       # seconds, monotonic
    cdef readonly Answer answer
    cdef readonly bint done
    cdef bint posted
    cdef bint blocked
    cdef bint listening
    cdef int64_t advanced               # bytes appended since the last evaluation

    cdef int parse_body(self, const unsigned char* body, Py_ssize_t size) except -1
    cdef int parse_topics(self, Cursor* c) except -1
    cdef FetchPart* next_part(self) except NULL
    cdef int evaluate(self) except -1
    cdef int examine(self, FetchPart* part, int32_t i, int64_t size_left) except -1
    cdef int encode(self, OutBuffer out, bint copy, list cuts) except -1
    cdef int listen(self) except -1
    cdef int unlisten(self) except -1
    cdef int release_slices(self) except -1
    cdef int answer_into(self, OutBuffer out) except -1
    cdef int fill(self, Answer answer) except -1
    cdef int park(self, Answer answer, double now, int result) except -1
    cdef int verify(self) except -1
    cdef int resume(self, double now) except -1
    cdef bint changed(self) except -1
    cdef int cancel(self) except -1
