"""Iterate over the messages of Kafka 0.7's consumers, in native code.

    __next__ returns the next message of the current chunk, as a MessageAndMetadata
    advance() is called after the chunk's last message: a subclass sets the next chunk, or raises

A chunk is a fetched message set.

Thread rule: one thread iterates. Any other thread may call `stop_chunk`, which ends the current chunk early.
"""

cimport cython
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

from kafkalite._native.classic.message_set cimport Message, MessageIterator


cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t item_count)


@cython.final
@cython.freelist(256)
cdef class MessageAndMetadata:
    """A decoded message and its topic (kafka.message.MessageAndMetadata)."""
    cdef readonly object message
    cdef readonly str topic

    def __init__(self, message, str topic not None):
        self.message = message
        self.topic = topic

    def __iter__(self):
        return iter((self.message, self.topic))

    def __eq__(self, other):
        if isinstance(other, MessageAndMetadata):
            other = ((<MessageAndMetadata>other).message, (<MessageAndMetadata>other).topic)
        return (self.message, self.topic) == other

    def __hash__(self):
        return hash((self.message, self.topic))

    def __repr__(self):
        return f"MessageAndMetadata({self.message!r}, {self.topic!r})"


cdef class MessageStream:
    """Iterates over the messages of successive chunks.

    `to_event` decodes a Message. None returns the Message itself, and PAYLOAD its bytes.
    """
    cdef MessageIterator chunk
    cdef str topic
    cdef object to_event
    cdef bint payload_only

    def __init__(self, to_event):
        self.payload_only = to_event is PAYLOAD
        self.to_event = None if self.payload_only else to_event

    def __iter__(self):
        """Return an iterator that is faster than the stream: Python looks up a subclass's `__next__` for each item."""
        return StreamIterator(self)

    def __next__(self):
        return self.give()

    cdef MessageAndMetadata give(self):
        """Return the next item, or raise the exception of `advance`."""
        cdef Message message = None
        cdef MessageAndMetadata found
        while True:
            if self.chunk is not None:
                message = self.chunk.step()
                if message is not None:
                    break
                self.chunk = None
            self.advance()
        found = MessageAndMetadata.__new__(MessageAndMetadata)
        found.topic = self.topic
        if self.payload_only:
            found.message = message.payload
        elif self.to_event is None:
            found.message = message
        else:
            found.message = self.to_event(message)
        return found

    def advance(self):
        """Call take_chunk() with the next chunk, or raise the exception that ends the iteration, such as
        StopIteration."""
        raise StopIteration

    def take_chunk(self, MessageIterator chunk not None, str topic not None):
        """Iterate over this chunk next."""
        self.topic = topic
        self.chunk = chunk

    def stop_chunk(self):
        """End the current chunk early. Any thread."""
        cdef MessageIterator chunk = self.chunk
        if chunk is not None:
            chunk.stop()


@cython.final
cdef class StreamIterator:
    """A faster iterator over a MessageStream. All iterators of one stream share its position."""
    cdef MessageStream stream

    def __cinit__(self, MessageStream stream not None):
        self.stream = stream

    def __iter__(self):
        return self

    def __next__(self):
        return self.stream.give()


PAYLOAD = "payload"


@cython.final
cdef class PairIterator:
    """Iterates over (message, offset to fetch next) pairs. `pair` is the named tuple class of the pairs."""
    cdef MessageIterator messages
    cdef object pair

    def __cinit__(self, MessageIterator messages not None, pair not None):
        if not (isinstance(pair, type) and issubclass(pair, tuple) and pair.__dictoffset__ == 0
                and pair.__basicsize__ == tuple.__basicsize__):  # from 3.12 on a dict is not in the size
            raise TypeError("a pair is a named tuple")
        self.messages = messages
        self.pair = pair

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message message = self.messages.step()
        cdef object offset
        cdef object found
        if message is None:
            raise StopIteration
        offset = self.messages.next_offset
        # As tuple.__new__, without a tuple of arguments. No other code sees the object before both items are set.
        found = PyType_GenericAlloc(<PyTypeObject*>self.pair, 2)
        Py_INCREF(message)
        PyTuple_SET_ITEM(found, 0, message)
        Py_INCREF(offset)
        PyTuple_SET_ITEM(found, 1, offset)
        return found
