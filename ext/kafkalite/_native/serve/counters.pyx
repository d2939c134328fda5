"""Counts and times of a worker's requests: by API and version, in C structs, read at a scrape.

    began ─▶ served by the worker ─┬─ answered at once ─────────────────────▶ sent: the end of the send that took it
                                   └─ parked (a Timing goes with it) ─▶ ready ─▶ sent: its last byte is in the socket
              local                         remote                       sending

A worker has a RequestCounters only where metrics are served or slow requests are told; without it nothing is counted
and no clock is read. With it the clock is looked at twice a turn, when all is served and when it is sent: where the
worker has just looked (it lingers for brisk clients), that look counts as the beginning. Requests of one API and
version that come together are a Run, counted and timed as one; who wants to know of slow ones has each timed by itself.

Thread rule: one worker writes, but for `Timing.note_ready` and `note_error`, which any thread calls with the GIL; any
thread reads, with the GIL, and sees each number whole.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkalite._native.base.histogram cimport Buckets, add_times, add_to, numbers_of, take_from
from kafkalite._native.wire.cursor cimport Cursor, cursor_init, load_i16, read_string
from kafkalite._native.wire.status cimport OK


cdef bytes client_id_of(const unsigned char* frame, Py_ssize_t size):
    """Of a request's header; None for null, or where there is none."""
    cdef Cursor c
    cdef const unsigned char* text
    cdef Py_ssize_t text_size
    cursor_init(&c, frame + 8, size - 8)
    text = read_string(&c, False, &text_size)
    return None if c.status != OK or text_size < 0 else PyBytes_FromStringAndSize(<const char*>text, text_size)


@cython.final
@cython.freelist(64)
cdef class Timing:
    """See the declaration."""

    cdef int note_ready(self) except -1:
        """There is an answer. While the request is still being served that is at once."""
        if self.served_ns != 0:
            self.ready_ns = now_ns()
        return 0


