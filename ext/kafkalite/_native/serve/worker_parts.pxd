"""Share buffers, servers and limits among the connections of one worker."""

from libc.stdint cimport int16_t, int32_t, int64_t
from kafkalite._native.serve.access cimport AccessControl, AccessView
from kafkalite._native.serve.deferred_produce cimport WaitingRequest
from kafkalite._native.serve.counters cimport RequestCounters
from kafkalite._native.serve.fetch cimport FetchPlan, FetchServer
from kafkalite._native.serve.receive_threshold cimport Looks
from kafkalite._native.serve.memory cimport Ceiling, MemoryCeiling
from kafkalite._native.serve.produce cimport ProduceServer
from kafkalite._native.serve.quota cimport QuotaControl
from kafkalite._native.serve.transfer cimport Mailbox, OutBuffer
from kafkalite._native.tls.tls_session cimport TlsBuffers


cdef enum:
    RECEIVE_CAPACITY = 262144
    TIMERS_PURGE_MIN = 256
    TURN_NS_MAX = 1000000               # one connection's share of a loop turn, by the estimated cost of requests
    LOOP_NS_MAX = 5000000               # of one loop turn, by the estimated cost of requests
    PORTION_NS_MAX = 100000             # of a Produce or Fetch with many partitions, before a pause twice as long


# An API that is served in C, from its row in the handler table.
cdef struct NativeApi:
    int16_t key
    int16_t oldest
    int16_t newest
    int16_t flexible_from


cdef inline NativeApi native_api(tuple row, int flexible_from) except *:
    """Return a row of the handler table. Raises ValueError if the code that parses this API's requests contradicts
    it."""
    cdef NativeApi api
    api.key, api.oldest, api.newest, api.flexible_from = row
    if api.flexible_from != flexible_from:
        raise ValueError(f"API {api.key}: flexible from {api.flexible_from}, but it is read so from {flexible_from}")
    return api


cdef inline bint is_over(object waiting) noexcept:
    """Return whether a FetchPlan or a WaitingRequest has been answered."""
    if type(waiting) is FetchPlan:
        return (<FetchPlan>waiting).done
    return (<WaitingRequest>waiting).done


cdef class WorkerParts:
    """Belongs to the worker's thread."""
    cdef readonly Mailbox mailbox
    cdef OutBuffer out                      # answers of the connection being served, until flushed
    cdef unsigned char* receive             # scratch: a request that arrives whole is served from here
    cdef Py_ssize_t receive_capacity
    cdef ProduceServer produce
    cdef FetchServer fetch
    cdef NativeApi produce_api
    cdef NativeApi fetch_api
    cdef AccessControl access               # None: there is no authoriser
    cdef bint produce_asks                  # whether Produce needs the client's principal
    cdef QuotaControl quotas                # None: there are no quotas
    cdef object views                       # (principal, host) -> AccessView of the open connections
    cdef readonly RequestCounters counters  # None: metrics are disabled
    cdef public object classic              # the ClassicServer, if there is a kafka07 listener
    cdef public object faults               # request faults of a broker under test; else None
    cdef object dispatch                    # (connection, key, version, correlation id, client id, body) -> bytes
    cdef object on_interest                 # (connection, events): changes the selector registration
    cdef object on_close                    # (connection, reason): the worker forgets it
    cdef list timers                        # heap of (deadline, number, FetchPlan or WaitingRequest)
    cdef int64_t timer_number
    cdef Py_ssize_t timers_purge_at
    cdef public double now                  # monotonic seconds, set once per loop turn
    cdef int32_t request_size_max
    cdef int64_t output_bytes_max
    cdef int32_t in_flight_max
    cdef readonly int64_t requests          # served since start
    cdef readonly int64_t bytes_in
    cdef TlsBuffers tls                     # None if no listener uses TLS
    cdef object handshakes                  # OrderedDict of Connection -> deadline, the oldest first
    cdef object failing                     # deque of (deadline, Connection) that are closed at the deadline
    cdef dict handshakes_from               # network -> OrderedDict of its Connections there, the oldest first
    cdef readonly int32_t handshake_count   # connections that are not authenticated yet
    cdef int32_t handshake_count_max
    cdef int32_t handshake_count_small      # an address with more gets none of the last tenth
    cdef double handshake_s_max
    cdef double failing_s                   # delay before a failed one is closed
    cdef Py_ssize_t unknown_bytes           # buffered for clients that are not authenticated
    cdef Py_ssize_t unknown_bytes_max
    cdef object unknown_byte_shares         # Shares of them by network
    cdef double step_turn                   # the loop turn that `step_count` is of
    cdef int32_t step_count
    cdef object steps                       # deque of Connection: out of the selector until their handshakes continue
    cdef bint stepping                      # those of `steps` continue now
    cdef object giving_way                  # deque of Connection that have received more than fits in their turn
    cdef object long_runs                   # deque of FetchRun, and of Connection with a ProduceRun
    cdef public int selector_fd             # its worker's; -1: it has none
    cdef int64_t loop_left_ns               # of the current loop turn
    cdef MemoryCeiling memory               # memory of all clients
    cdef Ceiling* ceiling                   # its counts
    cdef object starved                     # deque of Connection that are not read: their holders hold too much
    cdef double starved_look_at             # monotonic seconds
    cdef Looks looks                        # None if no listener uses TLS

    cdef AccessView view_of(self, object principal, str host)
    cdef int add_timer(self, object plan, double deadline) except -1
    cdef bint may_step(self) except -1
    cdef int take_steps(self) except -1
    cdef int take_turns(self) except -1
    cdef int take_portion(self) except -1
    cdef int feed(self) except -1
    cdef int take_turn(self, object connection, step, bint closed_too=*) except -1
