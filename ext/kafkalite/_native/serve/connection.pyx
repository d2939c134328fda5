"""Serve a client connection: receive frames, serve their requests, and send responses in order.

    1  when the socket is readable, receive frames
    2  serve each frame: Produce and Fetch in C, all other requests in Python
    3  if the response is ready and no earlier response waits, write it to the out buffer
    4  if the request is parked or an earlier response waits, queue the response
    5  send the out buffer at once, and the queued responses from the head, when they are ready

The connection is not read while it is muted (KIP-219), or while too many responses are queued.

With TLS, all bytes pass through a TlsSession, and nothing is served before the listener has accepted the client.

Thread rule: everything runs on the connection's worker. Other threads reach a connection only through Answer and
Mailbox.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.math cimport INFINITY
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

import heapq
import logging
import select
from collections import OrderedDict

from kafkalite._native.base.histogram cimport add_to
from kafkalite._native.serve.access cimport AccessView
from kafkalite._native.serve.answer_queue cimport AnswerQueue
from kafkalite._native.serve.counters cimport RequestCounters, client_id_of, now_ns
from kafkalite._native.serve.fetch cimport FETCH_READY, FetchPlan, FetchServer
from kafkalite._native.serve.frame_buffer cimport (
    FRAME_TOO_LARGE, FRAME_WAITS, PENDING_CAPACITY_MIN, FrameBuffer, FrameCharge,
)
from kafkalite._native.serve.large_fetches cimport FETCH_SIZE_AT_ONCE, FetchRun
from kafkalite._native.serve.receive_threshold cimport LowWater
from kafkalite._native.serve.memory cimport (
    DECODED_FACTOR, FETCHES, PARKED_SIZE, PASSING, REQUESTS, SMALL_SIZE, Ceiling, Holding, admits, is_watched, need,
)
from kafkalite._native.serve.produce cimport (
    MALFORMED, PARKED, SERVED, PART_SIZE, TAKES_TURNS, UNANSWERED, PendingProduce, ProduceServer, run_of,
)
from kafkalite._native.serve.produce_order cimport has_to_wait
from kafkalite._native.serve.throttle cimport HELD_BACK, NOT_BOUNDED, OVER_QUOTA, QuotaVerdict, Throttle
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


cdef double SHARE = 0.2     # of one processor's time


@cython.final
cdef class InlineShare:
    """A limit on the time that network threads spend on one client's longer or pipelined requests: a fifth of a
    processor.

    A busy network thread keeps other threads from running, even though it releases the GIL. So requests beyond the
    limit go to the thread for long requests, which sleeps in between. Thread rule: any worker, with the GIL.
    """

    def __cinit__(self):
        self.left_us = SHARE_US_MAX


@cython.final
cdef class LargeBody:
    """The body of a large request, for the thread that decodes it. The network thread need not copy it."""

    def __dealloc__(self):
        free(self.owner)

    def __len__(self):
        return self.size

    def take(self):
        """Return the bytes and free the received buffer. Call this once."""
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
    """The state that a worker's connections share, and the waiting connections."""

    def __cinit__(self, *_, **__):
        self.muted = []
        self.muted_purge_at = TIMERS_PURGE_MIN

    cdef int add_mute(self, Connection connection, double deadline) except -1:
        self.timer_number += 1
        heapq.heappush(self.muted, (deadline, self.timer_number, connection))
        if len(self.muted) > self.muted_purge_at:   # closed connections of returning clients must not pile up
            self.muted = [entry for entry in self.muted if not (<Connection>entry[2]).closed]
            heapq.heapify(self.muted)
            self.muted_purge_at = max(<Py_ssize_t>TIMERS_PURGE_MIN, 2 * len(self.muted))
        return 0

    cdef int expire_mutes(self) except -1:
        """Read again from connections whose mute has ended."""
        cdef Connection connection
        while self.muted and self.muted[0][0] <= self.now:
            deadline, _, connection = heapq.heappop(self.muted)
            if connection.throttle.muted_until == deadline:
                self.take_turn(connection, connection.unmute)
        return 0

    cdef int begin_handshake(self, Connection connection, bint again=False) except -1:
        """Count a handshake that begins.

        The number of handshakes, their duration and their steps in a loop turn are limited.
        If too many are counted, the oldest handshake of the same address is closed. If there is none, this connection
        is closed, unless it was served before (`again`).
        """
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
        """Return whether an address may not begin one more handshake. The last tenth is for addresses with few."""
        cdef int32_t count_max = self.handshake_count_max
        if len(self.handshakes_from.get(network, ())) > self.handshake_count_small:
            count_max -= count_max // 10
        return self.handshake_count >= count_max

    cdef int end_handshake(self, Connection connection) except -1:
        """Stop counting a handshake, because the client is authenticated or the connection is closed."""
        cdef str network
        cdef object own
        if not connection.awaited:
            return 0
        connection.awaited = False
        network = network_of(connection.client_host)
        own = self.handshakes_from[network]
        self.handshake_count -= 1
        self.handshakes.pop(connection, None)
        del own[connection]
        if not own:
            del self.handshakes_from[network]
        return 0

    cdef int close_oldest(self, str reason, tuple values) except -1:
        """Close the connection whose handshake began first."""
        cdef Connection oldest = self.handshakes.popitem(last=False)[0]
        oldest.close(reason, *values)
        return 0

    cdef int expire_handshakes(self) except -1:
        """Close handshakes that have timed out, at most OVERDUE_MAX per turn, and failed connections after their
        delay."""
        cdef int left = OVERDUE_MAX
        while left > 0 and self.handshakes and next(iter(self.handshakes.values())) <= self.now:
            self.close_oldest("it did not authenticate within %g s", (self.handshake_s_max,))
            left -= 1
        self.overdue = left == 0
        while self.failing and self.failing[0][0] <= self.now:
            (<Connection>self.failing.popleft()[1]).end()
        return 0

    def next_deadline(self):
        """Return the earliest deadline of any kind in monotonic seconds, or None."""
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
        """Complete parked requests and close handshakes that have timed out, then run the waiting turns.

        With `everything`, all parked requests are completed, because the worker stops.
        """
        if self.counters is not None:
            self.counters.clock_ns = 0                  # the time of what is served from here on starts now
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
        """Handle the mailbox's items: ready responses, plans to resume, connections to close, and functions to call.

        New connections arrive as functions.
        """
        cdef Connection connection
        for item in self.mailbox.take():
            try:
                if type(item) is Answer:
                    connection = (<Answer>item).connection
                    if connection is not None:
                        connection.answers.count(item)
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
        """Release the Fetch requests that are served in turns, because the worker ends. Their connections are
        closed."""
        while self.long_runs:
            item = self.long_runs.popleft()
            if type(item) is FetchRun:
                (<FetchRun>item).end()

    cdef int give_up(self, object item) except -1:
        """Close the connection whose response could not be handled. Its client would otherwise wait for it."""
        cdef Answer answer = None
        if type(item) is Answer:
            answer = item
        elif type(item) is FetchPlan:
            answer = (<FetchPlan>item).answer
        if answer is not None and answer.connection is not None:
            (<Connection>answer.connection).close()
        return 0


