"""Make every system call by which the log changes the disk. Tests can make a call fail, or replace the disk.

    fault plan (`arm`)              lets some calls succeed and makes the next one fail with an errno
    replacement disk (`use_disk`)   handles each call that takes a path; is notified before each call that takes a
                                    descriptor, and may refuse it

A plan or a replacement applies to the whole process and is only for tests. This module does not read files, because
logs are read through maps.
"""

from libc.errno cimport errno, EINTR, EIO, ENOENT
from libc.stdint cimport int64_t

import os as _os

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int c_fallocate "fallocate"(int fd, int mode, int64_t position, int64_t size)
    int FALLOC_FL_KEEP_SIZE

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t c_pwrite "pwrite"(int fd, const void* data, size_t size, int64_t position)
    int c_fdatasync "fdatasync"(int fd)
    int c_fsync "fsync"(int fd)
    int c_syncfs "syncfs"(int fd)
    int c_ftruncate "ftruncate"(int fd, int64_t size)
    int c_unlink "unlink"(const char* path)

cdef extern from "<stdio.h>" nogil:
    int c_rename "rename"(const char* source, const char* target)

cdef extern from "<sys/stat.h>" nogil:
    int c_mkdir "mkdir"(const char* path, unsigned int mode)

cdef extern from *:
    """
    #define kl_count_down(p) __atomic_fetch_sub((p), 1, __ATOMIC_SEQ_CST)
    #define kl_count_up(p) __atomic_fetch_add((p), 1, __ATOMIC_SEQ_CST)
    """
    int64_t kl_count_down(int64_t*) nogil
    int64_t kl_count_up(int64_t*) nogil

cdef enum:
    WRITE = 0
    SYNC = 1
    OPEN = 2
    RENAME = 3
    TRUNCATE = 4
    ALLOCATE = 5
    UNLINK = 6
    MKDIR = 7
    KIND_COUNT = 8

KINDS = ("write", "sync", "open", "rename", "truncate", "allocate", "unlink", "mkdir")

cdef enum:
    MODE_OF_FILES = 0o600
    MODE_OF_DIRECTORIES = 0o700

FILE_MODE = MODE_OF_FILES
DIRECTORY_MODE = MODE_OF_DIRECTORIES

cdef enum:
    BY_PLAN = 1
    BY_DISK = 2

cdef unsigned int armed = 0
cdef object disk = None
cdef object disk_failure = None     # an exception of the disk that is no OSError: a bug in it

cdef unsigned int plan_kinds = 0
cdef int64_t plan_left = 0
cdef int plan_errno = 0
cdef bint plan_sticky = False
cdef int64_t plan_written = 0
cdef int64_t plan_hits = 0
cdef int64_t counts[KIND_COUNT]


cdef int _planned(int kind) noexcept nogil:
    """Return 0, or the errno with which the armed plan makes this call fail."""
    cdef int64_t left
    if not armed & BY_PLAN:
        return 0
    kl_count_up(&counts[kind])
    if not (plan_kinds >> kind) & 1:
        return 0
    left = kl_count_down(&plan_left)
    if left > 0 or (left < 0 and not plan_sticky):
        return 0
    kl_count_up(&plan_hits)
    return plan_errno


cdef int _tell(int kind, int fd, const unsigned char* data, int64_t size, int64_t position) noexcept nogil:
    """Notify the replacement disk of a call by descriptor. Return 0, or the errno with which it refuses the call."""
    if not armed & BY_DISK:
        return 0
    with gil:
        try:
            if kind == WRITE:
                disk.write(fd, position, <bytes>data[:size])
            elif kind == SYNC:
                disk.sync(fd)
            elif kind == TRUNCATE:
                disk.truncate(fd, size)
            else:
                disk.allocate(fd, position, size)
        except BaseException as error:
            return _errno_of(error)
    return 0


cdef int _ask(int kind, const char* path, const char* target, int flags) noexcept nogil:
    """Let the replacement disk handle a call by path. Return a descriptor or 0, or -errno."""
    with gil:
        try:
            if kind == OPEN:
                return <int>disk.open(_os.fsdecode(<bytes>path), flags)
            if kind == RENAME:
                disk.rename(_os.fsdecode(<bytes>path), _os.fsdecode(<bytes>target))
            elif kind == UNLINK:
                disk.unlink(_os.fsdecode(<bytes>path))
            else:
                disk.make_directory(_os.fsdecode(<bytes>path))
        except BaseException as error:
            return -_errno_of(error)
    return 0


cdef int _errno_of(object error) noexcept:
    global disk_failure
    if isinstance(error, OSError) and error.errno:
        return <int>error.errno
    if disk_failure is None:
        disk_failure = error
    return EIO


