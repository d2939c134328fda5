"""Cache the authorizer's topic decisions for Produce and Fetch, without a Python object per request.

An AccessView is the cache for one principal and host on one worker. It has an array of entries, one per topic:

    bits 63-24  the topic's number      bits 23-4  the second in which a denial was decided
    bit 3  write denied    bit 2  read denied    bit 1  write allowed    bit 0  read allowed

A permission is valid until the ACLs change, which raises the epoch. A denial is valid only during its second. In
another second the authorizer, in Python, decides again. So it can log and count repeated denials.

Thread rule: a view belongs to its worker. Any thread raises the epoch, with the GIL.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kafkalite._native.serve.topic_table cimport Topic

cdef enum:
    CAPACITY_MIN = 64
    CAPACITY_MAX = 131072               # entries: 1 MiB
    NAMES_MAX = 1024                    # of topics that do not exist, and of transactional ids
    NAME_SIZE_MAX = 1024                # bytes of a cached name; topic names have at most 249
    SECOND_BITS = 20
    SECOND_SHIFT = 4


@cython.final
cdef class AccessControl:
    """The native side of a broker's authorizer."""

    def __init__(self, *, allows_topic, allows_transactional_id, allows_following):
        self.allows_topic = allows_topic
        self.allows_transactional_id = allows_transactional_id
        self.allows_following = allows_following

    def rules_changed(self):
        """Discard all cached decisions, because the ACLs changed. Any thread."""
        self.epoch += 1


@cython.final
cdef class AccessView:
    """The cached decisions for one principal and host.

    A topic's entry is at its number modulo the capacity, which grows while topics collide. A topic's number is never
    reused, so an entry always means the same topic.
    """

    def __init__(self, AccessControl control not None, str principal not None, str host not None):
        self.control = control
        self.principal = principal
        self.host = host
        self.transactional_ids = {}
        self.names = {}
        self.epoch = control.epoch
        self.grow(CAPACITY_MIN)

    def __dealloc__(self):
        free(self.entries)

    @property
    def capacity(self):
        """The number of entries in the cache."""
        return self.mask + 1

    def may(self, int operation, Topic topic not None, double now):
        """Return the decision that Produce and Fetch get. For tests."""
        return is_allowed(self, operation, topic) or self.allows(operation, topic, now)

    cdef int grow(self, uint64_t capacity) except -1:
        """Allocate `capacity` empty entries."""
        cdef uint64_t* entries = <uint64_t*>calloc(capacity, sizeof(uint64_t))
        if entries == NULL:
            raise MemoryError
        free(self.entries)
        self.entries = entries
        self.mask = capacity - 1
        return 0

    cdef int forget(self) except -1:
        """Discard the cached decisions after an ACL change."""
        self.grow(self.mask + 1)
        self.transactional_ids.clear()
        self.names.clear()
        self.epoch = self.control.epoch
        return 0

    cdef bint allows(self, int operation, Topic topic, double now) except -1:
        """Return whether READ or WRITE of a topic is allowed. `now` is in monotonic seconds."""
        cdef uint64_t entry
        cdef uint64_t second
        if self.epoch != self.control.epoch:
            self.forget()
        entry = self.entries[<uint64_t>topic.number & self.mask]
        if entry >> ACCESS_NUMBER_SHIFT == <uint64_t>topic.number:
            if entry & (<uint64_t>1 << (operation - ACCESS_READ)):
                return True
            second = <uint64_t><int64_t>now & ((1 << SECOND_BITS) - 1)
            if entry & (<uint64_t>4 << (operation - ACCESS_READ)) \
                    and (entry >> SECOND_SHIFT) & ((1 << SECOND_BITS) - 1) == second:
                return False
        return self.decide(operation, topic, <uint64_t><int64_t>now & ((1 << SECOND_BITS) - 1))

    cdef bint decide(self, int operation, Topic topic, uint64_t second) except -1:
        """Request a decision from the authorizer, and cache it. A decision of an older epoch is not cached."""
        cdef int64_t epoch = self.control.epoch
        cdef uint64_t number = <uint64_t>topic.number
        cdef uint64_t known = 0
        cdef uint64_t entry
        cdef bint allowed = self.control.allows_topic(self.principal, self.host, operation, topic.name)
        if self.control.epoch != epoch or self.epoch != epoch:
            return allowed
        entry = self.entries[number & self.mask]
        if entry >> ACCESS_NUMBER_SHIFT == number:
            # A denial of the other operation keeps its second, so it is logged again at most one second later.
            known = entry & 3 if (entry >> SECOND_SHIFT) & ((1 << SECOND_BITS) - 1) != second else entry & 15
        elif entry != 0 and self.mask + 1 < CAPACITY_MAX:
            self.grow(2 * (self.mask + 1))
        known |= <uint64_t>(1 if allowed else 4) << (operation - ACCESS_READ)
        self.entries[number & self.mask] = number << ACCESS_NUMBER_SHIFT | second << SECOND_SHIFT | known
        return allowed

    cdef bint allows_name(self, int operation, bytes name, double now) except -1:
        """Return whether READ or WRITE of a missing topic is allowed, given its name in the request."""
        cdef int64_t epoch
        if self.epoch != self.control.epoch:
            self.forget()
        epoch = self.epoch
        if self.names_second != <int64_t>now or len(self.names) >= NAMES_MAX:
            self.names.clear()
            self.names_second = <int64_t>now
        key = (operation, name)
        found = self.names.get(key)
        if found is None:
            found = self.control.allows_topic(self.principal, self.host, operation, name.decode("utf-8", "replace"))
            if self.control.epoch == epoch and len(name) <= NAME_SIZE_MAX:
                self.names[key] = found
        return found

    cdef bint allows_transactional_id(self, bytes transactional_id) except -1:
        """Return whether WRITE of a transactional id is allowed."""
        cdef int64_t epoch
        if self.epoch != self.control.epoch:
            self.forget()
        epoch = self.epoch
        if transactional_id in self.transactional_ids:
            return True
        allowed = self.control.allows_transactional_id(
            self.principal, self.host, transactional_id.decode("utf-8", "replace"))
        if allowed and self.control.epoch == epoch and len(transactional_id) <= NAME_SIZE_MAX:
            if len(self.transactional_ids) >= NAMES_MAX:
                self.transactional_ids.clear()
            self.transactional_ids[transactional_id] = True
        return allowed

    cdef bint allows_following(self) except -1:
        """Return whether CLUSTER_ACTION, which replicas need for Fetch, is allowed."""
        return self.control.allows_following(self.principal, self.host)
