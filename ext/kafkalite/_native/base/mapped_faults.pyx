"""Detect that a mapped file fails while it is read, because it was truncated or the disk cannot read a page.

Without this, SIGBUS would end the process. With it, a reader gets zeros, and a flag that it must check before it uses
the bytes; ext/c/mapped_faults.h describes the protocol. The first map installs the signal handler, so a program without
maps keeps its own.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport int64_t

import os as _os

cdef extern from "mapped_faults.h" nogil:
    int kl_watch_map(void* address, size_t size, int* fault)
    void kl_forget_map(int watch)
    int64_t kl_fault_count()
    int64_t kl_watch_count()

cdef extern from "<sys/mman.h>" nogil:
    void* c_mmap "mmap"(void* address, size_t size, int protection, int flags, int fd, int64_t position)
    int c_munmap "munmap"(void* address, size_t size)
    int PROT_READ
    int MAP_SHARED
    void* MAP_FAILED


cdef int watch_map(void* address, int64_t size, int* fault) except -1:
    """Watches a map: a page of it that cannot be read raises *fault. The watch, for forget_map; MemoryError."""
    cdef int watch = kl_watch_map(address, <size_t>size, fault)
    if watch < 0:
        raise MemoryError("no memory for one more map")
    return watch


cdef void forget_map(int watch) noexcept:
    """Stops watching a range. Call it before the range is unmapped, while no thread reads it."""
    kl_forget_map(watch)


@cython.final
cdef class MappedFile:
    """The bytes of a file as they are now, read-only, by the buffer protocol; unmapped with the last reference."""

    def __cinit__(self, int fd):
        cdef int64_t size = _os.fstat(fd).st_size
        cdef void* address
        self.watch = -1
        if size <= 0:
            raise ValueError("an empty file cannot be mapped")
        address = c_mmap(NULL, <size_t>size, PROT_READ, MAP_SHARED, fd, 0)
        if address == MAP_FAILED:
            raise OSError(errno, _os.strerror(errno))
        self.address = address
        self.size = size
        self.watch = watch_map(address, size, &self.fault)

    def __dealloc__(self):
        forget_map(self.watch)
        if self.address != NULL:
            c_munmap(self.address, <size_t>self.size)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.address, <Py_ssize_t>self.size, 1, flags)

    def __len__(self):
        return self.size

    @property
    def failed(self):
        """Whether a page could not be read: what was read from it, or after it, were zeros."""
        return bool(fault_raised(&self.fault))


def fault_count():
    """How many faults were taken since the process began."""
    return kl_fault_count()


def watch_count():
    """How many maps are watched."""
    return kl_watch_count()
