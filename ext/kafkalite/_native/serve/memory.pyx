"""Count the memory that each client makes the broker hold, and decide whether it may get more (broker.memory.max).

The code calls a client a *holder* (kafkalite.broker.limits.holder). How much a holder gets depends on how much of
broker.memory.max is held for all clients:

    up to 45/64    every holder gets what it needs. Only its lasting memory is limited to its share
    up to 15/16    a holder gets memory until its share is used up
    above 15/16    the same, but only in charges of at most SMALL_SIZE

Lasting memory is group metadata and fetch sessions. A holder's share of it is LASTING times the memory that is still
free. A holder's share of other memory is PASSING times the memory that is still free.
Source: dynamic thresholds of network switches (Choudhury and Hahne, 1998).

Charges that cannot wait are always accepted. The holder's connections are then not read until it holds less.

Thread rule: counts change under the GIL, on any thread. `lock` guards only the table of holders.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

import threading
from heapq import nlargest

from kafkalite.broker.limits.holder import holder_of

from kafkalite._native.base.debug cimport kl_assert

cdef enum:
    PURGE_MIN = 256

cdef int64_t UNBOUNDED = INT64_MAX // 8

KINDS = ("frames", "requests", "fetches", "answers", "groups", "sessions")
assert len(KINDS) == KIND_COUNT


class MemoryCeilingReached(Exception):
    """A response of `size` bytes would exceed the memory that its client may hold (broker.memory.max)."""

    def __init__(self, size):
        super().__init__(f"{size} bytes exceed broker.memory.max")
        self.size = size


cdef Holding* new_holding(Ceiling* ceiling) except NULL:
    cdef Holding* holding = <Holding*>calloc(1, sizeof(Holding))
    if holding == NULL:
        raise MemoryError
    holding.ceiling = ceiling
    holding.refs = 1
    ceiling.refs += 1
    return holding


cdef void let_go(Holding* holding) noexcept:
    """Release a reference. The last one frees the holding; the last one of all frees the limit."""
    kl_assert(holding.refs > 0)
    holding.refs -= 1
    if holding.refs == 0:
        kl_assert(holding.held == 0)
        let_ceiling_go(holding.ceiling)
        free(holding)


cdef void let_ceiling_go(Ceiling* ceiling) noexcept:
    kl_assert(ceiling.refs > 0)
    ceiling.refs -= 1
    if ceiling.refs == 0:
        free(ceiling)


cdef bint swap_kind(Holding* holding, int before, int64_t size, int after, int64_t new_size) noexcept:
    """Replace a charge of `size` bytes of one kind by `new_size` bytes of another."""
    charge(holding, before, -size)
    charge(holding, after, new_size)
    return True


@cython.final
cdef class HolderMemory:
    """The memory held for one client (holder). The holder None is the broker itself, which has no limit."""

    def __dealloc__(self):
        if self.holding != NULL:
            let_go(self.holding)

    def __repr__(self):
        return f"<HolderMemory {self.holder}, {self.held} bytes>"

    @property
    def held(self):
        """The bytes held."""
        return self.holding.held

    def admits(self, int64_t size, *, bint lasting=False):
        """Return whether it may hold `size` bytes more. `lasting`: until its client leaves."""
        return admits(self.holding, size, LASTING if lasting else PASSING)

    def charge(self, int kind, int64_t size=0):
        """Return a Charge of `size` bytes of a kind. It ends with its last reference."""
        cdef Charge made = Charge.__new__(Charge)
        if not 0 <= kind < KIND_COUNT or size < 0:
            raise ValueError(f"no charge: kind {kind}, {size} bytes")
        made.holding = hold(self.holding)
        made.kind = kind
        made.size = size
        charge(made.holding, kind, size)
        return made


@cython.final
cdef class Charge:
    """Bytes charged to a client.

    It refers only to C structures, which are freed with their last reference. The cycle collector might clear a Python
    reference before the object that ends the charge.
    """

    def __dealloc__(self):
        if self.holding != NULL:
            charge(self.holding, self.kind, -self.size)
            let_go(self.holding)

    def resize(self, int64_t size):
        """Change the charge to `size` bytes."""
        if size < 0:
            raise ValueError(f"a charge of {size} bytes")
        charge(self.holding, self.kind, size - self.size)
        self.size = size

    def grow(self, int64_t size):
        """Add `size` bytes. Raises MemoryCeilingReached if the client may not hold them."""
        if size > 0 and not admits(self.holding, size, PASSING):
            raise MemoryCeilingReached(self.size + size)
        self.resize(self.size + size)

    def may_become(self, int64_t size, *, bint lasting=False):
        """Return whether the charge may change to `size` bytes. A smaller size is always possible."""
        return size <= self.size or admits(self.holding, size - self.size, LASTING if lasting else PASSING)


@cython.final
cdef class MemoryCeiling:
    """A broker's limit on memory, and the bytes held by kind and by client."""

    def __cinit__(self, int64_t size_max=-1, *, int64_t queued_max=-1):
        """Create the limit. `size_max` is in bytes, -1 for none; `queued_max` is queued.max.request.bytes."""
        self.ceiling = <Ceiling*>calloc(1, sizeof(Ceiling))
        if self.ceiling == NULL:
            raise MemoryError
        self.ceiling.refs = 1
        self.ceiling.needed_at = -1e18
        self.holders = {}
        self.lock = threading.Lock()
        self.purge_at = PURGE_MIN
        self.use(size_max, queued_max)
        self.own = HolderMemory.__new__(HolderMemory)
        self.own.holding = new_holding(self.ceiling)

    def __dealloc__(self):
        if self.ceiling != NULL:
            let_ceiling_go(self.ceiling)

    def use(self, int64_t size_max, int64_t queued_max=-1):
        """Change the limits. Memory that is already held stays."""
        cdef Ceiling* ceiling = self.ceiling
        size_max = UNBOUNDED if size_max < 0 else min(size_max, UNBOUNDED)
        ceiling.size_max = size_max
        ceiling.large_max = size_max - size_max // 16
        ceiling.calm_max = ceiling.large_max // 4 * 3
        ceiling.queued_max = queued_max
        ceiling.watch_from = ceiling.calm_max - SMALL_SIZE
        if queued_max >= 0:
            ceiling.watch_from = min(ceiling.watch_from, queued_max)

    def of(self, holder):
        """Return the memory of a client (holder); None is the broker itself."""
        cdef HolderMemory found
        if holder is None:
            return self.own
        with self.lock:
            found = self.holders.get(holder)
            if found is None:
                if len(self.holders) >= self.purge_at:
                    self.purge()
                found = HolderMemory.__new__(HolderMemory)
                found.holding = new_holding(self.ceiling)
                found.holder = holder
                self.holders[holder] = found
            return found

    cdef HolderMemory find(self, object principal, str client_host):
        return self.of(holder_of(principal, client_host))

    def purge(self):
        """Remove clients that hold nothing and have no connection."""
        cdef HolderMemory memory
        self.holders = {
            holder: memory for holder, memory in self.holders.items()
            if memory.holding.refs > 1 or memory.holding.held > 0
        }
        self.purge_at = max(<Py_ssize_t>PURGE_MIN, 2 * len(self.holders))

    def biggest(self, int count):
        """Return the `count` clients that hold most, each with its bytes."""
        cdef HolderMemory memory
        with self.lock:
            found = [
                (memory.holding.held, memory.holder) for memory in self.holders.values() if memory.holding.held > 0
            ]
        return [(holder, held) for held, holder in nlargest(count, found)]

    def by_kind(self):
        """Return the bytes held, by kind."""
        return {name: self.ceiling.of_kind[kind] for kind, name in enumerate(KINDS)}

    @property
    def size_max(self):
        """The limit in bytes; None without a limit."""
        return None if self.ceiling.size_max >= UNBOUNDED else self.ceiling.size_max

    @property
    def largest(self):
        """The most bytes that a single client can hold if no other client holds any."""
        return self.ceiling.calm_max

    @property
    def held(self):
        """The bytes held in total."""
        return self.ceiling.held

    @property
    def queued(self):
        """The bytes of incomplete frames, and of requests that wait or run."""
        return self.ceiling.frames_begun + self.ceiling.of_kind[REQUESTS]

    @property
    def pause_count(self):
        """How often a connection began to wait for memory, or for fewer queued requests."""
        return self.ceiling.pause_count

    @property
    def near(self):
        """Whether memory is so scarce that clients with the largest shares must wait."""
        return self.ceiling.held >= self.ceiling.calm_max


KIND_FRAMES, KIND_REQUESTS, KIND_FETCHES = FRAMES, REQUESTS, FETCHES
KIND_ANSWERS, KIND_GROUPS, KIND_SESSIONS = ANSWERS, GROUPS, SESSIONS
