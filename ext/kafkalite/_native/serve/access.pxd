"""Cache the authorizer's topic decisions for Produce and Fetch."""

from libc.stdint cimport int64_t, uint64_t
from kafkalite._native.serve.topic_table cimport Topic

cdef enum:
    ACCESS_READ = 3                     # AclOperation
    ACCESS_WRITE = 4

cdef enum:
    ACCESS_NUMBER_SHIFT = 24            # of a topic's number in an entry


cdef class AccessControl:
    cdef readonly int64_t epoch         # rises with each ACL change
    cdef object allows_topic            # (principal, host, operation, topic) -> bool
    cdef object allows_transactional_id     # (principal, host, transactional id) -> bool
    cdef object allows_following        # (principal, host) -> bool


cdef class AccessView:
    cdef AccessControl control
    cdef readonly str principal
    cdef readonly str host
    cdef object __weakref__
    cdef int64_t epoch                  # of the ACLs behind the cached decisions
    cdef uint64_t* entries              # a topic's is at its number, modulo the capacity
    cdef uint64_t mask                  # capacity - 1
    cdef dict transactional_ids         # bytes -> bool
    cdef dict names                     # (operation, name) -> bool, of topics that do not exist
    cdef int64_t names_second           # when they were decided

    cdef bint allows(self, int operation, Topic topic, double now) except -1
    cdef bint decide(self, int operation, Topic topic, uint64_t second) except -1
    cdef bint allows_name(self, int operation, bytes name, double now) except -1
    cdef bint allows_transactional_id(self, bytes transactional_id) except -1
    cdef bint allows_following(self) except -1
    cdef int forget(self) except -1
    cdef int grow(self, uint64_t capacity) except -1


cdef inline bint is_allowed(AccessView view, int operation, Topic topic) noexcept:
    """Return whether READ or WRITE of a topic is cached as allowed. If not, the caller calls allows().

    This is small, because a fetch checks each topic of its session.
    """
    cdef uint64_t entry = view.entries[<uint64_t>topic.number & view.mask]
    return (view.epoch == view.control.epoch and entry >> ACCESS_NUMBER_SHIFT == <uint64_t>topic.number
            and (entry >> (operation - ACCESS_READ)) & 1)
