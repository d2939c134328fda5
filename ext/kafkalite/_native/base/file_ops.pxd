"""Make every system call by which the log changes the disk, so that a test can fail the n-th call or replace the disk.

Functions return a count or 0, or -errno on failure. Only this module continues after EINTR and short writes. The
functions run without the GIL and use no Python object.
"""

from libc.stdint cimport int64_t

cdef int64_t file_pwrite(int fd, const unsigned char* data, int64_t size, int64_t position) noexcept nogil
cdef int file_datasync(int fd) noexcept nogil
cdef int file_sync(int fd) noexcept nogil
cdef int file_truncate(int fd, int64_t size) noexcept nogil
cdef int file_allocate(int fd, int64_t position, int64_t size) noexcept nogil
cdef int file_open(const char* path, int flags) noexcept nogil
cdef int file_rename(const char* source, const char* target) noexcept nogil
cdef int file_unlink(const char* path) noexcept nogil
cdef int file_make_directory(const char* path) noexcept nogil
cdef object file_status(object path)        # os.stat_result, by the GIL
