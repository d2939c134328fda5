"""Map each key to its newest offset, in a fixed amount of memory. Compaction compares every record with this map.

key_map.pxd describes the slots and the hash. The system allocates the map's memory page by page as keys arrive.

Thread rule: a map belongs to one pass of one cleaner thread.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t

import os as _os

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void* address, size_t size)
    int madvise(void* address, size_t size, int advice)
    void* MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE


cdef class KeyMap:
    """A map with `size_max` bytes of slots, of which the fraction `load_factor` may be filled.

    `count_wanted` is the maximum number of keys to expect: a smaller map is faster to search.
    """

    def __init__(self, int64_t size_max, double load_factor=0.9, int64_t count_wanted=-1, *, secret=None):
        cdef const unsigned char* bytes_of_secret
        cdef int64_t slot_count = size_max // SLOT_SIZE
        if not 0.0 < load_factor < 1.0:
            raise ValueError("load_factor must lie between 0 and 1")
        if slot_count < 2:
            raise ValueError("a key map needs room for two slots at least")
        if 0 <= count_wanted < <int64_t>(<double>slot_count * load_factor):
            # Half empty where there is room for that: shorter searches.
            slot_count = min(slot_count, max(64, 2 * count_wanted))
        secret = _os.urandom(16) if secret is None else secret
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        bytes_of_secret = secret
        memcpy(self.table.secret, bytes_of_secret, 16)
        if self.table.slots != NULL:
            raise ValueError("a key map is made once")
        self.table.slots = <KeySlot*>mmap(NULL, <size_t>(slot_count * SLOT_SIZE), PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if self.table.slots == <KeySlot*>MAP_FAILED:
            self.table.slots = NULL
            raise MemoryError(f"no memory for a key map of {slot_count * SLOT_SIZE} bytes")
        # Large pages where the system has them: a look-up then waits for one line of memory and not for its page too.
        madvise(self.table.slots, <size_t>(slot_count * SLOT_SIZE), MADV_HUGEPAGE)
        self.table.slot_count = slot_count
        self.table.count_max = max(1, min(slot_count - 1, <int64_t>(<double>slot_count * load_factor)))
        self.size = slot_count * SLOT_SIZE

    def __dealloc__(self):
        if self.table.slots != NULL:
            munmap(self.table.slots, <size_t>self.size)

    def __len__(self):
        return self.table.count

    @property
    def count_max(self):
        """The maximum number of keys."""
        return self.table.count_max

    cdef KeyHash _hash(self, const unsigned char[::1] key) noexcept:
        return key_hash(self.table.secret, &key[0] if key.shape[0] else NULL, key.shape[0])

    def put(self, const unsigned char[::1] key not None, int64_t offset):
        """Record the offset of a key; return False if the map is full. For tests: compaction uses the C functions."""
        cdef KeyHash hash = self._hash(key)
        if offset < 0:
            raise ValueError("offsets are not negative")
        return table_put(&self.table, &hash, offset)

    def get(self, const unsigned char[::1] key not None):
        """Return the newest offset of a key, or -1."""
        cdef KeyHash hash = self._hash(key)
        return table_get(&self.table, &hash)

    def hash(self, const unsigned char[::1] key not None):
        """Return the 16-byte hash of a key in this map."""
        cdef KeyHash result = self._hash(key)
        return <bytes>(<const unsigned char*>&result)[:16]
