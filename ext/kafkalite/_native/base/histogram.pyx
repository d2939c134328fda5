"""Histograms whose buckets are powers of two, for native code (`Buckets`) and for Python (`Histogram`).

Thread rule: a value is added with the GIL held, or by the one thread that owns the buckets. Each number that a reader
gets is consistent, but the sum may already include a value that the counts lack.
"""

cimport cython

BUCKETS = BUCKET_COUNT


cdef tuple numbers_of(const Buckets* buckets):
    """(sum, counts)."""
    cdef int i
    return buckets.sum, tuple([buckets.counts[i] for i in range(<int>BUCKET_COUNT)])


@cython.final
cdef class Histogram:
    """Of durations: bucket i counts those below 2**i µs that are in none before it, the last one all others."""

    def add(self, double seconds):
        """Counts one."""
        add_to(&self.buckets, <int64_t>(seconds * 1e6))

    def numbers(self):
        """(sum in µs, counts of the buckets), since it was made."""
        return numbers_of(&self.buckets)
