"""Encode and decode message sets of Kafka 0.7, and find how much of a fetched set is complete.

    kafkalite._native.classic.message_set    handles the bytes
    kafkalite.wire.record.message_set        handles wrappers: messages that contain a compressed message set

This module turns their errors into those of the 0.7 API.

Thread rule: threads may share a set. An iterator belongs to one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite._native.classic import message_set as native
from kafkalite._native.classic.message_set import Message
from kafkalite._native.classic.stream import PairIterator
from kafkalite.classic.errors import ClassicError, InvalidMessage, InvalidMessageSize, MessageSizeTooLarge
from kafkalite.wire.record.compression import CompressionError
from kafkalite.wire.record.message_set import DEPTH_MAX, UNPACKED_SIZE_MAX, unpack, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

__all__ = [
    "Message",
    "MessageAndOffset",
    "MessageIterator",
    "MessageSet",
    "check_size",
    "encode_message_set",
    "valid_size",
    "whole_size",
]


class MessageAndOffset(NamedTuple):
    """A message, and the offset of the next fetch after it (kafka.message.MessageAndOffset)."""

    message: Message
    offset: int


def encode_message_set(messages: Sequence[Message | bytes], codec: int = 0) -> bytes:
    """Encode a message set of magic 1. With a codec (1 gzip, 2 snappy), compress the set into one wrapper message.

    Without messages the result is empty.
    """
    return wrap(native.encode(list(messages)), codec)


def valid_size(data: Buffer) -> int:
    """Return the size in bytes of the complete outer messages of a fetched set.

    Raises InvalidMessageSize if not even the first message is complete.
    """
    size, _, _, _, fault = native.check(data, verify=False)
    if fault:
        raise _fault(fault, size)
    return size


def whole_size(data: Buffer) -> int:
    """Return the size in bytes of the complete outer messages of a fetched set, like `valid_size`.

    Return 0 if the first message is incomplete: then more bytes must be fetched.
    """
    size, _, _, _, fault = native.check(data, verify=False)
    if fault and fault != native.PARTIAL:
        raise _fault(fault, size)
    return size


def _fault(fault: int, offset: int) -> ClassicError:
    text = f"{native.FAULT_TEXT[fault]}, at offset {offset}"
    if fault == native.PARTIAL:
        return InvalidMessageSize(f"{text}: the message is larger than the fetch size or corrupt")
    return InvalidMessageSize(text) if fault == native.BAD_SIZE else InvalidMessage(text)


def _open_wrapper(codec: int, payload: bytes, _depth: int) -> bytes:
    try:
        return unpack(codec, payload, UNPACKED_SIZE_MAX)
    except CompressionError as error:
        raise InvalidMessage(f"cannot decompress a message: {error}") from None


class MessageIterator(native.MessageIterator):
    """An iterator over the messages of a fetched set. Raises InvalidMessage or InvalidMessageSize at an invalid
    message.

    `next_offset` is the offset of the next fetch after the last message that was handed out. Inside a wrapper it is the
    start of the wrapper, except after the wrapper's last message. With `shallow` the iterator returns wrappers
    unopened.
    """

    def __init__(self, data: Buffer, offset: int = 0, *, shallow: bool = False) -> None:
        super().__init__(data, offset, shallow=shallow, unpack=_open_wrapper, fault=_fault, depth_max=DEPTH_MAX)


class MessageSet:
    """The data of one fetch, whose first byte is at `offset` (kafka.message.ByteBufferMessageSet)."""

    def __init__(self, data: Buffer, offset: int = 0) -> None:
        self.data = memoryview(data)
        self.offset = offset

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[MessageAndOffset]:
        return PairIterator(MessageIterator(self.data, self.offset), MessageAndOffset)

    def shallow(self) -> Iterator[MessageAndOffset]:
        """Return an iterator over the outer messages, without opening wrappers."""
        return PairIterator(MessageIterator(self.data, self.offset, shallow=True), MessageAndOffset)

    @property
    def valid_size(self) -> int:
        """The size of the complete outer messages; the next fetch begins after them. Raises InvalidMessageSize."""
        return valid_size(self.data)


def check_size(largest: int, size_max: int) -> None:
    """Raise MessageSizeTooLarge if `largest`, the size in bytes of a set's largest payload, exceeds `size_max`."""
    if largest > size_max:
        raise MessageSizeTooLarge(f"a message of {largest} bytes exceeds max.message.size ({size_max})")
