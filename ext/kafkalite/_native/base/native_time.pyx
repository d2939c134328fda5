"""Read the system's clocks, for code that runs in a process with a user's tests.

freezegun replaces the functions of the module `time` in all modules that have imported them, and time-machine changes
what they do. Neither affects these functions. Their names are those of `time`, so a module can write `native_time as
time`.
"""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec

from time import gmtime, sleep, strftime, thread_time  # no-cython-lint: for who imports this

cdef inline int64_t clock_ns(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


def time():
    """Seconds since 1970-01-01 UTC."""
    return clock_ns(CLOCK_REALTIME) * 1e-9


def time_ns():
    """Nanoseconds since 1970-01-01 UTC."""
    return clock_ns(CLOCK_REALTIME)


def monotonic():
    """Seconds on the clock that `selectors` and `threading` time-outs run on."""
    return clock_ns(CLOCK_MONOTONIC) * 1e-9


def perf_counter_ns():
    """Nanoseconds on the same clock, which is the finest."""
    return clock_ns(CLOCK_MONOTONIC)
