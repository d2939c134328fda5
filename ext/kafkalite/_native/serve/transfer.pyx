"""Send responses from the broker's memory and from segment files to sockets.

An Answer is one response: bytes, possibly with file ranges between them.

    data[:cuts[0]]  slices[0]  data[cuts[0]:cuts[1]]  slices[1]  ...  data[cuts[-1]:]

Without TLS, file ranges are sent by sendfile(2), and never enter user space. With TLS, they are encrypted first.

If a file is unreadable or too short, its log goes offline, and the response reports the error. If the response is
already being sent, the connection is closed instead.

Thread rule: any thread fills an Answer, once. From then on it belongs to its connection's worker.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EBADMSG, EINTR, EIO, ENODATA, ENODEV, ENXIO, ESTALE, errno
from libc.stdint cimport INT16_MAX, INT32_MAX, int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy
from posix.types cimport off_t
from posix.unistd cimport close, read, write

import logging
import os as _os
from collections import deque

from kafkalite._native.base.debug cimport kl_assert
from kafkalite._native.log.log_slice cimport LogSlice
from kafkalite._native.serve.memory cimport (
    ANSWERS, PASSING, SMALL_SIZE, Holding, admits, charge, hold, let_go, swap_kind,
)
from kafkalite._native.tls.tls_session cimport TLS_CAPACITY, TLS_RECORD_SIZE, TlsSession
from kafkalite._native.wire.cursor cimport store_i16, store_i32, store_i64, store_uvarint

from kafkalite.base.logging import RepeatLogger

cdef object logger = RepeatLogger(logging.getLogger("kafkalite.broker.net"))

cdef str NO_ROOM = "no memory for a response of %d bytes, because the client holds too much (broker.memory.max)"

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buf, size_t count, off_t offset)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initval, int flags)
    enum: EFD_NONBLOCK
    enum: EFD_CLOEXEC

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* buf, size_t size, int flags)
    enum: MSG_NOSIGNAL
    enum: MSG_MORE
    enum: MSG_DONTWAIT

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out_fd, int in_fd, off_t* offset, size_t count)

cdef extern from "<errno.h>" nogil:
    enum: EREMOTEIO
    enum: EUCLEAN

cdef enum:
    INITIAL_CAPACITY = 4096
    KEPT_CAPACITY = 1048576             # most of a buffer that is kept between two responses
    ANSWER_SIZE = 512                   # bytes of an Answer besides its frame
    RANGE_COST = 4096                   # bytes of a turn's budget that a file range costs besides its own
    SEALED_IN_PLACE_MIN = 49152  # least bytes of a file range: less is copied, so that ranges share records and sends


cdef Py_ssize_t doubled_to_fit(Py_ssize_t capacity, Py_ssize_t wanted) noexcept:
    """Return the capacity, doubled until `wanted` bytes fit."""
    while capacity < wanted:
        capacity *= 2
    return capacity


@cython.final
cdef class OutBuffer:
    def __cinit__(self):
        self.data = <unsigned char*>malloc(INITIAL_CAPACITY)
        if self.data == NULL:
            raise MemoryError
        self.capacity = INITIAL_CAPACITY
        self.size = 0

    def __dealloc__(self):
        free(self.data)
        if self.holding != NULL:
            charge(self.holding, ANSWERS, -self.capacity)
            let_go(self.holding)

    cdef int use_holding(self, Holding* holding) except -1:
        """Charge the buffer to this memory account from now on."""
        if self.holding != NULL:
            charge(self.holding, ANSWERS, -self.capacity)
            let_go(self.holding)
        self.holding = hold(holding)
        charge(self.holding, ANSWERS, self.capacity)
        return 0

    cdef int grow(self, Py_ssize_t capacity) except -1:
        cdef unsigned char* grown = <unsigned char*>realloc(self.data, <size_t>capacity)
        if grown == NULL:
            raise MemoryError
        if self.holding != NULL:
            charge(self.holding, ANSWERS, capacity - self.capacity)
        self.data = grown
        self.capacity = capacity
        return 0

    cdef int shrink(self) except -1:
        """Free the memory that a long response needed."""
        if self.size == 0 and self.capacity > KEPT_CAPACITY:
            self.grow(KEPT_CAPACITY)
        return 0

    cdef int reserve(self, Py_ssize_t extra) except -1:
        # Kept short because every number of a response calls it.
        if self.size + extra <= self.capacity:
            return 0
        return self.grow(doubled_to_fit(self.capacity, self.size + extra))

    cdef int put(self, const unsigned char* source, Py_ssize_t size) except -1:
        self.reserve(size)
        kl_assert(self.size + size <= self.capacity)
        memcpy(self.data + self.size, source, <size_t>size)
        self.size += size
        return 0

    cdef int put_i8(self, int value) except -1:
        self.reserve(1)
        self.data[self.size] = <unsigned char>value
        self.size += 1
        return 0

    cdef int put_i16(self, int16_t value) except -1:
        self.reserve(2)
        store_i16(self.data + self.size, value)
        self.size += 2
        return 0

    cdef int put_i32(self, int32_t value) except -1:
        self.reserve(4)
        store_i32(self.data + self.size, value)
        self.size += 4
        return 0

    cdef int put_i64(self, int64_t value) except -1:
        self.reserve(8)
        store_i64(self.data + self.size, value)
        self.size += 8
        return 0

    cdef int put_uvarint(self, unsigned int value) except -1:
        self.reserve(5)
        self.size += store_uvarint(self.data + self.size, value)
        return 0

    cdef int put_string(self, const unsigned char* source, Py_ssize_t size, bint compact) except -1:
        """Write a string: its length as int16, or in flexible versions as a varint of the length plus one."""
        kl_assert(0 <= size <= INT16_MAX)
        if compact:
            self.put_uvarint(<unsigned int>(size + 1))
        else:
            self.put_i16(<int16_t>size)
        return self.put(source, size)

    cdef int put_array_size(self, Py_ssize_t count, bint compact) except -1:
        kl_assert(-1 <= count < INT32_MAX)
        if compact:
            return self.put_uvarint(<unsigned int>(count + 1))
        return self.put_i32(<int32_t>count)

    cdef Py_ssize_t begin_frame(self, int32_t correlation_id, bint flexible) except -1:
        """Reserve the length field and write the response header (v1 if flexible); return where the frame begins."""
        cdef Py_ssize_t start = self.size
        self.put_i32(0)
        self.put_i32(correlation_id)
        if flexible:
            self.put_i8(0)
        return start

    cdef int end_frame(self, Py_ssize_t start) except -1:
        store_i32(self.data + start, frame_length(self.size - start - 4))
        return 0


cpdef int32_t frame_length(int64_t size) except -1:
    """Return the length field of a frame of `size` bytes.

    Raises OverflowError if it does not fit. The protocol has no error for this, so the connection must be closed: after
    a wrapped length the client would misread everything.
    """
    if size < 0 or size > INT32_MAX:
        raise OverflowError(f"a response of {size} bytes does not fit into a frame")
    return <int32_t>size


cdef inline bint is_of_file(int error) noexcept nogil:
    """Return whether an error of sendfile comes from the file. Any other may come from the socket, not from the log."""
    return (error == EIO or error == ENXIO or error == ENODEV or error == ESTALE or error == EBADMSG
            or error == ENODATA or error == EUCLEAN or error == EREMOTEIO)


cdef int copy_records(OutBuffer out, LogSlice piece) except -1:
    """Copy a file range into a buffer with pread. Reading its map could cause page faults, which stop every worker.

    Raises SegmentUnreadable, with the log offline, if the file cannot be read.
    """
    cdef int fd = piece.segment.fd
    cdef off_t position = piece.position
    cdef Py_ssize_t left = piece.size
    cdef ssize_t n
    cdef int error
    cdef unsigned char* target
    out.reserve(left)
    while left > 0:
        target = out.data + out.size
        with nogil:
            n = pread(fd, target, <size_t>left, position)
            error = errno
        if n < 0 and error == EINTR:
            continue
        if n <= 0:
            piece.failed(error if n < 0 else EIO)
            piece.segment.check_read()
        out.size += n
        position += n
        left -= n
    return 0


@cython.final
cdef class Mailbox:
    """Items that other threads leave for one network worker, and the descriptor that wakes it.

    No wake-up is lost: the worker sets `sleeping` before it checks `items` for the last time, and a poster appends
    before it checks `sleeping`. Both run under the GIL, so at least one of them sees the other's step. Posting to an
    awake worker costs no system call.
    """

    def __cinit__(self):
        self.items = deque()
        self.sleeping = False
        self.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.wake_fd < 0:
            raise OSError(errno, _os.strerror(errno))

    def __dealloc__(self):
        if self.wake_fd >= 0:
            close(self.wake_fd)

    cdef int post(self, object item) except -1:
        cdef uint64_t one = 1
        self.items.append(item)
        self.waiting = 1
        if self.sleeping:
            self.sleeping = False
            write(self.wake_fd, &one, 8)
        return 0

    def put(self, item):
        """Leave an item for the worker, and wake it if it sleeps. Any thread."""
        self.post(item)

    def begin_sleep(self):
        """Return whether the worker may block. If so, a post writes to `wake_fd` from now on."""
        self.sleeping = True
        if self.items:
            self.sleeping = False
            return False
        if self.turns is not None:
            self.turns.note_sleep()
        return True

    def end_sleep(self):
        """Note that the worker's selector has returned."""
        self.sleeping = False
        if self.turns is not None:
            self.turns.note_turn()

    def clear_wake(self):
        """Empty the eventfd after it became readable."""
        cdef uint64_t value
        read(self.wake_fd, &value, 8)

    def take(self):
        """Return all items in the order in which they were posted. If it raises MemoryError, none was taken."""
        cdef list taken = list(self.items)
        self.waiting = 0
        self.items.clear()
        return taken

    def __len__(self):
        return len(self.items)