cdef inline int _fault(int kind, int fd=-1, int64_t size=0, int64_t position=0) noexcept nogil:
    """Return 0, or the errno with which the plan or the replacement disk makes this call fail."""
    cdef int fault
    if not armed:
        return 0
    fault = _planned(kind)
    if fd >= 0 and (fault == 0 or fault == EINTR):
        return _tell(kind, fd, NULL, size, position)
    return fault


cdef int _write_fault(int fd, const unsigned char* data, int64_t size, int64_t position) noexcept nogil:
    """Return what _fault returns, for a write. A write that the plan makes fail may first write its beginning."""
    cdef int fault = _planned(WRITE)
    cdef int refused
    if fault and not 0 < plan_written < size:
        return fault
    refused = _tell(WRITE, fd, data, plan_written if fault else size, position)
    if fault and not refused:
        c_pwrite(fd, data, <size_t>plan_written, position)
    return fault or refused


cdef int64_t file_pwrite(int fd, const unsigned char* data, int64_t size, int64_t position) noexcept nogil:
    """Write all bytes. Return `size`, or -errno; then any part may be in the file, and the caller truncates it."""
    cdef int64_t done = 0
    cdef Py_ssize_t n
    cdef int fault
    while done < size:
        if armed:
            fault = _write_fault(fd, data + done, size - done, position + done)
            if fault == EINTR:
                continue
            if fault:
                return -fault
        n = c_pwrite(fd, data + done, <size_t>(size - done), position + done)
        if n < 0:
            if errno == EINTR:
                continue
            return -errno
        done += n
    return done


cdef inline int _synced(int fd, bint data_only) noexcept nogil:
    cdef int fault = _fault(SYNC, fd)
    if fault:
        return -fault
    while (c_fdatasync(fd) if data_only else c_fsync(fd)) != 0:
        if errno != EINTR:
            return -errno
    return 0


cdef int file_datasync(int fd) noexcept nogil:
    return _synced(fd, True)


cdef int file_sync(int fd) noexcept nogil:
    return _synced(fd, False)


cdef int file_truncate(int fd, int64_t size) noexcept nogil:
    cdef int fault = _fault(TRUNCATE, fd, size)
    if fault:
        return -fault
    while c_ftruncate(fd, size) != 0:
        if errno != EINTR:
            return -errno
    return 0


cdef int file_allocate(int fd, int64_t position, int64_t size) noexcept nogil:
    """Reserve blocks for a range without changing the file size, which still shows how much was written."""
    cdef int fault = _fault(ALLOCATE, fd, size, position)
    if fault:
        return -fault
    while c_fallocate(fd, FALLOC_FL_KEEP_SIZE, position, size) != 0:
        if errno != EINTR:
            return -errno
    return 0


cdef int file_open(const char* path, int flags) noexcept nogil:
    cdef int fault = _fault(OPEN)
    cdef int fd
    if fault and fault != EINTR:
        return -fault
    if armed & BY_DISK:
        return _ask(OPEN, path, NULL, flags)
    while True:
        fd = c_open(path, flags, <int>MODE_OF_FILES)
        if fd >= 0:
            return fd
        if errno != EINTR:
            return -errno


cdef int file_rename(const char* source, const char* target) noexcept nogil:
    cdef int fault = _fault(RENAME)
    if fault and fault != EINTR:
        return -fault
    if armed & BY_DISK:
        return _ask(RENAME, source, target, 0)
    return 0 if c_rename(source, target) == 0 else -errno


cdef int file_unlink(const char* path) noexcept nogil:
    cdef int fault = _fault(UNLINK)
    if fault and fault != EINTR:
        return -fault
    if armed & BY_DISK:
        return _ask(UNLINK, path, NULL, 0)
    return 0 if c_unlink(path) == 0 else -errno


cdef int file_make_directory(const char* path) noexcept nogil:
    cdef int fault = _fault(MKDIR)
    if fault and fault != EINTR:
        return -fault
    if armed & BY_DISK:
        return _ask(MKDIR, path, NULL, 0)
    return 0 if c_mkdir(path, MODE_OF_DIRECTORIES) == 0 else -errno


cdef object file_status(object path):
    """Return the os.stat_result of a path. Raises OSError."""
    return _os.stat(path) if disk is None else disk.stat(path)


cdef int _check(int64_t result, object path) except -1:
    if result < 0:
        raise OSError(<int>-result, _os.strerror(<int>-result), path)
    return 0


