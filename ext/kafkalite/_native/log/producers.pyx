"""Keep the state of a partition's idempotent and transactional producers, and check their batches as Kafka does.

For each producer id, the table has the epoch, the last five batches, and the start of the open transaction. It also has
the open and the aborted transactions of the whole log. All this derives from the log: it is rebuilt from a snapshot and
the batches after it.

Thread rule: a table belongs to one log, and is used only under this log's lock, except for `aborted`.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.aborted cimport AbortedTransactions
from kafkalite._native.log.record_format cimport ItemInfo
from kafkalite._native.wire.batch cimport (
    CODEC_MASK,
    HEADER_SIZE,
    MARKER_ABORT,
    MARKER_COMMIT,
    MARKER_KEY_SIZE,
    OK,
    TRANSACTIONAL,
    RecordView,
    next_record,
)
from kafkalite._native.wire.cursor cimport Cursor, cursor_init, load_i16, load_i32
from kafkalite._native.wire.error_codes cimport (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)

cdef enum:
    SEQUENCE_MAX = 0x7FFFFFFF
    COUNT_MAX = 50000
    OPENED_CAPACITY_MIN = 64
    ENDED_CAPACITY_MIN = 16
    ENDED = -1


cdef inline int32_t sequence_after(int32_t sequence, int32_t increment) noexcept:
    """Return sequence + increment, which wraps from 2^31-1 to 0."""
    if sequence > SEQUENCE_MAX - increment:
        return increment - (SEQUENCE_MAX - sequence) - 1
    return sequence + increment


cdef inline int refuse(int* error, int code) noexcept nogil:
    error[0] = code
    return CHECK_REFUSED


cdef void read_marker(const unsigned char* batch, const ItemInfo* info, Marker* marker) noexcept nogil:
    cdef Cursor c
    cdef RecordView record
    cdef int16_t type
    marker.type = MARKER_EMPTY
    marker.coordinator_epoch = -1
    if info.record_count < 1 or info.attributes & CODEC_MASK:
        return
    cursor_init(&c, batch + HEADER_SIZE, <Py_ssize_t>(info.size - HEADER_SIZE))
    if next_record(&c, &record) != OK:
        return
    if record.key_size < MARKER_KEY_SIZE:
        return
    type = load_i16(record.key + 2)
    if type == MARKER_ABORT or type == MARKER_COMMIT:
        marker.type = type
        if record.value_size >= 6:
            marker.coordinator_epoch = load_i32(record.value + 2)


cdef class ProducerEntry:
    """The state of one producer id on one partition."""

    def __cinit__(self, int64_t producer_id, int16_t epoch):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.transaction_offset = -1
        self.last_offset = -1
        self.last_timestamp = -1

    cdef int push(self, const ItemInfo* info, int64_t now_ms) except -1:
        """Add an appended batch as the newest. If five are remembered, forget the oldest."""
        cdef SequenceSpan* span
        cdef int i
        kl_assert(self.span_count >= 0)
        kl_assert(self.span_count <= WINDOW)
        kl_assert(info.base_offset > self.last_offset)
        if info.producer_epoch != self.epoch:
            self.epoch = info.producer_epoch
            self.span_count = 0
        self.last_offset = info.next_offset - 1
        self.last_timestamp = info.max_timestamp
        self.seen_ms = now_ms
        if info.base_sequence < 0:
            return 0                    # a coordinator's own
        if self.span_count == WINDOW:
            for i in range(WINDOW - 1):
                self.spans[i] = self.spans[i + 1]
            self.span_count = WINDOW - 1
        span = &self.spans[self.span_count]
        span.first_sequence = info.base_sequence
        span.last_sequence = sequence_after(info.base_sequence, info.last_offset_delta)
        span.first_offset = info.base_offset
        span.last_offset = info.next_offset - 1
        span.timestamp = info.max_timestamp
        self.span_count += 1
        return 0

    @property
    def last_sequence(self):
        """The last sequence number of the newest remembered batch, or -1."""
        return self.spans[self.span_count - 1].last_sequence if self.span_count else -1

    @property
    def last_data_offset(self):
        """The last offset of the newest remembered batch, or -1."""
        return self.spans[self.span_count - 1].last_offset if self.span_count else -1

    def batches(self):
        """Return (first sequence, last sequence, first offset, last offset, timestamp) of the batches, oldest first."""
        return [
            (self.spans[i].first_sequence, self.spans[i].last_sequence, self.spans[i].first_offset,
             self.spans[i].last_offset, self.spans[i].timestamp)
            for i in range(self.span_count)
        ]


cdef class ProducerTable:
    """All producers of one partition."""

    def __cinit__(self):
        self.first_open_offset = INT64_MAX

    def __init__(self, int64_t count_max=COUNT_MAX, *, bint replicated=False):
        self.count_max = count_max
        self.replicated = replicated
        self.entries = {}
        self.aborted = AbortedTransactions()

    def __dealloc__(self):
        free(self.opened)
        free(self.ended)

    # ---- checks -----------------------------------------------------------------------------------------------------

    cdef int check(self, const ItemInfo* info, int origin, int64_t admitted, SequenceSpan* duplicate,
                   int* error) except -1:
        """Check a batch before it is appended.

        Returns CHECK_GOOD, CHECK_DUPLICATE with the original batch in `duplicate`, CHECK_ASK if the coordinator must
        first admit the transaction, or CHECK_REFUSED with an error code. A marker after the admission revokes it:
        otherwise a late batch could open a transaction that never ends. `admitted` is the marker_count when the
        transaction was admitted, or NOT_ADMITTED.
        """
        cdef ProducerEntry entry = <ProducerEntry>self.entries.get(info.producer_id)
        cdef bint transactional = info.attributes & TRANSACTIONAL
        cdef int32_t last_sequence
        cdef int i
        if entry is None:
            if transactional and origin != FROM_COORDINATOR:
                if admitted < 0:
                    return CHECK_ASK
                if self.forgotten_marker_number > admitted:
                    return refuse(error, INVALID_TXN_STATE)
                if origin == FROM_CLIENT_V2 and info.base_sequence != 0:
                    return refuse(error, OUT_OF_ORDER_SEQUENCE_NUMBER)
            return CHECK_GOOD           # no state (expired, or deleted with the log): any sequence may start it
        if info.producer_epoch < entry.epoch:
            return refuse(error, INVALID_PRODUCER_EPOCH)
        if origin != FROM_COORDINATOR:
            if info.producer_epoch == entry.epoch:
                last_sequence = sequence_after(info.base_sequence, info.last_offset_delta)
                for i in range(entry.span_count):
                    if (entry.spans[i].first_sequence == info.base_sequence
                            and entry.spans[i].last_sequence == last_sequence):
                        duplicate[0] = entry.spans[i]
                        return CHECK_DUPLICATE
            if transactional and (entry.transaction_offset < 0 or info.producer_epoch != entry.epoch):
                if admitted < 0:
                    return CHECK_ASK
                if entry.marker_number > admitted:
                    return refuse(error, INVALID_TXN_STATE)
            if not self.follows(entry, info):
                return refuse(error, OUT_OF_ORDER_SEQUENCE_NUMBER)
        if not transactional and entry.transaction_offset >= 0:
            return refuse(error, INVALID_TXN_STATE)
        return CHECK_GOOD

    cdef bint follows(self, ProducerEntry entry, const ItemInfo* info) noexcept:
        """Return whether the batch's first sequence number follows the producer's newest batch.

        Sequence numbers continue after a marker of the same epoch (KIP-98), and restart at 0 with a newer epoch. Every
        marker of KIP-890 has a newer epoch.
        """
        cdef int32_t newest = -1
        if info.producer_epoch == entry.epoch and entry.span_count:
            newest = entry.spans[entry.span_count - 1].last_sequence
        return info.base_sequence == (0 if newest == SEQUENCE_MAX else newest + 1)

    cdef int check_marker(self, const ItemInfo* info, const Marker* marker, bint strict) except -1:
        """Check a marker; return 0 or an error code. `strict` (KIP-890): its epoch must be newer than the
        transaction's."""
        cdef ProducerEntry entry = <ProducerEntry>self.entries.get(info.producer_id)
        if entry is None:
            return 0
        if info.producer_epoch < entry.epoch:
            return INVALID_PRODUCER_EPOCH
        if strict and info.producer_epoch == entry.epoch and entry.transaction_offset >= 0:
            return INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
        return 0

    # ---- what the log contains --------------------------------------------------------------------------------------

    cdef int update(self, const ItemInfo* info, int64_t now_ms) except -1:
        """Apply a batch that is in the log, without checks."""
        cdef ProducerEntry entry = self.entry_of(info)
        if info.attributes & TRANSACTIONAL and entry.transaction_offset < 0:
            self.put_open(info.base_offset, info.producer_id)
            entry.transaction_offset = info.base_offset
        entry.push(info, now_ms)
        self.dirty = True
        return 0

    cdef ProducerEntry entry_of(self, const ItemInfo* info):
        """Return the entry of the batch's producer, or a new one. If the table is full, old entries are removed."""
        cdef ProducerEntry entry = <ProducerEntry>self.entries.get(info.producer_id)
        if entry is None:
            if len(self.entries) >= self.count_max:
                self._forget_oldest(max(1, self.count_max // 10))
            entry = ProducerEntry(info.producer_id, info.producer_epoch)
            self.entries[info.producer_id] = entry
        return entry

    def _forget_oldest(self, count):
        """Remove the `count` longest idle producers, except those with an open transaction."""
        idle = sorted([(entry.seen_ms, entry.producer_id) for entry in self if entry.transaction_offset < 0])
        self._forget([producer_id for _, producer_id in idle[:count]])

    def _forget(self, producer_ids):
        cdef ProducerEntry entry
        for producer_id in producer_ids:
            entry = self.entries.pop(producer_id)
            self.forgotten_marker_number = max(self.forgotten_marker_number, entry.marker_number)

    cdef int update_marker(self, const ItemInfo* info, const Marker* marker, int64_t now_ms) except -1:
        """Apply a commit or abort marker that is in the log. It ends the producer's open transaction, if any.

        A marker whose record was removed by compaction only means that all records of its transaction are gone too.
        """
        cdef ProducerEntry entry = self.entry_of(info)
        cdef int64_t first_offset = entry.transaction_offset
        kl_assert(info.base_offset > entry.last_offset)
        if info.producer_epoch > entry.epoch:
            entry.epoch = info.producer_epoch
            entry.span_count = 0
        entry.last_offset = info.next_offset - 1
        entry.seen_ms = now_ms
        self.marker_count += 1
        entry.marker_number = self.marker_count
        self.dirty = True
        if first_offset >= 0:
            entry.transaction_offset = -1
            self.take_open(first_offset)
            if self.replicated:
                self.put_ended(first_offset, info.base_offset)
        if marker.type == MARKER_EMPTY:
            return 0
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = info.max_timestamp
        kl_assert(first_offset < info.base_offset)
        if first_offset >= 0 and marker.type == MARKER_ABORT:
            self.aborted.put(info.producer_id, first_offset, info.base_offset,
                             min(self.first_open_offset, info.next_offset))
        return 0

    # ---- open transactions ------------------------------------------------------------------------------------------

    cdef Py_ssize_t find_open(self, int64_t first_offset) noexcept nogil:
        """Return the index of the first open transaction at or above `first_offset`."""
        cdef Py_ssize_t low = self.opened_start
        cdef Py_ssize_t high = self.opened_end
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.opened[middle].first_offset < first_offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int put_open(self, int64_t first_offset, int64_t producer_id) except -1:
        """Add an open transaction. It is the newest, unless a snapshot is being read."""
        cdef Py_ssize_t place
        if self.opened_end == self.opened_capacity:
            self.make_room()
        place = self.opened_end
        if place > self.opened_start and self.opened[place - 1].first_offset > first_offset:
            place = self.find_open(first_offset)
            memmove(&self.opened[place + 1], &self.opened[place],
                    <size_t>(self.opened_end - place) * sizeof(OpenTransaction))
        self.opened[place].first_offset = first_offset
        self.opened[place].producer_id = producer_id
        self.opened_end += 1
        self.open_count += 1
        kl_assert(first_offset >= 0)
        kl_assert(self.opened_end <= self.opened_capacity)
        kl_assert(self.open_count <= self.opened_end - self.opened_start)
        if first_offset < self.first_open_offset:
            self.first_open_offset = first_offset
        return 0

    cdef int take_open(self, int64_t first_offset) except -1:
        """Mark a transaction as ended in the array of open transactions."""
        cdef Py_ssize_t place = self.find_open(first_offset)
        assert place < self.opened_end and self.opened[place].first_offset == first_offset, "it was not open"
        assert self.opened[place].producer_id != ENDED, "it had ended"
        self.opened[place].producer_id = ENDED
        self.open_count -= 1
        kl_assert(self.open_count >= 0)
        while self.opened_start < self.opened_end and self.opened[self.opened_start].producer_id == ENDED:
            self.opened_start += 1
        if self.opened_start == self.opened_end:
            self.opened_start = self.opened_end = 0
            self.first_open_offset = INT64_MAX
        else:
            self.first_open_offset = self.opened[self.opened_start].first_offset
        kl_assert((self.open_count == 0) == (self.first_open_offset == INT64_MAX))
        return 0

    cdef int make_room(self) except -1:
        """Compact the array of open transactions, and double it if more than half are open. The cost per gap is
        constant."""
        cdef Py_ssize_t capacity = max(<Py_ssize_t>OPENED_CAPACITY_MIN, self.opened_capacity)
        cdef Py_ssize_t i, kept = 0
        cdef OpenTransaction* fresh
        if self.open_count > capacity // 2:
            capacity *= 2
        fresh = <OpenTransaction*>malloc(<size_t>capacity * sizeof(OpenTransaction))
        if fresh == NULL:
            raise MemoryError("no memory for an open transaction")
        for i in range(self.opened_start, self.opened_end):
            if self.opened[i].producer_id != ENDED:
                memcpy(&fresh[kept], &self.opened[i], sizeof(OpenTransaction))
                kept += 1
        kl_assert(kept == self.open_count)
        free(self.opened)
        self.opened = fresh
        self.opened_capacity = capacity
        self.opened_start = 0
        self.opened_end = kept
        return 0

    # ---- transactions that replicas may lose the end of -------------------------------------------------------------

    cdef int set_replicated(self, bint replicated) noexcept:
        """Set whether the log is replicated. If not, all ended transactions are decided at once."""
        if not replicated:
            self.ended_start = self.ended_end = 0
        self.replicated = replicated
        return 0

    cdef int put_ended(self, int64_t first_offset, int64_t marker_offset) except -1:
        """Add an ended transaction, whose marker has the highest offset so far.

        It is undecided until the high watermark has passed its marker: a new leader may lack the marker. (Unreplicated,
        in Kafka's ProducerStateManager.) Only undecided transactions that can determine the last stable offset are
        kept. One that began after another and ended before it is not kept.
        """
        cdef Py_ssize_t capacity
        cdef EndedTransaction* grown
        while self.ended_end > self.ended_start and self.ended[self.ended_end - 1].first_offset >= first_offset:
            self.ended_end -= 1
        if self.ended_end > self.ended_start:
            kl_assert(self.ended[self.ended_end - 1].marker_offset < marker_offset)
        if self.ended_start > 0 and self.ended_end == self.ended_capacity:
            self.ended_end -= self.ended_start
            memmove(self.ended, &self.ended[self.ended_start], <size_t>self.ended_end * sizeof(EndedTransaction))
            self.ended_start = 0
        if self.ended_end == self.ended_capacity:
            capacity = max(<Py_ssize_t>ENDED_CAPACITY_MIN, 2 * self.ended_capacity)
            grown = <EndedTransaction*>realloc(self.ended, <size_t>capacity * sizeof(EndedTransaction))
            if grown == NULL:
                raise MemoryError("no memory for a transaction that has ended")
            self.ended = grown
            self.ended_capacity = capacity
        self.ended[self.ended_end].first_offset = first_offset
        self.ended[self.ended_end].marker_offset = marker_offset
        self.ended_end += 1
        return 0

    cdef int64_t first_undecided(self) noexcept:
        """Return the first offset of the oldest transaction that is open or undecided, or INT64_MAX."""
        if self.ended_start < self.ended_end:
            return min(self.first_open_offset, self.ended[self.ended_start].first_offset)
        return self.first_open_offset

    cdef int forget_replicated(self, int64_t high_watermark) noexcept:
        """Apply a new high watermark: transactions whose markers are below it are decided."""
        while self.ended_start < self.ended_end and self.ended[self.ended_start].marker_offset < high_watermark:
            self.ended_start += 1
        if self.ended_start == self.ended_end:
            self.ended_start = self.ended_end = 0
        return 0

    cdef bint reaches(self, int64_t offset) except -1:
        """Return whether any state derives from `offset` or above. Then a log truncated there needs a new table."""
        cdef ProducerEntry entry
        if self.ended_end > self.ended_start and self.ended[self.ended_end - 1].marker_offset >= offset:
            return True
        if self.aborted.first_marker_from(offset) < self.aborted.count:
            return True
        for entry in self.entries.values():
            if entry.last_offset >= offset:
                return True
        return False

    def open_transactions(self):
        """Return [(producer id, first offset)] of the open transactions, oldest first."""
        return [
            (self.opened[i].producer_id, self.opened[i].first_offset)
            for i in range(self.opened_start, self.opened_end)
            if self.opened[i].producer_id != ENDED
        ]

    # ---- snapshots, expiry ------------------------------------------------------------------------------------------

    def restore(self, int64_t producer_id, int16_t epoch, spans, *, int32_t coordinator_epoch=-1,
                int64_t transaction_offset=-1, int64_t last_offset=-1, int64_t last_timestamp=-1, int64_t seen_ms=0):
        """Restore an entry of a snapshot. `spans` has at most five batches, as ProducerEntry.batches() returns them."""
        cdef ProducerEntry entry = ProducerEntry(producer_id, epoch)
        cdef int i = 0
        for first_sequence, last_sequence, first_offset, last_span_offset, timestamp in spans:
            if i == WINDOW:
                break
            entry.spans[i].first_sequence = first_sequence
            entry.spans[i].last_sequence = last_sequence
            entry.spans[i].first_offset = first_offset
            entry.spans[i].last_offset = last_span_offset
            entry.spans[i].timestamp = timestamp
            i += 1
        entry.span_count = i
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_offset = transaction_offset
        entry.last_offset = last_offset
        entry.last_timestamp = last_timestamp
        entry.seen_ms = seen_ms
        self.entries[producer_id] = entry
        if transaction_offset >= 0:
            self.put_open(transaction_offset, producer_id)

    def expire(self, int64_t now_ms, int64_t idle_max_ms):
        """Remove producers without an open transaction that were idle for `idle_max_ms`; return how many."""
        cdef ProducerEntry entry
        gone = []
        for entry in self.entries.values():
            if entry.transaction_offset < 0 and now_ms - entry.seen_ms >= idle_max_ms:
                gone.append(entry.producer_id)
        self._forget(gone)
        if gone:
            self.dirty = True
        return len(gone)

    def get(self, int64_t producer_id):
        """Return the entry of a producer id, or None."""
        return self.entries.get(producer_id)

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        return iter(list(self.entries.values()))
