"""Find the whole batches of a segment that answer a read, by its index and the batch headers."""

from libc.stdint cimport int64_t

from kafkalite._native.log.segment cimport Segment

# What became of a read, for Python too.
cpdef enum:
    READ_FOUND = 0              # bytes
    READ_NOTHING = 1            # none that may be given, or none yet
    READ_REFUSED = 2            # the result's `error` says why
    READ_DEFER = 3              # would have to block: do the blocking form on the io pool, then ask again
    READ_PAST_END = 4           # of one segment alone: the offset lies after its last batch, look in the next one

cdef struct ReadResult:
    int outcome                 # one of READ_...
    int error                   # Kafka's code where it was refused, otherwise 0
    int64_t start               # READ_FOUND: where the bytes are in their segment
    int64_t end

cdef inline int refuse_read(ReadResult* out, int error) noexcept nogil:
    """Set a Kafka error code for a read, and return READ_REFUSED."""
    out.error = error
    out.outcome = READ_REFUSED
    return READ_REFUSED

cdef int slice_segment(Segment segment, int64_t offset, int64_t size_max, bint whole_first, int64_t upper_offset,
                       int64_t size_limit, ReadResult* out) except -1
cdef int64_t end_offset_at(Segment segment, int64_t position, int64_t end) except -1
