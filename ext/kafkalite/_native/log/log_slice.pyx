"""A view of a range of one segment's bytes, which a read returns instead of a copy.

A slice pins its segment: retention and compaction can delete the file's name but not its bytes. segment.pyx defines how
the bytes may be used, and how to detect that the file was truncated under its map.

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
        """Gives the bytes back; they must not be touched afterwards. Twice is harmless."""
        cdef Segment segment = self.segment
        if segment is not None:
            self.segment = None
            segment.unpin()

    def tobytes(self):
        """A copy of the bytes; SegmentUnreadable."""
        if self.segment is None:
            raise ValueError("slice was released")
        found = <bytes>self.segment.map[self.position:self.position + self.size]
        self.segment.check_read()
        return found

    cdef int failed(self, int error) except -1:
        """A system call could not read the bytes, with this errno: the log goes offline. GIL held, no lock needed."""
        self.segment.note_unreadable()
        self.owner.read_failed(self.segment, error)
        return 0


cdef LogSlice make_slice(object owner, Segment segment, int64_t position, int64_t size):
    """Takes over the caller's pin."""
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
