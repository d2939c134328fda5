"""Share buffers, servers and limits among the connections of one worker, and continue the connections that wait.

Thread rule: everything belongs to the worker, except `use_quotas`, which any thread may call with the GIL.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.time cimport timespec

import heapq
import logging
import weakref
from collections import OrderedDict, deque

from kafkalite._native.serve.access cimport AccessControl, AccessView
from kafkalite._native.serve.counters cimport RequestCounters, now_ns
from kafkalite._native.serve.fetch cimport FETCH_FLEXIBLE_FROM, FetchServer
from kafkalite._native.serve.leaders cimport Leaders
from kafkalite._native.serve.receive_threshold cimport Looks
from kafkalite._native.serve.memory cimport MemoryCeiling
from kafkalite._native.serve.produce cimport PRODUCE_FLEXIBLE_FROM, ProduceServer
from kafkalite._native.serve.quota cimport Meter, QuotaControl
from kafkalite._native.serve.transfer cimport Mailbox, OutBuffer
from kafkalite._native.tls.tls_session cimport TlsBuffers

from kafkalite.broker.limits.shares import SMALL_COUNT as _SMALL_COUNT, Shares
from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.broker.net"))

cdef enum:
    STARVED_LOOKS = 20                  # times per second that unread connections are checked
    HANDSHAKE_STEPS_MAX = 8             # per loop turn: other connections are served before the rest


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events

    enum:
        POLLIN

    int ppoll(pollfd* fds, unsigned long count, const timespec* timeout, const void* mask)


# Monotonic nanoseconds before which no worker serves another portion of a long run. All workers need the GIL, so they
# share one allowance: a third of a core.
cdef int64_t portions_from_ns = 0


cdef class WorkerParts:
    """The buffers, servers and limits that the connections of one worker share."""

    def __cinit__(self, Mailbox mailbox not None, OutBuffer out not None, ProduceServer produce not None,
                  FetchServer fetch not None, dispatch, on_interest, on_close, apis, *, int request_size_max,
                  int64_t output_bytes_max, int in_flight_max):
        self.mailbox = mailbox
        self.out = out
        self.produce = produce
        self.fetch = fetch
        self.produce_api = native_api(apis[0], PRODUCE_FLEXIBLE_FROM)
        self.fetch_api = native_api(apis[1], FETCH_FLEXIBLE_FROM)
        self.dispatch = dispatch
        self.on_interest = on_interest
        self.on_close = on_close
        self.request_size_max = request_size_max
        self.output_bytes_max = output_bytes_max
        self.in_flight_max = in_flight_max
        self.giving_way = deque()
        self.long_runs = deque()
        self.selector_fd = -1
        self.starved = deque()
        self.starved_look_at = INFINITY
        self.use_memory(MemoryCeiling())
        self.loop_left_ns = LOOP_NS_MAX
        self.timers = []
        self.timers_purge_at = TIMERS_PURGE_MIN
        self.receive_capacity = RECEIVE_CAPACITY
        self.receive = <unsigned char*>malloc(RECEIVE_CAPACITY)
        if self.receive == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.receive)

    def use_tls(self):
        """Prepare this worker for TLS connections. Loads OpenSSL."""
        self.tls = TlsBuffers()
        self.looks = Looks()

    def use_sign_in(self, *, double handshake_s_max, int handshake_count_max, double failing_s,
                    Py_ssize_t unknown_bytes_max, int handshake_count_small=_SMALL_COUNT):
        """Prepare this worker for connections that authenticate by TLS, SASL or both."""
        self.unknown_bytes_max = unknown_bytes_max
        self.unknown_byte_shares = Shares(unknown_bytes_max // 100)
        self.handshakes = OrderedDict()
        self.handshakes_from = {}
        self.handshake_count_small = handshake_count_small
        self.steps = deque()
        self.failing = deque()
        self.handshake_s_max = handshake_s_max
        self.handshake_count_max = handshake_count_max
        self.failing_s = failing_s

    def use_memory(self, MemoryCeiling memory not None):
        """Charge clients' memory to this limit. Call this before the first connection."""
        self.memory = memory
        self.ceiling = memory.ceiling
        self.out.use_holding(memory.own.holding)

    def memory_is_needed(self):
        """Return whether a client was refused memory within the last two seconds."""
        return self.now - self.ceiling.needed_at < 2.0

    def give_back(self):
        """Free the memory that a long response needed. Call this between two turns."""
        self.out.shrink()

    def use_access(self, AccessControl access not None):
        """Authorize clients' requests from now on."""
        self.access = access
        self.produce_asks = True
        self.views = weakref.WeakValueDictionary()

    def use_leaders(self, Leaders leaders not None, Meter limit not None):
        """Send the current leaders to clients from now on, and limit replication to followers that are not in sync."""
        self.produce.leaders = leaders
        self.fetch.leaders = leaders
        self.fetch.limit = limit
        self.produce_asks = True

    def use_quotas(self, QuotaControl quotas):
        """Apply quotas from now on; None: no quotas. Any thread."""
        self.quotas = quotas

    def use_counters(self, RequestCounters counters not None):
        """Count and time requests from now on."""
        self.counters = counters
        self.produce.counters = counters
        self.fetch.counters = counters

    cdef AccessView view_of(self, object principal, str host):
        """Return the cached permissions of a principal and host, which the worker's connections share."""
        cdef AccessView view = self.views.get((principal, host))
        if view is None:
            view = AccessView(self.access, principal, host)
            self.views[principal, host] = view
        return view

    cdef bint may_step(self) except -1:
        """Return whether one more handshake may continue in this loop turn. Those that already wait come first."""
        if self.steps and not self.stepping:
            return False
        if self.step_turn != self.now:
            self.step_turn = self.now
            self.step_count = 0
        self.step_count += 1
        return self.step_count <= HANDSHAKE_STEPS_MAX

    cdef int take_steps(self) except -1:
        """Continue waiting handshakes, as many as the loop turn allows."""
        cdef list present = [self.steps.popleft() for _ in range(min(len(self.steps), HANDSHAKE_STEPS_MAX))]
        self.stepping = True
        for connection in present:
            self.take_turn(connection, connection.take_step)
        self.stepping = False
        return 0

    cdef int take_turns(self) except -1:
        """Serve connections that wait for their next turn: one, and more if the loop turn has time for them."""
        cdef Py_ssize_t _
        for _ in range(len(self.giving_way)):
            connection = self.giving_way.popleft()
            self.take_turn(connection, connection.take_share, True)
            if self.loop_left_ns <= 0:
                break
        return 0

    cdef int take_portion(self) except -1:
        """Serve a portion of the next long run, unless the pause after the last portion has not ended.

        The rest of the pause is spent without the GIL, so that waiting threads get it. An event of the selector ends
        this early.
        """
        global portions_from_ns
        cdef pollfd selector
        cdef timespec pause
        cdef int64_t began = now_ns()
        if began < portions_from_ns:
            selector.fd = self.selector_fd
            selector.events = POLLIN
            pause.tv_sec = 0
            pause.tv_nsec = min(<int64_t>2 * PORTION_NS_MAX, portions_from_ns - began)
            with nogil:
                ppoll(&selector, 1, &pause, NULL)
            began = now_ns()
            if began < portions_from_ns:
                return 0
        run = self.long_runs.popleft()
        self.take_turn(run, run.take_share, True)
        portions_from_ns = 3 * now_ns() - 2 * began         # a pause of twice its time
        return 0

    cdef int feed(self) except -1:
        """Continue connections that waited for memory, if their clients hold less now."""
        cdef Py_ssize_t _
        self.starved_look_at = self.now + 1.0 / STARVED_LOOKS
        for _ in range(len(self.starved)):
            connection = self.starved.popleft()
            self.take_turn(connection, connection.eat)
        if not self.starved:
            self.starved_look_at = INFINITY
        return 0

    cdef int take_turn(self, object connection, step, bint closed_too=False) except -1:
        """Run a step of a connection outside of the selector. If the step fails, close the connection."""
        try:
            if closed_too or not connection.closed:
                step()
        except Exception:
            logger.exception("serving %r failed; closed the connection", connection)
            connection.close()
        return 0

    cdef int add_timer(self, object plan, double deadline) except -1:
        self.timer_number += 1
        heapq.heappush(self.timers, (deadline, self.timer_number, plan))
        if len(self.timers) > self.timers_purge_at:
            # Most fetches end before their deadline; their entries must not accumulate.
            self.timers = [entry for entry in self.timers if not is_over(entry[2])]
            heapq.heapify(self.timers)
            self.timers_purge_at = max(<Py_ssize_t>TIMERS_PURGE_MIN, 2 * len(self.timers))
        return 0
