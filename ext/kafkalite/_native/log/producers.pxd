"""Keep the state of a partition's idempotent and transactional producers."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._native.log.aborted cimport AbortedTransactions
from kafkalite._native.log.record_format cimport ItemInfo

cdef enum:
    WINDOW = 5                  # batches remembered for each producer, as clients may have in flight

# What check() finds.
cdef enum CheckResult:
    CHECK_GOOD = 0
    CHECK_DUPLICATE = 1         # the batch is in the log already
    CHECK_ASK = 2               # it would begin a transaction, which the coordinator must admit first
    CHECK_REFUSED = 3           # `error` says why

# Who appends.
cpdef enum:
    FROM_CLIENT = 0
    FROM_CLIENT_V2 = 1          # a client that speaks Produce 12 or above: transactions of KIP-890
    FROM_COORDINATOR = 2        # this broker's coordinators: no sequence, no admission

cdef enum:
    NOT_ADMITTED = -1           # in place of a table's marker_count at which a transaction was admitted

cdef enum:
    MARKER_EMPTY = -1           # in place of MARKER_ABORT or MARKER_COMMIT: compaction has taken its record

cdef struct Marker:
    int16_t type
    int32_t coordinator_epoch

cdef struct SequenceSpan:
    int32_t first_sequence
    int32_t last_sequence
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp           # ms: the batch's largest

cdef struct OpenTransaction:
    int64_t first_offset
    int64_t producer_id         # -1: it has ended

cdef struct EndedTransaction:
    int64_t first_offset
    int64_t marker_offset       # of the marker that ended it

cdef class ProducerEntry:
    cdef readonly int64_t producer_id
    cdef readonly int16_t epoch
    cdef readonly int32_t coordinator_epoch     # of the last transaction marker, -1 none
    cdef readonly int64_t transaction_offset    # first offset of the open transaction, -1 none
    cdef readonly int64_t last_offset           # of its newest batch or marker
    cdef readonly int64_t last_timestamp        # ms: of that batch
    cdef readonly int64_t seen_ms               # wall clock of the last append, for expiry
    cdef int64_t marker_number                  # the table's marker_count at its last marker
    cdef readonly int span_count
    cdef SequenceSpan spans[WINDOW]             # oldest first
    cdef int push(self, const ItemInfo* info, int64_t now_ms) except -1

cdef class ProducerTable:
    cdef dict entries                           # producer id -> ProducerEntry
    cdef public int64_t count_max               # above it the producers silent longest are forgotten
    cdef public bint dirty                      # changed since the last snapshot
    cdef readonly AbortedTransactions aborted
    cdef readonly int64_t first_open_offset     # of the oldest open transaction, INT64_MAX none
    cdef readonly int64_t marker_count          # markers taken in since the table was made
    # Open transactions by first offset, with gaps of -1 where one has ended:
    cdef OpenTransaction* opened
    cdef Py_ssize_t opened_start, opened_end, opened_capacity
    cdef readonly Py_ssize_t open_count
    cdef int64_t forgotten_marker_number        # the highest one among entries that were forgotten
    # Transactions whose marker not all replicas have: both offsets rise. Kept where `replicated` alone.
    cdef readonly bint replicated
    cdef EndedTransaction* ended
    cdef Py_ssize_t ended_start, ended_end, ended_capacity

    cdef int check(self, const ItemInfo* info, int origin, int64_t admitted, SequenceSpan* duplicate,
                   int* error) except -1
    cdef bint follows(self, ProducerEntry entry, const ItemInfo* info) noexcept
    cdef int check_marker(self, const ItemInfo* info, const Marker* marker, bint strict) except -1
    cdef int update(self, const ItemInfo* info, int64_t now_ms) except -1
    cdef ProducerEntry entry_of(self, const ItemInfo* info)
    cdef int update_marker(self, const ItemInfo* info, const Marker* marker, int64_t now_ms) except -1
    cdef int put_open(self, int64_t first_offset, int64_t producer_id) except -1
    cdef int take_open(self, int64_t first_offset) except -1
    cdef Py_ssize_t find_open(self, int64_t first_offset) noexcept nogil
    cdef int make_room(self) except -1
    cdef int set_replicated(self, bint replicated) noexcept
    cdef int put_ended(self, int64_t first_offset, int64_t marker_offset) except -1
    cdef int64_t first_undecided(self) noexcept
    cdef int forget_replicated(self, int64_t high_watermark) noexcept
    cdef bint reaches(self, int64_t offset) except -1

# The content of a parsed control batch. MARKER_EMPTY also if its record cannot be read.
cdef void read_marker(const unsigned char* batch, const ItemInfo* info, Marker* marker) noexcept nogil
