"""A growing byte buffer whose memory can finally be handed to Python without a copy. growing.pxd lists the
functions."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    SPARE_COUNT = 32            # pieces of memory that are kept for the next columns
    SPARE_SIZE_MIN = 65536      # bytes of one: smaller ones are cheap to make again
    SPARE_TOTAL_MAX = 33554432  # bytes of all

cdef Growing[SPARE_COUNT] spares
cdef size_t spare_total = 0         # capacity of all of them


cdef void give_back(char* data, size_t capacity) noexcept:
    """Keep freed memory for a later buffer if the limit allows, otherwise free it."""
    global spare_total
    cdef int i
    if SPARE_SIZE_MIN <= capacity <= SPARE_TOTAL_MAX - spare_total:
        for i in range(SPARE_COUNT):
            if spares[i].data == NULL:
                spares[i].data = data
                spares[i].size = 0
                spares[i].capacity = capacity
                spare_total += capacity
                return
    free(data)


cdef void refill(Growing* g, size_t expected) noexcept:
    """Give an empty buffer the smallest piece of kept memory that fits: `expected` bytes or more, below four times
    that."""
    global spare_total
    cdef int i, best = -1
    if g.data != NULL or expected < SPARE_SIZE_MIN:
        return
    for i in range(SPARE_COUNT):
        if spares[i].data != NULL and expected <= spares[i].capacity < 4 * expected:
            if best < 0 or spares[i].capacity < spares[best].capacity:
                best = i
    if best >= 0:
        g[0] = spares[best]
        spare_total -= g.capacity
        memset(&spares[best], 0, sizeof(Growing))


cdef bint grow(Growing* g, size_t more) noexcept nogil:
    """Double the capacity, so that appends take constant time on average. Return False if there is no memory."""
    cdef size_t capacity = max(2 * g.capacity, g.size + more)
    cdef char* data = <char*>realloc(g.data, capacity)
    if data == NULL:
        return False
    g.data = data
    g.capacity = capacity
    return True


@cython.final
cdef class OwnedMemory:
    """A read-only Python buffer over malloc's memory, which is freed with the last reference."""

    def __dealloc__(self):
        give_back(self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, <Py_ssize_t>self.size, 1, flags)


cdef object take_memory(Growing* g):
    """Return a memoryview that owns the contents; `g` is empty afterwards."""
    cdef OwnedMemory memory
    cdef char* data
    if g.size == 0:
        drop_memory(g)
        return memoryview(b"")
    memory = OwnedMemory.__new__(OwnedMemory)
    if g.size < g.capacity // 2:
        data = <char*>realloc(g.data, g.size)   # gives the unused tail back; may only fail to move, never to shrink
        if data != NULL:
            g.data = data
            g.capacity = g.size
    memory.data = g.data
    memory.size = g.size
    memory.capacity = g.capacity
    memset(g, 0, sizeof(Growing))
    return memoryview(memory)


cdef void drop_memory(Growing* g) noexcept:
    give_back(g.data, g.capacity)
    memset(g, 0, sizeof(Growing))
