"""Kafka 0.7's messages and requests in plain Python, read off the protocol's description: the oracle.

Slow and obvious on purpose, and shares nothing with kafkalite. Test vectors are the description's own.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HELLO_0 = bytes.fromhex("0000000a 00 3610a686 68656c6c6f")
HELLO_1 = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)


class OracleError(Exception):
    """Bytes that are no message set."""


@dataclass(frozen=True)
class OracleMessage:
    """A message of a set; an explicit `crc` is written as given, right or wrong."""

    payload: bytes
    magic: int = 1
    attributes: int = 0
    crc: int | None = None

    def encode(self) -> bytes:
        crc = zlib.crc32(self.payload) if self.crc is None else self.crc
        head = struct.pack(">b", self.magic)
        if self.magic == 1:
            head += struct.pack(">B", self.attributes)
        body = head + struct.pack(">I", crc) + self.payload
        return struct.pack(">i", len(body)) + body


def encode_set(messages: Sequence[OracleMessage]) -> bytes:
    return b"".join(message.encode() for message in messages)


def gzip_wrapper(messages: Sequence[OracleMessage]) -> OracleMessage:
    return OracleMessage(gzip.compress(encode_set(messages), mtime=0), attributes=1)


def read_entries(data: bytes) -> Iterator[tuple[int, OracleMessage]]:
    """(position, message) of each whole outer entry; OracleError at a fault."""
    position = 0
    while len(data) - position >= 4:
        (size,) = struct.unpack_from(">i", data, position)
        if size < 5:
            raise OracleError(f"size {size}")
        if size > len(data) - position - 4:
            if position == 0:
                raise OracleError("the first message is not whole")
            return
        body = data[position + 4 : position + 4 + size]
        if body[0] == 0:
            message = OracleMessage(body[5:], 0, 0, struct.unpack_from(">I", body, 1)[0])
        elif body[0] == 1:
            if size < 6:
                raise OracleError("no room for a header")
            message = OracleMessage(body[6:], 1, body[1], struct.unpack_from(">I", body, 2)[0])
        else:
            raise OracleError(f"magic {body[0]}")
        if message.crc != zlib.crc32(message.payload):
            raise OracleError("checksum")
        yield position, message
        position += 4 + size


def read_deep(data: bytes, base_offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """(payload, offset to fetch after it) of each message, gzip wrappers opened."""
    for position, message in read_entries(data):
        start = base_offset + position
        end = start + len(message.encode())
        if message.attributes & 3 == 0:
            yield message.payload, end
            continue
        if message.attributes & 3 != 1:
            raise OracleError("codec")
        try:
            content = gzip.decompress(message.payload)
        except (OSError, EOFError, zlib.error) as error:
            raise OracleError("content") from error
        inner = list(read_deep(content))
        for payload, _ in inner[:-1]:
            yield payload, start
        if inner:
            yield inner[-1][0], end


# ---- requests and responses -----------------------------------------------------------------------------------------


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">h", len(raw)) + raw


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">ih", len(body) + 2, kind) + body


def produce_part(topic: str | bytes, partition: int, message_set: bytes) -> bytes:
    return string(topic) + struct.pack(">ii", partition, len(message_set)) + message_set


def produce(topic: str | bytes, partition: int, message_set: bytes) -> bytes:
    return frame(PRODUCE, produce_part(topic, partition, message_set))


def multiproduce(parts: Sequence[tuple[str, int, bytes]]) -> bytes:
    return frame(MULTIPRODUCE, struct.pack(">h", len(parts)) + b"".join(produce_part(*part) for part in parts))


def fetch_part(topic: str | bytes, partition: int, offset: int, size_max: int) -> bytes:
    return string(topic) + struct.pack(">iqi", partition, offset, size_max)


def fetch(topic: str | bytes, partition: int, offset: int, size_max: int) -> bytes:
    return frame(FETCH, fetch_part(topic, partition, offset, size_max))


def multifetch(parts: Sequence[tuple[str, int, int, int]]) -> bytes:
    return frame(MULTIFETCH, struct.pack(">h", len(parts)) + b"".join(fetch_part(*part) for part in parts))


def offsets(topic: str | bytes, partition: int, time_ms: int, count_max: int) -> bytes:
    return frame(OFFSETS, string(topic) + struct.pack(">iqi", partition, time_ms, count_max))


def read_multifetch(body: bytes) -> list[tuple[int, bytes]]:
    """(error code, message-set bytes) of each part; `body` begins behind the outer error code."""
    parts = []
    position = 0
    while position < len(body):
        size, code = struct.unpack_from(">ih", body, position)
        parts.append((code, body[position + 6 : position + 4 + size]))
        position += 4 + size
    return parts


def read_offsets(body: bytes) -> list[int]:
    """`body` begins behind the error code."""
    (count,) = struct.unpack_from(">i", body)
    return list(struct.unpack_from(f">{count}q", body, 4))
