"""Who holds the bytes of a fetched set, and for how long."""

import gc

import pytest

from kafkalite.classic.messages import Message, MessageIterator, encode_message_set


def test_iterator_holds_its_bytes_until_it_goes():
    data = bytearray(encode_message_set([Message(b"a"), Message(b"b")]))
    iterator = MessageIterator(memoryview(data))
    next(iterator)
    with pytest.raises(BufferError):
        data.clear()
    del iterator
    data.clear()


def test_iterator_in_a_garbage_cycle_gives_its_bytes_back():
    data = bytearray(encode_message_set([Message(b"a"), Message(b"b")]))
    for _ in range(100):
        iterator = MessageIterator(memoryview(data))
        iterator.itself = iterator
        next(iterator)
        del iterator
    gc.collect()
    data.clear()
