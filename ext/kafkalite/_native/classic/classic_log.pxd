"""Append message sets to a log in Kafka 0.7's format, and read ranges of its bytes."""

from libc.stdint cimport int64_t

from kafkalite._native.log.log_core cimport LogCore
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.log.record_format cimport RecordFormat
from kafkalite._native.log.segment_read cimport ReadResult

cdef struct SetAppend:
    int error                       # Kafka's code where the set was refused, otherwise 0
    int64_t base_offset             # -1 when nothing was appended
    int64_t end_offset              # a flush up to here makes the set visible
    int64_t size                    # bytes appended: 0 for an empty set
    bint flush_due                  # log.flush.interval asks for a flush

cdef class ClassicFormat(RecordFormat):
    pass

cdef RecordFormat CLASSIC

cdef int append_set(LogCore log, const unsigned char* data, int64_t size, bint may_block,
                    SetAppend* out) except -1
cdef LogSlice read_range(LogCore log, int64_t offset, int64_t size_max, ReadResult* out)
