"""Make every system call by which the log changes the disk. Tests can make a call fail, or replace the disk.

On success a function returns a count, a descriptor or 0; on failure it returns -errno. It repeats calls on descriptors
and opens after EINTR, and writes after a short write, so its callers need not.

Thread rule: any thread. The functions run without the GIL and use no Python object.
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
