"""Find batches in one segment by offset, position or time, with a sparse index.

An entry describes one batch: its base offset, its position in the segment, and the largest timestamp of all batches
*before* it. None of the three ever decreases, so each can be searched by bisection.

kafkalite.broker.log.index_file and PartitionLog save, load and rebuild indexes.

Thread rule: appending and taking a view need the GIL; the log's lock orders the writers. Searching a view needs no GIL
and no lock.
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
    """The index of one segment. Entries are appended in order; the batch at position 0 has none.

    Nothing is allocated before the first entry. numpy is imported with the first entry, because its import takes longer
    than the rest of a broker's start.
    """

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
        """Move the entries to a larger array. Existing views stay valid, because each keeps its array alive."""
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
        """Return an index over an int64 array of shape (3, count) with contiguous rows. The array is not copied.

        `source` is the mapped file that contains the array.
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
        """Whether the mapped file of this index could not be read. Then its entries are meaningless.

        Callers check this after a look-up. If it is true, they discard the result and rebuild the index from the log.
        """
        return bool(self.has_fault())

    def add(self, int64_t offset, int64_t position, int64_t timestamp):
        """Append one entry. Raises ValueError unless offset and position are above those of the last entry."""
        if self.count and (offset <= self.offsets[self.count - 1] or position <= self.positions[self.count - 1]):
            raise ValueError(f"index entry ({offset}, {position}) is not above the last one")
        self.append(offset, position, timestamp)

    def truncate(self, int64_t position):
        """Remove the entries at `position` and above."""
        if self.count:
            self.count = bisect_last_below(self.positions, self.count, position) + 1

    def columns(self):
        """Return a view of the entries, an int64 array of shape (3, count): offsets, positions, timestamps. Do not
        write to it."""
        if self.array is None:
            return numpy().empty((3, 0), numpy().int64)
        return self.array[:, :self.count]

    def position_of_offset(self, int64_t offset):
        """Return the position from which to search for `offset`: that of the last entry at or below it, else 0."""
        cdef int64_t i = bisect_last(self.offsets, self.count, offset)
        return self.positions[i] if i >= 0 else 0

    def position_of_time(self, int64_t timestamp):
        """Return the position from which to search for the first batch with a timestamp >= `timestamp`."""
        cdef int64_t i = bisect_last_below(self.timestamps, self.count, timestamp)
        return self.positions[i] if i >= 0 else 0

    def __len__(self):
        return self.count

    @property
    def size_bytes(self):
        """The size of the entries in bytes, in memory or in the mapped file."""
        return self.capacity * 3 * <int64_t>sizeof(int64_t)
