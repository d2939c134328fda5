"""Survive reads of a memory-mapped file that another process has truncated, or that the disk cannot read.

Reading a missing page normally ends the process by SIGBUS. Here the reader gets zeros instead, and a flag is set. The
reader must check the flag before it uses the bytes. ext/c/mapped_faults.h describes the protocol.

The first map installs the signal handler, so a program that maps no file keeps its own handler.
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
    """Watch a map: an unreadable page in it sets `*fault`. Return the watch for forget_map. Raises MemoryError."""
    cdef int watch = kl_watch_map(address, <size_t>size, fault)
    if watch < 0:
        raise MemoryError("no memory for one more map")
    return watch


cdef void forget_map(int watch) noexcept:
    """Stop watching a map. Call this before it is unmapped, when no thread reads it any more."""
    kl_forget_map(watch)


@cython.final
cdef class MappedFile:
    """A read-only buffer over the current bytes of a file, mapped until the last reference is gone."""

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
        """Whether a page could not be read. Bytes read from that page on may have been zeros."""
        return bool(fault_raised(&self.fault))


def fault_count():
    """Return the number of unreadable pages that were met since the process began."""
    return kl_fault_count()


def watch_count():
    """Return the number of watched maps."""
    return kl_watch_count()
