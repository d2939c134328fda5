"""The debug build: `kl_assert` checks invariants there and is nothing elsewhere. See ext/c/kl_assert.h.

One comparison each, of C values, so that the release build has not even that.
"""

cdef extern from "kl_assert.h" nogil:
    const int KL_DEBUG
    void kl_assert(bint condition)
