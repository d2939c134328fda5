"""Histograms with buckets by powers of two, for native code (`Buckets`) and for Python (`Histogram`).

Thread rule: add a value with the GIL held, or on the one thread that owns the buckets. A reader gets each number whole,
but the sum may already include a value that the counts lack.
"""

cimport cython

BUCKETS = BUCKET_COUNT


cdef tuple numbers_of(const Buckets* buckets):
    """Return (sum, counts of the buckets)."""
    cdef int i
    return buckets.sum, tuple([buckets.counts[i] for i in range(<int>BUCKET_COUNT)])


@cython.final
cdef class Histogram:
    """A histogram of durations. Bucket i counts those below 2**i µs that are in no earlier bucket.

    The last bucket has no upper limit.
    """

    def add(self, double seconds):
        """Count one duration in seconds."""
        add_to(&self.buckets, <int64_t>(seconds * 1e6))

    def numbers(self):
        """Return (sum in µs, counts of the buckets) since the histogram was created."""
        return numbers_of(&self.buckets)
