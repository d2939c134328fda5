"""Survive a memory-mapped file that is truncated or unreadable; see ext/c/mapped_faults.h."""

from libc.stdint cimport int64_t

cdef extern from "mapped_faults.h" nogil:
    bint fault_raised "kl_has_fault"(const int* fault)

cdef int watch_map(void* address, int64_t size, int* fault) except -1
cdef void forget_map(int watch) noexcept

cdef class MappedFile:
    cdef int fault              # 1: a page could not be read; it and all later ones are zeros
    cdef int watch
    cdef void* address
    cdef readonly int64_t size  # bytes of the file when it was mapped
