"""Measure a worker's requests by API and version, in C structs that a metrics scrape reads.

The time of a request has up to three parts:

    local      from its beginning until the worker has served it
    remote     only of a parked request (with a Timing): from then until its response is ready
    sending    until the response is sent

A worker has a RequestCounters only if metrics are enabled or slow requests are reported.

Thread rule: one worker writes, except for `Timing.note_ready` and `note_error`, which any thread calls with the GIL.
Any thread reads with the GIL, and gets each number whole.
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
    """Return the client id of a request header; None if it is null or malformed."""
    cdef Cursor c
    cdef const unsigned char* text
    cdef Py_ssize_t text_size
    cursor_init(&c, frame + 8, size - 8)
    text = read_string(&c, False, &text_size)
    return None if c.status != OK or text_size < 0 else PyBytes_FromStringAndSize(<const char*>text, text_size)


@cython.final
@cython.freelist(64)
cdef class Timing:
    """When one parked request was served and answered."""

    cdef int note_ready(self) except -1:
        """Note that the response is ready. During serving, this counts as answered at once."""
        if self.served_ns != 0:
            self.ready_ns = now_ns()
        return 0


@cython.final
cdef class Turns:
    """The loop times of one worker, which writes them. Any thread reads."""

    def __cinit__(self):
        self.began_ns = now_ns()

    cdef int note_sleep(self) noexcept:
        self.sleeps_ns = now_ns()
        return 0

    cdef int note_turn(self) noexcept:
        """Note that the selector has returned: the end of one turn and the beginning of the next."""
        cdef int64_t now = now_ns()
        cdef int64_t ended = now
        if self.sleeps_ns != 0:
            ended = self.sleeps_ns
            self.slept_ns += now - self.sleeps_ns
            self.sleeps_ns = 0
        if self.woke_ns != 0:       # before that the worker was starting
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
        """Return (fraction of the time spent asleep, from 0 to 1; longest turn in seconds) since the start."""
        cdef int64_t elapsed = max(<int64_t>1, self.woke_ns - self.began_ns)
        return min(1.0, <double>self.slept_ns / <double>elapsed), <double>self.longest_ns / 1e9

    def cpu(self):
        """Return (CPU seconds of the longest turn, (CPU µs in total, turns by powers of two µs))."""
        return <double>self.longest_cpu_ns / 1e9, numbers_of(&self.cpu_us)


@cython.final
cdef class RequestCounters:
    """The metrics of one worker.

    Consecutive requests of one API and version are a run, which is counted and timed together. The clock is read before
    the run unless its beginning is known, after serving it, and after sending. If slow requests are reported, each
    request is timed individually.

    `on_slow` is called for requests slower than `slow_ms` (0: never) with (connection, key, version, client id, request
    bytes, µs in total, µs waiting, µs sending).
    """

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
        """Return (protocol, cipher) as one object, shared by all connections with this pair."""
        cdef tuple both = (protocol, cipher)
        return self.suites.setdefault(both, both)

    cdef int begin_run(self, const unsigned char* frame) noexcept:
        """Begin a run for a request of another kind. It was received now, or when the previous run ended.

        A worker that polls for fast clients has already read the clock, so that reading is the beginning.
        """
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
        """End the run; return the ns per request. `sending`: its responses are in the out buffer.

        Otherwise it has no response, except for one parked request.
        """
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
        """End the run, because the connection was closed before its responses were sent."""
        if self.run.count > 0:
            self.end_run(False)
        return self.sent()

    cdef int sent(self) noexcept:
        """Note that the out buffer was sent, or that its rest was queued. All responses in it count as sent now."""
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
        """Return the Timing of the current request, which is being parked; None if it is not timed."""
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
        """Note that the last byte of a parked request's response was sent."""
        cdef ApiCounters* api = &self.apis[place(timing.key, API_COUNT)]
        cdef int64_t now = now_ns()
        cdef int64_t ready = max(timing.ready_ns, timing.served_ns)
        self.clock_ns = now
        add_to(&api.remote, (ready - timing.served_ns) // 1000)
        add_to(&api.sending, (now - ready) // 1000)
        add_to(&api.total, (now - timing.began_ns) // 1000)
        return 0 if self.slow_ns == 0 else self.tell_slow(timing, connection, now)

    cdef int tell_slow(self, Timing timing, object connection, int64_t now) except -1:
        """Report the request if it was slow. The wait of a fetch or a join does not count, because the client wants
        it."""
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
        """Count an error code of a partition; 0 means none."""
        self.apis[place(key, API_COUNT)].errors[place(code + 1, ERROR_COUNT)] += 1
        return 0

    cdef int note_throttled(self, int16_t key, int32_t ms, int32_t before) noexcept:
        """Count the throttle time of a response. `before` ms were counted for the same request before, or 0."""
        cdef Buckets* throttled = &self.apis[place(key, API_COUNT)].throttled
        if before > 0:
            take_from(throttled, before)
        add_to(throttled, ms)
        return 0

    def use_slow_ms(self, int64_t slow_ms):
        """Set the milliseconds from which later requests are reported as slow; 0: never."""
        self.slow_ns = slow_ms * 1000000

    def numbers(self):
        """Return key → numbers, for the APIs that were requested.

        The numbers are counts by version, error code → count, then Histogram.numbers() of size, local, remote, sending,
        total and throttled (ms).
        """
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
