"""Read and write one file of a log, which readers pin while they use its descriptor and map."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._native.base.mapped_faults cimport fault_raised
from kafkalite._native.log.index cimport SegmentIndex
from kafkalite._native.log.record_format cimport ItemInfo, RecordFormat

cdef class FileCache:
    cdef readonly int64_t open_count
    cdef public int64_t open_max
    cdef list slots             # the open segments
    cdef Py_ssize_t hand        # second-chance hand over them
    cdef int make_room(self) except -1
    cdef int remove(self, Segment segment) except -1

cdef class Segment:
    cdef readonly str directory
    cdef public str path_suffix             # of a file that compaction is putting in place, otherwise empty
    cdef readonly int64_t base_offset
    cdef readonly int64_t size              # bytes of whole batches: the readable end
    cdef readonly int64_t flushed_size      # bytes known to be on the disk
    cdef public int64_t indexed_size        # bytes that the saved index file covers
    cdef public int64_t created_ms          # wall clock of its first append
    cdef readonly int64_t max_timestamp     # of all its batches, -1 none
    cdef readonly int64_t max_timestamp_offset      # base offset of the batch that has it, -1 none
    cdef readonly int64_t last_position     # of its last batch, -1 none
    cdef readonly bint sealed, deleted
    cdef readonly bint has_file             # False before the first append created it
    cdef readonly SegmentIndex index        # None while not loaded
    cdef readonly tuple damage              # quarantined (position, end, offset, next offset), or None
    cdef readonly RecordFormat format
    # Valid while pinned:
    cdef int fd
    cdef const unsigned char* map
    cdef readonly int32_t pins
    # Private:
    cdef int64_t written                    # the file's own size: zeros from `size` to here
    cdef int64_t allocated                  # do not try to reserve blocks below
    cdef int64_t reserved                   # blocks are reserved up to here
    cdef int64_t map_size
    cdef int64_t map_reserve                # address space to map
    cdef readonly int64_t bytes_since_entry
    cdef int64_t unverified_size            # bytes below were loaded from disk and need their CRC checked once
    cdef bytearray verified                 # one byte a granule of the index; None: no granule is verified yet
    cdef int64_t unverified_count           # granules in it still to check
    cdef int watch                          # of the map, for faults
    cdef int fault                          # 1: the file was cut or cannot be read, and stays so for this process
    cdef list retired                       # maps replaced while pinned
    cdef FileCache cache
    cdef bint used                          # second-chance mark
    cdef Py_ssize_t slot                    # in the cache, -1 closed

    cdef int pin(self) except -1            # opens when closed: may block
    cdef bint try_pin(self) noexcept        # False when closed, or when the map does not reach `size`
    cdef int unpin(self) except -1
    cdef int _end_pins(self) except -1
    cdef inline bint has_fault(self) noexcept nogil:
        return fault_raised(&self.fault)
    cdef int check_read(self) except -1     # after the last byte was read: SegmentUnreadable
    cdef int check_size(self, int64_t size) except -1
    cdef bint distrust(self) noexcept
    cdef bint is_quarantined(self, int64_t offset) except -1
    cdef int _open(self) except -1
    cdef int _take(self, int fd, void* address, int64_t map_size) except -1
    cdef int _close(self) except -1
    cdef int _ensure_map(self) except -1
    cdef int64_t write(self, const unsigned char* data, int64_t size, int64_t size_max, bint whole) noexcept nogil
    cdef int64_t write_zeros(self, int64_t end) noexcept nogil
    cdef int advance(self, const ItemInfo* info, int64_t index_interval) except -1
    cdef int set_index(self, SegmentIndex index, int64_t bytes_since_entry, int64_t max_timestamp,
                       int64_t max_timestamp_offset, int64_t last_position) except -1
    cdef bint is_verified(self, int64_t position, int64_t end) noexcept
