"""One client connection: receives into a shared buffer, cuts frames, serves Produce and Fetch in C, answers in order.

    readable ─▶ receive ─▶ frames ─▶ serve ─┬─ answered at once, nothing owed before it ─▶ out buffer ─▶ one send
                                            └─ parked, or after a parked one ─▶ queue ─▶ drained head first

Receiving: a frame that arrives whole is served from the worker's scratch buffer, so an idle connection owns no
buffer; the rest of a cut frame moves to the connection's own, which grows as bytes arrive (never by what a length
field claims), stays while the connection is busy, so that large frames land where they are parsed, and is given back
by trim().

With TLS the same bytes pass through a TlsSession on either side, and nothing is served before its handshake is done and
the listener has said who the client is. Handshakes are bounded: so many steps in a loop turn, so long, so many at once;
a failed one is closed a moment later, so that trying costs time.

While there are quotas each request is looked at first: what it is told to wait is known before it is served, and the
connection is not read for so long (KIP-219). Without quotas that is one comparison a request.

Back-pressure: while a connection is owed more than `in_flight_max` answers or `output_bytes_max` bytes, it is not read.
In a cluster a Produce request may also have to wait in the socket until nothing is owed (produce_order).

Thread rule: everything here runs on the owning worker; other threads reach a connection only through Answer and
Mailbox.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.math cimport INFINITY
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

import heapq
import logging
import select
from collections import OrderedDict, deque

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.base.histogram cimport add_to
from kafkalite._native.serve.access cimport AccessView
from kafkalite._native.serve.counters cimport RequestCounters, client_id_of, now_ns
from kafkalite._native.serve.fetch cimport FETCH_READY, FetchPlan, FetchServer
from kafkalite._native.serve.large_fetches cimport FETCH_SIZE_AT_ONCE, FetchRun
from kafkalite._native.serve.receive_threshold cimport LowWater
from kafkalite._native.serve.memory cimport (
    DECODED_FACTOR, FETCHES, FRAMES, PARKED_SIZE, PASSING, REQUESTS, SMALL_SIZE, Ceiling, HolderMemory, Holding, admits,
    charge, has_room, hold, is_queue_full, is_watched, let_go, need,
)
from kafkalite._native.serve.produce cimport (
    MALFORMED, PARKED, SERVED, PART_SIZE, TAKES_TURNS, UNANSWERED, PendingProduce, ProduceServer, acks_of, run_of,
)
from kafkalite._native.serve.produce_order cimport has_to_wait
from kafkalite._native.serve.quota cimport CLIENT_ID_AT, BoundClient, Meter, same_bytes
from kafkalite._native.serve.transfer cimport Answer, Mailbox, OutBuffer
from kafkalite._native.serve.worker_parts cimport (
    LOOP_NS_MAX, PORTION_NS_MAX, RECEIVE_CAPACITY, TIMERS_PURGE_MIN, TURN_NS_MAX, NativeApi, WorkerParts, is_over,
)
from kafkalite._native.tls.tls_context cimport TlsContext
from kafkalite._native.tls.tls_session cimport TLS_CAPACITY, TLS_HELD_MAX, TlsSession
from kafkalite._native.wire.cursor cimport (
    HEADER_SIZE_MIN, Cursor, cursor_init, load_i16, load_i32, read_string, skip_tags,
)
from kafkalite._native.wire.status cimport OK

from kafkalite.broker.limits.holder import network_of
from kafkalite.base.logging import RepeatLogger
from kafkalite.model import ANONYMOUS as _ANONYMOUS

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.broker.net"))

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events, revents
    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    int POLLRDHUP

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* buf, size_t size, int flags)
    ssize_t recv(int fd, void* buf, size_t size, int flags)
    int MSG_NOSIGNAL, MSG_DONTWAIT

cdef str TOO_MANY_HANDSHAKES = (
    "too many connections are not authenticated yet (connection.authentication.max); closed the oldest of its address")

assert (EVENT_READ, EVENT_WRITE) == (select.EPOLLIN, select.EPOLLOUT)


cdef double SHARE = 0.2     # of the time of one processor


@cython.final
cdef class InlineShare:
    """What network threads spend on the longer or pipelined requests of one holder: a fifth of a processor's time.

    A network thread that is busy does not let the others in when it releases the GIL, however short its requests are.
    So what is beyond this goes to the thread for long requests, which sleeps in between.
    Thread rule: any worker, with the GIL.
    """

    def __cinit__(self):
        self.left_us = SHARE_US_MAX


@cython.final
cdef class LargeBody:
    """The body of a large request, for the thread that decodes it. The network thread does not copy it."""

    def __dealloc__(self):
        free(self.owner)

    def __len__(self):
        return self.size

    def take(self):
        """The bytes, once; the received buffer is freed."""
        cdef bytes body = PyBytes_FromStringAndSize(NULL, self.size)
        cdef char* target = PyBytes_AS_STRING(body)
        with nogil:
            memcpy(target, self.data, <size_t>self.size)
            free(self.owner)
            self.owner = NULL
        self.size = 0
        return body


@cython.final
cdef class WorkerResources(WorkerParts):
    """Those parts, and whom of its connections the worker has to look after at a time."""

    def __cinit__(self, *_, **__):
        self.muted = []
        self.muted_purge_at = TIMERS_PURGE_MIN

    cdef int add_mute(self, Connection connection, double deadline) except -1:
        self.timer_number += 1
        heapq.heappush(self.muted, (deadline, self.timer_number, connection))
        if len(self.muted) > self.muted_purge_at:   # who closes and comes again must not pile up
            self.muted = [entry for entry in self.muted if not (<Connection>entry[2]).closed]
            heapq.heapify(self.muted)
            self.muted_purge_at = max(<Py_ssize_t>TIMERS_PURGE_MIN, 2 * len(self.muted))
        return 0

    cdef int expire_mutes(self) except -1:
        """Listens again to whom was told to wait until now."""
        cdef Connection connection
        while self.muted and self.muted[0][0] <= self.now:
            deadline, _, connection = heapq.heappop(self.muted)
            if connection.muted_until == deadline:
                self.take_turn(connection, connection.unmute)
        return 0

    cdef int begin_handshake(self, Connection connection, bint again=False) except -1:
        """Counts a connection in. If there is no room for one more of its address, the oldest of the same address is
        closed for it, or else this one, unless it was served before (`again`)."""
        cdef str network = network_of(connection.client_host)
        if self.is_full_for(network):
            oldest = next(iter(self.handshakes_from.get(network, ())), None if again else connection)
            if oldest is not None:
                (<Connection>oldest).close(TOO_MANY_HANDSHAKES)
            if connection.closed:
                return 0
        self.handshakes[connection] = self.now + self.handshake_s_max
        self.handshakes_from.setdefault(network, OrderedDict())[connection] = None
        self.handshake_count += 1
        connection.awaited = True
        return 0

    cdef bint is_full_for(self, object network) except -1:
        """Whether there is no room for one more handshake of an address: the last tenth is for those with few."""
        cdef int32_t count_max = self.handshake_count_max
        if len(self.handshakes_from.get(network, ())) > self.handshake_count_small:
            count_max -= count_max // 10
        return self.handshake_count >= count_max

    cdef int end_handshake(self, Connection connection) except -1:
        """Counts a connection out."""
        cdef str network = network_of(connection.client_host)
        cdef object own = self.handshakes_from[network]
        self.handshake_count -= 1
        self.handshakes.pop(connection, None)
        del own[connection]
        if not own:
            del self.handshakes_from[network]
        return 0

    cdef int close_oldest(self, str reason, tuple values) except -1:
        """Closes the one that has been on its way for longest."""
        cdef Connection oldest = self.handshakes.popitem(last=False)[0]
        oldest.close(reason, *values)
        return 0

    cdef int expire_handshakes(self) except -1:
        """Closes what did not come to an end in time, some of it in a turn, and what has failed a while ago."""
        cdef int left = OVERDUE_MAX
        while left > 0 and self.handshakes and next(iter(self.handshakes.values())) <= self.now:
            self.close_oldest("it did not authenticate within %g s", (self.handshake_s_max,))
            left -= 1
        self.overdue = left == 0
        while self.failing and self.failing[0][0] <= self.now:
            (<Connection>self.failing.popleft()[1]).end()
        return 0

    def next_deadline(self):
        """Monotonic seconds of the earliest parked fetch, end of a wait, or close, or None."""
        if self.overdue or self.steps or self.giving_way or self.long_runs:
            return self.now
        while self.timers and is_over(self.timers[0][2]):
            heapq.heappop(self.timers)
        deadline = self.timers[0][0] if self.timers else None
        if self.looks is not None:
            deadline = self.looks.sooner(deadline)
        if self.failing and (deadline is None or self.failing[0][0] < deadline):
            deadline = self.failing[0][0]
        if self.muted and (deadline is None or self.muted[0][0] < deadline):
            deadline = self.muted[0][0]
        if self.starved_look_at < INFINITY and (deadline is None or self.starved_look_at < deadline):
            deadline = self.starved_look_at
        return deadline

    def expire_timers(self, bint everything=False):
        """Answers fetches and closes handshakes whose time is over; with `everything`, all fetches (it stops)."""
        if self.counters is not None:
            self.counters.clock_ns = 0                  # what is served from here on begins now
        while self.timers and (everything or self.timers[0][0] <= self.now):
            heapq.heappop(self.timers)[2].expire(self.now)
        if self.handshakes is not None:
            self.expire_handshakes()
            if self.steps:
                self.take_steps()
        if self.muted:
            self.expire_mutes()
        if self.looks is not None:
            for connection in self.looks.due(self.now):
                self.take_turn(connection, connection.look)
        if self.giving_way:
            self.take_turns()
        if self.long_runs:
            self.take_portion()
        if self.starved_look_at <= self.now:
            self.feed()
        self.loop_left_ns = LOOP_NS_MAX

    def handle_posted(self):
        """Does what other threads left in the mailbox; callables are called, which is how connections arrive."""
        cdef Connection connection
        for item in self.mailbox.take():
            try:
                if type(item) is Answer:
                    connection = (<Answer>item).connection
                    if connection is not None:
                        connection.count(item)
                        connection.settle()
                elif type(item) is FetchPlan:
                    (<FetchPlan>item).resume(self.now)
                elif type(item) is tuple:
                    (<Connection>item[0]).close(*item[2:], client_id=item[1])
                else:
                    item()
            except Exception:
                logger.exception("completing deferred work failed: %r", item)
                self.give_up(item)

    def end_turns(self):
        """Lets go of the fetches that take turns, all of whose connections are closed: the worker ends."""
        while self.long_runs:
            item = self.long_runs.popleft()
            if type(item) is FetchRun:
                (<FetchRun>item).end()

    cdef int give_up(self, object item) except -1:
        """Closes the connection whose answer could not be handled: its client would wait for it."""
        cdef Answer answer = None
        if type(item) is Answer:
            answer = item
        elif type(item) is FetchPlan:
            answer = (<FetchPlan>item).answer
        if answer is not None and answer.connection is not None:
            (<Connection>answer.connection).close()
        return 0


cdef inline int serve_now(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    """Serves a request that does not have to wait."""
    connection.io.requests += 1
    if connection.io.counters is None:
        return connection.serve_request(frame, size)
    return connection.serve_counted(frame, size)


cdef int keep_plan(Connection connection, FetchPlan plan) except -1:
    """Has a plan that waits cancelled when its connection ends."""
    if connection.plans is None or len(connection.plans) >= 8:
        connection.plans = [other for other in connection.plans or () if not (<FetchPlan>other).done]
    connection.plans.append(plan)
    return 0


cdef int begin_fetch(Connection connection, FetchPlan plan, unsigned char* body, Py_ssize_t size,
                     bytes client_id) except -1:
    """Serves a Fetch request with many partitions in later turns; `body`: what is not parsed yet."""
    cdef FetchRun run = FetchRun.__new__(FetchRun)
    run.plan, run.io, run.connection, run.client_id = plan, connection.io, connection, client_id
    run.size = size
    if size > 0:
        run.body = connection.take_bytes(body, size, &run.frame)
    if connection.bounded and connection.client.quota is not None:
        run.bounded = True
        run.meter, run.throttle_ms = connection.client.quota.fetch, connection.throttle_ms
    plan.client_host, plan.fd = connection.client_host, connection.fd
    plan.answer = connection.enqueue()
    plan.answer.charge_waiting(FETCHES, plan.held_size() + size * FETCHED_FACTOR)
    keep_plan(connection, plan)
    connection.gives_way = True
    connection.pause()
    return run.begin()


cdef inline bint starves(Connection connection, const unsigned char* frame, int32_t size) except -1:
    """Whether a whole request waits until its holder may hold what it takes while it is served, or parked.

    A Produce request takes its bytes alone, and a small one of another API passes. The most that is asked for is small
    next to the ceiling, so that requests that wait, and hold their bytes, never wait for each other.
    """
    cdef const Ceiling* ceiling = connection.io.ceiling
    cdef int64_t needed
    cdef int16_t key
    if size <= SMALL_SIZE // FETCHED_FACTOR or not is_watched(ceiling):
        return False
    key = load_i16(frame)
    if key == connection.io.produce_api.key or size <= SMALL_SIZE and key != connection.io.fetch_api.key:
        return False
    needed = min(<int64_t>min(size, <int32_t>RECEIVE_CAPACITY) * FETCHED_FACTOR, ceiling.large_max // 8)
    if admits(connection.find_holding(), needed, PASSING):
        return False
    connection.starve()
    return True


cdef inline Py_ssize_t room_of(Connection connection) except -1:
    """How much of requests may lie in a worker's buffer near the ceiling: what is kept of it was not asked for."""
    if connection.begun > SMALL_SIZE:
        return connection.io.receive_capacity           # it has what it needs to complete its frame
    if admits(connection.find_holding(), SMALL_SIZE, PASSING):
        return WATCHED_SIZE
    return connection.pending_size + PENDING_CAPACITY_MIN