cdef inline Holding* holding_of(Connection connection) except NULL:
    """Return the memory account of the connection's current principal."""
    return connection.received.find_holding(connection.principal)


cdef AccessView access_of(Connection connection):
    """Return the cached permissions of the connection's client, or None without an authorizer."""
    cdef AccessView view = connection.view
    if connection.io.access is None:
        return None
    if view is None or (view.principal is not connection.principal and view.principal != connection.principal):
        connection.view = connection.io.view_of(connection.principal, connection.client_host)
    return connection.view


cdef inline Throttle throttle_of(Connection connection):
    if connection.throttle is None:
        connection.throttle = Throttle()
    return connection.throttle


cdef inline int serve_now(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    """Serve a request that does not wait for a quota."""
    connection.io.requests += 1
    if connection.io.counters is None:
        return serve_request(connection, frame, size)
    return serve_counted(connection, frame, size)


cdef int serve_counted(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    cdef RequestCounters counters = connection.io.counters
    cdef uint32_t kind
    if counters.slow_ns > 0:
        return serve_watched(connection, frame, size)
    memcpy(&kind, frame, 4)
    if counters.run.next != <int64_t>kind:
        counters.begin_run(frame)
    counters.run.count += 1
    add_to(&counters.run.api.size, size)
    return serve_request(connection, frame, size)


cdef int serve_watched(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    """Serve a request and time it, because slow requests are reported."""
    cdef RequestCounters counters = connection.io.counters
    cdef int16_t key = load_i16(frame)
    cdef int16_t version = load_i16(frame + 2)
    cdef bytes client_id = client_id_of(frame, size)
    cdef int64_t spent
    counters.begin_run(frame)
    counters.run.count = 1
    add_to(&counters.run.api.size, size)
    serve_request(connection, frame, size)
    if counters.run.count == 0:
        return 0                                            # closed
    if counters.parked is not None:
        counters.parked.size, counters.parked.client_id = size, client_id
        counters.end_run(True)
        return 0
    spent = counters.end_run(True)
    if spent >= counters.slow_ns:
        counters.on_slow(connection, key, version, client_id, size, spent // 1000, 0, 0)
    return 0


cdef int serve_bounded(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    """Serve a request while quotas exist. As in Kafka, a request over a quota is served, and the connection is muted
    then."""
    cdef Throttle throttle = throttle_of(connection)
    cdef QuotaVerdict verdict = throttle.judge(connection.io, connection.principal, frame, size)
    if verdict == NOT_BOUNDED:
        return serve_now(connection, frame, size)
    if verdict == HELD_BACK:
        connection.mute(throttle.owed_ms)
        return 0
    if verdict == OVER_QUOTA:
        return serve_throttled(connection, throttle, frame, size)
    throttle.bounded = True
    serve_now(connection, frame, size)
    throttle.bounded = False
    if load_i16(frame) != connection.io.fetch_api.key:
        throttle.client.pay()
    return 0


cdef int serve_throttled(Connection connection, Throttle throttle, unsigned char* frame, Py_ssize_t size) except -1:
    """Serve a request of a client that may be over a quota, and mute the connection for the throttle time."""
    cdef int32_t throttle_ms = throttle.delay_ms(connection.io, frame, size)
    connection.io.produce.throttle_ms = throttle.ms = throttle_ms
    throttle.bounded = True
    try:
        serve_now(connection, frame, size)
    finally:
        throttle.bounded = False
        connection.io.produce.throttle_ms = throttle.ms = 0
        throttle.client.pay()
    if throttle_ms > 0:
        connection.throttle_for(load_i16(frame), throttle_ms, 0)
    return 0


cdef int serve_request(Connection connection, unsigned char* frame, Py_ssize_t size) except -1:
    """Serve a Produce or Fetch request in C, and pass all others to Python."""
    cdef Cursor c
    cdef int16_t key = load_i16(frame)
    cdef int16_t version = load_i16(frame + 2)
    cdef int32_t correlation_id = load_i32(frame + 4)
    cdef const unsigned char* client_id
    cdef Py_ssize_t client_id_size
    cdef int refused
    cdef const NativeApi* produce = &connection.io.produce_api
    cdef const NativeApi* fetch = &connection.io.fetch_api
    cursor_init(&c, frame + 8, size - 8)
    client_id = read_string(&c, False, &client_id_size)
    if c.status == OK and key == produce.key and produce.oldest <= version <= produce.newest:
        if version >= produce.flexible_from:
            skip_tags(&c)
        if c.status == OK:
            refused = serve_produce(connection, version, correlation_id, <unsigned char*>c.pos, c.end - c.pos)
            if refused == 0:
                return 0
            if refused == REFUSED_SILENTLY:
                return connection.refuse("a Produce request with acks=0 failed, and it has no response", (),
                                         client_id_of(frame, size))
            return connection.refuse("malformed or over-limit Produce v%d request", (version,),
                                     client_id_of(frame, size))
    elif c.status == OK and key == fetch.key and fetch.oldest <= version <= fetch.newest:
        if version >= fetch.flexible_from:
            skip_tags(&c)
        if c.status == OK:
            if c.end - c.pos > FETCH_SIZE_AT_ONCE:
                return begin_fetch(connection, connection.io.fetch.new_plan(
                    version, correlation_id, connection.io.now, connection.listener, connection.principal,
                    access_of(connection)), <unsigned char*>c.pos, c.end - c.pos, client_id_of(frame, size))
            if serve_fetch(connection, version, correlation_id, <unsigned char*>c.pos, c.end - c.pos) == 0:
                return 0
            return connection.refuse("malformed or over-limit Fetch v%d request", (version,),
                                     client_id_of(frame, size))
    if c.status != OK:
        return connection.refuse("malformed request header", (), client_id_of(frame, size))
    return connection.serve_other(
        key, version, correlation_id,
        None if client_id_size < 0 else PyBytes_FromStringAndSize(<const char*>client_id, client_id_size),
        <unsigned char*>c.pos, c.end - c.pos)


cdef int serve_produce(Connection connection, int16_t version, int32_t correlation_id, unsigned char* body,
                       Py_ssize_t size) except -1:
    cdef ProduceServer server = connection.io.produce
    cdef AnswerQueue answers = connection.answers
    cdef Py_ssize_t start = connection.io.out.size
    cdef int result
    cdef PendingProduce pending
    cdef void* sole
    if connection.io.produce_asks:
        server.access = access_of(connection)
        server.now = connection.io.now
        server.listener = connection.listener
    result = server.serve(version, correlation_id, body, size)
    if result == SERVED:
        connection.requeue_out(start)
    elif result == PARKED:
        pending = server.pending
        server.pending = None
        sole = pending.sole() if answers.in_flight == 0 or answers.sole == pending.sole() else NULL
        pending.start(connection.enqueue(), server.pool)
        answers.sole = sole
        if not pending.done:
            pending.answer.charge_waiting(REQUESTS, pending.held_size())
        if pending.timeout_ms >= 0 and not pending.done:
            connection.io.add_timer(pending, connection.io.now + <double>pending.timeout_ms / 1000.0)
    elif result == TAKES_TURNS:
        return begin_run(connection, server, version, correlation_id, body, size)
    elif result == MALFORMED:
        return REFUSED_REQUEST
    elif result == UNANSWERED:
        return REFUSED_SILENTLY
    return 0


cdef int serve_fetch(Connection connection, int16_t version, int32_t correlation_id, unsigned char* body,
                     Py_ssize_t size) except -1:
    cdef WorkerResources io = connection.io
    cdef FetchServer server = io.fetch
    cdef FetchPlan plan = server.parse(version, correlation_id, body, size, io.now, connection.listener,
                                       connection.principal, None if io.access is None else access_of(connection))
    cdef Throttle throttle = connection.throttle
    cdef Answer answer
    cdef int result
    if plan is None:
        return REFUSED_REQUEST
    if plan.takes_turns:
        return begin_fetch(connection, plan, NULL, 0, None)
    if throttle is not None and throttle.counts() and not plan.privileged:
        plan.bound(throttle.client.quota.fetch, throttle.ms)
    plan.client_host, plan.fd = connection.client_host, connection.fd
    result = plan.evaluate()
    if result == FETCH_READY:
        if connection.answers.in_flight == 0 and plan.size <= server.copy_size_max:
            return plan.answer_into(io.out, connection)
        answer = connection.enqueue()
        plan.fill(answer)
        return connection.answers.count(answer)
    answer = connection.enqueue()
    keep_plan(connection, plan)
    answer.charge_waiting(FETCHES, plan.held_size())
    plan.park(answer, result)
    if not plan.done:
        io.add_timer(plan, plan.deadline)
    return 0


cdef int dispatch(Connection connection, int16_t key, int16_t version, int32_t correlation_id, bytes client_id,
                  unsigned char* body, Py_ssize_t size) except -1:
    """Serve a request in Python. Its response may come later, from another thread."""
    cdef Py_ssize_t start = connection.io.out.size
    cdef int64_t began = now_ns()
    cdef LargeBody large
    cdef bytes response
    if size <= RECEIVE_CAPACITY:
        response = connection.io.dispatch(
            connection, key, version, correlation_id, client_id, PyBytes_FromStringAndSize(<const char*>body, size))
    else:
        large = LargeBody.__new__(LargeBody)
        large.data = take_bytes(connection, body, size, &large.owner)
        large.size = size
        response = connection.io.dispatch(connection, key, version, correlation_id, client_id, large)
    spend(connection, now_ns() - began)
    if response is not None:
        connection.io.out.put(<const unsigned char*>PyBytes_AS_STRING(response), PyBytes_GET_SIZE(response))
        connection.requeue_out(start)
    return 0


cdef inline void spend(Connection connection, int64_t spent_ns) noexcept:
    """Charge time to the connection's part of the loop turn, and to the turn itself."""
    connection.turn_left_ns -= spent_ns
    connection.io.loop_left_ns -= spent_ns


cdef unsigned char* take_bytes(Connection connection, unsigned char* data, Py_ssize_t size, void** owner) except NULL:
    """Keep bytes of the current request after its turn; return their address. The caller frees `owner`."""
    cdef Py_ssize_t rest
    cdef unsigned char* taken = connection.received.take(data, size, owner, &rest)
    if rest >= 0:
        connection.keep(taken + size, rest)
    return taken


cdef int begin_run(Connection connection, ProduceServer server, int16_t version, int32_t correlation_id,
                   unsigned char* body, Py_ssize_t size) except -1:
    """Serve a Produce request with many partitions in later turns. The connection's next requests wait."""
    cdef void* owner = NULL
    cdef unsigned char* taken = take_bytes(connection, body, size, &owner)
    cdef Answer answer = connection.enqueue()
    answer.charge_waiting(REQUESTS, size + <int64_t>server.part_count * PART_SIZE)
    connection.run = run_of(server, version, correlation_id, taken - body, owner, answer)
    return connection.give_way(connection.io.long_runs)


cdef int continue_run(Connection connection) except -1:
    """Serve a portion of the Produce request of begin_run(), even if the connection was closed meanwhile."""
    cdef ProduceRun run = connection.run
    cdef int64_t began = now_ns()
    cdef bint done = run.take_turn(PORTION_NS_MAX, connection.io.now)
    spend(connection, now_ns() - began)
    if not done:
        return connection.give_way(connection.io.long_runs)
    connection.run = None
    if run.pending.timeout_ms >= 0 and not run.pending.done:
        connection.io.add_timer(run.pending, connection.io.now + <double>run.pending.timeout_ms / 1000.0)
    return 0


cdef int keep_plan(Connection connection, FetchPlan plan) except -1:
    """Keep a waiting plan, so that it is cancelled when the connection closes."""
    if connection.plans is None or len(connection.plans) >= 8:
        connection.plans = [other for other in connection.plans or () if not (<FetchPlan>other).done]
    connection.plans.append(plan)
    return 0


cdef int begin_fetch(Connection connection, FetchPlan plan, unsigned char* body, Py_ssize_t size,
                     bytes client_id) except -1:
    """Serve a Fetch request with many partitions in later turns. `body` is the part that is not parsed yet."""
    cdef FetchRun run = FetchRun.__new__(FetchRun)
    run.plan, run.io, run.connection, run.client_id = plan, connection.io, connection, client_id
    run.size = size
    if size > 0:
        run.body = take_bytes(connection, body, size, &run.frame)
    if connection.throttle is not None and connection.throttle.counts():
        run.bounded = True
        run.meter, run.throttle_ms = connection.throttle.client.quota.fetch, connection.throttle.ms
    plan.client_host, plan.fd = connection.client_host, connection.fd
    plan.answer = connection.enqueue()
    plan.answer.charge_waiting(FETCHES, plan.held_size() + size * FETCHED_FACTOR)
    keep_plan(connection, plan)
    connection.gives_way = True
    connection.pause()
    return run.begin()


cdef str name_for_log(Connection connection, bytes client_id):
    """Return the client's software and its client id, for a log line."""
    cdef list names = [connection.software_name] if connection.software_name else []
    if client_id:
        names.append(f"client id {client_id[:CLIENT_ID_SHOWN_MAX].decode('utf-8', 'replace')}")
    return ", ".join(names) or "unknown client"


cdef inline bint starves(Connection connection, const unsigned char* frame, int32_t size) except -1:
    """Return whether a whole request must wait, because memory is scarce and its client holds too much.

    Produce requests take no more memory than their bytes, and small requests of other APIs pass. The required memory is
    small compared to the limit, so that waiting requests, whose bytes are held, never wait for each other.
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
    if admits(holding_of(connection), needed, PASSING):
        return False
    connection.starve()
    return True


cdef inline Py_ssize_t room_of(Connection connection) except -1:
    """Return how many bytes to receive into the worker's buffer while memory is scarce.

    What a connection then keeps of these bytes is not charged yet.
    """
    if connection.received.begun > SMALL_SIZE:
        return connection.io.receive_capacity           # it is charged for completing its frame
    if admits(holding_of(connection), SMALL_SIZE, PASSING):
        return WATCHED_SIZE
    return connection.received.size + PENDING_CAPACITY_MIN


cdef inline bint is_muted(Connection connection) noexcept:
    return connection.throttle is not None and connection.throttle.muted_until > 0.0


cdef int set_low_water(Connection connection, int64_t received) except -1:
    """Set the socket's low-water mark to the missing bytes of an incomplete frame, less those that libssl may keep."""
    cdef Py_ssize_t missing = 0 if connection.closed else connection.received.missing() - TLS_HELD_MAX
    connection.low_water.set(missing, received, connection.io.now)
    if connection.low_water.look_at > 0.0:
        connection.io.looks.add(connection.low_water, connection)
    return 0


def has_left(Connection connection):
    """Return whether the client has closed a connection that is not read, because it waits for memory or for fetches.

    Usually only a read detects the end of a connection. Here the read may wait for the very memory that such clients
    use.
    """
    cdef pollfd look
    if connection.closed or connection.interest & EVENT_READ or not (connection.starved or connection.plans):
        return False
    look.fd, look.events, look.revents = connection.fd, POLLRDHUP, 0
    return poll(&look, 1, 0) > 0


cdef class Connection:
    """An accepted, non-blocking socket. The worker's loop calls `on_event` with selector events."""

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
        self.received = FrameBuffer(io.memory, client_host)
        self.answers = AnswerQueue(io)
        self.turn_left_ns = TURN_NS_MAX
        self.last_active = io.now

    def secure(self, TlsContext context not None):
        """Use TLS from the first byte. The listener authenticates the client when the handshake has ended."""
        self.tls = TlsSession(context, self.io.tls)
        self.received.room_min = 4 * TLS_HELD_MAX
        self.low_water = LowWater(self.fd)
        self.io.begin_handshake(self)

    def __repr__(self):
        return f"<Connection {self.client_host}:{self.client_port}>"

    def on_event(self, int events):
        """Handle epoll events of the socket. Errors and the end of the connection are found by reading or writing."""
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
        """Continue a handshake that had to wait for another loop turn."""
        self.set_interest(self.interest | EVENT_READ)
        self.on_event(EVENT_READ)

    def linger(self):
        """Poll briefly for the next request of a client that sends one right after each response.

        Sleeping and waking costs more than such a request, ten times more on a virtual machine. So an idle worker polls
        the socket for up to LINGER_NS without the GIL. It stops when the client pauses, something is posted, or
        LINGER_TURNS_MAX requests were served. Returns True to poll again after the other connections, and False to
        sleep in the selector.
        """
        cdef WorkerResources io = self.io
        cdef Mailbox mailbox = io.mailbox
        cdef unsigned char* target = io.receive if self.tls is None else io.tls.sealed
        cdef size_t room = <size_t>(RECEIVE_CAPACITY if self.tls is None else RECEIVE_CAPACITY - TLS_HELD_MAX)
        cdef int _turn
        cdef ssize_t n
        cdef int64_t now, until
        for _turn in range(LINGER_TURNS_MAX):
            if not self.brisk or self.closed or self.paused or self.answers.in_flight > 0 \
                    or self.received.size > 0:
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
                    sched_yield()       # the client may need this very core
            if n <= 0:
                # Nothing came in time: the selector is now better. An error or the end shows up there too.
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
        """Return whether no byte was received or sent since `since`, and no request of this client is being served."""
        if self.last_active > since or self.closed or is_muted(self):
            return False
        return not self.answers.waits()

    def trim(self, double since):
        """Free the receive and TLS buffers, if no byte was received or sent since `since` and they are empty."""
        if self.last_active <= since:
            self.set_brisk(False)
            self.answers.trim()
            if self.received.size == 0:
                self.received.clear()

    def park(self, Py_ssize_t size=0, *, bint decoded=False):
        """Return an Answer in the place of the current request's response. Any thread may complete it.

        Until then the request's body of `size` bytes is charged to its client; a decoded body is charged with its
        items.
        """
        cdef Answer answer = self.enqueue()
        answer.charge_waiting(REQUESTS, PARKED_SIZE + size * (DECODED_FACTOR if decoded else 1))
        return answer

    @property
    def memory(self):
        """The HolderMemory of the connection's client."""
        return self.io.memory.find(self.principal, self.client_host)

    def eat(self):
        """Continue, if the client may now use the memory that this connection waits for."""
        self.starved = False
        if self.note_frame() == 0 and not self.closed and self.received.is_short(self.principal):
            self.starve()
        if not self.starved:
            self.settle()

    def withholds(self, double since):
        """Return whether a frame has been incomplete since `since`, while its client holds too much memory.

        Too much is at least the amount that a client held when it was refused memory. Called while memory is scarce.
        """
        if self.received.begun == 0:
            return False
        if self.paused and not self.starved:
            self.received.begun_at = self.io.now             # the broker does not read it, for other reasons
        return self.received.begun_at <= since and self.received.holding.held >= self.io.ceiling.needed_by

    cdef int on_readable(self) except -1:
        cdef WorkerResources io = self.io
        cdef FrameBuffer received = self.received
        cdef Py_ssize_t capacity, n, held, total = 0
        cdef int64_t bytes_in = io.bytes_in
        if io.counters is not None:
            io.counters.clock_ns = 0
        if is_watched(io.ceiling) and self.received.is_short(self.principal):
            return self.starve()
        while not self.closed and not self.paused and total < RECEIVED_MAX:
            held = received.size
            if held > FRONT_SIZE_MAX or received.capacity > RECEIVE_CAPACITY:
                if received.capacity - received.size < received.room_min:
                    self.grow_pending(received.next_capacity())
                    if self.failed:
                        break
                capacity = received.capacity - received.size
                n = self.receive_some(received.data + received.size, capacity)
                if n <= 0:
                    break
                received.size += n
                self.serve_pending()
            else:
                # The start of a cut frame is copied before the next bytes, so that a streaming client is read by the
                # whole buffer.
                capacity = (room_of(self) if is_watched(io.ceiling) else io.receive_capacity) - held
                if held > 0:
                    memcpy(io.receive, received.data, <size_t>held)
                n = self.receive_some(io.receive + held, capacity)
                if n <= 0:
                    break
                received.size = 0
                self.serve_received(held + n)
                if received.begun > 0 and received.size == 0:
                    self.note_frame()
            total += n
            if not self.filled:
                break
        self.settle()
        if self.tls is not None:
            set_low_water(self, io.bytes_in - bytes_in)
        return self.note_pace(total)

    def look(self):
        """Receive the bytes that have arrived below the low-water mark."""
        if self.paused or self.failed:
            set_low_water(self, 0)
        else:
            self.on_readable()

    cdef int serve_received(self, Py_ssize_t size) except -1:
        """Serve the bytes in the worker's receive buffer. An incomplete frame moves to the connection's own buffer,
        into which its rest is received."""
        cdef Py_ssize_t used = self.serve_frames(self.io.receive, size)
        if used < size and not self.closed:
            self.keep(self.io.receive + used, size - used)
        return 0

    cdef int note_pace(self, Py_ssize_t received) except -1:
        """Detect whether this client sends small requests right after responses, so that polling for the next one
        pays."""
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
        """Serve the whole frames in the connection's own buffer, and move the rest to its front."""
        cdef FrameBuffer received = self.received
        cdef Py_ssize_t used
        while True:
            used = self.serve_frames(received.data, received.size)
            if self.closed:
                return 0
            if not received.moved:
                break
            received.moved = False
        received.skip(used)
        if used > 0:
            received.begun_at = self.io.now
        return self.note_frame()

    cdef Py_ssize_t receive_some(self, unsigned char* target, Py_ssize_t size) except -2:
        """Receive; return the number of bytes, or 0 if there are none now or the connection is closed."""
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
        """Decrypt received bytes, and send TLS's own messages. Return the number of decrypted bytes."""
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
        """Let the listener authenticate the client after the TLS handshake. It may refuse the client."""
        self.io.end_handshake(self)
        if self.io.counters is not None:
            self.io.counters.handshakes += 1
            self.tls_suite = self.io.counters.suite(self.tls.version, self.tls.cipher)
        try:
            self.principal = self.listener.tls.principal_of(self.tls.peer_subject)
        except ValueError as error:
            self.tls.end(f"{error}")
            self.fail(self.tls.problem)
        return 0

    cdef int fail(self, str problem) except -1:
        """Close a connection after a TLS failure, with a delay, so that retries cost the client time."""
        logger.warning("TLS with %s:%d failed: %s", self.client_host, self.client_port, problem)
        if self.io.counters is not None:
            self.io.counters.handshakes_failed += 1
        self.io.end_handshake(self)
        self.failed = True
        self.set_interest(0)
        self.io.failing.append((self.io.now + self.io.failing_s, self))
        return 0

    cdef Py_ssize_t serve_frames(self, unsigned char* data, Py_ssize_t size) except -1:
        """Serve all whole frames; return the number of bytes served.

        It stops at `in_flight_max` queued responses, or above `output_bytes_max` queued bytes. In a cluster, it also
        stops before a Produce request that must wait until all earlier responses are sent (produce_order).
        """
        cdef AnswerQueue answers = self.answers
        cdef Py_ssize_t at = 0
        cdef int32_t frame_size
        if self.turn_of != self.io.now:                 # a new loop turn, with a new share for this connection
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
            if answers.in_flight > 0 and self.io.produce.leaders is not None and has_to_wait(
                    self.io.produce, &self.io.produce_api, answers.sole, data + at + 4, frame_size):
                self.waits_turn = True
                self.pause()
                break
            self.serve(data + at + 4, frame_size)
            at += 4 + frame_size
            self.first = False
            spend(self, REQUEST_NS + frame_size)
            if self.turn_left_ns < 0 and size - at >= 4 and not self.closed and not self.paused:
                self.give_way(self.io.giving_way)
            if answers.in_flight >= self.in_flight_max or answers.queued_bytes > self.io.output_bytes_max:
                self.pause()
            elif self.io.out.size > RECEIVE_CAPACITY:
                self.write_out()
            if is_watched(self.io.ceiling) and not self.paused and not self.closed \
                    and self.received.is_short(self.principal):
                self.starve()
            if self.received.moved:
                break
        if self.throttle is not None:
            self.throttle.client.pay()
        return at

    cdef int pause(self) except -1:
        """Stop reading and serving, until settle() finds no reason any more."""
        self.paused = True
        return self.set_interest(self.interest & ~EVENT_READ)

    cdef int note_frame(self) except -1:
        """Charge the buffer, and the whole of an incomplete frame. Return 1 if the frame must wait for memory."""
        cdef FrameBuffer received = self.received
        cdef FrameCharge result = received.charge_frame(self.principal, self.io.produce_api.key, self.io.now)
        if result == FRAME_TOO_LARGE:
            return self.refuse("request of %d bytes does not fit into broker.memory.max", (received.begun,))
        if result == FRAME_WAITS:
            self.starve()
            return 1
        return 0

    cdef int starve(self) except -1:
        """Stop reading and serving, because the client may not use more memory. eat() continues."""
        need(holding_of(self), self.io.now)
        if self.starved:
            return 0
        self.starved = True
        self.io.ceiling.pause_count += 1
        if not self.io.starved:
            self.io.starved_look_at = self.io.now + 0.05
        self.io.starved.append(self)
        return self.pause()

    cdef int give_way(self, object queue) except -1:
        """Stop serving until it is this connection's turn in a queue: `giving_way`, or `long_runs` for its run."""
        self.gives_way = True
        queue.append(self)
        return self.pause()

    def take_share(self):
        """Serve what waited, in the turn for which give_way() waited."""
        self.gives_way = False
        if self.run is not None:
            continue_run(self)
        if not self.closed:
            self.settle()

    def affords(self, double cost_us, double limit_us):
        """Return whether a request of this expected cost may be served now: below the limit and the client's time
        share.

        If so, its cost is charged to the share. Clients with short requests that wait for each response are not
        charged: they leave time for other threads in between.
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

    cdef int refuse_size(self, int32_t size) except -1:
        if self.tls is None and size & ~0xFFFF == TLS_HELLO_SIZE & ~0xFFFF:
            return self.refuse("TLS handshake on a listener without TLS; check the client's security.protocol")
        return self.refuse("request of %d B exceeds socket.request.max.bytes (%d)", (size, self.io.request_size_max))

    cdef int end(self) except -1:
        """Close a failed connection after its delay."""
        self.close(None)
        return 0

    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1:
        if self.io.quotas is not None:
            return serve_bounded(self, frame, size)
        return serve_now(self, frame, size)

    cdef int throttle_for(self, int16_t key, int32_t ms, int32_t before) except -1:
        """Mute the client for the throttle time in its response. `before` ms of this time were counted before."""
        if self.io.counters is not None:
            self.io.counters.note_throttled(key, ms, before)
        self.mute(ms)
        return 0

    def mute(self, int32_t ms):
        """Stop reading and serving for `ms` milliseconds, unless it is already muted for longer. Only on its worker."""
        cdef double until = now_ns() / 1e9 + ms / 1000.0
        if self.closed or until <= throttle_of(self).muted_until:
            return
        self.throttle.muted_until = until
        self.pause()
        self.io.add_mute(self, until)

    def throttle_soon(self, int16_t key, int32_t ms, int32_t before):
        """Call throttle_for() on the worker. Any thread."""
        self.io.mailbox.put(lambda: self.throttle_for(key, ms, before))

    def unmute(self):
        """End the mute, and serve what the client has sent meanwhile."""
        cdef Throttle throttle = throttle_of(self)
        cdef bytearray held = throttle.held
        cdef unsigned char[::1] view
        throttle.muted_until = 0.0
        if held is not None:
            throttle.held = None
            view = held
            self.serve(&view[0], view.shape[0])
            throttle.client.pay()
        return self.settle()

    cdef int serve_other(self, int16_t key, int16_t version, int32_t correlation_id, bytes client_id,
                         unsigned char* body, Py_ssize_t size) except -1:
        return dispatch(self, key, version, correlation_id, client_id, body, size)

    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1:
        """Copy received bytes that are not served yet into the connection's own buffer."""
        if self.received.capacity < size + PENDING_CAPACITY_MIN:
            self.grow_pending(size + max(<Py_ssize_t>PENDING_CAPACITY_MIN, size))
        self.received.keep(data, size)
        self.note_frame()
        return 0

    cdef int grow_pending(self, Py_ssize_t capacity) except -1:
        return self.received.grow(capacity)

    cdef Answer enqueue(self):
        """Return an Answer in the place of the current request's response."""
        return self.answers.add(self, holding_of(self))

    cdef int requeue_out(self, Py_ssize_t start) except -1:
        """Move a frame that begins at `start` in the out buffer after earlier responses that still wait, if any."""
        if self.answers.in_flight == 0:
            return 0
        return self.answers.move_out(self.enqueue(), start)

    cdef int write_out(self) except -1:
        """Send the out buffer. Bytes that the socket does not accept become the head of the queue."""
        cdef OutBuffer out = self.io.out
        cdef Py_ssize_t sent = 0
        cdef ssize_t n
        cdef int error
        if self.io.counters is not None and self.io.counters.run.count > 0:
            self.io.counters.end_run(out.size > 0)
        if self.tls is not None:
            sent = self.write_sealed()
        while self.tls is None and sent < out.size and not self.closed:
            with nogil:
                n = send(self.fd, out.data + sent, <size_t>(out.size - sent), MSG_NOSIGNAL | MSG_DONTWAIT)
                error = errno
            if n >= 0:
                sent += n
                self.last_active = self.io.now
            elif error == EAGAIN:
                break
            elif error != EINTR:
                self.close(None)
        if sent < out.size and not self.closed:
            self.answers.put_first(self, holding_of(self), sent)
            self.set_interest(self.interest | EVENT_WRITE)
        out.size = 0
        if self.io.counters is not None and self.io.counters.direct_count > 0:
            self.io.counters.sent()
        return 0

    cdef Py_ssize_t write_sealed(self) except -1:
        """Send the out buffer with TLS. Return how many bytes the session accepted; all of them if the connection has
        failed."""
        cdef OutBuffer out = self.io.out
        cdef Py_ssize_t n
        if out.size == 0 or self.closed or self.failed:
            return out.size
        n = self.tls.send(self.fd, out.data, out.size)
        if n < 0:
            self.close(None if self.tls.problem is None else "TLS failed: %s", self.tls.problem)
            return out.size
        self.last_active = self.io.now
        if n == out.size and self.tls.unsent_size > 0:
            self.set_interest(self.interest | EVENT_WRITE)
        return n

    cdef int settle(self) except -1:
        """End a turn: send what can be sent. Then serve more received frames, if enough was sent."""
        cdef AnswerQueue answers = self.answers
        while not self.closed:
            self.write_out()
            self.drain_queue()
            if self.closed or not self.paused or self.gives_way or self.starved or is_muted(self) \
                    or answers.in_flight > self.in_flight_max // 2 or self.waits_turn and answers.in_flight > 0 \
                    or answers.queued_bytes > self.io.output_bytes_max // 2:
                break
            self.paused = self.waits_turn = False
            self.set_interest(self.interest | EVENT_READ)
            if self.received.size > 0:
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
        """Send the out buffer, then close the connection because of a client's mistake; see close() for `reason`."""
        self.write_out()
        if not self.closed:
            self.close(reason, *values, client_id=client_id)
        return 0

    cdef int drain_queue(self) except -1:
        """Send ready responses from the head of the queue, until one is not ready or the socket is full."""
        cdef AnswerQueue answers = self.answers
        cdef Answer answer
        cdef TlsSession tls = self.tls
        cdef int result
        cdef int64_t budget = TURN_BYTES_MAX
        if tls is not None and (self.failed or not self.told(tls.flush(self.fd))):
            return 0
        while answers.in_flight > 0 and not self.closed:
            answers.gather()
            if self.io.out.size > 0:
                self.write_out()
                if self.interest & EVENT_WRITE:
                    return 0
                continue
            if answers.in_flight == 0:
                break
            answer = <Answer>answers.queue[0]
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
            answers.forget_head(answer)
        if not self.closed and (self.tls is None or self.tls.unsent_size == 0):
            self.set_interest(self.interest & ~EVENT_WRITE)
        return 0

    cdef bint told(self, int result) except -1:
        """Return whether all encrypted bytes were sent. If not, wait for the socket, or close a failed connection."""
        if result < 0:
            self.close(None if self.tls.problem is None else "TLS failed: %s", self.tls.problem)
        elif result == 0:
            self.set_interest(self.interest | EVENT_WRITE)
        return result > 0

    cdef int set_interest(self, int events) except -1:
        if events != self.interest and not self.closed:
            self.interest = events
            self.io.on_interest(self, events)
        return 0

    def close(self, str reason=None, *values, bytes client_id=None):
        """Close the connection. Only on its worker.

        A `reason` is logged as the client's mistake, with the client id of its request. It is a constant with
        placeholders for `values`, as for a logger, so that lines with the same reason are rate-limited together.
        """
        cdef FetchPlan plan
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            logger.warning("closed %s:%d (%s): %s", self.client_host, self.client_port,
                           name_for_log(self, client_id), reason % values if values else reason,
                           kind=("closed", reason))
        for plan in self.plans or ():
            plan.cancel()
        self.plans = None
        self.answers.drop()
        self.received.clear()
        if self.throttle is not None:
            self.throttle.held = None
        if self.io.counters is not None:
            self.io.counters.drop_run()
        self.io.end_handshake(self)
        if self.tls is not None:
            self.tls.say_goodbye(self.fd)
        self.io.on_close(self)
        self.socket.close()
