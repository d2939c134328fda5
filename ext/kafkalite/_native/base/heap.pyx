"""Configure the C library's heap: the number of its arenas, and when it returns memory to the system.

glibc may create eight arenas per processor, for its threads. Each arena reserves 64 MiB of address space and keeps the
peak memory of its threads: other arenas cannot use what was freed in it. In addition, once a block of up to 32 MiB was
freed, glibc allocates blocks of that size in arenas, too. Then one small block after them keeps all of their memory.

Other C libraries (musl) need no settings, and return large blocks at once.
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
    """Set the number of arenas, the size in bytes from which a block gets its own mapping, and the free bytes that the
    top of the main arena keeps. Existing arenas of threads stay. Returns whether the C library accepts the settings."""
    cdef int done
    with nogil:
        done = kl_set_heap(arenas, mapped_size, kept_size)
    return done != 0


def trim_heap():
    """Give free pages of all arenas back to the system; return whether there were any."""
    cdef int done
    with nogil:
        done = kl_trim_heap()
    return done != 0