def has_left(Connection connection):
    """Whether the client has closed a connection that is not read because it waits for memory, or for fetches.

    Only a read finds the end of a connection, and what such a client made the broker hold may be what it waits for.
    """
    cdef pollfd look
    if connection.closed or connection.interest & EVENT_READ or not (connection.starved or connection.plans):
        return False
    look.fd, look.events, look.revents = connection.fd, POLLRDHUP, 0
    return poll(&look, 1, 0) > 0


cdef class Connection:
    """One accepted socket, non-blocking. `on_event` is called by the worker's loop with selector events."""

    def __cinit__(self, WorkerResources io not None, socket, str client_host not None, int client_port, listener):
        self.io = io
        self.socket = socket
        self.fd = socket.fileno()
        self.client_host = client_host
        self.client_port = client_port
        self.listener = listener
        self.principal = _ANONYMOUS
        self.software_name = self.software_version = ""
        self.interest = EVENT_READ
        self.in_flight_max = io.in_flight_max
        self.frame_size_min = HEADER_SIZE_MIN
        self.frame_size_max = io.request_size_max
        self.room_min = PENDING_CAPACITY_MIN
        self.turn_left_ns = TURN_NS_MAX
        self.last_active = io.now

    def __dealloc__(self):
        free(self.pending)
        if self.holding != NULL:
            self.holding.ceiling.frames_begun -= self.begun
            charge(self.holding, FRAMES, -self.charged)
            let_go(self.holding)

    def secure(self, TlsContext context not None):
        """From the first byte on, TLS is spoken. The listener is asked who the client is when the handshake is done."""
        self.tls = TlsSession(context, self.io.tls)
        self.room_min = 4 * TLS_HELD_MAX
        self.low_water = LowWater(self.fd)
        self.io.begin_handshake(self)

    def __repr__(self):
        return f"<Connection {self.client_host}:{self.client_port}>"

    def on_event(self, int events):
        """Called with epoll's events when the socket is ready; an error, or its end, is found by what it waits for."""
        if self.failed:
            self.close(None)
            return
        if events & ~(EVENT_READ | EVENT_WRITE):
            events = self.interest
        if events & EVENT_WRITE and not self.closed:
            self.settle()
        if events & EVENT_READ and not self.closed and not self.paused:
            self.on_readable()

    def take_step(self):
        """It may go on with a handshake that had to wait for a turn, out of the selector."""
        self.set_interest(self.interest | EVENT_READ)
        self.on_event(EVENT_READ)

    def linger(self):
        """Waits a moment for the next request of a client that answers each answer at once.

        A sleep and a wake-up cost such a client more than its request does: on a virtual machine ten times more. So the
        worker, when it has nothing else to do, asks the socket again for up to LINGER_NS, without the GIL, and returns
        when the client pauses, something is posted, or LINGER_TURNS_MAX requests were served. True: come back after a
        look at the others; False: sleep, the selector will tell.
        """
        cdef WorkerResources io = self.io
        cdef Mailbox mailbox = io.mailbox
        cdef unsigned char* target = io.receive if self.tls is None else io.tls.sealed
        cdef size_t room = <size_t>(RECEIVE_CAPACITY if self.tls is None else RECEIVE_CAPACITY - TLS_HELD_MAX)
        cdef int _turn
        cdef ssize_t n
        cdef int64_t now, until
        for _turn in range(LINGER_TURNS_MAX):
            if not self.brisk or self.closed or self.paused or self.queue or self.pending_size > 0:
                return False
            with nogil:
                now = now_ns()
                until = now + LINGER_NS
                while True:
                    n = recv(self.fd, target, room, MSG_DONTWAIT)
                    if n != -1 or errno != EAGAIN or mailbox.waiting:
                        break
                    now = now_ns()
                    if now > until:
                        break
                    sched_yield()       # the client may be waiting for this very core
            if n <= 0:
                # Nothing came in time: from now on the selector is quicker. An error or the end shows up there too.
                self.set_brisk(n < 0 and mailbox.waiting)
                if n == 0:
                    self.close(None)
                return self.brisk
            self.last_active = io.now
            io.bytes_in += n
            if io.counters is not None:
                io.counters.clock_ns = now
            if self.tls is not None:
                n = self.open_sealed(n, io.receive, RECEIVE_CAPACITY)
            self.serve_received(n)
            self.settle()
            self.note_pace(n)
        return self.brisk and not self.closed

    def idle(self, double since):
        """True when nothing moved since `since` and the broker owes this client no work."""
        if self.last_active > since or self.closed or self.muted_until > 0.0:
            return False
        return not self.queue or (<Answer>self.queue[0]).ready

    def trim(self, double since):
        """Gives the receive buffer back, and those of TLS, when nothing moved since `since` and nothing waits in it."""
        if self.last_active <= since:
            self.set_brisk(False)
            self.queue = self.queue or None
        if self.pending != NULL and self.pending_size == 0 and self.last_active <= since:
            free(self.pending)
            self.pending = NULL
            self.pending_capacity = 0
            self.note_frame()

    def park(self, Py_ssize_t size=0, *, bint decoded=False):
        """The place of the current request in the order of answers; complete it from any thread.

        Until then its body of `size` bytes is charged to the holder, with its items where it is decoded.
        """
        cdef Answer answer = self.enqueue()
        answer.charge_waiting(REQUESTS, PARKED_SIZE + size * (DECODED_FACTOR if decoded else 1))
        return answer

    @property
    def memory(self):
        """The HolderMemory of its holder."""
        return self.io.memory.find(self.principal, self.client_host)

    def eat(self):
        """Goes on, if its holder may hold what this connection waits for."""
        self.starved = False
        if self.note_frame() == 0 and not self.closed and self.is_short():
            self.starve()
        if not self.starved:
            self.settle()

    def withholds(self, double since):
        """True when a frame that it has begun before `since` is not complete, and its holder holds as much memory as
        one that was refused some. Asked while memory is needed."""
        if self.begun == 0 or self.holding == NULL:
            return False
        if self.paused and not self.starved:
            self.begun_at = self.io.now             # the broker does not read it, for other reasons
        return self.begun_at <= since and self.holding.held >= self.io.ceiling.needed_by

    def parked(self):
        """API key → requests that wait for their answer, of those that are counted and timed. Any thread."""
        cdef dict found = {}
        cdef Answer answer
        for answer in list(self.queue or ()):
            if not answer.ready and answer.timing is not None:
                found[answer.timing.key] = found.get(answer.timing.key, 0) + 1
        return found

    cdef AccessView access(self):
        """The view of what the client may do; None: there is no authoriser."""
        if self.io.access is None:
            return None
        if self.view is None or (self.view.principal is not self.principal and self.view.principal != self.principal):
            self.view = self.io.view_of(self.principal, self.client_host)
        return self.view

    cdef int on_readable(self) except -1:
        cdef WorkerResources io = self.io
        cdef Py_ssize_t capacity, n, held, total = 0
        cdef int64_t bytes_in = io.bytes_in
        if io.counters is not None:
            io.counters.clock_ns = 0
        if is_watched(io.ceiling) and self.is_short():
            return self.starve()
        while not self.closed and not self.paused and total < RECEIVED_MAX:
            held = self.pending_size
            if held > FRONT_SIZE_MAX or self.pending_capacity > RECEIVE_CAPACITY:
                if self.pending_capacity - self.pending_size < self.room_min:
                    self.grow_pending(self.roomier())
                    if self.failed:
                        break
                capacity = self.pending_capacity - self.pending_size
                n = self.receive_some(self.pending + self.pending_size, capacity)
                if n <= 0:
                    break
                self.pending_size += n
                self.serve_pending()
            else:
                # The start of a cut frame goes in front of what follows: a client that streams is read by the buffer.
                capacity = (room_of(self) if is_watched(io.ceiling) else io.receive_capacity) - held
                if held > 0:
                    memcpy(io.receive, self.pending, <size_t>held)
                n = self.receive_some(io.receive + held, capacity)
                if n <= 0:
                    break
                self.pending_size = 0
                self.serve_received(held + n)
                if self.begun > 0 and self.pending_size == 0:
                    self.note_frame()
            total += n
            if not self.filled:
                break
        self.settle()
        if self.tls is not None:
            self.set_low_water(io.bytes_in - bytes_in)
        return self.note_pace(total)

    cdef int set_low_water(self, int64_t received) except -1:
        """What is missing of a cut frame comes in as many sealed bytes at least, but for those that libssl holds."""
        cdef Py_ssize_t missing = 0
        if self.pending_size >= 4 and not self.closed:
            missing = 4 + load_i32(self.pending) - self.pending_size - TLS_HELD_MAX
        self.low_water.set(missing, received, self.io.now)
        if self.low_water.look_at > 0.0:
            self.io.looks.add(self.low_water, self)
        return 0

    def look(self):
        """Takes what has come though it is less than the low water."""
        if self.paused or self.failed:
            self.set_low_water(0)
        else:
            self.on_readable()

    cdef int serve_received(self, Py_ssize_t size) except -1:
        """Serves what lies in the worker's receive buffer; a cut frame moves to the connection's own."""
        cdef Py_ssize_t used = self.serve_frames(self.io.receive, size)
        if used < size and not self.closed:
            self.keep(self.io.receive + used, size - used)
        return 0

    cdef int note_pace(self, Py_ssize_t received) except -1:
        """Learns whether this client sends little and at once, so that lingering for it pays."""
        cdef int64_t now
        if received == 0 or received > LINGER_SIZE_MAX or self.closed:
            self.answered_ns = 0
            return self.set_brisk(False)
        now = (0 if self.io.counters is None else self.io.counters.clock_ns) or now_ns()
        self.set_brisk(now - self.answered_ns < 2 * LINGER_NS)
        self.answered_ns = now
        return 0

    cdef int set_brisk(self, bint brisk) except -1:
        self.brisk = brisk
        if self.tls is not None:
            self.tls.keep_buffers(brisk)
        return 0

    cdef int serve_pending(self) except -1:
        """Serves the whole frames in the connection's own buffer and moves the rest to its front."""
        cdef Py_ssize_t used
        while True:
            used = self.serve_frames(self.pending, self.pending_size)
            if self.closed:
                return 0
            if not self.moved:
                break
            self.moved = False
        self.pending_size -= used
        if used > 0 and self.pending_size > 0:
            memmove(self.pending, self.pending + used, <size_t>self.pending_size)
        if used > 0:
            self.begun_at = self.io.now
        return self.note_frame()

    cdef Py_ssize_t receive_some(self, unsigned char* target, Py_ssize_t size) except -2:
        """Bytes received; 0 when there is nothing now or the connection is closed."""
        cdef ssize_t n
        cdef int error
        cdef unsigned char* plain = target
        cdef Py_ssize_t room = size
        if self.tls is not None:
            if not self.tls.established and not self.io.may_step():
                if self.io.handshake_count > CROWD_MIN:
                    self.set_interest(self.interest & ~EVENT_READ)
                    self.io.steps.append(self)
                return 0
            target = self.io.tls.sealed
            size = min(size, <Py_ssize_t>TLS_CAPACITY) - TLS_HELD_MAX
        while True:
            with nogil:
                n = recv(self.fd, target, <size_t>size, MSG_DONTWAIT)
                error = errno
            if n > 0:
                self.filled = n == size
                self.last_active = self.io.now
                self.io.bytes_in += n
                return n if self.tls is None else self.open_sealed(n, plain, room)
            if n == 0:
                self.close(None)
                return 0
            if error == EINTR:
                continue
            if error != EAGAIN:
                self.close(None)
            return 0

    cdef Py_ssize_t open_sealed(self, Py_ssize_t size, unsigned char* target, Py_ssize_t room) except -2:
        """Decrypts what was received, and says what TLS itself has to say; how many bytes of requests that gave."""
        cdef TlsSession tls = self.tls
        cdef bint was_established = tls.established
        cdef Py_ssize_t n = tls.open(size, target, room)
        if self.io.tls.link.out_size > 0:
            self.told(tls.push(self.fd))
        if self.closed:
            return 0
        if tls.problem is not None:
            self.fail(tls.problem)
            return 0
        if tls.established and not was_established:
            self.admit()
        return 0 if self.closed or self.failed else n

    cdef int admit(self) except -1:
        """The handshake is done: the listener says who the client is, or why nobody."""
        self.arrive()
        if self.io.counters is not None:
            self.io.counters.handshakes += 1
            self.tls_suite = self.io.counters.suite(self.tls.version, self.tls.cipher)
        try:
            self.principal = self.listener.tls.principal_of(self.tls.peer_subject)
        except ValueError as error:
            self.tls.end(f"{error}")
            self.fail(self.tls.problem)
        return 0

    cdef int arrive(self) except -1:
        """It is not one of those any more of which it is not known who they are."""
        if self.awaited:
            self.awaited = False
            self.io.end_handshake(self)
        return 0

    cdef int fail(self, str problem) except -1:
        """Closes a connection that TLS gave up, a while later when it was about who the client is."""
        logger.warning("TLS with %s:%d failed: %s", self.client_host, self.client_port, problem)
        if self.io.counters is not None:
            self.io.counters.handshakes_failed += 1
        self.arrive()
        self.failed = True
        self.set_interest(0)
        self.io.failing.append((self.io.now + self.io.failing_s, self))
        return 0

    cdef Py_ssize_t serve_frames(self, unsigned char* data, Py_ssize_t size) except -1:
        """Serves every whole frame; returns how many bytes are done with."""
        cdef Py_ssize_t at = 0
        cdef int32_t frame_size
        if self.turn_of != self.io.now:                 # a loop turn begins, of which this connection has its share
            self.turn_of = self.io.now
            self.turn_left_ns = TURN_NS_MAX
        self.first = True
        while size - at >= 4 and not self.closed and not self.paused:
            frame_size = load_i32(data + at)
            if frame_size < self.frame_size_min or frame_size > self.frame_size_max:
                self.refuse_size(frame_size)
                break
            if size - at - 4 < frame_size or starves(self, data + at + 4, frame_size):
                break
            if self.in_flight > 0 and self.io.produce.leaders is not None and self.put_off(data + at + 4, frame_size):
                break
            self.serve(data + at + 4, frame_size)
            at += 4 + frame_size
            self.first = False
            self.turn_left_ns -= REQUEST_NS + frame_size
            self.io.loop_left_ns -= REQUEST_NS + frame_size
            if self.turn_left_ns < 0 and size - at >= 4 and not self.closed and not self.paused:
                self.give_way()
            if self.in_flight >= self.in_flight_max or self.queued_bytes > self.io.output_bytes_max:
                self.pause()
            elif self.io.out.size > RECEIVE_CAPACITY:
                self.write_out()
            if is_watched(self.io.ceiling) and not self.paused and not self.closed and self.is_short():
                self.starve()
            if self.moved:
                break
        if self.client is not None:
            self.client.pay()
        return at

    cdef int pause(self) except -1:
        """Neither reads nor serves until settle() finds that it may."""
        self.paused = True
        return self.set_interest(self.interest & ~EVENT_READ)

    cdef Holding* find_holding(self) except NULL:
        """Of the principal that it has now; what was charged to the one before goes along."""
        cdef HolderMemory memory
        cdef Holding* before = self.holding
        if before == NULL or self.held_as is not self.principal:
            memory = self.io.memory.find(self.principal, self.client_host)
            self.holding = hold(memory.holding)
            self.held_as = self.principal
            if before != NULL:
                charge(before, FRAMES, -self.charged)
                charge(self.holding, FRAMES, self.charged)
                let_go(before)
        return self.holding

    cdef int charge_buffer(self, int64_t size) except -1:
        if size != self.charged or self.charged > 0 and self.held_as is not self.principal:
            charge(self.find_holding(), FRAMES, size - self.charged)
            self.charged = size
        return 0

    cdef Py_ssize_t roomier(self) noexcept:
        """The next capacity of its buffer: twice as much, but no more than the cut frame in it needs."""
        cdef Py_ssize_t frame = 4 + load_i32(self.pending) if self.pending_size >= 4 else 0
        cdef Py_ssize_t doubled = 2 * self.pending_capacity
        frame += self.room_min
        return frame if self.pending_capacity < frame < doubled else doubled

    cdef int note_frame(self) except -1:
        """Charges its buffer, and all of a cut frame before it comes: what is begun can be completed. 1: it waits.

        Twice the size for a request that is copied out of the buffer, as all but Produce are.
        """
        cdef int64_t size = self.pending_capacity, frame = 0
        if self.pending_size == 0 and size > SMALL_SIZE and is_watched(self.io.ceiling):
            free(self.pending)
            self.pending = NULL
            self.pending_capacity = size = 0
        if self.pending_size >= 4:
            frame = 4 + <int64_t>load_i32(self.pending)
            if self.pending_size >= frame:
                frame = 0                           # it is complete, and waits for its turn
        if frame != self.begun:
            self.find_holding().ceiling.frames_begun += frame - self.begun
            if self.begun == 0:
                self.begun_at = self.io.now
            self.begun = frame
        if frame > SMALL_SIZE and self.pending_size >= 6 and load_i16(self.pending + 4) != self.io.produce_api.key:
            frame *= 2
        if frame <= size or frame <= SMALL_SIZE or frame <= self.charged:
            return self.charge_buffer(max(size, frame if frame > SMALL_SIZE else 0))
        self.charge_buffer(size)
        if is_watched(self.io.ceiling) or frame > self.io.ceiling.calm_max - self.io.ceiling.held:
            if frame > self.io.ceiling.calm_max:
                return self.refuse("request of %d bytes does not fit into broker.memory.max", (self.begun,))
            if not admits(self.find_holding(), frame - size, PASSING):
                self.starve()
                return 1
        return self.charge_buffer(frame)

    cdef bint is_short(self) except -1:
        """Whether it is not to be read now: its holder holds too much, or it would begin one more frame while
        queued.max.request.bytes are used up."""
        if self.begun > SMALL_SIZE and self.charged >= self.begun:
            return False                            # it has what it needs to complete its frame
        if self.begun == 0 and is_queue_full(self.io.ceiling):
            return True
        return not has_room(self.find_holding())

    cdef int starve(self) except -1:
        """Neither reads nor serves until `eat`."""
        need(self.find_holding(), self.io.now)
        if self.starved:
            return 0
        self.starved = True
        self.io.ceiling.pause_count += 1
        if not self.io.starved:
            self.io.starved_look_at = self.io.now + 0.05
        self.io.starved.append(self)
        return self.pause()

    cdef int give_way(self) except -1:
        """What was received and not served waits until the other connections had their turn."""
        self.gives_way = True
        self.io.giving_way.append(self)
        return self.pause()

    def take_share(self):
        """Serves what waited, in a loop turn after the one in which it gave way."""
        self.gives_way = False
        if self.run is not None:
            self.continue_run()
        if not self.closed:
            self.settle()

    cdef unsigned char* take_bytes(self, unsigned char* data, Py_ssize_t size, void** owner) except NULL:
        """Keeps bytes of the present request beyond its turn, where this says; `owner` is to be freed. Many stay where
        they are, and what was received after them moves to another buffer."""
        cdef unsigned char* taken = data
        cdef Py_ssize_t rest = self.pending + self.pending_size - (data + size)
        if size <= RECEIVE_CAPACITY or not self.pending <= data <= self.pending + self.pending_size:
            taken = <unsigned char*>malloc(<size_t>max(size, 1))
            if taken == NULL:
                raise MemoryError
            memcpy(taken, data, <size_t>size)
            owner[0] = taken
            return taken
        owner[0] = self.pending
        self.pending = NULL
        self.pending_size = self.pending_capacity = 0
        self.moved = True
        self.keep(data + size, rest)
        return taken

    cdef int begin_run(self, ProduceServer server, int16_t version, int32_t correlation_id, unsigned char* body,
                       Py_ssize_t size) except -1:
        """A Produce request with many partitions is served in later turns; what comes after it waits."""
        cdef void* owner = NULL
        cdef unsigned char* taken = self.take_bytes(body, size, &owner)
        cdef Answer answer = self.enqueue()
        answer.charge_waiting(REQUESTS, size + <int64_t>server.part_count * PART_SIZE)
        self.run = run_of(server, version, correlation_id, taken - body, owner, answer)
        return self.queue_run()

    cdef int queue_run(self) except -1:
        """Have a portion of its run served, and nothing that arrived after it, when the other long runs had theirs."""
        self.gives_way = True
        self.io.long_runs.append(self)
        return self.pause()

    cdef int continue_run(self) except -1:
        """Serves some more of that request, in a turn of its own, even if the connection has been closed meanwhile."""
        cdef ProduceRun run = self.run
        cdef int64_t began = now_ns(), spent
        cdef bint done = run.take_turn(PORTION_NS_MAX, self.io.now)
        spent = now_ns() - began
        self.turn_left_ns -= spent
        self.io.loop_left_ns -= spent
        if not done:
            return self.queue_run()
        self.run = None
        if run.pending.timeout_ms >= 0 and not run.pending.done:
            self.io.add_timer(run.pending, self.io.now + <double>run.pending.timeout_ms / 1000.0)
        return 0

    def affords(self, double cost_us, double limit_us):
        """Whether a request that is expected to cost so much may be served now: it is within the limit, and of its
        holder's share, which is charged.

        Clients that wait for each answer and ask for little are not charged: no share is right for all of them, and
        other threads have their turn in between.
        """
        cdef InlineShare share = self.share
        if cost_us > limit_us:
            return False
        if self.first and cost_us * 10.0 <= limit_us:
            return True
        share.left_us = min(<double>SHARE_US_MAX, share.left_us + (self.io.now - share.at) * 1e6 * SHARE)
        share.at = self.io.now
        if share.left_us < cost_us:
            return False
        share.left_us -= cost_us
        return True

    cdef bint put_off(self, unsigned char* frame, Py_ssize_t size) except -1:
        """Whether a request has to wait until nothing is owed; then nothing more is read."""
        if has_to_wait(self.io.produce, &self.io.produce_api, self.sole, frame, size):
            self.waits_turn = True
            self.pause()
        return self.waits_turn

    cdef int refuse_size(self, int32_t size) except -1:
        if self.tls is None and size & ~0xFFFF == TLS_HELLO_SIZE & ~0xFFFF:
            return self.refuse("TLS handshake on a listener without TLS; check the client's security.protocol")
        return self.refuse("request of %d B exceeds socket.request.max.bytes (%d)", (size, self.io.request_size_max))

    cdef int end(self) except -1:
        """The close of a failed connection that was put off."""
        self.close(None)
        return 0

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        if self.io.quotas is not None:
            return self.serve_bounded(frame, size)
        return serve_now(self, frame, size)

    cdef int serve_counted(self, unsigned char* frame, Py_ssize_t size) except -1:
        cdef uint32_t kind
        if self.io.counters.slow_ns > 0:
            return self.serve_watched(frame, size)
        memcpy(&kind, frame, 4)
        if self.io.counters.run.next != <int64_t>kind:
            self.io.counters.begin_run(frame)
        self.io.counters.run.count += 1
        add_to(&self.io.counters.run.api.size, size)
        return self.serve_request(frame, size)

    cdef int serve_watched(self, unsigned char* frame, Py_ssize_t size) except -1:
        """The same where slow requests are told: each is timed by itself."""
        cdef RequestCounters counters = self.io.counters
        cdef int16_t key = load_i16(frame)
        cdef int16_t version = load_i16(frame + 2)
        cdef bytes client_id = client_id_of(frame, size)
        cdef int64_t spent
        counters.begin_run(frame)
        counters.run.count = 1
        add_to(&counters.run.api.size, size)
        self.serve_request(frame, size)
        if counters.run.count == 0:
            return 0                                            # it is closed
        if counters.parked is not None:
            counters.parked.size, counters.parked.client_id = size, client_id
            counters.end_run(True)
            return 0
        spent = counters.end_run(True)
        if spent >= counters.slow_ns:
            counters.on_slow(self, key, version, client_id, size, spent // 1000, 0, 0)
        return 0

    cdef int serve_request(self, unsigned char* frame, Py_ssize_t size) except -1:
        cdef Cursor c
        cdef int16_t key = load_i16(frame)
        cdef int16_t version = load_i16(frame + 2)
        cdef int32_t correlation_id = load_i32(frame + 4)
        cdef const unsigned char* client_id
        cdef Py_ssize_t client_id_size
        cdef int refused
        cdef const NativeApi* produce = &self.io.produce_api
        cdef const NativeApi* fetch = &self.io.fetch_api
        cursor_init(&c, frame + 8, size - 8)
        client_id = read_string(&c, False, &client_id_size)
        if c.status == OK and key == produce.key and produce.oldest <= version <= produce.newest:
            if version >= produce.flexible_from:
                skip_tags(&c)
            if c.status == OK:
                refused = self.serve_produce(version, correlation_id, <unsigned char*>c.pos, c.end - c.pos)
                if refused == 0:
                    return 0
                if refused == REFUSED_SILENTLY:
                    return self.refuse("a Produce request with acks=0 failed, and it has no response", (),
                                       client_id_of(frame, size))
                return self.refuse("malformed or over-limit Produce v%d request", (version,),
                                   client_id_of(frame, size))
        elif c.status == OK and key == fetch.key and fetch.oldest <= version <= fetch.newest:
            if version >= fetch.flexible_from:
                skip_tags(&c)
            if c.status == OK:
                if c.end - c.pos > FETCH_SIZE_AT_ONCE:
                    return begin_fetch(self, self.io.fetch.new_plan(
                        version, correlation_id, self.io.now, self.listener, self.principal, self.access()),
                        <unsigned char*>c.pos, c.end - c.pos, client_id_of(frame, size))
                if self.serve_fetch(version, correlation_id, <unsigned char*>c.pos, c.end - c.pos) == 0:
                    return 0
                return self.refuse("malformed or over-limit Fetch v%d request", (version,), client_id_of(frame, size))
        if c.status != OK:
            return self.refuse("malformed request header", (), client_id_of(frame, size))
        return self.serve_other(
            key, version, correlation_id,
            None if client_id_size < 0 else PyBytes_FromStringAndSize(<const char*>client_id, client_id_size),
            <unsigned char*>c.pos, c.end - c.pos)

    cdef int serve_bounded(self, unsigned char* frame, Py_ssize_t size) except -1:
        """`serve` while there are quotas. What is over one is done, told, and the connection muted, as by Kafka.

        Bytes are counted by the time at which the loop's turn began; who is over a quota by that is looked at closely.
        """
        cdef int16_t key = load_i16(frame)
        cdef bint over = False
        if self.client is None:
            self.client = BoundClient()
        if self.client.epoch != self.io.quotas.epoch or self.client.principal is not self.principal \
                or self.client.client_id_size > size - CLIENT_ID_AT \
                or not same_bytes(frame + CLIENT_ID_AT, self.client.client_id_data, self.client.client_id_size):
            self.client.look_up(self.io.quotas, self.principal, frame, size)
        if self.client.quota is None:
            return serve_now(self, frame, size)
        if self.client.quota.request is not None:
            over = self.client.quota.request.left < 0.0
            if self.client.busy_since_ns == 0:
                self.client.busy_since_ns = now_ns()
        if key == self.io.produce_api.key:
            if not self.client.known and self.hold_back(frame, size):
                return 0
            if self.client.quota.produce is not None:
                self.client.quota.produce.take(<double>size, self.io.now)
                over = over or self.client.quota.produce.left < 0.0
            if not over:
                return serve_now(self, frame, size)
        elif key == self.io.fetch_api.key and self.client.quota.fetch is not None:
            over = over or self.client.quota.fetch.left < 0.0
        if over:
            return self.serve_throttled(frame, size)
        self.bounded = True
        serve_now(self, frame, size)
        self.bounded = False
        if key != self.io.fetch_api.key:
            self.client.pay()
        return 0

    cdef int serve_throttled(self, unsigned char* frame, Py_ssize_t size) except -1:
        """Serves a request whose client may be over a quota, and has him wait as long as he is."""
        cdef int16_t key = load_i16(frame)
        cdef Meter bytes_of = None
        cdef bint answered = True
        cdef int32_t throttle_ms
        if key == self.io.produce_api.key:
            bytes_of = self.client.quota.produce
            answered = acks_of(load_i16(frame + 2), frame, size) != 0
        elif key == self.io.fetch_api.key:
            bytes_of = self.client.quota.fetch
        throttle_ms = self.client.delay_ms(bytes_of, answered, now_ns() / 1e9)
        self.io.produce.throttle_ms = self.throttle_ms = throttle_ms
        self.bounded = True
        try:
            serve_now(self, frame, size)
        finally:
            self.bounded = False
            self.io.produce.throttle_ms = self.throttle_ms = 0
            self.client.pay()
        if throttle_ms > 0:
            self.throttle(key, throttle_ms, 0)
        return 0

    cdef int throttle(self, int16_t key, int32_t ms, int32_t before) except -1:
        """An answer tells to wait so long, and `before` was noted for it already: the client is held to it."""
        if self.io.counters is not None:
            self.io.counters.note_throttled(key, ms, before)
        self.mute(ms)
        return 0

    cdef bint hold_back(self, unsigned char* frame, Py_ssize_t size) except -1:
        """Whether a request has to wait before it is served, its client owing some: it is the first of a connection."""
        cdef int32_t owed = self.client.owed_at_first(now_ns() / 1e9)
        if owed > 0:
            self.held = bytearray(frame[:size])
            self.mute(owed)
        return owed > 0

    def mute(self, int32_t ms):
        """Does not listen for so long, or for longer if it was told to before. Owner worker only."""
        cdef double until = now_ns() / 1e9 + ms / 1000.0
        if self.closed or until <= self.muted_until:
            return
        self.muted_until = until
        self.pause()
        self.io.add_mute(self, until)

    def request_meter(self):
        """Of the present request's time; None: it is not counted."""
        return self.client.quota.request if self.bounded and self.client.quota is not None else None

    def throttle_soon(self, int16_t key, int32_t ms, int32_t before):
        """`throttle`, from any thread."""
        self.io.mailbox.put(lambda: self.throttle(key, ms, before))

    def unmute(self):
        """It has waited long enough: what it has sent meanwhile is served."""
        cdef bytearray held = self.held
        cdef unsigned char[::1] view
        self.muted_until = 0.0
        if held is not None:
            self.held = None
            view = held
            self.serve(&view[0], view.shape[0])
            if self.client is not None:
                self.client.pay()
        return self.settle()

    cdef int serve_produce(self, int16_t version, int32_t correlation_id, unsigned char* body,
                           Py_ssize_t size) except -1:
        cdef ProduceServer server = self.io.produce
        cdef Py_ssize_t start = self.io.out.size
        cdef int result
        cdef PendingProduce pending
        cdef void* sole
        if self.io.produce_asks:
            server.access = self.access()
            server.now = self.io.now
            server.listener = self.listener
        result = server.serve(version, correlation_id, body, size)
        if result == SERVED:
            self.requeue_out(start)
        elif result == PARKED:
            pending = server.pending
            server.pending = None
            sole = pending.sole() if self.in_flight == 0 or self.sole == pending.sole() else NULL
            pending.start(self.enqueue(), server.pool)
            self.sole = sole
            if not pending.done:
                pending.answer.charge_waiting(REQUESTS, pending.held_size())
            if pending.timeout_ms >= 0 and not pending.done:
                self.io.add_timer(pending, self.io.now + <double>pending.timeout_ms / 1000.0)
        elif result == TAKES_TURNS:
            return self.begin_run(server, version, correlation_id, body, size)
        elif result == MALFORMED:
            return REFUSED_REQUEST
        elif result == UNANSWERED:
            return REFUSED_SILENTLY
        return 0

    cdef int serve_fetch(self, int16_t version, int32_t correlation_id, unsigned char* body, Py_ssize_t size) except -1:
        cdef FetchServer server = self.io.fetch
        cdef FetchPlan plan = server.parse(version, correlation_id, body, size, self.io.now, self.listener,
                                           self.principal, None if self.io.access is None else self.access())
        cdef Answer answer
        cdef int result
        if plan is None:
            return REFUSED_REQUEST
        if plan.takes_turns:
            return begin_fetch(self, plan, NULL, 0, None)
        if self.bounded and self.client.quota is not None and not plan.privileged:
            plan.bound(self.client.quota.fetch, self.throttle_ms)
        plan.client_host, plan.fd = self.client_host, self.fd
        result = plan.evaluate()
        if result == FETCH_READY:
            if not self.queue and plan.size <= server.copy_size_max:
                return plan.answer_into(self.io.out, self)
            answer = self.enqueue()
            plan.fill(answer)
            return self.count(answer)
        answer = self.enqueue()
        keep_plan(self, plan)
        answer.charge_waiting(FETCHES, plan.held_size())
        plan.park(answer, result)
        if not plan.done:
            self.io.add_timer(plan, plan.deadline)
        return 0

    cdef int serve_other(self, int16_t key, int16_t version, int32_t correlation_id, bytes client_id,
                         unsigned char* body, Py_ssize_t size) except -1:
        cdef Py_ssize_t start = self.io.out.size
        cdef int64_t began = now_ns(), spent
        cdef LargeBody large
        cdef bytes response
        if size <= RECEIVE_CAPACITY:
            response = self.io.dispatch(
                self, key, version, correlation_id, client_id, PyBytes_FromStringAndSize(<const char*>body, size))
        else:
            large = LargeBody.__new__(LargeBody)
            large.data = self.take_bytes(body, size, &large.owner)
            large.size = size
            response = self.io.dispatch(self, key, version, correlation_id, client_id, large)
        spent = now_ns() - began
        self.turn_left_ns -= spent
        self.io.loop_left_ns -= spent
        if response is not None:
            self.io.out.put(<const unsigned char*>PyBytes_AS_STRING(response), PyBytes_GET_SIZE(response))
            self.requeue_out(start)
        return 0

    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1:
        """Copies what was received and not served into the connection's own buffer."""
        if self.pending_capacity < size + PENDING_CAPACITY_MIN:
            self.grow_pending(size + max(<Py_ssize_t>PENDING_CAPACITY_MIN, size))
        kl_assert(size <= self.pending_capacity)
        memcpy(self.pending, data, <size_t>size)
        self.pending_size = size
        self.note_frame()
        return 0

    cdef int grow_pending(self, Py_ssize_t capacity) except -1:
        kl_assert(capacity >= self.pending_size)
        cdef unsigned char* grown = <unsigned char*>realloc(self.pending, <size_t>capacity)
        if grown == NULL:
            raise MemoryError
        self.pending = grown
        self.pending_capacity = capacity
        return 0

    cdef Answer enqueue(self):
        cdef Answer answer = Answer.__new__(Answer)
        kl_assert(self.in_flight >= 0)
        answer.connection = self
        answer.mailbox = self.io.mailbox
        answer.hold_for(self.find_holding())
        if self.queue is None:
            self.queue = deque()
        self.queue.append(answer)
        self.in_flight += 1
        self.sole = NULL
        if self.io.counters is not None:
            answer.timing = self.io.counters.park()
        return answer

    cdef int requeue_out(self, Py_ssize_t start) except -1:
        """A frame written to the out buffer at `start` goes after the answers still owed, if there are any."""
        cdef OutBuffer out = self.io.out
        cdef Answer answer
        if not self.queue:
            return 0
        kl_assert(0 <= start)
        kl_assert(start <= out.size)
        answer = self.enqueue()
        answer.fill(PyBytes_FromStringAndSize(<const char*>out.data + start, out.size - start), None, None)
        out.size = start
        return self.count(answer)

    cdef int count(self, Answer answer) except -1:
        """Adds a ready answer to the bytes this connection keeps in memory for its client."""
        if not answer.counted and not answer.silent:
            answer.counted = True
            self.queued_bytes += PyBytes_GET_SIZE(answer.data)
            if self.io.ceiling.held > self.io.ceiling.size_max and PyBytes_GET_SIZE(answer.data) > SMALL_SIZE:
                self.close("no memory for a response of %d bytes (broker.memory.max)",
                           PyBytes_GET_SIZE(answer.data))
        return 0

    cdef int write_out(self) except -1:
        """Sends the out buffer; what the socket does not take becomes the head of the queue."""
        cdef OutBuffer out = self.io.out
        cdef Py_ssize_t sent = 0
        cdef ssize_t n
        cdef int error
        if self.io.counters is not None and self.io.counters.run.count > 0:
            self.io.counters.end_run(out.size > 0)
        if self.tls is not None:
            self.write_sealed()
            sent = out.size
        while sent < out.size and not self.closed:
            with nogil:
                n = send(self.fd, out.data + sent, <size_t>(out.size - sent), MSG_NOSIGNAL | MSG_DONTWAIT)
                error = errno
            if n >= 0:
                sent += n
                self.last_active = self.io.now
            elif error == EAGAIN:
                self.keep_rest(sent)
                break
            elif error != EINTR:
                self.close(None)
        out.size = 0
        if self.io.counters is not None and self.io.counters.direct_count > 0:
            self.io.counters.sent()
        return 0

    cdef int write_sealed(self) except -1:
        """write_out with TLS: what is sealed and not taken stays with the session, the rest goes to the queue."""
        cdef OutBuffer out = self.io.out
        cdef Py_ssize_t n
        if out.size == 0 or self.closed or self.failed:
            return 0
        n = self.tls.send(self.fd, out.data, out.size)
        if n < 0:
            self.close(None if self.tls.problem is None else "TLS failed: %s", self.tls.problem)
        else:
            self.last_active = self.io.now
            if n < out.size:
                self.keep_rest(n)
            elif self.tls.unsent_size > 0:
                self.set_interest(self.interest | EVENT_WRITE)
        return 0

    cdef int keep_rest(self, Py_ssize_t sent) except -1:
        """Puts what the socket did not take of the out buffer before the answers still owed."""
        cdef OutBuffer out = self.io.out
        cdef Answer rest = Answer.__new__(Answer)
        rest.connection = self
        rest.mailbox = self.io.mailbox
        rest.hold_for(self.find_holding())
        rest.fill(PyBytes_FromStringAndSize(<const char*>out.data + sent, out.size - sent), None, None)
        self.queue = deque((rest, *(self.queue or ())))
        self.in_flight += 1
        self.count(rest)
        return self.set_interest(self.interest | EVENT_WRITE)

    cdef int settle(self) except -1:
        """Ends a turn: sends what can be sent, and goes on serving received frames once enough of it has left."""
        while not self.closed:
            self.write_out()
            self.drain_queue()
            if self.closed or not self.paused or self.gives_way or self.starved or self.muted_until > 0.0 \
                    or self.in_flight > self.in_flight_max // 2 or self.waits_turn and self.in_flight > 0 \
                    or self.queued_bytes > self.io.output_bytes_max // 2:
                break
            self.paused = self.waits_turn = False
            self.set_interest(self.interest | EVENT_READ)
            if self.pending_size > 0:
                if self.io.counters is not None:
                    self.io.counters.clock_ns = 0
                self.serve_pending()
            if self.io.out.size == 0 and not self.paused:
                break
        self.io.out.size = 0
        if self.tls is not None and self.tls.ended and not self.paused and not self.failed:
            self.close(None)    # its close_notify may have come with its last requests; some clients wait for ours
        return 0

    cdef int refuse(self, str reason, tuple values=(), bytes client_id=None) except -1:
        """Closes on a client's mistake, after the answers it has already earned. `close` says what the reason is."""
        self.write_out()
        if not self.closed:
            self.close(reason, *values, client_id=client_id)
        return 0

    cdef int gather(self) except -1:
        """Moves small ready answers from the head of the queue into the out buffer, so that one send takes them all."""
        cdef OutBuffer out = self.io.out
        cdef Answer answer
        while self.queue and out.size < RECEIVE_CAPACITY:
            answer = <Answer>self.queue[0]
            if not answer.ready:
                break
            if not answer.silent:
                if answer.slices is not None or answer.sent > 0 or answer.size > GATHER_SIZE_MAX:
                    break
                out.put(<const unsigned char*>PyBytes_AS_STRING(answer.data), PyBytes_GET_SIZE(answer.data))
            self.forget_head(answer)
        return 0

    cdef int drain_queue(self) except -1:
        """Sends ready answers from the head of the queue: until one is not ready, or the socket is full."""
        cdef Answer answer
        cdef TlsSession tls = self.tls
        cdef int result
        cdef int64_t budget = TURN_BYTES_MAX
        if tls is not None and (self.failed or not self.told(tls.flush(self.fd))):
            return 0
        while self.queue and not self.closed:
            self.gather()
            if self.io.out.size > 0:
                self.write_out()
                if self.interest & EVENT_WRITE:
                    return 0
                continue
            if not self.queue:
                break
            answer = <Answer>self.queue[0]
            if not answer.ready:
                break
            result = answer.send_some(self.fd, budget) if tls is None else answer.send_sealed(self.fd, budget, tls)
            if result < 0:
                self.close(None)
                return 0
            self.last_active = self.io.now
            if result == 0:
                return self.set_interest(self.interest | EVENT_WRITE)
            budget -= answer.size
            self.forget_head(answer)
        if not self.closed and (self.tls is None or self.tls.unsent_size == 0):
            self.set_interest(self.interest & ~EVENT_WRITE)
        return 0

    cdef bint told(self, int result) except -1:
        """After a push of sealed bytes: whether all has left. If not, the socket is waited for, or the peer is gone."""
        if result < 0:
            self.close(None if self.tls.problem is None else "TLS failed: %s", self.tls.problem)
        elif result == 0:
            self.set_interest(self.interest | EVENT_WRITE)
        return result > 0

    cdef int forget_head(self, Answer answer) except -1:
        self.queue.popleft()
        self.in_flight -= 1
        if answer.counted:
            self.queued_bytes -= PyBytes_GET_SIZE(answer.data)
        kl_assert(self.in_flight >= 0)
        kl_assert(self.queued_bytes >= 0)
        if answer.timing is not None:
            self.io.counters.finish(answer.timing, self)
        answer.drop()
        return 0

    cdef int set_interest(self, int events) except -1:
        if events != self.interest and not self.closed:
            self.interest = events
            self.io.on_interest(self, events)
        return 0

    cdef str name_for_log(self, bytes client_id):
        """What the client calls itself, for a log line: its software, and the client id of a request of its."""
        cdef list names = [self.software_name] if self.software_name else []
        if client_id:
            names.append(f"client id {client_id[:CLIENT_ID_SHOWN_MAX].decode('utf-8', 'replace')}")
        return ", ".join(names) or "unknown client"

    def close(self, str reason=None, *values, bytes client_id=None):
        """Ends the connection; `reason`, when given, is logged as the client's mistake, with the id that it gave in
        the header of its request. Owner worker only.

        The reason is a constant with places for `values`, as of a logger: lines of one reason are bounded together.
        """
        cdef Answer answer
        cdef FetchPlan plan
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            logger.warning("closed %s:%d (%s): %s", self.client_host, self.client_port,
                           self.name_for_log(client_id), reason % values if values else reason,
                           kind=("closed", reason))
        for plan in self.plans or ():
            plan.cancel()
        self.plans = None
        for answer in self.queue or ():
            answer.drop()
        self.queue = None
        free(self.pending)
        self.pending = NULL
        self.pending_size = self.pending_capacity = 0
        if self.charged > 0 or self.begun > 0:
            self.note_frame()
        self.held = None
        if self.io.counters is not None:
            self.io.counters.drop_run()
        self.arrive()
        if self.tls is not None:
            self.tls.say_goodbye(self.fd)
        self.io.on_close(self)
        self.socket.close()
