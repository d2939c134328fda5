"""Read the system's clocks directly, so that a test library that replaces Python's `time` does not affect them.

A program under test may contain kafkalite. freezegun replaces the functions of the module `time` in every module that
imported them, and time-machine changes what they return. The functions here have the names of those in `time`, so a
module can write `native_time as time`.
"""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec

from time import gmtime, sleep, strftime, thread_time  # no-cython-lint: for who imports this

cdef inline int64_t clock_ns(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


def time():
    """Return the seconds since 1970-01-01 UTC."""
    return clock_ns(CLOCK_REALTIME) * 1e-9


def time_ns():
    """Return the nanoseconds since 1970-01-01 UTC."""
    return clock_ns(CLOCK_REALTIME)


def monotonic():
    """Return the seconds of the monotonic clock, which `selectors` and `threading` use for time-outs."""
    return clock_ns(CLOCK_MONOTONIC) * 1e-9


def perf_counter_ns():
    """Return the nanoseconds of the monotonic clock, the finest that there is."""
    return clock_ns(CLOCK_MONOTONIC)
