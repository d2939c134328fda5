"""Streams: delivery, consumed offsets, clearing, ending, timeouts."""

import itertools
import threading

import pytest

from kafkalite.classic import messages
from kafkalite.classic.errors import ConsumerTimeout, InvalidMessage, OffsetOutOfRange
from kafkalite.classic.handlers import DefaultDecoder, PayloadDecoder
from kafkalite.classic.messages import Message, encode_message_set
from kafkalite.classic.stream import ChunkQueue, ConsumedPosition, FetchedChunk, KafkaStream
from kafkalite.wire.record.message_set import wrap
from kafkalite.zookeeper.nodes import BrokerPartition


class Fixture:
    def __init__(self, *, timeout_ms=50, count_max=10, shallow=False):
        self.queue = ChunkQueue(count_max)
        self.position = ConsumedPosition("t", BrokerPartition(0, 0), 0, self.queue)
        decoder = DefaultDecoder() if shallow else PayloadDecoder()
        self.stream = KafkaStream(self.queue, decoder, timeout_ms=timeout_ms, shallow=shallow)

    def put(self, *payloads, codec=0, error=None):
        data = encode_message_set([Message(payload) for payload in payloads], codec)
        chunk = FetchedChunk(memoryview(data), self.position.fetched, self.position, error)
        assert self.queue.put(chunk, self.queue.generation)
        self.position.fetched += len(data)


def test_consumed_moves_as_messages_are_handed_out():
    at = Fixture()
    at.put(b"a", b"b")
    assert at.position.consumed == 0
    assert next(at.stream) == (b"a", "t")
    assert at.position.consumed == 11
    assert next(at.stream).message == b"b"
    assert at.position.consumed == 22
    at.put(b"c")
    assert next(at.stream).message == b"c"
    assert at.position.consumed == 33


def test_stream_and_its_iterators_take_from_the_same_place():
    at = Fixture()
    at.put(b"a", b"b", b"c", b"d")
    first, second = iter(at.stream), iter(at.stream)
    assert iter(first) is first
    assert [next(first).message, next(at.stream).message, next(second).message] == [b"a", b"b", b"c"]
    assert [item.message for item in itertools.islice(at.stream, 1)] == [b"d"]
    with pytest.raises(ConsumerTimeout):
        next(first)
    at.put(b"e")
    assert next(first).message == b"e"
    at.queue.end()
    assert list(second) == []


def test_within_a_wrapper_consumed_stays_at_its_start():
    at = Fixture()
    at.put(b"before")
    at.put(b"a", b"b", b"c", codec=1)
    next(at.stream)
    start = at.position.consumed
    assert [next(at.stream).message, at.position.consumed] == [b"a", start]
    assert [next(at.stream).message, at.position.consumed] == [b"b", start]
    assert [next(at.stream).message, at.position.consumed] == [b"c", at.position.fetched]


def test_shallow_stream_hands_out_wrappers():
    at = Fixture(shallow=True)
    at.put(b"a", b"b", codec=1)
    (message, topic) = next(at.stream)
    assert (message.codec, topic) == (1, "t")
    assert at.position.consumed == at.position.fetched


def test_timeout_leaves_the_stream_usable():
    at = Fixture(timeout_ms=1)
    for _ in range(2):
        with pytest.raises(ConsumerTimeout):
            next(at.stream)
    at.put(b"a")
    assert next(at.stream).message == b"a"


def test_clearing_forgets_what_was_not_handed_out():
    at = Fixture(timeout_ms=1)
    at.put(b"a", b"b")
    at.put(b"c")
    next(at.stream)
    at.stream.clear()
    with pytest.raises(ConsumerTimeout):
        next(at.stream)
    assert at.position.consumed == 11


def test_a_wait_for_room_ends_when_the_stream_is_cleared():
    at = Fixture(count_max=1)
    at.put(b"a")
    generation = at.queue.generation
    results = []
    chunk = FetchedChunk(memoryview(b""), 0, at.position)
    waiting = threading.Thread(target=lambda: results.append(at.queue.put(chunk, generation)))
    waiting.start()
    at.queue.clear()
    waiting.join(30)
    assert results == [False]
    assert len(at.queue) == 0


def test_end_ends_the_iteration_also_of_one_who_waits():
    at = Fixture(timeout_ms=-1)
    found = []
    reader = threading.Thread(target=lambda: found.extend(at.stream))
    reader.start()
    at.queue.end()
    reader.join(30)
    assert not reader.is_alive()
    assert found == []
    assert not at.queue.put(FetchedChunk(memoryview(b""), 0, at.position), at.queue.generation)


def test_a_partitions_error_is_raised_at_its_position():
    at = Fixture()
    at.put(b"a")
    at.put(error=OffsetOutOfRange("gone"))
    assert next(at.stream).message == b"a"
    with pytest.raises(OffsetOutOfRange):
        next(at.stream)


def test_damaged_message_is_never_handed_out():
    at = Fixture()
    data = bytearray(encode_message_set([Message(b"a"), Message(b"b")], 0))
    data[-1] ^= 1
    at.queue.put(FetchedChunk(memoryview(bytes(data)), 0, at.position), at.queue.generation)
    assert next(at.stream).message == b"a"
    with pytest.raises(InvalidMessage):
        next(at.stream)
    assert at.position.consumed == 11


def test_chunk_that_was_taken_while_the_stream_was_cleared_is_not_handed_out():
    """A rebalance between the queue and the iterator: only the reader's thread has the chunk then."""
    at = Fixture(timeout_ms=1)
    clear = [at.stream.clear]

    class Interfering(ConsumedPosition):
        def begin(self, iterator):
            if clear:
                clear.pop()()
            super().begin(iterator)

    at.position = Interfering("t", BrokerPartition(0, 0), 0, at.queue)
    at.put(b"a", b"b")
    with pytest.raises(ConsumerTimeout):
        next(at.stream)
    assert at.position.consumed == at.position.fetched - 22 == 0
    at.position.fetched = 0
    at.put(b"a", b"b")
    assert next(at.stream).message == b"a"


def test_wrapper_that_was_being_opened_while_the_stream_was_cleared_is_not_handed_out(monkeypatch):
    at = Fixture(timeout_ms=1)
    at.put(b"a", b"b", codec=1)
    unpack = messages.unpack

    def slow(*arguments):
        at.stream.clear()
        return unpack(*arguments)

    monkeypatch.setattr(messages, "unpack", slow)
    with pytest.raises(ConsumerTimeout):
        next(at.stream)
    assert at.position.consumed == 0


def test_clearing_while_a_wrapper_inside_a_wrapper_is_opened(monkeypatch):
    at = Fixture(timeout_ms=1)
    deep = encode_message_set([Message(b"x"), Message(b"y")], 1)
    data = wrap(encode_message_set([Message(b"a")], 0) + deep, 1)
    assert at.queue.put(FetchedChunk(memoryview(data), 0, at.position), at.queue.generation)
    unpack = messages.unpack

    def slow(codec, payload, limit):
        content = unpack(codec, payload, limit)
        if b"x" in content and b"a" not in content:
            at.stream.clear()
        return content

    monkeypatch.setattr(messages, "unpack", slow)
    assert next(at.stream).message == b"a"
    with pytest.raises(ConsumerTimeout):
        next(at.stream)
    assert at.position.consumed == 0
