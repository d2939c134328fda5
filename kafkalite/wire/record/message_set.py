"""Kafka 0.7's compressed message sets: wrapping, unpacking within limits, checking a set to its depth.

A wrapper is a message of magic 1 whose payload is a whole message set, compressed as its attributes say:

    1 gzip     one stream                                   read as any number of members
    2 snappy   snappy-java's stream: a header, then blocks   read so, or as one raw block

Both limits stand for every set of bytes from a client: how deep wrappers may lie in each other, and what one may unpack
to, with those around it. Pure; the native half is `_native.classic.message_set`.
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
"""Wrappers that may lie in each other."""
UNPACKED_SIZE_MAX: Final = 128 * 1024 * 1024
"""What one wrapper may unpack to unless the caller sets its own limit, in bytes."""
SPLIT_COUNT: Final = 4096
"""Messages that a wrapper is split into at a time."""


class SetSummary(NamedTuple):
    """What a set holds, counted to its depth."""

    valid_size: int  # bytes of whole outer entries
    outer_count: int
    message_count: int  # with those inside wrappers, without the wrappers
    payload_size_max: int  # of the outer entries


def wrap(message_set: bytes, codec: int, *, level: int | None = None) -> bytes:
    """A set as one compressed wrapper; itself where there is no codec or nothing in it. ValueError: no such codec."""
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
    """The set inside a wrapper. CompressionError when it is not that, or larger than size_max bytes."""
    if codec not in {Codec.GZIP, Codec.SNAPPY}:
        raise CompressionError(f"Kafka 0.7 has no codec id {codec}")
    return decompress(codec, payload, size_max)


def messages(
    data: Buffer, base_offset: int = 0, *, size_max: int = UNPACKED_SIZE_MAX, depth_max: int = DEPTH_MAX
) -> Iterator[Message]:
    """Every message, those inside wrappers included; MessageSetError at the first fault."""

    held: list[int] = []  # bytes of the wrappers that lie around the present one, unpacked

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
    """Checks every entry of a set, unpacking wrappers; MessageSetError at the first fault.

    An inner set that was cut in the middle is a fault: no reader would ever get what is missing.
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
    """A checked set with each wrapper split that holds more messages than bytes; None where there is none.

    A message inside a wrapper gets the wrapper's offset plus its number, which must stay below the next message's.
    At most SPLIT_COUNT messages are held at a time: a wrapper of 100 KB may hold ten million.
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
    """Messages in as few wrappers, halved again and again, as have a byte for each."""
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
