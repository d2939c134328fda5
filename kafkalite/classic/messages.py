"""Encode and decode message sets of Kafka 0.7, and find how much of a fetched set is complete.

The bytes are `_native.classic.message_set`'s business, wrappers `kafkalite.wire.record.message_set`'s; faults become
the 0.7 API's errors here. Thread rule: a set may be shared, an iterator belongs to one thread at a time.
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
    """kafka.message.MessageAndOffset: `offset` is where to fetch after the message."""

    message: Message
    offset: int


def encode_message_set(messages: Sequence[Message | bytes], codec: int = 0) -> bytes:
    """A message set of magic 1, in one wrapper where a codec (1 gzip, 2 snappy) is given; no messages give no bytes."""
    return wrap(native.encode(list(messages)), codec)


def valid_size(data: Buffer) -> int:
    """Bytes of the whole outer entries of a fetched set; InvalidMessageSize when not even the first one is whole."""
    size, _, _, _, fault = native.check(data, verify=False)
    if fault:
        raise _fault(fault, size)
    return size


def whole_size(data: Buffer) -> int:
    """As valid_size, but 0 when the first entry is not whole: more of it has to be fetched."""
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
    """The messages of a fetched set, InvalidMessage or InvalidMessageSize at the first that is none.

    `next_offset` is where to fetch after the message handed out last: inside a wrapper its start, but for the last one.
    `shallow` hands out wrappers as they are.
    """

    def __init__(self, data: Buffer, offset: int = 0, *, shallow: bool = False) -> None:
        super().__init__(data, offset, shallow=shallow, unpack=_open_wrapper, fault=_fault, depth_max=DEPTH_MAX)


class MessageSet:
    """kafka.message.ByteBufferMessageSet: what one fetch brought, the first byte of which is at `offset`."""

    def __init__(self, data: Buffer, offset: int = 0) -> None:
        self.data = memoryview(data)
        self.offset = offset

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[MessageAndOffset]:
        return PairIterator(MessageIterator(self.data, self.offset), MessageAndOffset)

    def shallow(self) -> Iterator[MessageAndOffset]:
        """The outer messages, wrappers not opened."""
        return PairIterator(MessageIterator(self.data, self.offset, shallow=True), MessageAndOffset)

    @property
    def valid_size(self) -> int:
        """Bytes of its whole outer messages; the next fetch begins after them. InvalidMessageSize."""
        return valid_size(self.data)


def check_size(largest: int, size_max: int) -> None:
    """MessageSizeTooLarge when the largest payload of a set, `largest` bytes, is beyond `size_max`."""
    if largest > size_max:
        raise MessageSizeTooLarge(f"a message of {largest} bytes exceeds max.message.size ({size_max})")
