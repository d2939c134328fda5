"""Declare `kl_assert`, which checks invariants in the debug build and does nothing in others (ext/c/kl_assert.h).

Each check is one comparison of C values, so that nothing of it is left in the release build.
"""

cdef extern from "kl_assert.h" nogil:
    const int KL_DEBUG
    void kl_assert(bint condition)
