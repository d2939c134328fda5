"""Limit how much freed memory the C library keeps: set its number of arenas, and when it returns memory.

With glibc's defaults, memory use grows in two ways:

- A process may get eight arenas per processor. Threads of one arena cannot use memory that was freed in another.
- A large block has its own mapping at first. Once such a block is freed, later blocks of that size are allocated in
  arenas. If a small block follows such a block in an arena, glibc keeps the large block's memory after it is freed.

Other C libraries, such as musl, need no settings and return large blocks at once.
"""

cdef extern from *:
    """
    #include <malloc.h>
    #ifdef __GLIBC__
    static int kl_set_heap(int arenas, int mapped_size, int kept_size) {
        return mallopt(M_ARENA_MAX, arenas) && mallopt(M_MMAP_THRESHOLD, mapped_size)
            && mallopt(M_TRIM_THRESHOLD, kept_size);
    }
    static int kl_trim_heap(void) { return malloc_trim(0); }
    #else
    static int kl_set_heap(int arenas, int mapped_size, int kept_size) {
        (void)arenas; (void)mapped_size; (void)kept_size;
        return 0;
    }
    static int kl_trim_heap(void) { return 0; }
    #endif
    """
    int kl_set_heap(int arenas, int mapped_size, int kept_size) nogil
    int kl_trim_heap() nogil


def bound_heap(int arenas, int mapped_size, int kept_size):
    """Set the heap's limits; return whether the C library accepts them.

    `arenas` is the number of arenas; existing arenas of threads stay. Each reserves 64 MiB of address space. From
    `mapped_size` bytes on, a block gets its own mapping; without this call, glibc raises that size up to 32 MiB.
    `kept_size` is how many free bytes the top of the main arena keeps.
    """
    cdef int done
    with nogil:
        done = kl_set_heap(arenas, mapped_size, kept_size)
    return done != 0


def trim_heap():
    """Return the free pages of all arenas to the system; return whether there were any."""
    cdef int done
    with nogil:
        done = kl_trim_heap()
    return done != 0