@cython.final
@cython.freelist(64)
cdef class Answer:
    def __cinit__(self):
        self.ready = False
        self.silent = False
        self.part = 0
        self.sent = 0
        self.slice_sent = 0
        self.size = 0
        self.holding = NULL
        self.charged = 0

    def __dealloc__(self):
        if self.holding != NULL:
            charge(self.holding, self.kind, -self.charged)
            let_go(self.holding)

    cdef int hold_for(self, Holding* holding) except -1:
        """Set the memory account to which the response is charged."""
        kl_assert(self.holding == NULL)
        self.holding = hold(holding)
        self.kind = ANSWERS
        return 0

    cdef int charge_waiting(self, int kind, int64_t size) except -1:
        """Charge the `size` bytes that its request holds until the response is ready."""
        if self.holding != NULL and not self.ready:
            swap_kind(self.holding, self.kind, self.charged, kind, size)
            self.kind = kind
            self.charged = size
        return 0

    cdef int fill(self, bytes data, list slices, list cuts) except -1:
        cdef LogSlice piece
        kl_assert(not self.ready)
        self.data = data
        self.slices = slices
        self.cuts = cuts
        self.size = PyBytes_GET_SIZE(data)
        if slices is not None:
            for piece in slices:
                self.size += piece.size
        self.ready = True
        if self.holding != NULL:
            swap_kind(self.holding, self.kind, self.charged, ANSWERS, ANSWER_SIZE + PyBytes_GET_SIZE(data))
            self.kind = ANSWERS
            self.charged = ANSWER_SIZE + PyBytes_GET_SIZE(data)
        if self.timing is not None:
            self.timing.note_ready()
        return 0

    def complete(self, bytes data not None):
        """Set the response frame. Any thread; the connection's worker sends it in order."""
        if self.ready:
            raise RuntimeError("a response can be completed only once")
        if (PyBytes_GET_SIZE(data) > SMALL_SIZE and self.holding != NULL
                and not admits(self.holding, PyBytes_GET_SIZE(data) - self.charged, PASSING)):
            self.fail(NO_ROOM, PyBytes_GET_SIZE(data))
            return
        self.fill(data, None, None)
        self.announce()

    def complete_silently(self):
        """Complete a request that has no response (acks=0)."""
        self.silent = True
        self.ready = True
        if self.timing is not None:
            self.timing.note_ready()
        self.announce()

    def fail(self, str reason="a request failed, and its API has no error response", *values, bytes client_id=None):
        """Close the connection, because no response is possible. The arguments are those of its close()."""
        if self.connection is not None:
            try:
                self.mailbox.post((self.connection, client_id, reason, *values))
            except MemoryError:
                self.connection.answer_lost = True

    cdef int announce(self) except -1:
        """Notify the worker that the response is ready, unless the connection is closed."""
        if self.connection is not None:
            try:
                self.mailbox.post(self)
            except MemoryError:
                self.connection.answer_lost = True
        return 0

    cdef int send_some(self, int fd, int64_t budget) except -2:
        """Send up to about `budget` bytes. Return 1: all sent; 0: socket full or budget used up; -1: failed.

        Bytes before a file range are sent with MSG_MORE, so that the header and the first batch share a packet.
        """
        cdef const char* base = PyBytes_AS_STRING(self.data)
        cdef Py_ssize_t total = PyBytes_GET_SIZE(self.data)
        cdef Py_ssize_t count = 0 if self.slices is None else len(self.slices)
        cdef Py_ssize_t cut
        cdef ssize_t n
        cdef int error
        cdef LogSlice piece
        cdef off_t position
        cdef size_t left, piece_size
        cdef int file_fd
        while True:
            cut = self.cuts[self.part] if self.part < count else total
            while self.sent < cut:
                if budget <= 0:
                    return 0
                piece_size = <size_t>min(<int64_t>(cut - self.sent), budget)
                with nogil:
                    n = send(fd, base + self.sent, piece_size,
                             <int>(MSG_NOSIGNAL | MSG_DONTWAIT | (MSG_MORE if self.part < count else 0)))
                    error = errno
                if n < 0:
                    if error == EINTR:
                        continue
                    return 0 if error == EAGAIN else -1
                self.sent += n
                budget -= n
            if self.part >= count:
                return 1
            piece = <LogSlice>self.slices[self.part]
            while self.slice_sent < piece.size:
                if budget <= 0:
                    return 0
                position = piece.position + self.slice_sent
                left = <size_t>min(piece.size - self.slice_sent, budget)
                file_fd = piece.segment.fd
                with nogil:
                    n = sendfile(fd, file_fd, &position, left)
                    error = errno
                if n < 0:
                    if error == EINTR:
                        continue
                    if error == EAGAIN:
                        return 0
                    if is_of_file(error):
                        piece.failed(error)
                    return -1
                if n == 0:
                    piece.failed(EIO)           # the file is shorter than the log's metadata
                    return -1
                self.slice_sent += n
                budget -= n
            budget -= RANGE_COST
            piece.release()
            self.slice_sent = 0
            self.part += 1

    cdef int send_sealed(self, int fd, int64_t budget, TlsSession tls) except -2:
        """Send up to about `budget` bytes with TLS. Return 1: all sent or kept in `tls`; 0: socket full or budget used
        up; -1: failed.

        Bytes and short file ranges are collected in the worker's buffer. Long ranges are encrypted directly from the
        map.
        """
        cdef Py_ssize_t wanted, sent
        cdef LogSlice slice_
        cdef const unsigned char* start
        while self.part < (0 if self.slices is None else len(self.slices)) or self.sent < PyBytes_GET_SIZE(self.data):
            if budget <= 0:
                return 0
            sent = tls.flush(fd)
            if sent <= 0:
                return <int>sent
            slice_ = self.long_slice()
            if slice_ is not None:
                wanted = min(<Py_ssize_t>(slice_.size - self.slice_sent), tls.piece_size)
                start = slice_.segment.map + slice_.position + self.slice_sent
                sent = tls.send(fd, start, wanted, &slice_.segment.fault)
                if sent < 0 and slice_.segment.has_fault():
                    slice_.failed(EIO)
            else:
                wanted = self.collect(tls.buffers.plain, min(<Py_ssize_t>TLS_CAPACITY, tls.piece_size))
                sent = -1 if wanted < 0 else tls.send(fd, tls.buffers.plain, wanted)
            if sent < 0:
                return -1
            budget += RANGE_COST * <int64_t>self.part
            self.advance(sent)
            budget -= RANGE_COST * <int64_t>self.part + sent
        return 1

    cdef LogSlice long_slice(self):
        """Return the next file range if it is long enough to be encrypted directly from the map, else None."""
        cdef LogSlice slice_
        if self.slices is None or self.part >= len(self.slices) or self.sent < <Py_ssize_t>self.cuts[self.part]:
            return None
        slice_ = <LogSlice>self.slices[self.part]
        return slice_ if slice_.size - self.slice_sent >= SEALED_IN_PLACE_MIN else None

    cdef Py_ssize_t collect(self, unsigned char* target, Py_ssize_t room) except -2:
        """Copy the next bytes, up to `room` or a long file range. Return their number, or -1 if a segment is
        unreadable."""
        cdef Py_ssize_t part = self.part, done = self.sent, in_slice = <Py_ssize_t>self.slice_sent
        cdef Py_ssize_t count = 0 if self.slices is None else len(self.slices)
        cdef Py_ssize_t filled = 0, piece
        cdef ssize_t n
        cdef int error, file_fd
        cdef off_t position
        cdef LogSlice slice_
        while filled < room:
            piece = min(room - filled, (<Py_ssize_t>self.cuts[part] if part < count else len(self.data)) - done)
            if piece > 0:
                memcpy(target + filled, PyBytes_AS_STRING(self.data) + done, <size_t>piece)
                done += piece
                filled += piece
                continue
            if part >= count:
                break
            slice_ = <LogSlice>self.slices[part]
            piece = min(room - filled, <Py_ssize_t>slice_.size - in_slice)
            if piece <= 0:
                part += 1
                in_slice = 0
                continue
            if slice_.size - in_slice >= SEALED_IN_PLACE_MIN + TLS_RECORD_SIZE:
                # A started TLS record is filled up with the range's first bytes; the rest of it is not copied.
                room = filled + min(piece, TLS_RECORD_SIZE - filled % TLS_RECORD_SIZE)
                piece = room - filled
            file_fd, position = slice_.segment.fd, slice_.position + in_slice
            with nogil:
                n = pread(file_fd, target + filled, <size_t>piece, position)
                error = errno
            if n < 0 and error == EINTR:
                continue
            if n <= 0:
                slice_.failed(error if n < 0 else EIO)  # the file is shorter than the log's metadata, or damaged
                return -1
            in_slice += n
            filled += n
        return filled

    cdef void advance(self, Py_ssize_t size):
        """Advance over `size` sent bytes, and release the file ranges that are complete."""
        cdef Py_ssize_t count = 0 if self.slices is None else len(self.slices)
        cdef Py_ssize_t piece
        cdef LogSlice slice_
        while True:
            piece = min(size, (<Py_ssize_t>self.cuts[self.part] if self.part < count else len(self.data)) - self.sent)
            self.sent += piece
            size -= piece
            if self.part >= count:
                return
            slice_ = <LogSlice>self.slices[self.part]
            if self.sent < <Py_ssize_t>self.cuts[self.part]:
                return
            piece = min(size, <Py_ssize_t>slice_.size - <Py_ssize_t>self.slice_sent)
            self.slice_sent += piece
            size -= piece
            if self.slice_sent < slice_.size:
                return
            slice_.release()
            self.slice_sent = 0
            self.part += 1

    def when_abandoned(self, function not None):
        """Call `function` if the connection closes before the response is ready, or now if it is already closed.

        It is called on the worker, or on this thread if called now. A later call replaces the function.
        """
        if self.connection is not None:
            self.abandoned = function
        elif not self.ready:
            function()

    cdef void drop(self):
        """Release the file ranges and the connection."""
        cdef LogSlice piece
        abandoned, self.abandoned = self.abandoned, None
        if self.slices is not None:
            for piece in self.slices[self.part:]:
                piece.release()
            self.slices = None
        self.connection = None
        if self.ready and self.holding != NULL:     # a waiting answer keeps its charge until it is freed
            self.data = None
            charge(self.holding, self.kind, -self.charged)
            self.charged = 0
        if abandoned is not None and not self.ready:
            try:
                abandoned()
            except Exception:
                logger.exception("could not cancel a request of a closed connection")
