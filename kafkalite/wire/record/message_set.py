"""Compress, decompress and validate the message sets of Kafka 0.7.

A message set can be compressed into one message, a wrapper. A wrapper has magic 1, and its payload is the compressed
set. Wrappers can be nested, at most DEPTH_MAX deep.

    codec      written as                                read as
    1 gzip     one stream                                any number of members
    2 snappy   snappy-java's stream: header, blocks      that stream, or one raw block

Pure: no I/O, no state. The native part is `_native.classic.message_set`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.classic.message_set import (
    BAD_CODEC,
    BAD_CONTENT,
    PARTIAL,
    Message,
    MessageIterator,
    MessageSetError,
    check,
    encode,
)
from kafkalite.wire.record.compression import (
    Codec,
    CompressionError,
    compress,
    decompress,
    snappy_stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

DEPTH_MAX: Final = 4
"""How deep wrappers may be nested."""
UNPACKED_SIZE_MAX: Final = 128 * 1024 * 1024
"""Default limit of the decompressed size of one wrapper, in bytes."""
SPLIT_COUNT: Final = 4096
"""Messages that are processed at a time when a wrapper is split."""


class SetSummary(NamedTuple):
    """Totals of a message set, including the messages inside wrappers."""

    valid_size: int  # bytes of whole outer entries
    outer_count: int
    message_count: int  # including those inside wrappers, without the wrappers
    payload_size_max: int  # of the outer entries


def wrap(message_set: bytes, codec: int, *, level: int | None = None) -> bytes:
    """Compress a message set into one wrapper. ValueError if Kafka 0.7 does not have the codec.

    The set is returned unchanged if it is empty or if the codec is NONE.
    """
    if codec == Codec.NONE or not message_set:
        return message_set
    if codec == Codec.GZIP:
        payload = compress(codec, message_set, level)
    elif codec == Codec.SNAPPY:
        payload = snappy_stream(message_set)
    else:
        raise ValueError(f"Kafka 0.7 has only the codec ids 0, 1 and 2, not {codec}")
    return encode([Message(payload, attributes=codec)])


def unpack(codec: int, payload: bytes, size_max: int = UNPACKED_SIZE_MAX) -> bytes:
    """Return the message set inside a wrapper. CompressionError if it is invalid or larger than `size_max` bytes."""
    if codec not in {Codec.GZIP, Codec.SNAPPY}:
        raise CompressionError(f"Kafka 0.7 has no codec id {codec}")
    return decompress(codec, payload, size_max)


def messages(
    data: Buffer, base_offset: int = 0, *, size_max: int = UNPACKED_SIZE_MAX, depth_max: int = DEPTH_MAX
) -> Iterator[Message]:
    """Return an iterator over all messages, including those inside wrappers.

    MessageSetError at the first invalid message.
    """

    held: list[int] = []  # decompressed bytes of the wrappers around the current one

    def open_wrapper(codec: int, payload: bytes, depth: int) -> bytes:
        del held[depth:]
        try:
            content = unpack(codec, payload, size_max - sum(held))
        except CompressionError:
            raise MessageSetError(BAD_CONTENT, iterator.next_offset) from None
        held.append(len(content))
        return content

    iterator = MessageIterator(data, base_offset, unpack=open_wrapper, depth_max=depth_max)
    return iterator


def check_deep(data: Buffer, *, size_max: int = UNPACKED_SIZE_MAX, depth_max: int = DEPTH_MAX) -> SetSummary:
    """Validate all messages of a set, including those inside wrappers. MessageSetError at the first invalid message.

    A truncated set inside a wrapper is invalid, because no reader can get the missing part.
    """
    valid_size, count, payload_size_max, compressed_count, fault = check(data)
    if fault:
        raise MessageSetError(fault, valid_size)
    total = count
    if compressed_count:
        total -= compressed_count
        for message in MessageIterator(memoryview(data)[:valid_size], shallow=True):
            if message.codec:
                total += _inner_count(message, size_max, depth_max, 1)
    return SetSummary(valid_size, count, total, payload_size_max)


def fit_wrappers(data: Buffer, *, size_max: int = UNPACKED_SIZE_MAX, depth_max: int = DEPTH_MAX) -> bytes | None:
    """Split the wrappers that have more messages than bytes. Return the new set; None if nothing had to be split.

    The offset of a message inside a wrapper is the wrapper's offset plus the message's index. The next wrapper's offset
    is higher by the wrapper's size in bytes. So a wrapper with more messages than bytes would have offsets that overlap
    with the next wrapper's. `data` must be valid. At most SPLIT_COUNT messages are in memory at a time, because a
    wrapper of 100 KB may contain ten million.
    """
    parts = []
    changed = False
    for message in MessageIterator(data, shallow=True):
        entry = encode([message])
        if message.codec and _inner_count(message, size_max, depth_max, 1) > len(entry):
            inner = messages(entry, size_max=size_max, depth_max=depth_max)
            while some := list(islice(inner, SPLIT_COUNT)):
                parts.append(_wrap_apart(some, message.codec))
            changed = True
        else:
            parts.append(entry)
    return b"".join(parts) if changed else None


def _wrap_apart(inner: list[Message], codec: int) -> bytes:
    """Compress messages into wrappers with at least one byte per message. Halve the messages until this holds."""
    wrapper = wrap(encode(inner), codec)
    if len(inner) <= len(wrapper):
        return wrapper
    middle = len(inner) // 2
    return _wrap_apart(inner[:middle], codec) + _wrap_apart(inner[middle:], codec)


def _inner_count(wrapper: Message, size_max: int, depth_max: int, depth: int) -> int:
    if depth > depth_max:
        raise MessageSetError(BAD_CONTENT, 0)
    try:
        content = unpack(wrapper.codec, wrapper.payload, size_max)
    except CompressionError as error:
        raise MessageSetError(BAD_CODEC if wrapper.codec > Codec.SNAPPY else BAD_CONTENT, 0) from error
    valid_size, count, _, compressed_count, fault = check(content)
    if fault or valid_size != len(content):
        raise MessageSetError(fault or PARTIAL, 0)
    if compressed_count:
        for message in MessageIterator(content, shallow=True):
            if message.codec:
                count += _inner_count(message, size_max - len(content), depth_max, depth + 1) - 1
    return count
