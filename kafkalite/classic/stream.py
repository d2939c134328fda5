"""Deliver messages to one thread of an application (0.7's KafkaStream), from a queue of fetched chunks.

    1  a fetcher adds chunks to the ChunkQueue, which has at most queuedchunks.max chunks
    2  the KafkaStream takes a chunk, and hands its messages to the application one by one
    3  ConsumedPosition.consumed is the offset of the next fetch after the messages that were handed out

A chunk is the result of one fetch of one partition. A rebalance clears the queue. A shutdown of the connector ends the
stream.

Thread rule: one thread iterates a stream; any other may clear or end it. The committer may read positions at the same
time without a lock, because each change of a position replaces one reference or integer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite._native.classic.stream import PAYLOAD, MessageAndMetadata, MessageStream
from kafkalite.classic.errors import ClassicError, ConsumerTimeout
from kafkalite.classic.handlers import DefaultDecoder, PayloadDecoder
from kafkalite.classic.messages import MessageIterator

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.classic.handlers import Decoder
    from kafkalite.classic.messages import Message
    from kafkalite.zookeeper.nodes import BrokerPartition

__all__ = ["ChunkQueue", "ConsumedPosition", "FetchedChunk", "KafkaStream", "MessageAndMetadata"]


class ConsumedPosition:
    """The application's position in an owned partition (kafka.consumer.PartitionTopicInfo)."""

    __slots__ = ("_iterator", "_offset", "fetched", "partition", "queue", "topic")

    def __init__(self, topic: str, partition: BrokerPartition, offset: int, queue: ChunkQueue) -> None:
        self.topic = topic
        self.partition = partition
        self.queue = queue
        self.fetched = offset
        self._offset = offset
        self._iterator: MessageIterator | None = None

    @property
    def consumed(self) -> int:
        """The offset of the next fetch after the last message that was handed out, as in MessageIterator."""
        iterator = self._iterator
        return self._offset if iterator is None else int(iterator.next_offset)

    def begin(self, iterator: MessageIterator) -> None:
        """Use the position of an iterator from now on."""
        self._iterator = iterator

    def settle(self) -> None:
        """Keep the position of the iterator, which is finished."""
        self._offset = self.consumed
        self._iterator = None

    def reset(self, offset: int) -> None:
        """Continue at another offset."""
        self._iterator = None
        self._offset = self.fetched = offset


class FetchedChunk(NamedTuple):
    """Complete messages of one partition, beginning at `offset`, or an error."""

    data: memoryview
    offset: int
    position: ConsumedPosition
    error: ClassicError | None = None


class ChunkQueue:
    """A queue of at most `count_max` chunks for one stream."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._chunks: deque[FetchedChunk] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._generation = 0
        self._ended = False

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def generation(self) -> int:
        """A number that increases each time the queue is cleared."""
        return self._generation

    def put(self, chunk: FetchedChunk, generation: int) -> bool:
        """Wait for room and add a chunk. Return False if the queue was cleared after `generation`, or has ended."""
        with self._changed:
            while True:
                if self._ended or self._generation != generation:
                    return False
                if len(self._chunks) < self._count_max:
                    break
                self._changed.wait()
            self._chunks.append(chunk)
            self._changed.notify_all()
            return True

    def get(self, timeout_s: float | None) -> tuple[FetchedChunk, int] | None:
        """Return (next chunk, generation), or None at the end. Raises ConsumerTimeout if no chunk came within
        `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._chunks:
                if self._ended:
                    return None
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise ConsumerTimeout(f"no message arrived within {timeout_s:g} s")
                self._changed.wait(left_s)
            chunk = self._chunks.popleft()
            self._changed.notify_all()
            return chunk, self._generation

    def clear(self) -> None:
        """Drop the waiting chunks. A `put` that waits for room returns False."""
        with self._changed:
            self._chunks.clear()
            self._generation += 1
            self._changed.notify_all()

    def end(self) -> None:
        """End the queue and drop the waiting chunks. The next owner of the partitions fetches them again."""
        with self._changed:
            self._ended = True
            self._chunks.clear()
            self._generation += 1
            self._changed.notify_all()


class KafkaStream(MessageStream):
    """An iterator over the messages of one stream (kafka.consumer.KafkaStream).

    It waits for messages. If none came within consumer.timeout.ms, it raises ConsumerTimeout; the program may then
    iterate again.
    """

    def __init__(self, queue: ChunkQueue, decoder: Decoder, *, timeout_ms: int, shallow: bool) -> None:
        super().__init__(_to_event(decoder))
        self._queue = queue
        self._timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
        self._shallow = shallow
        self._position: ConsumedPosition | None = None

    @property
    def idle(self) -> bool:
        """Whether no chunk waits in the queue. A program can use this time to flush what it has processed."""
        return len(self._queue) == 0

    def clear(self) -> None:
        """Drop the messages that were fetched but not handed out, at a rebalance."""
        self._queue.clear()
        self.stop_chunk()

    def advance(self) -> None:
        """Take the next chunk from the queue, since the current one is finished."""
        if self._position is not None:
            self._position.settle()
            self._position = None
        found = self._queue.get(self._timeout_s)
        if found is None:
            raise StopIteration
        chunk, generation = found
        if chunk.error is not None:
            raise chunk.error
        iterator = MessageIterator(chunk.data, chunk.offset, shallow=self._shallow)
        self._position = chunk.position
        chunk.position.begin(iterator)
        self.take_chunk(iterator, chunk.position.topic)
        if self._queue.generation != generation:
            self.stop_chunk()  # cleared after the chunk left the queue, so `clear` could not drop it


def _to_event(decoder: Decoder) -> Callable[[Message], Any] | str | None:
    """Return the function that decodes a message, or a constant for one of the two built-in decoders."""
    if type(decoder) is DefaultDecoder:
        return None
    return PAYLOAD if type(decoder) is PayloadDecoder else decoder.to_event
