"""Meter clients against their quotas, without a Python object per request."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef enum:
    CLIENT_ID_AT = 8                    # of a request: its length first, two bytes


cdef inline bint same_bytes(const unsigned char* one, const unsigned char* other, Py_ssize_t size) noexcept nogil:
    """Return memcmp() == 0. The usual sizes of client ids need no call: two words, which may overlap, are compared."""
    cdef uint64_t words[4]
    if size < 8 or size > 16:
        return memcmp(one, other, <size_t>size) == 0
    memcpy(&words[0], one, 8)
    memcpy(&words[1], other, 8)
    memcpy(&words[2], one + size - 8, 8)
    memcpy(&words[3], other + size - 8, 8)
    return words[0] == words[1] and words[2] == words[3]


cdef class Meter:
    cdef readonly double limit          # per second
    cdef double burst                   # capacity: the maximum use at once after a rest
    cdef double left                    # the use that is allowed now; negative: debt
    cdef double owed_max                # maximum debt
    cdef double at                      # monotonic seconds of `left`; 0: nothing was used yet
    cdef readonly double done           # total use
    cdef readonly double throttled_ms   # total throttle time of clients
    cdef readonly int64_t throttled_count

    cdef void refill(self, double now) noexcept
    cdef int32_t owed_ms(self, double now) noexcept
    cdef void take(self, double amount, double now) noexcept


cdef class ClientQuota:
    cdef Meter produce                  # bytes of requests; None: unlimited, as below
    cdef Meter fetch                    # bytes of answers
    cdef readonly Meter request         # percent of one thread
    cdef readonly Meter mutation        # partitions


cdef class QuotaControl:
    cdef readonly int64_t epoch         # rises with each change of the quotas
    cdef object bounds                  # (user, client id) -> (limit, owner) or None, of each meter of a ClientQuota
    cdef readonly dict meters           # owner -> Meter
    cdef dict forgotten                 # key -> the counts of removed meters, as in `totals`
    cdef dict clients                   # (principal, client id) -> ClientQuota or None, of this epoch
    cdef double window_s                # of one sample
    cdef double burst_s                 # seconds of use that the capacity holds
    cdef double mutation_burst_s
    cdef double forgot_at               # monotonic seconds

    cdef ClientQuota find(self, str principal, bytes client_id)
    cdef ClientQuota make(self, str principal, bytes client_id)
    cdef Meter meter_of(self, object bound, bint of_mutations)
    cdef int forget_rested(self) except -1
    cdef int add_total(self, dict totals, str key, Meter meter) except -1


cdef class BoundClient:
    cdef ClientQuota quota              # the client's meters; None: no quota
    cdef int64_t epoch                  # of the quotas and the client for which `quota` was found
    cdef object principal
    cdef bytes client_id                # as in a request: with its length of two bytes before it
    cdef const unsigned char* client_id_data
    cdef Py_ssize_t client_id_size
    cdef bint known                     # it has sent a request on this connection before
    cdef int32_t window_ms              # maximum wait for time spent on requests
    cdef int64_t busy_since_ns          # when unpaid serving time began; 0: no time is owed

    cdef int look_up(self, QuotaControl quotas, object principal, const unsigned char* frame,
                     Py_ssize_t size) except -1
    cdef int32_t owed_at_first(self, double now) except -1
    cdef int32_t delay_ms(self, Meter bytes_of, bint answered, double now) except -1
    cdef int pay(self) noexcept
