"""Encode, check and iterate over message sets of Kafka 0.7. Numbers are big-endian, and entries have no gaps:

    magic 0                                     magic 1
    0  size i32, counts from byte 4             0  size i32, counts from byte 4
    4  magic i8 = 0                             4  magic i8 = 1
    5  crc u32, of the payload alone            5  attributes i8: low two bits codec (0 none, 1 gzip, 2 snappy)
    9  payload                                  6  crc u32, of the payload alone
                                                10 payload

A message with a codec is a wrapper: its payload is a compressed message set. Offsets are byte positions. A partial
entry at the end of a set is ignored.

Thread rule: functions are pure. A MessageIterator belongs to one thread at a time.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from kafkalite._native.base.crc32 cimport crc32
from kafkalite._native.wire.cursor cimport store_i32, store_u32

cdef extern from "memory_hints.h" nogil:
    void kl_prefetch(const void* start, size_t size) noexcept
    void kl_prefer_huge_pages(void* start, size_t size) noexcept

cdef enum:
    WITHOUT_GIL_SIZE = 65536    # bytes from which a walk gives the GIL away
    # A cache miss costs several times as much as a message of 200 bytes, so memory is prefetched.
    WALK_AHEAD = 1024           # bytes ahead of the current entry
    WALK_ENTRY_MAX = 512        # of these, for each entry; the processor prefetches longer ones by itself
    ENCODE_AHEAD = 6            # payloads ahead of the current one
    ENCODE_SIZE = 256           # bytes prefetched of each
    HUGE_PAGES_SIZE = 4 * 1024 * 1024   # a set from which its pages are asked for as huge ones

FAULT_TEXT = {
    ENTRY_PARTIAL: "truncated message",
    ENTRY_BAD_SIZE: "invalid message size",
    ENTRY_BAD_MAGIC: "unknown message magic",
    ENTRY_BAD_CRC: "wrong message checksum",
    ENTRY_BAD_CODEC: "unknown message codec",
    ENTRY_BAD_CONTENT: "compressed message cannot be decompressed",
}

PARTIAL, BAD_SIZE, BAD_MAGIC, BAD_CRC, BAD_CODEC, BAD_CONTENT = (
    ENTRY_PARTIAL, ENTRY_BAD_SIZE, ENTRY_BAD_MAGIC, ENTRY_BAD_CRC, ENTRY_BAD_CODEC, ENTRY_BAD_CONTENT)


class MessageSetError(ValueError):
    """The bytes are not a message set. `fault` is one of the constants above, `offset` its position."""

    def __init__(self, int fault, int64_t offset):
        super().__init__(f"{FAULT_TEXT[fault]} at offset {offset}")
        self.fault = fault
        self.offset = offset


cdef void walk_set(const unsigned char* data, int64_t size, bint verify, SetFindings* out) noexcept nogil:
    """Walk the outer entries to the end, a partial tail or a fault. `verify`: check checksums and codecs.

    A partial entry at the start of a set is a fault, unless it has fewer than four bytes.
    """
    cdef Entry entry
    cdef int64_t position = 0
    cdef int result
    out.count = out.last_position = out.payload_size_max = out.compressed_count = 0
    out.fault = ENTRY_GOOD
    while size - position >= SIZE_FIELD_SIZE:
        result = read_entry(data + position, size - position, &entry)
        if result == ENTRY_PARTIAL and position > 0:
            break
        if result == ENTRY_GOOD and verify:
            if entry.attributes & CODEC_MASK == CODEC_MASK:
                result = ENTRY_BAD_CODEC
            elif not entry_intact(&entry):
                result = ENTRY_BAD_CRC
        if result != ENTRY_GOOD:
            out.fault = result
            break
        out.last_position = position
        position += entry.size
        if size - position > WALK_AHEAD + WALK_ENTRY_MAX:
            kl_prefetch(data + position + WALK_AHEAD, <size_t>min(entry.size, <int64_t>WALK_ENTRY_MAX))
        out.count += 1
        if entry.payload_size > out.payload_size_max:
            out.payload_size_max = entry.payload_size
        if entry.attributes & CODEC_MASK:
            out.compressed_count += 1
    out.valid_size = position


def check(buffer not None, *, bint verify=True):
    """Check the outer entries; return (valid size, message count, largest payload, number of wrappers, fault).

    Sizes are in bytes; a fault of 0 means none. With verify=False, checksums and codecs are not checked.
    """
    cdef Py_buffer view
    cdef SetFindings found
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < WITHOUT_GIL_SIZE:
            walk_set(<const unsigned char*>view.buf, view.len, verify, &found)
        else:
            with nogil:
                walk_set(<const unsigned char*>view.buf, view.len, verify, &found)
    finally:
        PyBuffer_Release(&view)
    return found.valid_size, found.count, found.payload_size_max, found.compressed_count, found.fault


def encode(list messages not None, int magic=1):
    """Return a message set. Each item is a Message, or a payload as bytes, which becomes a message without codec.

    Raises TypeError for other items, ValueError if `magic` is neither 0 nor 1, and OverflowError for a payload of 2
    GiB.
    """
    cdef int64_t largest = 0
    cdef int64_t total = _measure(messages, magic, &largest)
    cdef bytes result = PyBytes_FromStringAndSize(NULL, total)
    cdef unsigned char* target = <unsigned char*>PyBytes_AS_STRING(result)
    if total >= HUGE_PAGES_SIZE:
        kl_prefer_huge_pages(target, <size_t>total)
    _fill(target, messages, magic)
    return result


def encode_produce(bytes head not None, list messages not None):
    """Return (PRODUCE frame, size of its largest payload). `messages` are as for encode(), with magic 1.

        int32 size · `head`: int16 type, topic, int32 partition · int32 set size · message set

    Raises the errors of encode(), and OverflowError for a frame of 2 GiB.
    """
    cdef int64_t largest = 0
    cdef int64_t total = _measure(messages, 1, &largest)
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head)
    cdef int64_t frame_size = head_size + SIZE_FIELD_SIZE + total
    cdef bytes result
    cdef unsigned char* target
    if frame_size > INT32_MAX:
        raise OverflowError(f"a message set of {total} bytes does not fit into a request")
    result = PyBytes_FromStringAndSize(NULL, SIZE_FIELD_SIZE + frame_size)
    target = <unsigned char*>PyBytes_AS_STRING(result)
    store_i32(target, <int32_t>frame_size)
    memcpy(target + SIZE_FIELD_SIZE, PyBytes_AS_STRING(head), <size_t>head_size)
    target += SIZE_FIELD_SIZE + head_size
    store_i32(target, <int32_t>total)
    _fill(target + SIZE_FIELD_SIZE, messages, 1)
    return result, largest


cdef int64_t _measure(list messages, int magic, int64_t* largest) except -1:
    """Return the size of the set in bytes, and set `largest` to its largest payload size."""
    cdef Py_ssize_t i
    cdef Py_ssize_t count = PyList_GET_SIZE(messages)
    cdef int64_t total = 0
    cdef int64_t size
    cdef object item
    if magic != 0 and magic != 1:
        raise ValueError(f"magic is 0 or 1, not {magic}")
    for i in range(count):
        if i + ENCODE_AHEAD < count:
            kl_prefetch(PyList_GET_ITEM(messages, i + ENCODE_AHEAD), 1)
        item = <object>PyList_GET_ITEM(messages, i)
        if type(item) is bytes:
            size = PyBytes_GET_SIZE(item)
            total += _entry_size(size, magic)
        elif type(item) is Message:
            size = PyBytes_GET_SIZE((<Message>item).payload)
            total += _entry_size(size, (<Message>item).magic)
        else:
            raise TypeError(f"a message is a Message or bytes, not {type(item).__name__}")
        if size > largest[0]:
            largest[0] = size
    return total


cdef void _fill(unsigned char* target, list messages, int magic) noexcept:
    """Write the set that _measure() has measured. No Python code runs in between, so the list cannot have changed."""
    cdef Py_ssize_t i
    cdef Py_ssize_t count = PyList_GET_SIZE(messages)
    for i in range(count):
        if i + ENCODE_AHEAD < count:
            kl_prefetch(PyList_GET_ITEM(messages, i + ENCODE_AHEAD), ENCODE_SIZE)
        if type(<object>PyList_GET_ITEM(messages, i)) is bytes:
            target += _store(target, <bytes>PyList_GET_ITEM(messages, i), magic, 0, False, 0)
        else:
            target += _store_message(target, <Message>PyList_GET_ITEM(messages, i))


cdef inline int64_t _entry_size(int64_t payload_size, int magic) except -1:
    if payload_size > INT32_MAX - OVERHEAD_1:
        raise OverflowError(f"a payload of {payload_size} bytes does not fit into a message")
    return payload_size + (OVERHEAD_1 if magic else OVERHEAD_0)


cdef inline int64_t _store(unsigned char* target, bytes payload, int magic, int attributes, bint crc_known,
                           uint32_t crc) noexcept:
    """Write one entry; return its size."""
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(payload)
    cdef int64_t payload_size = PyBytes_GET_SIZE(payload)
    cdef int overhead = OVERHEAD_1 if magic else OVERHEAD_0
    memcpy(target + overhead, data, <size_t>payload_size)
    if not crc_known:
        crc = crc32(target + overhead, <size_t>payload_size)
    store_i32(target, <int32_t>(payload_size + overhead - SIZE_FIELD_SIZE))
    target[4] = <unsigned char>magic
    if magic:
        target[5] = <unsigned char>attributes
    store_u32(target + overhead - 4, crc)
    return payload_size + overhead


cdef inline int64_t _store_message(unsigned char* target, Message message) noexcept:
    return _store(target, message.payload, message.magic, message.attributes, message.crc_known, message.crc)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Message:
    """A payload with its magic, attributes and checksum (kafka.message.Message). Immutable.

    The low two bits of `attributes` are the codec; a message of magic 0 has none.
    """

    OVERHEAD = OVERHEAD_1

    def __init__(self, payload not None, *, int magic=1, int attributes=0):
        if magic != 0 and magic != 1:
            raise ValueError(f"magic is 0 or 1, not {magic}")
        if not 0 <= attributes <= 255 or (magic == 0 and attributes):
            raise ValueError(f"attributes {attributes} do not fit into a message of magic {magic}")
        if isinstance(payload, (str, int)):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}")
        self.payload = bytes(payload)
        self.magic = magic
        self.attributes = attributes

    @property
    def codec(self):
        """The codec: 0 none, 1 gzip, 2 snappy."""
        return self.attributes & CODEC_MASK

    @property
    def checksum(self):
        """The CRC-32 of the payload."""
        if not self.crc_known:
            self.crc = crc32(<const unsigned char*>PyBytes_AS_STRING(self.payload),
                             <size_t>PyBytes_GET_SIZE(self.payload))
            self.crc_known = True
        return self.crc

    @property
    def size(self):
        """The bytes of the message without its size field."""
        return PyBytes_GET_SIZE(self.payload) + (OVERHEAD_1 if self.magic else OVERHEAD_0) - SIZE_FIELD_SIZE

    def __eq__(self, other):
        if type(other) is not Message:
            return NotImplemented
        return (self.payload == (<Message>other).payload and self.magic == (<Message>other).magic
                and self.attributes == (<Message>other).attributes)

    def __hash__(self):
        return hash((self.payload, self.magic, self.attributes))

    def __repr__(self):
        return f"Message({self.payload!r}, magic={self.magic}, attributes={self.attributes})"


cdef inline Message make_message(const Entry* entry):
    """Return an entry, whose checksum was checked, as a Message."""
    cdef Message message = Message.__new__(Message)
    message.payload = PyBytes_FromStringAndSize(<const char*>entry.payload, entry.payload_size)
    message.magic = entry.magic
    message.attributes = entry.attributes
    message.crc = entry.crc
    message.crc_known = True
    return message


def _raise_plainly(int fault, int64_t offset):
    return MessageSetError(fault, offset)


@cython.no_gc   # a collector that sees the owner of the bytes through us clears it while they are still held
cdef class MessageIterator:
    """Iterates over the messages of a set whose first byte is at `base_offset`.

    `next_offset` is where to fetch after the last returned message. Inside a wrapper, it is the start of the wrapper;
    after the wrapper's last message, it is the wrapper's end. So a consumer that stops inside a wrapper fetches the
    whole wrapper again.

    `unpack(codec, payload, depth)` returns the set inside a wrapper as bytes, or raises. `fault(fault, offset)` returns
    the exception for bytes that are not a message. `shallow`: return wrappers themselves. A wrapper nested deeper than
    `depth_max` is a fault.
    """

    def __init__(self, buffer not None, int64_t base_offset=0, *, bint shallow=False, unpack=None,
                 fault=_raise_plainly, int depth_max=4, int depth=0):
        if self.held:
            raise TypeError("an iterator is made once")
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.data = <const unsigned char*>self.view.buf
        self.size = self.view.len
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.shallow = shallow
        self.unpack = unpack
        self.fault = fault
        self.depth = depth
        self.depth_max = depth_max

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message message = self.step()
        if message is None:
            raise StopIteration
        return message

    def stop(self):
        """End the iteration; `next_offset` stays. Any thread may call this; all other methods belong to the iterating
        thread."""
        self.stopped = True

    cdef Message step(self):
        """Return the next message, or None at the end."""
        cdef Entry entry
        cdef Message message
        cdef int result
        while True:
            if self.stopped:  # also while a wrapper was being opened, which lets other threads run
                return None
            if self.ahead is not None:
                message = self.ahead
                self.ahead = self.inner.step()
                if self.ahead is None:
                    self.inner = None
                    self.position += self.wrapper_size
                    self.next_offset = self.base_offset + self.position
                return message
            if self.size - self.position < SIZE_FIELD_SIZE:
                return None
            result = read_entry(self.data + self.position, self.size - self.position, &entry)
            if result == ENTRY_PARTIAL and self.position > 0:
                return None
            if result == ENTRY_GOOD and not entry_intact(&entry):
                result = ENTRY_BAD_CRC
            if result != ENTRY_GOOD:
                self.give_up(result)
            if self.shallow or not entry.attributes & CODEC_MASK:
                self.position += entry.size
                self.next_offset = self.base_offset + self.position
                return make_message(&entry)
            self.enter(&entry)

    cdef Message enter(self, const Entry* entry):
        """Open a wrapper, so that its first message is the next one (`ahead`). An empty wrapper is skipped."""
        cdef int codec = entry.attributes & CODEC_MASK
        if codec == CODEC_MASK:
            self.give_up(ENTRY_BAD_CODEC)
        if self.unpack is None or self.depth >= self.depth_max:
            self.give_up(ENTRY_BAD_CONTENT)
        content = self.unpack(codec, PyBytes_FromStringAndSize(<const char*>entry.payload, entry.payload_size),
                              self.depth)
        inner = MessageIterator(content, self.base_offset + self.position, unpack=self.unpack, fault=self.fault,
                                depth_max=self.depth_max, depth=self.depth + 1)
        self.ahead = (<MessageIterator>inner).step()
        if self.ahead is None:
            self.position += entry.size
            self.next_offset = self.base_offset + self.position
        else:
            self.inner = inner
            self.wrapper_size = entry.size
        return self.ahead

    cdef int give_up(self, int fault) except -1:
        raise self.fault(fault, self.base_offset + self.position)
