"""Declare `kl_assert`, which checks an invariant in the debug build and does nothing in other builds
(ext/c/kl_assert.h).

Each check is one comparison of C values, so the compiler removes all of it from a release build.
"""

cdef extern from "kl_assert.h" nogil:
    const int KL_DEBUG
    void kl_assert(bint condition)
