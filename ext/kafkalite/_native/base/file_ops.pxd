"""Every system call by which the log changes the disk, in one place, so that a test can make the n-th of them fail, or
replace the machine's disk.

The functions return a count or 0, or -errno; EINTR and short writes are continued here and nowhere else. They run
without the GIL and touch no Python object.
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
