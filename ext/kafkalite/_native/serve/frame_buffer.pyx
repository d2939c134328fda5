"""Keep the bytes that one connection has received and not served, and charge them to its client.

    [ whole frames, which wait for their turn │ start of an incomplete frame │ room for at least `room_min` bytes ]
      data                                                        data + size               data + capacity

The buffer grows as bytes arrive, and not by what a length field claims. A frame above SMALL_SIZE is charged with its
full size as soon as this size is known, so that there is memory to complete it. When memory is scarce, the frame waits
for the charge.

Thread rule: only the connection's worker.
"""

cimport cython
from libc.stdint cimport int16_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.serve.memory cimport (
    FRAMES, PASSING, SMALL_SIZE, Ceiling, HolderMemory, Holding, MemoryCeiling, admits, charge, has_room, hold,
    is_queue_full, is_watched, let_go,
)
from kafkalite._native.serve.worker_parts cimport RECEIVE_CAPACITY
from kafkalite._native.wire.cursor cimport load_i16, load_i32


@cython.final
cdef class FrameBuffer:
    """The buffer of one connection. An idle connection has this object, but no memory."""

    def __cinit__(self, MemoryCeiling memory not None, str client_host not None):
        self.memory = memory
        self.client_host = client_host
        self.room_min = PENDING_CAPACITY_MIN

    def __dealloc__(self):
        self.clear()
        if self.holding != NULL:
            let_go(self.holding)

    cdef Holding* find_holding(self, object principal) except NULL:
        """Return the memory account of the connection's current principal. Charges of an earlier principal move
        there."""
        cdef HolderMemory memory
        cdef Holding* before = self.holding
        if before == NULL or self.held_as is not principal:
            memory = self.memory.find(principal, self.client_host)
            self.holding = hold(memory.holding)
            self.held_as = principal
            if before != NULL:
                charge(before, FRAMES, -self.charged)
                charge(self.holding, FRAMES, self.charged)
                let_go(before)
        return self.holding

    cdef int charge_bytes(self, object principal, int64_t size) except -1:
        if size != self.charged or self.charged > 0 and self.held_as is not principal:
            charge(self.find_holding(principal), FRAMES, size - self.charged)
            self.charged = size
        return 0

    cdef FrameCharge charge_frame(self, object principal, int16_t produce_key, double now) except *:
        """Charge the buffer, and the whole of an incomplete frame before it arrives, if the client may use that memory.

        A request that is copied out of the buffer counts twice. All requests are copied except Produce.
        """
        cdef Ceiling* ceiling = self.memory.ceiling
        cdef int64_t size, frame = 0
        if self.size == 0 and self.capacity > SMALL_SIZE and is_watched(ceiling):
            free(self.data)
            self.data = NULL
            self.capacity = 0
        size = self.capacity
        if self.size >= 4:
            frame = 4 + <int64_t>load_i32(self.data)
            if self.size >= frame:
                frame = 0                           # it is complete, and waits for its turn
        if frame != self.begun:
            self.find_holding(principal).ceiling.frames_begun += frame - self.begun
            if self.begun == 0:
                self.begun_at = now
            self.begun = frame
        if frame > SMALL_SIZE and self.size >= 6 and load_i16(self.data + 4) != produce_key:
            frame *= 2
        if frame <= size or frame <= SMALL_SIZE or frame <= self.charged:
            self.charge_bytes(principal, max(size, frame if frame > SMALL_SIZE else 0))
            return FRAME_CHARGED
        self.charge_bytes(principal, size)
        if is_watched(ceiling) or frame > ceiling.calm_max - ceiling.held:
            if frame > ceiling.calm_max:
                return FRAME_TOO_LARGE
            if not admits(self.find_holding(principal), frame - size, PASSING):
                return FRAME_WAITS
        self.charge_bytes(principal, frame)
        return FRAME_CHARGED

    cdef bint is_short(self, object principal) except -1:
        """Return whether nothing may be received now.

        This is so if the client holds too much memory, or if a new frame would begin while queued.max.request.bytes is
        used up.
        """
        if self.begun > SMALL_SIZE and self.charged >= self.begun:
            return False                            # it has what it needs to complete its frame
        if self.begun == 0 and is_queue_full(self.memory.ceiling):
            return True
        return not has_room(self.find_holding(principal))

    cdef Py_ssize_t missing(self) noexcept:
        """Return how many bytes are missing from an incomplete frame; 0 if its size is unknown."""
        return 4 + load_i32(self.data) - self.size if self.size >= 4 else 0

    cdef Py_ssize_t next_capacity(self) noexcept:
        """Return twice the capacity, or less if the incomplete frame needs less."""
        cdef Py_ssize_t frame = 4 + load_i32(self.data) if self.size >= 4 else 0
        cdef Py_ssize_t doubled = 2 * self.capacity
        frame += self.room_min
        return frame if self.capacity < frame < doubled else doubled

    cdef int grow(self, Py_ssize_t capacity) except -1:
        kl_assert(capacity >= self.size)
        cdef unsigned char* grown = <unsigned char*>realloc(self.data, <size_t>capacity)
        if grown == NULL:
            raise MemoryError
        self.data = grown
        self.capacity = capacity
        return 0

    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1:
        """Replace the contents by a copy of bytes from elsewhere. The capacity must be sufficient."""
        kl_assert(size <= self.capacity)
        memcpy(self.data, data, <size_t>size)
        self.size = size
        return 0

    cdef int skip(self, Py_ssize_t size) noexcept:
        """Remove served bytes, and move the rest to the front."""
        self.size -= size
        if size > 0 and self.size > 0:
            memmove(self.data, self.data + size, <size_t>self.size)
        return 0

    cdef unsigned char* take(self, unsigned char* data, Py_ssize_t size, void** owner, Py_ssize_t* rest) except NULL:
        """Keep bytes of the current request after its turn; return their address. The caller frees `owner`.

        Few bytes are copied, and `rest` is -1. Many bytes stay where they are: the caller gets the whole buffer, and
        must keep the `rest` bytes after them in another one.
        """
        cdef unsigned char* taken
        rest[0] = -1
        if size <= RECEIVE_CAPACITY or not self.data <= data <= self.data + self.size:
            taken = <unsigned char*>malloc(<size_t>max(size, 1))
            if taken == NULL:
                raise MemoryError
            memcpy(taken, data, <size_t>size)
            owner[0] = taken
            return taken
        rest[0] = self.data + self.size - (data + size)
        owner[0] = self.data
        self.data = NULL
        self.size = self.capacity = 0
        self.moved = True
        return data

    cdef int clear(self) noexcept:
        """Free the buffer, and end its charge."""
        free(self.data)
        self.data = NULL
        self.size = self.capacity = 0
        if self.holding != NULL:
            self.holding.ceiling.frames_begun -= self.begun
            charge(self.holding, FRAMES, -self.charged)
            self.begun = self.charged = 0
        return 0