def arm(kinds, *, int64_t after, int error, bint sticky=False, int64_t written=0):
    """Arm the fault plan: of the calls named in `kinds`, `after` succeed and the next fails; with `sticky`, all later
    ones.

    A failing write may first write `written` bytes, as on a full disk. Calls are counted only while a plan is armed.
    """
    global armed, plan_kinds, plan_left, plan_errno, plan_sticky, plan_written, plan_hits
    plan_kinds = 0
    for kind in kinds:
        plan_kinds |= 1 << KINDS.index(kind)
    plan_left = after
    plan_errno = error
    plan_sticky = sticky
    plan_written = written
    plan_hits = 0
    for i in range(<int>KIND_COUNT):
        counts[i] = 0
    armed |= BY_PLAN


def disarm():
    """Disarm the fault plan; return how many calls it made fail."""
    global armed
    armed &= ~<unsigned int>BY_PLAN
    return plan_hits


def use_disk(instead):
    """Replace the disk, or restore the system's disk with None. kafkalite.broker.log.disk.instead calls this.

    The interface is kafkalite.broker.log.disk.Disk. It handles open, rename, unlink, mkdir and stat. Calls by
    descriptor still go to the system, because maps and native loops need real descriptors; the disk can refuse them.

    Raises the exception, other than OSError, that a method of the previous disk raised. The caller of that method got
    EIO.
    """
    global armed, disk, disk_failure
    cdef object failure = disk_failure
    disk = instead
    disk_failure = None
    if instead is None:
        armed &= ~<unsigned int>BY_DISK
    else:
        armed |= BY_DISK
    if failure is not None:
        raise failure


def stat_file(path):
    """Return the os.stat_result of a path, following links. Raises OSError."""
    return file_status(path)


def hits():
    """Return how many calls the armed plan has made fail."""
    return plan_hits


def call_counts():
    """Return the number of calls by kind since the plan was armed."""
    return {name: counts[i] for i, name in enumerate(KINDS)}


def open_file(path, int flags):
    """Open a file with close-on-exec; return its descriptor. Raises OSError."""
    cdef bytes encoded = _os.fsencode(path)
    cdef const char* c_path = encoded
    cdef int fd
    cdef int all_flags = flags | _os.O_CLOEXEC
    with nogil:
        fd = file_open(c_path, all_flags)
    _check(fd, path)
    return fd


def write_all(int fd, const unsigned char[::1] data, int64_t position):
    """Write all of `data` at `position`. Raises OSError; then any part of the data may be in the file."""
    cdef int64_t result
    cdef int64_t size = data.shape[0]
    if size == 0:
        return
    cdef const unsigned char* start = &data[0]
    with nogil:
        result = file_pwrite(fd, start, size, position)
    _check(result, fd)


def sync_file(int fd, *, bint data_only=True):
    """Call fdatasync, or fsync with data_only=False. Raises OSError: the data may be lost, so never retry."""
    cdef int result
    with nogil:
        result = file_datasync(fd) if data_only else file_sync(fd)
    _check(result, fd)


def truncate_file(int fd, int64_t size):
    cdef int result
    with nogil:
        result = file_truncate(fd, size)
    _check(result, fd)


def rename(source, target):
    cdef bytes encoded_source = _os.fsencode(source)
    cdef bytes encoded_target = _os.fsencode(target)
    cdef const char* c_source = encoded_source
    cdef const char* c_target = encoded_target
    cdef int result
    with nogil:
        result = file_rename(c_source, c_target)
    _check(result, source)


def unlink(path, *, bint missing_ok=False):
    cdef bytes encoded = _os.fsencode(path)
    cdef const char* c_path = encoded
    cdef int result
    with nogil:
        result = file_unlink(c_path)
    if missing_ok and result == -ENOENT:
        return
    _check(result, path)


def make_directory(path):
    cdef bytes encoded = _os.fsencode(path)
    cdef const char* c_path = encoded
    cdef int result
    with nogil:
        result = file_make_directory(c_path)
    _check(result, path)


def sync_file_system(path):
    """Sync the whole file system of a directory. Raises OSError: some of the data may be lost."""
    cdef int result = 0
    cdef int fault = _fault(SYNC)
    cdef int fd = open_file(path, _os.O_RDONLY | _os.O_DIRECTORY)
    if disk is not None and not fault:
        disk.sync_file_system(path)
    try:
        with nogil:
            if fault:
                result = -fault
            elif c_syncfs(fd) != 0:
                result = -errno
    finally:
        _os.close(fd)
    _check(result, path)


def sync_directory(path):
    """Make creations, renames and removals inside a directory durable. Raises OSError."""
    cdef int fd = open_file(path, _os.O_RDONLY | _os.O_DIRECTORY)
    try:
        sync_file(fd, data_only=False)
    finally:
        _os.close(fd)
