"""What a partition remembers of its idempotent producers, and Kafka's rules on sequence numbers.

For each producer id: its epoch, its last five batches (sequences and offsets, so that a batch sent again is answered
with its first offset), the start of its open transaction, and the epoch of the coordinator that wrote its last marker.
The state is a function of the log: it is rebuilt from a snapshot and the batches behind it.

Thread rule: a table belongs to one log and is touched under that log's lock only. Sequence numbers run from 0 to
2^31-1 and wrap to 0.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.record_format cimport ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL

cdef enum:
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    SEQUENCE_MAX = 0x7FFFFFFF
    COUNT_MAX = 50000


cdef inline int32_t sequence_after(int32_t sequence, int32_t increment) noexcept:
    """sequence + increment, wrapping behind 2^31-1 to 0."""
    if sequence > SEQUENCE_MAX - increment:
        return increment - (SEQUENCE_MAX - sequence) - 1
    return sequence + increment


cdef class ProducerEntry:
    """One producer id on one partition."""

    def __cinit__(self, int64_t producer_id, int16_t epoch):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.transaction_offset = -1
        self.last_offset = -1
        self.last_timestamp = -1

    cdef int push(self, const BatchInfo* info, int64_t now_ms) except -1:
        """Remembers an appended batch as the newest, forgetting the oldest of a full window."""
        cdef SequenceSpan* span
        cdef int i
        if info.producer_epoch != self.epoch:
            self.epoch = info.producer_epoch
            self.span_count = 0
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
        self.last_offset = span.last_offset
        self.last_timestamp = info.max_timestamp
        self.seen_ms = now_ms
        if info.attributes & ATTRIBUTE_TRANSACTIONAL and self.transaction_offset < 0:
            self.transaction_offset = info.base_offset
        return 0

    @property
    def last_sequence(self):
        """Of the newest batch, -1 when none is remembered."""
        return self.spans[self.span_count - 1].last_sequence if self.span_count else -1

    def batches(self):
        """(first sequence, last sequence, first offset, last offset, timestamp) of the batches, oldest first."""
        return [
            (self.spans[i].first_sequence, self.spans[i].last_sequence, self.spans[i].first_offset,
             self.spans[i].last_offset, self.spans[i].timestamp)
            for i in range(self.span_count)
        ]


cdef class ProducerTable:
    """All producers of one partition."""

    def __init__(self, int64_t count_max=COUNT_MAX):
        self.count_max = count_max
        self.entries = {}

    cdef int check(self, const BatchInfo* info, SequenceSpan* duplicate) except -1:
        """0 to append, CHECK_DUPLICATE when `duplicate` was filled with the original, else a Kafka error code."""
        cdef ProducerEntry entry = <ProducerEntry>self.entries.get(info.producer_id)
        cdef int32_t last_sequence = sequence_after(info.base_sequence, info.last_offset_delta)
        cdef int32_t newest
        cdef int i
        if entry is None:
            return 0                    # no state (expired, or deleted with the log): any sequence may start it
        if info.producer_epoch == entry.epoch:
            for i in range(entry.span_count):
                if (entry.spans[i].first_sequence == info.base_sequence
                        and entry.spans[i].last_sequence == last_sequence):
                    duplicate[0] = entry.spans[i]
                    return CHECK_DUPLICATE
        elif info.producer_epoch < entry.epoch:
            return INVALID_PRODUCER_EPOCH
        else:
            return 0 if info.base_sequence == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER
        newest = entry.spans[entry.span_count - 1].last_sequence if entry.span_count else -1
        if info.base_sequence == (0 if newest == SEQUENCE_MAX else newest + 1):
            return 0
        return OUT_OF_ORDER_SEQUENCE_NUMBER

    cdef int update(self, const BatchInfo* info, int64_t now_ms) except -1:
        """Takes in a batch that stands in the log; it may be a transaction marker. Nothing is checked."""
        cdef ProducerEntry entry
        if info.attributes & ATTRIBUTE_CONTROL:
            return self.update_marker(info, now_ms)
        entry = self.entry_of(info)
        entry.push(info, now_ms)
        self.dirty = True
        return 0

    cdef ProducerEntry entry_of(self, const BatchInfo* info):
        """The entry of the batch's producer, made if need be; then the table may have to make room."""
        cdef ProducerEntry entry = <ProducerEntry>self.entries.get(info.producer_id)
        if entry is None:
            if len(self.entries) >= self.count_max:
                self._forget_oldest(max(1, self.count_max // 10))
            entry = ProducerEntry(info.producer_id, info.producer_epoch)
            self.entries[info.producer_id] = entry
        return entry

    def _forget_oldest(self, count):
        """Forgets the `count` producers silent longest; those with an open transaction stay."""
        idle = sorted([(entry.seen_ms, entry.producer_id) for entry in self if entry.transaction_offset < 0])
        for _, producer_id in idle[:count]:
            del self.entries[producer_id]

    cdef int update_marker(self, const BatchInfo* info, int64_t now_ms) except -1:
        """A commit or abort marker: ends the transaction and, as in Kafka, clears the window."""
        cdef ProducerEntry entry = self.entry_of(info)
        if info.producer_epoch > entry.epoch:
            entry.epoch = info.producer_epoch
        entry.span_count = 0
        entry.transaction_offset = -1
        entry.last_offset = info.next_offset - 1
        entry.last_timestamp = info.max_timestamp
        entry.seen_ms = now_ms
        self.dirty = True
        return 0

    def restore(self, int64_t producer_id, int16_t epoch, spans, *, int32_t coordinator_epoch=-1,
                int64_t transaction_offset=-1, int64_t last_offset=-1, int64_t last_timestamp=-1, int64_t seen_ms=0):
        """Puts back one entry of a snapshot; `spans` as ProducerEntry.batches() gave them, at most five."""
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

    def expire(self, int64_t now_ms, int64_t idle_max_ms):
        """Forgets producers idle for idle_max_ms without an open transaction; returns how many."""
        cdef ProducerEntry entry
        gone = []
        for entry in self.entries.values():
            if entry.transaction_offset < 0 and now_ms - entry.seen_ms >= idle_max_ms:
                gone.append(entry.producer_id)
        for producer_id in gone:
            del self.entries[producer_id]
        if gone:
            self.dirty = True
        return len(gone)

    def get(self, int64_t producer_id):
        """The entry of a producer id, or None."""
        return self.entries.get(producer_id)

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        return iter(list(self.entries.values()))
