"""Handle followers' fetches of a log that this broker leads, and call back when its watermarks reach an offset."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.log.log_core cimport LogCore

cdef int note_fetch(LogCore log, int32_t replica_id, int64_t offset, int64_t log_start, int64_t broker_epoch,
                    int64_t log_end, double now) except -1
cdef bint find_epoch_end(LogCore log, int32_t replica_id, int32_t epoch, int32_t* found,
                         int64_t* end_offset) except -1
cpdef int64_t wait_replicated(LogCore log, int64_t end_offset, int32_t leader_epoch, object callback) except -1
cpdef int cancel_wait(LogCore log, int64_t number) except -1