@cython.final
cdef class Turns:
    """See the declaration. The worker notes, any thread reads."""

    def __cinit__(self):
        self.began_ns = now_ns()

    cdef int note_sleep(self) noexcept:
        self.sleeps_ns = now_ns()
        return 0

    cdef int note_turn(self) noexcept:
        """The selector has answered: a turn has ended, and another begins."""
        cdef int64_t now = now_ns()
        cdef int64_t ended = now
        if self.sleeps_ns != 0:
            ended = self.sleeps_ns
            self.slept_ns += now - self.sleeps_ns
            self.sleeps_ns = 0
        if self.woke_ns != 0:       # before that the worker was started, which is no turn
            self.longest_ns = max(self.longest_ns, ended - self.woke_ns)
        self.woke_ns = now
        self.note_cpu(cpu_now_ns())
        return 0

    cdef int note_cpu(self, int64_t cpu_ns) noexcept:
        cdef int64_t spent = cpu_ns - self.cpu_ns
        if self.cpu_ns != 0:
            self.longest_cpu_ns = max(self.longest_cpu_ns, spent)
            add_to(&self.cpu_us, spent // 1000)
        self.cpu_ns = cpu_ns
        return 0

    def numbers(self):
        """(share of the time since the start that it slept, from 0 to 1; seconds of the longest turn)"""
        cdef int64_t elapsed = max(<int64_t>1, self.woke_ns - self.began_ns)
        return min(1.0, <double>self.slept_ns / <double>elapsed), <double>self.longest_ns / 1e9

    def cpu(self):
        """(seconds of CPU of the longest turn, (µs in all, counts of the turns by powers of two µs))"""
        return <double>self.longest_cpu_ns / 1e9, numbers_of(&self.cpu_us)


@cython.final
cdef class RequestCounters:
    """What one worker counts. `on_slow`: told of requests that took longer than `slow_ms`, which is 0 for none, as
    (connection, key, version, client id, request bytes, µs in all, µs waiting, µs sending)."""

    def __cinit__(self, *, int64_t slow_ms=0, on_slow=None):
        self.apis = <ApiCounters*>calloc(API_COUNT, sizeof(ApiCounters))
        if self.apis == NULL:
            raise MemoryError
        self.slow_ns = slow_ms * 1000000
        self.on_slow = on_slow
        self.run.next = NO_MORE
        self.suites = {}

    def __dealloc__(self):
        free(self.apis)

    cdef tuple suite(self, str protocol, str cipher):
        """Both, as one object for all connections that agreed on them."""
        cdef tuple both = (protocol, cipher)
        return self.suites.setdefault(both, both)

    cdef int begin_run(self, const unsigned char* frame) noexcept:
        """Another kind of request comes, which was received now, or when the one before it was done with."""
        cdef uint32_t kind
        memcpy(&kind, frame, 4)
        if self.run.count > 0:
            self.end_run(True)
        elif self.clock_ns == 0:
            self.clock_ns = now_ns()
        self.run.next = kind
        self.run.began_ns = self.clock_ns
        self.run.api = &self.apis[place(load_i16(frame), API_COUNT)]
        self.run.version = load_i16(frame + 2)
        return 0

    cdef int64_t end_run(self, bint sending) noexcept:
        """The requests of the run are served; their answers are in the out buffer, or (not `sending`) there are none,
        but for one that is parked. ns that each of them took."""
        cdef ApiCounters* api = self.run.api
        cdef int64_t count = self.run.count
        cdef int64_t now = now_ns()
        cdef int64_t spent = now - self.run.began_ns
        self.run.next = NO_MORE
        self.run.count = 0
        self.clock_ns = now
        if count > 1:
            spent //= count
        api.by_version[place(self.run.version, VERSION_COUNT)] += count
        add_times(&api.local, spent // 1000, count)
        if self.parked is not None:
            self.parked.began_ns, self.parked.served_ns = now - spent, now
            self.parked = None
            count -= 1
        if sending and self.direct_count < DIRECT_MAX:
            if count > 0:
                self.direct[self.direct_count] = Direct(api, count, spent, now)
                self.direct_count += 1
        else:
            add_times(&api.total, spent // 1000, count)
        return spent

    cdef int drop_run(self) noexcept:
        """A connection is closed: what was served and not sent will not be."""
        if self.run.count > 0:
            self.end_run(False)
        return self.sent()

    cdef int sent(self) noexcept:
        """The out buffer is with the socket, or what it did not take is kept for later."""
        cdef int64_t now = now_ns()
        cdef int64_t sending
        cdef int32_t i
        cdef Direct* direct
        self.clock_ns = now
        for i in range(self.direct_count):
            direct = &self.direct[i]
            sending = now - direct.served_ns
            add_times(&direct.api.sending, sending // 1000, direct.count)
            add_times(&direct.api.total, (direct.spent_ns + sending) // 1000, direct.count)
        self.direct_count = 0
        return 0

    cdef Timing park(self):
        """What goes with the answer of the request that is being served, which is parked; None: none is."""
        cdef Timing timing
        if self.run.count == 0:
            return None
        timing = Timing.__new__(Timing)
        timing.key = <int16_t>(self.run.api - self.apis)
        timing.version = self.run.version
        self.parked = timing
        self.run.next = NO_MORE
        return timing

    cdef int finish(self, Timing timing, object connection) except -1:
        """The last byte of an answer that was parked has gone."""
        cdef ApiCounters* api = &self.apis[place(timing.key, API_COUNT)]
        cdef int64_t now = now_ns()
        cdef int64_t ready = max(timing.ready_ns, timing.served_ns)
        self.clock_ns = now
        add_to(&api.remote, (ready - timing.served_ns) // 1000)
        add_to(&api.sending, (now - ready) // 1000)
        add_to(&api.total, (now - timing.began_ns) // 1000)
        return 0 if self.slow_ns == 0 else self.tell_slow(timing, connection, now)

    cdef int tell_slow(self, Timing timing, object connection, int64_t now) except -1:
        """Tells of a request, if it was slow. Of a fetch or a join the wait, which the client asks for, is no slowness.
        """
        cdef int64_t ready = max(timing.ready_ns, timing.served_ns)
        cdef int64_t waited = ready - timing.served_ns
        cdef int64_t counted = now - timing.began_ns
        if self.slow_ns == 0:
            return 0
        if timing.key == KEY_OF_FETCH or timing.key == KEY_OF_JOIN_GROUP or timing.key == KEY_OF_SYNC_GROUP:
            counted -= waited
        if counted >= self.slow_ns:
            self.on_slow(connection, timing.key, timing.version, timing.client_id, timing.size,
                         (now - timing.began_ns) // 1000, waited // 1000, (now - ready) // 1000)
        return 0

    cdef int note_error(self, int16_t key, int code) noexcept:
        """An answer says this of a partition, 0 for good."""
        self.apis[place(key, API_COUNT)].errors[place(code + 1, ERROR_COUNT)] += 1
        return 0

    cdef int note_throttled(self, int16_t key, int32_t ms, int32_t before) noexcept:
        """An answer tells its client to wait so long; for the same request `before` was noted, 0: nothing was."""
        cdef Buckets* throttled = &self.apis[place(key, API_COUNT)].throttled
        if before > 0:
            take_from(throttled, before)
        add_to(throttled, ms)
        return 0

    def use_slow_ms(self, int64_t slow_ms):
        """From now on requests that take longer are told; 0: none."""
        self.slow_ns = slow_ms * 1000000

    def numbers(self):
        """Key → (counts by version, code → count, then of size, local, remote, sending, total and throttled (ms) what
        Histogram.numbers gives), of the APIs that were asked for."""
        cdef int32_t i, j
        cdef ApiCounters* api
        cdef dict found = {}
        for i in range(API_COUNT):
            api = &self.apis[i]
            versions = {j: api.by_version[j] for j in range(VERSION_COUNT) if api.by_version[j] > 0}
            errors = {j - 1: api.errors[j] for j in range(ERROR_COUNT) if api.errors[j] > 0}
            if versions or errors:
                found[i] = (versions, errors, numbers_of(&api.size), numbers_of(&api.local), numbers_of(&api.remote),
                            numbers_of(&api.sending), numbers_of(&api.total), numbers_of(&api.throttled))
        return found
