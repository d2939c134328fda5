"""Read and write one file of a log. Readers pin it while they use its descriptor and map.

    0                                 size        written           reserved            end of the map
    |--- whole batches, readable -----|-- zeros --|-- free blocks --|-- address space ---|

The file ends at `written`. Later batches replace the zeros (write_zeros), then fill the reserved blocks.

Bytes up to `size` never change while the file exists. While a pin is held, they are neither unmapped nor truncated.
Writes begin at `size`. Reads use a read-only map that is larger than the file, and end at `size`.

After reading the map, call `check_read` or `has_fault`: another process may have truncated the file (mapped_faults).

Thread rule: pins, opening, closing, `advance` and the index need the GIL. The log's lock orders the writers. A pinned
segment's map and descriptor may be used without the GIL.
"""

from libc.errno cimport EIO, errno
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memchr

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.base.file_ops cimport (
    file_allocate,
    file_datasync,
    file_open,
    file_pwrite,
    file_status,
    file_truncate,
    file_unlink,
)
from kafkalite._native.base.mapped_faults cimport forget_map, watch_map
from kafkalite._native.log.index cimport SegmentIndex, bisect_last, bisect_last_below
from kafkalite._native.log.record_format cimport ItemInfo, RecordFormat

import os as _os

cdef extern from "<sys/mman.h>" nogil:
    void* c_mmap "mmap"(void* address, size_t size, int protection, int flags, int fd, int64_t position)
    int c_munmap "munmap"(void* address, size_t size)
    int PROT_READ
    int MAP_SHARED
    void* MAP_FAILED

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    int64_t c_lseek "lseek"(int fd, int64_t offset, int whence)
    int SEEK_END

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_CLOEXEC
    int SYNC_FILE_RANGE_WRITE
    int sync_file_range(int fd, int64_t position, int64_t size, unsigned int flags)

cdef inline int64_t file_end(int fd) noexcept nogil:
    """Return the file's size, or -1 if it is unknown. It moves the descriptor's position, which nothing uses.

    fstat would be worse: after it, Linux 6.13 and newer give the next write a new timestamp (multigrain timestamps), so
    each sync would also write the inode.
    """
    return c_lseek(fd, 0, SEEK_END)


cdef enum:
    ALLOCATE_STEP_MIN = 16 * 1024           # an idle partition reserves little
    ALLOCATE_STEP_MAX = 16 * 1024 * 1024    # and a busy one calls fallocate rarely
    PAGE = 4096
    ZEROS_FROM = 16 * 1024                  # below, a segment's end is its file's: there are many small partitions
    ZEROS_STEP_MIN = 16 * 1024
    ZEROS_STEP_MAX = 128 * 1024             # twice as much made each write dearer: its cost grows with the page's size
    ZEROS_BATCH_MAX = 64 * 1024             # a larger batch gets large pages by itself
    ZEROS_SIZE_MAX = ZEROS_STEP_MAX + ZEROS_BATCH_MAX


cdef unsigned char zeros[ZEROS_SIZE_MAX]


class SegmentUnreadable(OSError):
    """A segment's file was truncated by another process, or the disk cannot read it."""


cdef class FileCache:
    """Limits the number of open segments. It closes the least recently used ones without pins (second chance).

    If all open segments are pinned, the limit is exceeded for a short time.
    """

    def __init__(self, int64_t open_max):
        if open_max < 1:
            raise ValueError("open_max must be at least 1")
        self.open_max = open_max
        self.slots = []

    cdef int make_room(self) except -1:
        """Close segments until one more may be opened."""
        cdef Segment segment
        cdef Py_ssize_t steps = 2 * len(self.slots)
        while self.open_count >= self.open_max and steps > 0 and self.slots:
            steps -= 1
            if self.hand >= len(self.slots):
                self.hand = 0
            segment = <Segment>self.slots[self.hand]
            if segment.pins > 0:
                self.hand += 1
            elif segment.used:
                segment.used = False
                self.hand += 1
            else:
                segment._close()
        return 0

    cdef int remove(self, Segment segment) except -1:
        kl_assert(segment.slot >= 0)
        kl_assert(segment.slot < <Py_ssize_t>len(self.slots))
        kl_assert(self.open_count == <int64_t>len(self.slots))
        cdef Segment last = <Segment>self.slots.pop()
        if last is not segment:
            self.slots[segment.slot] = last
            last.slot = segment.slot
        segment.slot = -1
        self.open_count -= 1
        return 0


