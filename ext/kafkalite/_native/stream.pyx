"""The inner loop of Kafka 0.7's streams: the next message of the current chunk, decoded, with its topic.

    __next__ ─▶ message of the chunk in hand ─▶ MessageAndMetadata
                     └─ none left ─▶ advance(): the subclass brings the next chunk, or raises

Thread rule: one thread iterates; any other may call `stop_chunk`, which only shortens the chunk in hand.
"""

cimport cython

from kafkalite._native.message_set cimport Message, MessageIterator


@cython.final
@cython.freelist(256)
cdef class MessageAndMetadata:
    """What a stream gives (kafka.message.MessageAndMetadata): the decoded message and where it is from."""
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
    """An iterator over chunk after chunk. `to_event` decodes a Message; None gives the Message, PAYLOAD its bytes."""
    cdef MessageIterator chunk
    cdef str topic
    cdef object to_event
    cdef bint payload_only

    def __init__(self, to_event):
        self.payload_only = to_event is PAYLOAD
        self.to_event = None if self.payload_only else to_event

    def __iter__(self):
        return self

    def __next__(self):
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
        """Calls take_chunk(), or raises StopIteration or whatever ends the iteration for now."""
        raise StopIteration

    def take_chunk(self, MessageIterator chunk not None, str topic not None):
        """The messages of a chunk are next."""
        self.topic = topic
        self.chunk = chunk

    def stop_chunk(self):
        """Nothing more of the chunk in hand is given."""
        cdef MessageIterator chunk = self.chunk
        if chunk is not None:
            chunk.stop()


PAYLOAD = "payload"
