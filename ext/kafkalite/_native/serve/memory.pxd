"""Count the memory that each client makes the broker hold, and decide whether it may get more."""

from libc.stdint cimport int64_t

cdef enum:
    # kinds of what is held
    FRAMES = 0                  # requests that are received, and buffers of connections
    REQUESTS = 1                # requests that wait or run
    FETCHES = 2                 # parked fetches
    ANSWERS = 3                 # answers that are being built or are not sent yet
    GROUPS = 4                  # metadata and subscriptions of group members
    SESSIONS = 5                # fetch sessions
    KIND_COUNT = 6

    SMALL_SIZE = 65536          # bytes; a larger charge gets none of the reserve
    TINY_SIZE = 8192            # bytes; a holder of less is always read
    PASSING = 3                 # a holder's maximum multiple of the free memory, for memory that is released soon
    LASTING = 1                 # the same for memory that is kept until its client leaves

    PARKED_SIZE = 2048          # bytes of a parked request besides its body
    DECODED_FACTOR = 8          # bytes of decoded items for each byte of a short body


cdef struct Ceiling:
    int64_t size_max            # bytes
    int64_t large_max           # the same without the reserve for small charges
    int64_t calm_max            # up to it every charge is admitted
    int64_t watch_from          # from it on, connections ask before they read
    int64_t queued_max          # queued.max.request.bytes, -1 none
    int64_t held
    int64_t frames_begun        # sizes of the frames that are not complete
    int64_t of_kind[KIND_COUNT]
    double needed_at            # monotonic seconds: when a charge was last refused
    int64_t needed_by           # bytes held by the smallest holder that was refused then
    int64_t pause_count         # times that a connection began to wait
    int64_t refs                # HolderMemory, Charge, connections, ... : the last one frees it


cdef struct Holding:
    Ceiling* ceiling
    int64_t held
    int64_t refs


cdef inline void charge(Holding* holding, int kind, int64_t size) noexcept:
    """Add `size` bytes to the counts, or subtract them if negative."""
    holding.held += size
    holding.ceiling.held += size
    holding.ceiling.of_kind[kind] += size


cdef inline bint admits(const Holding* holding, int64_t size, int share) noexcept:
    """Return whether a client may hold `size` bytes more: then at most `share` times the memory that is still free."""
    cdef const Ceiling* ceiling = holding.ceiling
    cdef int64_t free = (ceiling.size_max if size <= SMALL_SIZE else ceiling.large_max) - ceiling.held - size
    return free >= 0 and holding.held + size <= share * free


cdef inline bint has_room(const Holding* holding) noexcept:
    """Return whether a client may send another small request. A client that holds almost nothing always may."""
    return holding.held < TINY_SIZE or admits(holding, SMALL_SIZE, PASSING)


cdef inline bint is_watched(const Ceiling* ceiling) noexcept:
    """Return whether memory is scarce: near the limit, or with the maximum of queued requests."""
    return ceiling.held >= ceiling.watch_from


cdef inline bint is_queue_full(const Ceiling* ceiling) noexcept:
    return 0 <= ceiling.queued_max <= ceiling.frames_begun + ceiling.of_kind[REQUESTS]


cdef inline void need(Holding* holding, double now) noexcept:
    """Record that a client was refused memory. Incomplete frames of clients that hold as much or more may then be
    closed."""
    cdef Ceiling* ceiling = holding.ceiling
    if now - ceiling.needed_at > 1.0 or holding.held < ceiling.needed_by:
        ceiling.needed_by = holding.held
    ceiling.needed_at = now


cdef inline Holding* hold(Holding* holding) noexcept:
    """Add a reference."""
    holding.refs += 1
    return holding


cdef void let_go(Holding* holding) noexcept
cdef bint swap_kind(Holding* holding, int before, int64_t size, int after, int64_t new_size) noexcept


cdef class HolderMemory:
    cdef Holding* holding
    cdef readonly object holder


cdef class Charge:
    cdef Holding* holding
    cdef readonly int kind
    cdef readonly int64_t size


cdef class MemoryCeiling:
    cdef Ceiling* ceiling
    cdef HolderMemory own
    cdef dict holders
    cdef object lock
    cdef Py_ssize_t purge_at
    cdef HolderMemory find(self, object principal, str client_host)