cdef class Segment:
    """One file of a log.

    The CRC of bytes that an earlier process wrote is checked once, before the bytes are first served. The unit of this
    check is a granule: the bytes between two index entries.

    No method releases the GIL between a check and the action that depends on the check.
    """

    def __cinit__(self):
        self.fd = -1
        self.map = NULL
        self.watch = -1
        self.slot = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.last_position = -1

    def __init__(self, FileCache cache, RecordFormat format, str directory, int64_t base_offset, *,
                 int64_t map_reserve, int64_t size=-1, str path_suffix=""):
        """Create a segment object. With `size`, the file exists and is not verified; otherwise the first append creates
        it.

        `path_suffix` is for a file of compaction that does not have its final name yet.
        """
        self.path_suffix = path_suffix
        self.cache = cache
        self.format = format
        self.directory = directory
        self.base_offset = base_offset
        self.map_reserve = map_reserve
        if size >= 0:
            self.has_file = True
            self.size = size
            self.unverified_size = size
            self.allocated = self.reserved = self.written = size
        else:
            self.index = SegmentIndex()

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)
        if self.map != NULL:
            forget_map(self.watch)
            c_munmap(<void*>self.map, <size_t>self.map_size)

    def __repr__(self):
        return f"Segment({self.name!r}, size={self.size})"

    @property
    def name(self):
        """The file name without suffix: the base offset in twenty digits."""
        return f"{self.base_offset:020d}"

    @property
    def path(self):
        return f"{self.directory}/{self.base_offset:020d}{self.format.suffix}{self.path_suffix}"

    # ---- pins -------------------------------------------------------------------------------------------------------

    cdef int pin(self) except -1:
        """Make `fd` and `map` valid until unpin(). Open the file if necessary."""
        if self.fd < 0:
            self._open()
        if self.map_size < self.size:
            self._ensure_map()
        kl_assert(self.fd >= 0)
        kl_assert(self.map_size >= self.size)
        kl_assert(self.pins >= 0)
        self.pins += 1
        self.used = True
        return 0

    cdef bint try_pin(self) noexcept:
        """Make `fd` and `map` valid until unpin(). Return False if the file must be opened or mapped first."""
        if self.fd < 0 or self.map_size < self.size:
            return False
        kl_assert(self.pins >= 0)
        self.pins += 1
        self.used = True
        return True

    cdef int unpin(self) except -1:
        kl_assert(self.pins > 0)
        kl_assert(self.fd >= 0)
        assert self.pins > 0, "unpin without pin"
        self.pins -= 1
        if self.pins == 0 and (self.retired is not None or self.deleted):
            self._end_pins()
        return 0

    cdef int _end_pins(self) except -1:
        """Release what the last pin kept: maps that had become too small, and a deleted segment's file."""
        if self.retired is not None:
            for address, size, watch in self.retired:
                forget_map(watch)
                c_munmap(<void*><size_t>address, <size_t>size)
            self.retired = None
        if self.deleted:
            self._close()
        return 0

    cdef int check_read(self) except -1:
        """Raise SegmentUnreadable if a read of the map got zeros. Call this before the result is used.

        The flag is also set if the file turns out to be shorter than what was written. This process never serves the
        segment's bytes again.
        """
        if self.has_fault():
            raise SegmentUnreadable(EIO, "the file was truncated by another process or is unreadable", self.path)
        return 0

    cdef int check_size(self, int64_t size) except -1:
        """Raise SegmentUnreadable if the open file has fewer than `size` bytes. Does not block."""
        cdef int64_t found = file_end(self.fd)
        if 0 <= found < size:
            self.fault = 1
            raise SegmentUnreadable(
                EIO, f"the file was truncated by another process: {found} of {size} bytes are left", self.path)
        return 0

    def modified_ms(self):
        """Return the file's last write time in ms, 0 without a file. Raises SegmentUnreadable if the file shrank."""
        cdef int64_t size = self.size
        if not self.has_file:
            return 0
        try:
            found = file_status(self.path)
        except OSError:
            return 0
        if found.st_size < size and not self.deleted:
            self.fault = 1
            raise SegmentUnreadable(
                EIO, f"the file was truncated by another process: {found.st_size} of {size} bytes are left", self.path)
        return found.st_mtime_ns // 1000000

    def note_unreadable(self):
        """Record that a read outside of the map failed. The segment is not served any more."""
        self.fault = 1

    @property
    def unreadable(self):
        """Whether the file was truncated by another process, or could not be read."""
        return bool(self.has_fault())

    cdef int _open(self) except -1:
        cdef bytes path
        cdef const char* c_path
        cdef int fd, map_error
        cdef int64_t map_size
        cdef void* address = MAP_FAILED
        if self.deleted:
            raise FileNotFoundError(2, "segment is deleted", self.path)
        self.cache.make_room()
        path = _os.fsencode(self.path)
        c_path = path
        map_size = max(self.map_reserve, self.size)
        with nogil:
            fd = file_open(c_path, O_RDWR | O_CLOEXEC)
            if fd >= 0:
                address = c_mmap(NULL, <size_t>map_size, PROT_READ, MAP_SHARED, fd, 0)
                if address == MAP_FAILED:
                    map_error = errno
                    c_close(fd)
                    fd = -map_error
        if fd < 0:
            raise OSError(-fd, _os.strerror(-fd), self.path)
        if self.fd >= 0 or self.deleted:    # another thread was faster while the GIL was away
            c_munmap(address, <size_t>map_size)
            c_close(fd)
            if self.fd < 0:                 # what was opened may be another segment under the same name
                raise FileNotFoundError(2, "segment is deleted", self.path)
            return 0
        self._take(fd, address, map_size)
        if self.size > 0:
            try:
                self.check_size(self.size)
            except SegmentUnreadable:
                if self.pins == 0:
                    self._close()
                raise
        return 0

    cdef int _take(self, int fd, void* address, int64_t map_size) except -1:
        kl_assert(self.fd < 0)
        kl_assert(self.slot < 0)
        try:
            self.watch = watch_map(address, map_size, &self.fault)
        except MemoryError:
            c_munmap(address, <size_t>map_size)
            c_close(fd)
            raise
        self.fd = fd
        self.map = <const unsigned char*>address
        self.map_size = map_size
        self.slot = len(self.cache.slots)
        self.cache.slots.append(self)
        self.cache.open_count += 1
        return 0

    cdef int _close(self) except -1:
        cdef int fd = self.fd
        cdef void* address = <void*>self.map
        cdef int64_t map_size = self.map_size
        kl_assert(self.pins == 0)
        assert self.pins == 0, "closing a pinned segment"
        if fd < 0:
            return 0
        forget_map(self.watch)
        self.watch = -1
        self.fd = -1
        self.map = NULL
        self.map_size = 0
        self.cache.remove(self)
        with nogil:
            c_munmap(address, <size_t>map_size)
            c_close(fd)
        return 0

    cdef int _ensure_map(self) except -1:
        """Map more address space than the file has bytes, so that the map seldom has to grow. The old map is kept until
        its last reader unpins it."""
        cdef int64_t map_size = max(self.map_reserve, 2 * self.size)
        cdef void* address = c_mmap(NULL, <size_t>map_size, PROT_READ, MAP_SHARED, self.fd, 0)
        cdef int watch
        if address == MAP_FAILED:
            raise OSError(errno, _os.strerror(errno), self.path)
        try:
            watch = watch_map(address, map_size, &self.fault)
        except MemoryError:
            c_munmap(address, <size_t>map_size)
            raise
        if self.pins > 0:
            if self.retired is None:
                self.retired = []
            self.retired.append((<size_t>self.map, self.map_size, self.watch))
        else:
            forget_map(self.watch)
            c_munmap(<void*>self.map, <size_t>self.map_size)
        self.watch = watch
        self.map = <const unsigned char*>address
        self.map_size = map_size
        return 0

    def __enter__(self):
        self.pin()
        return self

    def __exit__(self, *exc_info):
        self.unpin()

    def close(self):
        """Close the descriptor and the map, unless pinned. Then the cache or the garbage collector closes them
        later."""
        if self.pins == 0:
            self._close()

    @property
    def is_open(self):
        return self.fd >= 0

    @property
    def descriptor(self):
        """The file descriptor, -1 if closed. The caller must hold a pin."""
        return self.fd

    # ---- writing ----------------------------------------------------------------------------------------------------

    def create_file(self, int64_t created_ms):
        """Create and open the empty file of a new segment. The directory is not synced. Raises OSError."""
        cdef bytes path = _os.fsencode(self.path)
        cdef const char* c_path = path
        cdef int64_t map_size = self.map_reserve
        cdef void* address = MAP_FAILED
        cdef int fd, map_error
        self.cache.make_room()
        with nogil:
            fd = file_open(c_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC)
            if fd >= 0:
                address = c_mmap(NULL, <size_t>map_size, PROT_READ, MAP_SHARED, fd, 0)
                if address == MAP_FAILED:
                    map_error = errno
                    c_close(fd)
                    file_unlink(c_path)         # else the next attempt would find it in its way
                    fd = -map_error
        if fd < 0:
            raise OSError(-fd, _os.strerror(-fd), self.path)
        self._take(fd, address, map_size)
        self.has_file = True
        self.created_ms = created_ms

    cdef int64_t write(self, const unsigned char* data, int64_t size, int64_t size_max, bint whole) noexcept nogil:
        """Write bytes after `size` without making them readable. The segment is pinned, and the log's lock is held.

        Blocks are reserved in doubling steps up to `size_max`, or all at once with `whole`. Returns the size or -errno.
        A failed write is truncated, so that the file contains only whole batches.
        """
        cdef int64_t end = self.size + size
        cdef int64_t step
        cdef int64_t result = 0
        kl_assert(self.pins > 0)
        kl_assert(size > 0)
        kl_assert(not self.sealed)
        kl_assert(self.written >= self.size)
        if end > self.allocated:
            step = min(max(self.size, ALLOCATE_STEP_MIN), ALLOCATE_STEP_MAX)
            step = max(min(end + step, size_max), end) if not whole else max(size_max, end)
            step = (step + PAGE - 1) & ~<int64_t>(PAGE - 1)
            # Reserving only saves time: if it fails, the write reports the error.
            if file_allocate(self.fd, self.allocated, step - self.allocated) == 0:
                self.allocated = self.reserved = step
            else:
                self.allocated = end + ALLOCATE_STEP_MAX
        if end > self.written and self.size >= ZEROS_FROM and size <= ZEROS_BATCH_MAX and not self.format.positional:
            result = self.write_zeros(end)
        if result >= 0:
            result = file_pwrite(self.fd, data, size, self.size)
        if result < 0:
            self.allocated = self.reserved = self.written = self.size   # before the file shrinks: see sync()
            file_truncate(self.fd, self.size)
        elif end > self.written:
            self.written = end
        kl_assert(self.written >= self.size)
        return result

    cdef int64_t write_zeros(self, int64_t end) noexcept nogil:
        """Write zeros beyond `end`, into reserved blocks only. Return at least 0, or -errno.

        Later small batches overwrite the zeros. From ZEROS_FROM bytes on, up to ZEROS_STEP_MAX zeros are written at
        once. The larger pieces of page cache halve the CPU time for a batch of 10 KB. fdatasync skips the journal
        because the file's size and blocks do not change. Classic segments have no zeros, because their offsets are file
        positions.

        A roll or a clean stop truncates the zeros. After an unclean stop, recovery does.
        """
        cdef int64_t step = ZEROS_STEP_MAX if self.size >= ZEROS_STEP_MAX else ZEROS_STEP_MIN
        cdef int64_t until = min((end + step - 1) & ~(step - 1), self.reserved)
        cdef int64_t result
        if until <= end:
            return 0
        result = file_pwrite(self.fd, zeros, until - self.written, self.written)
        if result >= 0:
            kl_assert(until <= self.reserved)
            self.written = until
        return result

    cdef int advance(self, const ItemInfo* info, int64_t index_interval) except -1:
        """Make the written batch readable, and index it."""
        kl_assert(not self.sealed)
        kl_assert(info.size > 0)
        kl_assert(info.base_offset >= self.base_offset)
        kl_assert(info.next_offset > info.base_offset)
        kl_assert(self.written >= self.size + info.size)
        if self.bytes_since_entry > index_interval:
            self.index.append(info.base_offset, self.size, self.max_timestamp)
            self.bytes_since_entry = 0
        self.bytes_since_entry += info.size
        if info.max_timestamp > self.max_timestamp:
            self.max_timestamp = info.max_timestamp
            self.max_timestamp_offset = info.base_offset
        self.last_position = self.size
        self.size += info.size
        return 0

    def sync(self):
        """Call fdatasync, so that all readable bytes are on the disk. Raises OSError; then the data may be lost.

        fdatasync succeeds even for a file that another process truncated, so the file size is checked too. It is never
        below `written`, which is lowered before the file is truncated.
        """
        cdef int64_t size = self.size
        cdef int64_t written = self.written
        cdef int64_t found
        cdef int result
        if self.flushed_size >= size or not self.has_file:
            return
        self.pin()
        try:
            with nogil:
                result = file_datasync(self.fd)
                found = file_end(self.fd)
            if result < 0:
                raise OSError(-result, _os.strerror(-result), self.path)
            if 0 <= found < min(written, self.written):
                self.check_size(min(written, self.written))
            self.check_read()
        finally:
            self.unpin()
        kl_assert(size <= self.size)
        if size > self.flushed_size:
            self.flushed_size = size

    def start_writeback(self):
        """Let the system begin to write unsynced data, so that several syncs overlap. Never fails."""
        cdef int64_t start = self.flushed_size
        cdef int64_t size = self.size - start
        if size <= 0 or not self.has_file:
            return
        try:
            self.pin()
        except OSError:
            return                              # deleted meanwhile, or the next sync reports the error
        try:
            with nogil:
                sync_file_range(self.fd, start, size, SYNC_FILE_RANGE_WRITE)
        finally:
            self.unpin()

    def trim(self, *, bint unknown=False):
        """Release the blocks reserved after the end. `unknown`: an earlier process may have left some. Raises
        OSError."""
        cdef int result
        if not self.has_file or (self.allocated <= self.size and self.written <= self.size and not unknown):
            return
        self.pin()
        try:
            self.check_size(self.size)              # a file that somebody cut must not grow holes in place of its end
            if self.written > self.size:
                self.flushed_size = min(self.flushed_size, self.size - 1)   # the new size has to reach the disk too
            self.allocated = self.reserved = self.written = self.size
            with nogil:
                result = file_truncate(self.fd, self.size)
        finally:
            self.unpin()
        if result < 0:
            raise OSError(-result, _os.strerror(-result), self.path)

    def trim_zeros(self):
        """Truncate the file to the end of its batches. Raises OSError."""
        if self.written > self.size:
            self.trim()

    def mark_sealed(self):
        """Record that no further append follows."""
        self.sealed = True

    def mark_deleted(self):
        """Record that the files were renamed, so the segment cannot be reopened.

        Its last reader closes it, because an open descriptor keeps the disk space of a deleted file.
        """
        self.deleted = True
        if self.pins == 0:
            self._close()

    def cut(self, int64_t size):
        """Truncate the file to `size` bytes, in recovery. No pin or view may exist. Raises OSError."""
        cdef int result
        kl_assert(self.pins == 0)
        kl_assert(0 <= size)
        kl_assert(size <= self.size)
        assert self.pins == 0, "cutting a pinned segment"
        self.pin()
        try:
            with nogil:
                result = file_truncate(self.fd, size)
        finally:
            self.unpin()
        if result < 0:
            raise OSError(-result, _os.strerror(-result), self.path)
        self.size = size
        self.allocated = self.reserved = self.written = size
        self.unverified_size = min(self.unverified_size, size)
        self.flushed_size = min(self.flushed_size, size)
        if self.damage is not None:
            self.damage = tuple([entry for entry in self.damage if entry[1] <= size]) or None

    # ---- what was loaded from the disk ------------------------------------------------------------------------------

    cdef int set_index(self, SegmentIndex index, int64_t bytes_since_entry, int64_t max_timestamp,
                       int64_t max_timestamp_offset, int64_t last_position) except -1:
        """Set the index and other results of a scan or an index file. Readers check `index`, so it is set last."""
        self.bytes_since_entry = bytes_since_entry
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self.last_position = last_position
        self.verified = None
        self.index = index
        return 0

    def set_summary(self, int64_t max_timestamp, int64_t max_timestamp_offset, int64_t last_position):
        """Set the values of an index file's header, before the index is loaded."""
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self.last_position = last_position

    def set_flushed(self, int64_t size):
        """Record that the first `size` bytes are on the disk, as a checkpoint or a clean shutdown shows."""
        kl_assert(0 <= size)
        kl_assert(size <= self.size)
        self.flushed_size = size

    def set_verified_from(self, int64_t position):
        """Record that everything from `position` on was checked while loading; 0: all of it."""
        kl_assert(position >= 0)
        self.unverified_size = min(self.unverified_size, position)

    @property
    def unverified(self):
        """The number of bytes at the start that count as unverified, including granules checked since."""
        return self.unverified_size

    cdef bint is_verified(self, int64_t position, int64_t end) noexcept:
        cdef int64_t first, last
        if position >= self.unverified_size or end <= position:
            return True
        if self.verified is None or self.index is None:
            return False
        end = min(end, self.unverified_size)
        first = bisect_last(self.index.positions, self.index.count, position) + 1
        last = bisect_last_below(self.index.positions, self.index.count, end) + 1
        if last >= len(self.verified):
            return False
        return memchr(<const unsigned char*>self.verified + first, 0, <size_t>(last - first + 1)) == NULL

    def unverified_granules(self, int64_t position, int64_t end):
        """Return (granule, position, end, first offset or -1, next offset or -1) of each unverified granule in a
        range."""
        cdef int64_t first, last, g
        cdef SegmentIndex index = self.index
        found = []
        if position >= self.unverified_size:
            return found
        if self.verified is None:
            self.verified = bytearray(bisect_last_below(index.positions, index.count, self.unverified_size) + 2)
            self.unverified_count = len(self.verified)
        end = min(end, self.unverified_size)
        first = bisect_last(index.positions, index.count, position) + 1
        last = min(bisect_last_below(index.positions, index.count, end) + 1, <int64_t>len(self.verified) - 1)
        for g in range(first, last + 1):
            if self.verified[g]:
                continue
            found.append((
                g,
                index.positions[g - 1] if g > 0 else 0,
                min(index.positions[g] if g < index.count else INT64_MAX, self.unverified_size),
                index.offsets[g - 1] if g > 0 else -1,
                index.offsets[g] if g < index.count else -1,
            ))
        return found

    cdef bint distrust(self) noexcept:
        """Require all of the file to be checked again, because bytes that were good have changed."""
        self.verified = None
        self.unverified_size = self.size
        return True

    def forget_index(self):
        """Drop an index whose mapped file is unreadable. The next reader builds another."""
        self.verified = None
        self.index = None

    def mark_verified(self, int64_t granule):
        """Record that a granule was checked. Its errors are in `damage`."""
        if self.verified is not None and granule < len(self.verified) and not self.verified[granule]:
            self.verified[granule] = 1
            self.unverified_count -= 1
            kl_assert(self.unverified_count >= 0)
            if self.unverified_count == 0:
                self.unverified_size = 0
                self.verified = None

    def add_damage(self, int64_t position, int64_t end, int64_t offset, int64_t next_offset):
        """Quarantine bytes [position, end), with offsets [offset, next_offset). Return False if they already are.

        The range is listed in `damage`; its bytes stay unchanged. Ranges that touch are merged, so the result does not
        depend on the order of checks.
        """
        kl_assert(position <= end)
        kl_assert(offset <= next_offset)
        known = self.damage or ()
        merged = []
        last = None
        for entry in sorted((*known, (position, end, offset, next_offset))):
            if last is not None and entry[0] <= last[1] and entry[2] <= last[3]:
                merged.pop()
                entry = (last[0], max(last[1], entry[1]), min(last[2], entry[2]), max(last[3], entry[3]))
            merged.append(entry)
            last = entry
        if tuple(merged) == known:
            return False
        self.damage = tuple(merged)
        return True

    cdef bint is_quarantined(self, int64_t offset) except -1:
        """Return whether an offset is quarantined. This does not open the file."""
        for _, _, first, after in self.damage:
            if first <= offset < after:
                return True
        return False

    # ---- reading ----------------------------------------------------------------------------------------------------

    def read_bytes(self, int64_t position, int64_t size):
        """Return a copy of a readable range. The range is not verified."""
        if position < 0 or size < 0 or position + size > self.size:
            raise ValueError(f"range {position}+{size} is outside a segment of {self.size} bytes")
        self.pin()
        try:
            found = <bytes>self.map[position:position + size]
            self.check_read()
        finally:
            self.unpin()
        return found
