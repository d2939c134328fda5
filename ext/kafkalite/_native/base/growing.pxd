"""A growing byte buffer whose memory can finally be handed to Python without a copy.

Freed memory is kept for later buffers, up to a limit (`refill`). New memory would cost a page fault per page, which
takes longer than decoding into it.

Thread rule: a Growing belongs to one thread at a time. `reserve` runs without the GIL; all other functions need it. The
GIL also guards the kept memory.
"""


# Bytes from malloc; all zero is empty. The holder frees it (drop_memory).
cdef struct Growing:
    char* data
    size_t size
    size_t capacity


cdef class OwnedMemory:             # such bytes as a read-only buffer
    cdef char* data
    cdef size_t size
    cdef size_t capacity


# The slow half of reserve.
cdef bint grow(Growing* g, size_t more) noexcept nogil

# A view of the grown bytes, which it owns from now on; g is empty again.
cdef object take_memory(Growing* g)

# Gives g, if it has no memory, what came back and is about as large as expected; nothing when there is none.
cdef void refill(Growing* g, size_t expected) noexcept

# Gives the memory back; g is empty again.
cdef void drop_memory(Growing* g) noexcept


cdef inline bint reserve(Growing* g, size_t more) noexcept nogil:
    """Make room for `more` bytes after the contents. Return False if there is no memory."""
    return more <= g.capacity - g.size or grow(g, more)
