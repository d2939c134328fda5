"""Find the batches of aborted transactions, which a read_committed consumer drops.

Thread rule: an AbortedFilter belongs to one thread at a time.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from kafkalite._native.wire.batch cimport (
    MARKER_ABORT,
    MARKER_KEY_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    BatchInfo,
    RecordView,
    next_record,
)
from kafkalite._native.wire.cursor cimport Cursor, cursor_init
from kafkalite._native.wire.status cimport OK, Status


@cython.final
cdef class AbortedFilter:
    """The aborted transactions of one fetch response, applied to its batches in order.

    `aborted` is the response's list: (producer id, first offset) of each aborted transaction. A transaction ends at its
    producer's abort marker (KIP-98).
    """

    def __cinit__(self, aborted):
        cdef Py_ssize_t i
        listed = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
        self.count = len(listed)
        self.entries = <int64_t*>malloc(<size_t>max(self.count, 1) * 2 * sizeof(int64_t))
        self.running = <int64_t*>malloc(<size_t>max(self.count, 1) * sizeof(int64_t))
        if self.entries == NULL or self.running == NULL:
            raise MemoryError("the list of aborted transactions")
        for i in range(self.count):
            self.entries[2 * i] = listed[i][0]
            self.entries[2 * i + 1] = listed[i][1]

    def __dealloc__(self):
        free(self.entries)
        free(self.running)

    cdef Py_ssize_t find(self, int64_t producer_id) noexcept nogil:
        """Return the producer's index in `running`, or -1."""
        cdef Py_ssize_t i
        for i in range(self.running_count):
            if self.running[i] == producer_id:
                return i
        return -1

    cdef bint drops(self, const BatchHeader* header) noexcept nogil:
        """Return whether this batch belongs to an aborted transaction."""
        while self.reached < self.count and self.entries[2 * self.reached] <= last_offset(header):
            if self.find(self.entries[2 * self.reached + 1]) < 0:
                self.running[self.running_count] = self.entries[2 * self.reached + 1]
                self.running_count += 1
            self.reached += 1
        return header.attributes & TRANSACTIONAL != 0 and self.find(header.producer_id) >= 0

    cdef Status see_marker(
        self, const unsigned char* records, Py_ssize_t size, const BatchHeader* header
    ) noexcept nogil:
        """Process a control batch, which is never compressed. Its record may be missing, because compaction removed
        it."""
        cdef Cursor c
        cdef RecordView record
        cdef Py_ssize_t place
        cursor_init(&c, records, size)
        if header.record_count < 1:
            return OK
        if next_record(&c, &record) != OK:
            return c.status
        if record.key_size >= MARKER_KEY_SIZE and record.key[2] == 0 and record.key[3] == MARKER_ABORT:
            place = self.find(header.producer_id)
            if place >= 0:
                self.running_count -= 1
                self.running[place] = self.running[self.running_count]
        return OK

    def drops_batch(self, BatchInfo info not None):
        """Return whether the next batch of the fetch belongs to an aborted transaction."""
        return self.drops(&info.header)
