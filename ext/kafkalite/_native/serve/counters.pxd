"""Measure a worker's requests by API and version, if metrics are enabled or slow requests are reported."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

from kafkalite._native.base.histogram cimport Buckets, add_to

cdef enum:
    API_COUNT = 96                      # keys from 0; later ones share the last
    VERSION_COUNT = 24                  # the same
    ERROR_COUNT = 160                   # codes from -1
    KEY_OF_PRODUCE = 0
    KEY_OF_FETCH = 1
    KEY_OF_JOIN_GROUP = 11
    KEY_OF_SYNC_GROUP = 14
    DIRECT_MAX = 64                     # runs in one send whose sending time is measured; it counts as 0 for others
    NO_MORE = -1                        # follow in the run

cdef struct ApiCounters:
    int64_t by_version[VERSION_COUNT]
    int64_t errors[ERROR_COUNT]         # of partitions, of the APIs that are served in C
    Buckets size                        # bytes of requests
    Buckets local                       # µs until the worker was done with it
    Buckets remote                      # µs from there until a parked request had its answer
    Buckets sending                     # µs from there until the answer was in the socket
    Buckets total                       # µs
    Buckets throttled                   # ms of throttle time, of throttled requests only

# Consecutive requests of one API and version in a loop turn. They are timed together, and the time is divided equally.
cdef struct Run:
    int64_t next                        # API and version, as in the request header, of its requests
    int16_t version
    int64_t count                       # requests; 0: there is no run
    int64_t began_ns
    ApiCounters* api

cdef struct Direct:
    ApiCounters* api
    int64_t count                       # answers of one run in the out buffer
    int64_t spent_ns                    # ns per answer, until it was in the out buffer
    int64_t served_ns

cdef class Timing:
    """The times of one parked request."""
    cdef int16_t key
    cdef int16_t version
    cdef int64_t began_ns
    cdef int64_t served_ns              # when the worker had finished with it
    cdef int64_t ready_ns               # when the answer was ready; 0: at once
    cdef Py_ssize_t size                # of the request
    cdef bytes client_id                # None if slow requests are not reported
    cdef int note_ready(self) except -1

cdef class Turns:
    """How long a worker's loop worked and slept."""
    cdef int64_t began_ns
    cdef int64_t woke_ns                # when the current turn began; 0: none has
    cdef int64_t sleeps_ns              # when it fell asleep; 0: it is awake
    cdef int64_t slept_ns               # in total
    cdef int64_t longest_ns             # longest turn, without sleep
    cdef int64_t cpu_ns                 # CPU time of the thread when the current turn began; 0: none has
    cdef int64_t longest_cpu_ns         # CPU time of a turn
    cdef Buckets cpu_us                 # CPU time of the turns
    cdef int note_sleep(self) noexcept
    cdef int note_turn(self) noexcept
    cdef int note_cpu(self, int64_t cpu_ns) noexcept

cdef class RequestCounters:
    cdef ApiCounters* apis
    cdef Run run
    cdef Timing parked                  # of the last request of the run, once it has its own Answer; else None
    cdef int64_t clock_ns               # the last clock reading, if nothing has waited since; else 0
    cdef Direct direct[DIRECT_MAX]      # answers in the out buffer
    cdef int32_t direct_count
    cdef readonly int64_t slow_ns       # requests that take longer are reported; 0: none
    cdef object on_slow
    cdef public int64_t handshakes, handshakes_failed
    cdef dict suites                    # of TLS connections; equal ones share one object

    cdef tuple suite(self, str protocol, str cipher)
    cdef int begin_run(self, const unsigned char* frame) noexcept
    cdef int64_t end_run(self, bint sending) noexcept
    cdef int drop_run(self) noexcept
    cdef int sent(self) noexcept
    cdef Timing park(self)
    cdef int tell_slow(self, Timing timing, object connection, int64_t now) except -1
    cdef int finish(self, Timing timing, object connection) except -1
    cdef int note_error(self, int16_t key, int code) noexcept
    cdef int note_throttled(self, int16_t key, int32_t ms, int32_t before) noexcept


cdef inline int32_t place(int value, int count) noexcept nogil:
    return <int32_t>(value if 0 <= value < count else count - 1)


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef inline int64_t cpu_now_ns() noexcept nogil:
    """Return the CPU time of this thread in ns."""
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef bytes client_id_of(const unsigned char* frame, Py_ssize_t size)
