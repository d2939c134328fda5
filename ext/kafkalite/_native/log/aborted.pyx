"""List the aborted transactions of one log, for read_committed fetches.

Transactions are in the order of their abort markers. An abort marker that ends no transaction in this log has no entry.
kafkalite.broker.log.transaction_index stores the entries in Kafka's .txnindex files.

Thread rule: changed under the log's lock, read by any thread. Both keep the GIL throughout.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kafkalite._native.base.debug cimport kl_assert

cdef enum:
    CAPACITY_AT_FIRST = 16


@cython.final
cdef class AbortedTransactions:
    """The aborted transactions of one log, by marker offset."""

    def __dealloc__(self):
        free(self.entries)

    cdef int put(self, int64_t producer_id, int64_t first_offset, int64_t marker_offset,
                 int64_t stable_offset) except -1:
        """Add a transaction whose marker has the highest offset so far."""
        cdef Py_ssize_t capacity
        cdef AbortedTransaction* grown
        assert self.count == 0 or self.entries[self.count - 1].marker_offset < marker_offset, "markers out of order"
        if self.count > 0:
            kl_assert(self.entries[self.count - 1].stable_offset <= stable_offset)
        if self.count == self.capacity:
            capacity = max(CAPACITY_AT_FIRST, 2 * self.capacity)
            grown = <AbortedTransaction*>realloc(self.entries, <size_t>capacity * sizeof(AbortedTransaction))
            if grown == NULL:
                raise MemoryError("no memory for an aborted transaction")
            self.entries = grown
            self.capacity = capacity
        self.entries[self.count].producer_id = producer_id
        self.entries[self.count].first_offset = first_offset
        self.entries[self.count].marker_offset = marker_offset
        self.entries[self.count].stable_offset = stable_offset
        self.count += 1
        return 0

    cdef Py_ssize_t first_marker_from(self, int64_t offset) noexcept nogil:
        """Return the index of the first entry whose marker is at `offset` or above."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.entries[middle].marker_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Py_ssize_t _first_stable_from(self, int64_t offset) noexcept nogil:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.entries[middle].stable_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef list overlapping(self, int64_t from_offset, int64_t upper_offset):
        """Return [(first offset, producer id)] for a fetch of [from_offset, upper_offset), ordered by first offset.

        These are the transactions that began below `upper_offset` and have their marker at `from_offset` or above. Two
        bisections limit the entries to examine; neither marker_offset nor stable_offset ever decreases. The first entry
        has marker_offset >= from_offset. The last one is the first with stable_offset >= upper_offset: every
        transaction that began below upper_offset had ended by then.
        """
        cdef Py_ssize_t i = self.first_marker_from(from_offset)
        cdef Py_ssize_t end = min(self._first_stable_from(upper_offset) + 1, self.count)
        found = []
        while i < end:
            if self.entries[i].first_offset < upper_offset:
                found.append((self.entries[i].first_offset, self.entries[i].producer_id))
            i += 1
        found.sort()
        return found

    def add(self, int64_t producer_id, int64_t first_offset, int64_t marker_offset, int64_t stable_offset):
        """Add an entry that was read from a file. Raises ValueError if it is out of order."""
        if self.count and (self.entries[self.count - 1].marker_offset >= marker_offset
                           or self.entries[self.count - 1].stable_offset > stable_offset):
            raise ValueError(f"an aborted transaction that ends at {marker_offset} is out of order")
        self.put(producer_id, first_offset, marker_offset, stable_offset)

    def between(self, int64_t from_offset, int64_t upper_offset):
        """Return [(first offset, producer id)] for a read_committed fetch of [from_offset, upper_offset)."""
        return self.overlapping(from_offset, upper_offset)

    def rows(self, int64_t first_marker=0, int64_t marker_limit=INT64_MAX):
        """Return (producer id, first offset, marker offset, stable offset) of the markers in [first_marker,
        marker_limit)."""
        cdef Py_ssize_t i = self.first_marker_from(first_marker)
        cdef Py_ssize_t end = self.first_marker_from(marker_limit)
        found = []
        while i < end:
            found.append((self.entries[i].producer_id, self.entries[i].first_offset, self.entries[i].marker_offset,
                          self.entries[i].stable_offset))
            i += 1
        return found

    def forget_below(self, int64_t log_start):
        """Remove transactions whose markers are below the new log start."""
        cdef Py_ssize_t gone = self.first_marker_from(log_start)
        if gone:
            self.count -= gone
            kl_assert(self.count >= 0)
            memmove(self.entries, self.entries + gone, <size_t>self.count * sizeof(AbortedTransaction))

    def drop(self, marker_offsets):
        """Remove the entries with these marker offsets, which must be ascending."""
        cdef Py_ssize_t i
        cdef Py_ssize_t kept = 0
        cdef int64_t next_marker = -1
        markers = iter(marker_offsets)
        for i in range(self.count):
            while next_marker < self.entries[i].marker_offset:
                next_marker = next(markers, INT64_MAX)
            if next_marker != self.entries[i].marker_offset:
                self.entries[kept] = self.entries[i]
                kept += 1
        self.count = kept

    def __len__(self):
        return self.count
