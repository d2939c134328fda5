"""Encode requests and decode responses of Kafka 0.7's protocol, for its clients.

    request   int32 size | int16 type | body          response   int32 size | int16 error code | body

Numbers are big-endian. A string is an int16 length and UTF-8. PRODUCE and MULTIPRODUCE have no response. A `decode_`
function raises the error of the response's code, and UnknownError for bytes that violate the schema. Pure functions.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 1).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.classic import message_set as native
from kafkalite.classic.errors import ClassicError, UnknownError, error_of

if TYPE_CHECKING:
    from collections.abc import Sequence

PRODUCE: Final = native.TYPE_PRODUCE
FETCH: Final = native.TYPE_FETCH
MULTIFETCH: Final = native.TYPE_MULTIFETCH
MULTIPRODUCE: Final = native.TYPE_MULTIPRODUCE
OFFSETS: Final = native.TYPE_OFFSETS

LATEST: Final = -1
EARLIEST: Final = -2
ANY_PARTITION: Final = native.ANY_PARTITION
"""In a produce request: the broker chooses a partition."""
PRODUCE_HEADS_MAX: Final = 1024
"""The number of topic partitions whose request head is cached."""

_TYPE: Final = struct.Struct(">ih")
_CODE: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
_PARTITION: Final = _SIZE
_PART: Final = struct.Struct(">ii")
_FETCH_TAIL: Final = struct.Struct(">iqi")
_OFFSETS_TAIL: Final = struct.Struct(">iqi")
_SIZED_CODE: Final = struct.Struct(">ih")
SIZE_SIZE: Final = _SIZE.size
CODE_SIZE: Final = _CODE.size


class FetchRequest(NamedTuple):
    """The fetch of one partition (kafka.api.FetchRequest)."""

    topic: str
    partition: int
    offset: int
    size_max: int


class ProduceRequest(NamedTuple):
    """The message set for one partition (kafka.api.ProducerRequest)."""

    topic: str
    partition: int
    message_set: bytes


def encode_produce(request: ProduceRequest) -> bytes:
    """Encode a PRODUCE frame."""
    return _frame(PRODUCE, *_produce_parts(request))


@lru_cache(maxsize=PRODUCE_HEADS_MAX)
def produce_head(topic: str, partition: int) -> bytes:
    """Encode the part of a PRODUCE frame from its type to its partition, for `message_set.encode_produce`."""
    return _CODE.pack(PRODUCE) + _string(topic) + _PARTITION.pack(partition)


def encode_multiproduce(requests: Sequence[ProduceRequest]) -> bytes:
    """Encode a MULTIPRODUCE frame."""
    parts = (part for request in requests for part in _produce_parts(request))
    return _frame(MULTIPRODUCE, _COUNT.pack(len(requests)), *parts)


def encode_fetch(request: FetchRequest) -> bytes:
    """Encode a FETCH frame."""
    return _frame(FETCH, _fetch_body(request))


def encode_multifetch(requests: Sequence[FetchRequest]) -> bytes:
    """Encode a MULTIFETCH frame."""
    return _frame(MULTIFETCH, _COUNT.pack(len(requests)), *map(_fetch_body, requests))


def encode_offsets(topic: str, partition: int, time_ms: int, count_max: int) -> bytes:
    """Encode an OFFSETS frame; `time_ms` may be LATEST or EARLIEST."""
    return _frame(OFFSETS, _string(topic), _OFFSETS_TAIL.pack(partition, time_ms, count_max))


def decode_fetch(body: memoryview, request: FetchRequest) -> memoryview:
    """Return the message set of a response body without its size field."""
    if len(body) < CODE_SIZE:
        raise UnknownError("the fetch response is too short for an error code")
    (code,) = _CODE.unpack_from(body)
    if code:
        raise error_of(code, _named(request))
    return body[CODE_SIZE:]


def decode_multifetch(body: memoryview, requests: Sequence[FetchRequest]) -> list[memoryview | ClassicError]:
    """Return the message set or error of each request, in order."""
    if len(body) < CODE_SIZE:
        raise UnknownError("the multifetch response is too short for an error code")
    (outer,) = _CODE.unpack_from(body)
    if outer:
        raise error_of(outer, "multifetch")
    found: list[memoryview | ClassicError] = []
    at = CODE_SIZE
    for request in requests:
        if at + _SIZED_CODE.size > len(body):
            raise UnknownError("the multifetch response has fewer partitions than requested")
        size, code = _SIZED_CODE.unpack_from(body, at)
        end = at + SIZE_SIZE + size
        if size < CODE_SIZE or end > len(body):
            raise UnknownError(f"the multifetch response has a part of {size} bytes, which does not fit")
        found.append(error_of(code, _named(request)) if code else body[at + _SIZED_CODE.size : end])
        at = end
    return found


def decode_offsets(body: memoryview) -> list[int]:
    """Return the offsets, newest first."""
    if len(body) < CODE_SIZE + SIZE_SIZE:
        raise UnknownError("the offsets response is too short")
    code, count = struct.unpack_from(">hi", body)
    if code:
        raise error_of(code, "offsets")
    if count < 0 or CODE_SIZE + SIZE_SIZE + 8 * count > len(body):
        raise UnknownError(f"the offsets response announces {count} offsets in {len(body)} bytes")
    return list(struct.unpack_from(f">{count}q", body, CODE_SIZE + SIZE_SIZE))


def _frame(kind: int, *parts: bytes) -> bytes:
    return b"".join((_TYPE.pack(sum(map(len, parts)) + CODE_SIZE, kind), *parts))


def _string(text: str) -> bytes:
    data = text.encode()
    return _COUNT.pack(len(data)) + data


def _produce_parts(request: ProduceRequest) -> tuple[bytes, ...]:
    """Return a PRODUCE body in parts, so that the message set is copied only once, when the frame is joined."""
    return _string(request.topic), _PART.pack(request.partition, len(request.message_set)), request.message_set


def _fetch_body(request: FetchRequest) -> bytes:
    return _string(request.topic) + _FETCH_TAIL.pack(request.partition, request.offset, request.size_max)


def _named(request: FetchRequest) -> str:
    return f"{request.topic}-{request.partition} at offset {request.offset}"
