"""Count durations or sizes in 24 buckets, by powers of two, without a Python object per value."""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    BUCKET_COUNT = 24

# Bucket i counts the values below 2**i that are in no earlier bucket; the last bucket counts all larger values.
cdef struct Buckets:
    int64_t sum
    int64_t counts[BUCKET_COUNT]

cdef extern from *:
    """
    static inline int kl_bit_length(unsigned long long value) {
        return value == 0 ? 0 : 64 - __builtin_clzll(value);
    }
    """
    int kl_bit_length(unsigned long long value) nogil

cdef inline void add_to(Buckets* buckets, int64_t value) noexcept nogil:
    """Count a value. A negative value, which only a clock that jumps back gives, counts as 0."""
    cdef int i
    if value < 0:
        value = 0
    i = kl_bit_length(<uint64_t>value)
    buckets.sum += value
    buckets.counts[min(i, <int>BUCKET_COUNT - 1)] += 1

cdef inline void add_times(Buckets* buckets, int64_t value, int64_t times) noexcept nogil:
    """Count a value several times."""
    if value < 0:
        value = 0
    buckets.sum += value * times
    buckets.counts[min(kl_bit_length(<uint64_t>value), <int>BUCKET_COUNT - 1)] += times

cdef inline void take_from(Buckets* buckets, int64_t value) noexcept nogil:
    """Remove a value that was counted before and is not negative."""
    buckets.sum -= value
    buckets.counts[min(kl_bit_length(<uint64_t>value), <int>BUCKET_COUNT - 1)] -= 1

cdef tuple numbers_of(const Buckets* buckets)

cdef class Histogram:
    cdef Buckets buckets
