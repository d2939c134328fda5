"""How much clients may do in a second, and how much they have done: counted without a Python object per request."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef enum:
    CLIENT_ID_AT = 8                    # of a request: its length first, two bytes


cdef inline bint same_bytes(const unsigned char* one, const unsigned char* other, Py_ssize_t size) noexcept nogil:
    """memcmp() == 0 without a call for the usual sizes of client ids: two words, which may overlap."""
    cdef uint64_t words[4]
    if size < 8 or size > 16:
        return memcmp(one, other, <size_t>size) == 0
    memcpy(&words[0], one, 8)
    memcpy(&words[1], other, 8)
    memcpy(&words[2], one + size - 8, 8)
    memcpy(&words[3], other + size - 8, 8)
    return words[0] == words[1] and words[2] == words[3]


cdef class Meter:
    cdef readonly double limit          # a second
    cdef double burst                   # what may be done at once after a rest
    cdef double left                    # what may be done now; below zero: owed
    cdef double owed_max                # no more is owed than that
    cdef double at                      # monotonic seconds when that was so; 0: nothing was done yet
    cdef readonly double done           # since it was made
    cdef readonly double throttled_ms   # told to clients since it was made
    cdef readonly int64_t throttled_count

    cdef void refill(self, double now) noexcept
    cdef int32_t owed_ms(self, double now) noexcept
    cdef void take(self, double amount, double now) noexcept


cdef class ClientQuota:
    cdef Meter produce                  # bytes of requests; None: not bounded, as below
    cdef Meter fetch                    # bytes of answers
    cdef readonly Meter request         # percent of one thread
    cdef readonly Meter mutation        # partitions


cdef class QuotaControl:
    cdef readonly int64_t epoch         # rises with each change of the quotas
    cdef object bounds                  # (user, client id) -> (limit, owner) or None, of each meter of a ClientQuota
    cdef readonly dict meters           # owner -> Meter
    cdef dict forgotten                 # key -> what the meters that are no longer there have counted, as `totals`
    cdef dict clients                   # (principal, client id) -> ClientQuota or None, of this epoch
    cdef double window_s                # of one sample
    cdef double burst_s                 # what a whole window allows
    cdef double mutation_burst_s
    cdef double forgot_at               # monotonic seconds

    cdef ClientQuota find(self, str principal, bytes client_id)
    cdef ClientQuota make(self, str principal, bytes client_id)
    cdef Meter meter_of(self, object bound, bint of_mutations)
    cdef int forget_rested(self) except -1
    cdef int add_total(self, dict totals, str key, Meter meter) except -1


cdef class BoundClient:
    cdef ClientQuota quota              # what counts for it; None: nothing
    cdef int64_t epoch                  # of the quotas that say so, and for whom
    cdef object principal
    cdef bytes client_id                # as it stands in a request: its length, two bytes, goes before it
    cdef const unsigned char* client_id_data
    cdef Py_ssize_t client_id_size
    cdef bint known                     # it has sent something on this connection before
    cdef int32_t window_ms              # the most that time spent on requests is waited for
    cdef int64_t busy_since_ns          # since when it has been served, and has not paid for it; 0: it owes no time

    cdef int look_up(self, QuotaControl quotas, object principal, const unsigned char* frame,
                     Py_ssize_t size) except -1
    cdef int32_t owed_at_first(self, double now) except -1
    cdef int32_t delay_ms(self, Meter bytes_of, bint answered, double now) except -1
    cdef int pay(self) noexcept
