"""The sparse index of one segment: where batches are, by offset, by position and by time.

An entry has three numbers for one batch: its base offset, its position in the segment, and the largest timestamp of all
batches *before* it. None of these numbers decreases from one entry to the next, so each can be searched by bisection. A
look-up by time finds a position before the result. The batch at position 0 has no entry.

Thread rule: appending and taking a view need the GIL (the log's lock orders the writers). Searching in a view needs
neither, because the view keeps its array alive: growing creates a new array and does not change the old one. Nothing is
allocated before the first entry.

numpy is imported with the first entry, because its import takes longer than the rest of a broker's start.

An index may be a mapped file, which can fail while it is read (see mapped_faults). Check `failed` after a look-up: if
it is true, the result must not be used, and the index is rebuilt from the log.

Saving, loading and rebuilding are elsewhere (kafkalite.broker.log.index_file, PartitionLog).
"""

from libc.stdint cimport int64_t

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.base.mapped_faults cimport MappedFile

cdef object numpy_module = None

cdef enum:
    CAPACITY_FIRST = 8          # entries; an idle partition stays at a few hundred bytes


cdef object numpy():
    global numpy_module
    if numpy_module is None:
        import numpy as module
        numpy_module = module
    return numpy_module


cdef class SegmentIndex:
    """Entries of one segment, appended in order."""

    def __cinit__(self):
        self.writable = True
        self.fault = &self.whole

    cdef object view(self, IndexView* out):
        out.offsets = self.offsets
        out.positions = self.positions
        out.timestamps = self.timestamps
        out.count = self.count
        return self.array

    cdef int append(self, int64_t offset, int64_t position, int64_t timestamp) except -1:
        cdef int64_t n = self.count
        if n >= self.capacity or not self.writable:
            self._reserve(max(CAPACITY_FIRST, n * 2))
        kl_assert(n < self.capacity)
        if n > 0:
            kl_assert(offset > self.offsets[n - 1])
            kl_assert(position > self.positions[n - 1])
        self.offsets[n] = offset
        self.positions[n] = position
        self.timestamps[n] = timestamp
        self.count = n + 1
        return 0

    cdef int _reserve(self, int64_t capacity) except -1:
        """Moves the entries to a larger array of our own; views of the old one stay good."""
        grown = numpy().empty((3, capacity), numpy().int64)
        if self.count:
            grown[:, :self.count] = self.array[:, :self.count]
        return self._adopt(grown, True)

    cdef int _adopt(self, object array, bint writable) except -1:
        cdef const int64_t[:, :] view = array
        cdef int64_t* start = <int64_t*>&view[0, 0]
        cdef int64_t row = view.strides[0] // <Py_ssize_t>sizeof(int64_t)
        self.array = array
        self.capacity = view.shape[1]
        self.writable = writable
        self.offsets = start
        self.positions = start + row
        self.timestamps = start + 2 * row
        return 0

    @staticmethod
    def from_columns(columns, *, bint writable=True, MappedFile source=None):
        """An index over an int64 array of shape (3, count), C-contiguous in its rows; kept, not copied.

        `source`: the mapped file that the array is a part of.
        """
        cdef SegmentIndex index = SegmentIndex()
        if columns.shape[1]:
            index._adopt(columns, writable)
            index.count = index.capacity
        if source is not None:
            index.source = source
            index.fault = &source.fault
        return index

    @property
    def failed(self):
        """Whether the file that it is a map of could not be read: what it says means nothing any more."""
        return bool(self.has_fault())

    def add(self, int64_t offset, int64_t position, int64_t timestamp):
        """Appends one entry; offset and position must be above the last entry's."""
        if self.count and (offset <= self.offsets[self.count - 1] or position <= self.positions[self.count - 1]):
            raise ValueError(f"index entry ({offset}, {position}) is not above the last one")
        self.append(offset, position, timestamp)

    def truncate(self, int64_t position):
        """Drops the entries at and above `position`."""
        if self.count:
            self.count = bisect_last_below(self.positions, self.count, position) + 1

    def columns(self):
        """The entries as an int64 array of shape (3, count): offsets, positions, timestamps. A view; do not write."""
        if self.array is None:
            return numpy().empty((3, 0), numpy().int64)
        return self.array[:, :self.count]

    def position_of_offset(self, int64_t offset):
        """The position at which to start walking to find `offset`: that of the last entry at or below it, else 0."""
        cdef int64_t i = bisect_last(self.offsets, self.count, offset)
        return self.positions[i] if i >= 0 else 0

    def position_of_time(self, int64_t timestamp):
        """The position at which to start walking to find the first batch with a timestamp >= `timestamp`."""
        cdef int64_t i = bisect_last_below(self.timestamps, self.count, timestamp)
        return self.positions[i] if i >= 0 else 0

    def __len__(self):
        return self.count

    @property
    def size_bytes(self):
        """Bytes of memory (or of mapped file) that the entries take."""
        return self.capacity * 3 * <int64_t>sizeof(int64_t)
