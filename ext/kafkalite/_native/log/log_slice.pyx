"""A view of a range of one segment, which a read returns instead of a copy of the bytes.

A slice pins its segment. Meanwhile, retention and compaction may delete the file's name, but not its bytes. segment.pyx
explains how to detect that another process truncated the file.

Thread rule: a slice belongs to one thread at a time. `failed` needs only the GIL.
"""

cimport cython
from libc.stdint cimport int64_t

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.segment cimport Segment


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class LogSlice:
    """Whole batches inside one segment, which stays open and mapped until release()."""

    def __init__(self):
        raise TypeError("LogSlice comes from LogCore.read_slice")

    def __dealloc__(self):
        if self.segment is not None:
            self.segment.unpin()

    cpdef release(self):
        """Unpin the segment. The bytes must not be used afterwards. A second call does nothing."""
        cdef Segment segment = self.segment
        if segment is not None:
            self.segment = None
            segment.unpin()

    def tobytes(self):
        """Return a copy of the bytes. Raises SegmentUnreadable."""
        if self.segment is None:
            raise ValueError("slice was released")
        found = <bytes>self.segment.map[self.position:self.position + self.size]
        self.segment.check_read()
        return found

    cdef int failed(self, int error) except -1:
        """Take the log offline, because a system call could not read the bytes. Needs the GIL and no lock."""
        self.segment.note_unreadable()
        self.owner.read_failed(self.segment, error)
        return 0


cdef LogSlice make_slice(object owner, Segment segment, int64_t position, int64_t size):
    """Return a slice, which releases the caller's pin later."""
    kl_assert(segment.pins > 0)
    kl_assert(position >= 0)
    kl_assert(size > 0)
    kl_assert(position + size <= segment.size)
    cdef LogSlice result = LogSlice.__new__(LogSlice)
    result.owner = owner
    result.segment = segment
    result.position = position
    result.size = size
    return result
