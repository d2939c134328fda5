"""Compress, decompress and validate message sets of Kafka 0.7, including sets nested in compressed messages.

A compressed message (a wrapper) has magic 1, and its payload is a whole message set:

    1 gzip     one stream                                   read as any number of members
    2 snappy   snappy-java's stream: a header, then blocks   read as that, or as one raw block

Two limits apply to every set from a client: the depth to which wrappers are nested, and the decompressed size of a
wrapper together with the wrappers around it. Pure; the native half is `_native.classic.message_set`.
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
    """Totals of a set, including all messages inside wrappers."""

    valid_size: int  # bytes of whole outer entries
    outer_count: int
    message_count: int  # including those inside wrappers, without the wrappers
    payload_size_max: int  # of the outer entries


def wrap(message_set: bytes, codec: int, *, level: int | None = None) -> bytes:
    """Compress a set into one wrapper. Without a codec or messages, return it unchanged. Raises ValueError."""
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
    """Return the set inside a wrapper. CompressionError if it is invalid or larger than `size_max` bytes."""
    if codec not in {Codec.GZIP, Codec.SNAPPY}:
        raise CompressionError(f"Kafka 0.7 has no codec id {codec}")
    return decompress(codec, payload, size_max)


def messages(
    data: Buffer, base_offset: int = 0, *, size_max: int = UNPACKED_SIZE_MAX, depth_max: int = DEPTH_MAX
) -> Iterator[Message]:
    """Yield every message, including those inside wrappers. MessageSetError at the first fault."""

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
    """Validate every entry of a set, decompressing wrappers. MessageSetError at the first fault.

    A truncated inner set is a fault, because no reader could ever get the missing part.
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
    """Split the wrappers of a validated set that hold more messages than they have bytes.

    Return the new set; None if no wrapper had to be split.

    A message inside a wrapper gets the wrapper's offset plus its own index. That must stay below the next message's
    offset, which is only possible if the wrapper has at least one byte per message. At most SPLIT_COUNT messages are in
    memory at a time, because a wrapper of 100 KB may hold ten million.
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
    """Compress messages into as few wrappers as possible, halving until each has at least one byte per message."""
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
