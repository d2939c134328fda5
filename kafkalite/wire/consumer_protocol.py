"""Encode and decode the consumer protocol: the subscriptions and assignments inside JoinGroup and SyncGroup.

    subscription    version (int16) · topics · user data
                    from version 1 also owned partitions, from version 2 the generation, from version 3 the rack
    assignment      version (int16) · partitions by topic · user data

For a classic group, the broker decodes only the topics. For a consumer group (KIP-848), the broker acts as the group
leader for members that use the classic protocol.

Later versions only append fields (KIP-429, KIP-792, KIP-881). So a decoder ignores additional fields. A negative
version is invalid.

Pure: no I/O, no state.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 1
NEWEST_VERSION: Final = 3
OWNED_SINCE: Final = 1
GENERATION_SINCE: Final = 2
RACK_SINCE: Final = 3
NO_GENERATION: Final = -1

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")


class Subscription(NamedTuple):
    """A group member's subscription: its topics, and the partitions that it owns when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """Data of the assignor."""
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """The generation in which it got the owned partitions."""
    rack: str | None = None
    instance_id: str | None = None
    """The group.instance.id of a static member; not part of the bytes, the broker sends it separately."""


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription in version 3."""
    parts = [_I16.pack(SUBSCRIPTION_VERSION), _I32.pack(len(subscription.topics))]
    parts += [_string(topic) for topic in subscription.topics]
    parts += [_bytes(subscription.user_data), _partitions(subscription.owned), _I32.pack(subscription.generation)]
    parts.append(_I16.pack(-1) if subscription.rack is None else _string(subscription.rack))
    return b"".join(parts)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Decode a subscription of any version. ValueError if it is invalid.

    `instance_id` is copied to the result; the bytes do not contain it.
    """
    reader = Reader(data)
    version = reader.version()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= OWNED_SINCE else ()
    generation = reader.int32() if version >= GENERATION_SINCE else NO_GENERATION
    rack = reader.nullable_string() if version >= RACK_SINCE else None
    return Subscription(topics, user_data, owned, generation, rack, instance_id)


def encode_assignment(partitions: Iterable[TopicPartition], version: int = ASSIGNMENT_VERSION) -> bytes:
    """Encode an assignment without user data. A broker uses the version of the member's subscription."""
    return _I16.pack(version) + _partitions(partitions) + _bytes(None)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment of any version. ValueError if it is invalid.

    Empty bytes are an assignment without partitions.
    """
    if not data:
        return ()
    reader = Reader(data)
    reader.version()
    return reader.partitions()


def assigned_user_data(data: bytes) -> bytes:
    """Return the user data of an assignment, which a client-side assignor wrote; b"" without user data.

    ValueError if the assignment is invalid.
    """
    if not data:
        return b""
    reader = Reader(data)
    reader.version()
    reader.partitions()
    return reader.nullable_bytes() or b""


def version_of(data: bytes) -> int:
    """Return the version of a subscription, limited to NEWEST_VERSION. ValueError if the bytes have no version."""
    return min(Reader(data).version(), NEWEST_VERSION)


class Reader:
    """A reader of fields from bytes. ValueError if a field extends past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self._data) - self._position:
            raise ValueError(
                f"a field of {size} bytes at position {self._position} does not fit into {len(self._data)} bytes"
            )
        self._position += size
        return self._data[self._position - size : self._position]

    def int16(self) -> int:
        value: int = _I16.unpack(self.take(2))[0]
        return value

    def version(self) -> int:
        value = self.int16()
        if value < 0:
            raise ValueError(f"negative version {value}")
        return value

    def int32(self) -> int:
        value: int = _I32.unpack(self.take(4))[0]
        return value

    def count(self) -> int:
        """Read the length of an array. ValueError if it is larger than the number of bytes left."""
        value = self.int32()
        if value < 0 or value > len(self._data) - self._position:
            raise ValueError(f"an array of {value} items does not fit into {len(self._data)} bytes")
        return value

    def string(self) -> str:
        return self.take(self.int16()).decode()

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self.take(size).decode()

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self.take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


def _bytes(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data


def _partitions(keys: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key.partition)
    rows = [
        _string(topic) + _I32.pack(len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)
        for topic, numbers in topics.items()
    ]
    return _I32.pack(len(rows)) + b"".join(rows)
