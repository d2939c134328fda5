"""Encode and decode the records of classic groups and committed offsets in `__consumer_offsets`, in Kafka's schemas.

    key      int16 kind, then the key's fields
    value    int16 version, then the value's fields; null (a tombstone) deletes the key

    kinds 0 and 1   key: group, topic, partition. Value: committed offset, version 4; version 1 if the client gave an
                    expiry time
    kind 2          key: group. Value: group metadata, version 3

Kinds above 2, such as those of consumer groups (KIP-848), are ignored here.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import ClassVar, Final

from kafkalite._native.wire.codec import CodecError, Program
from kafkalite.base.dataclass import dataclass
from kafkalite.wire.protocol.schema import ZERO_UUID, FieldTable

OFFSET_KINDS: Final = (0, 1)
OFFSET_KIND: Final = 1
GROUP_KIND: Final = 2

OFFSET_VERSION: Final = 4
OFFSET_VERSION_EXPIRING: Final = 1
OFFSET_FLEXIBLE_FROM: Final = 4
GROUP_VERSION: Final = 3
GROUP_FLEXIBLE_FROM: Final = 4
NEWEST_VERSION: Final = 4


@dataclass(slots=True, kw_only=True)
class OffsetCommitKey:
    """The key of a committed offset."""

    group: str = ""
    topic: str = ""
    partition: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("group", "string", "0+"),
        ("topic", "string", "0+"),
        ("partition", "int32", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class OffsetCommitValue:
    """A committed offset. Versions 0-4, flexible from 4. Times in ms.

    Older readers skip the tagged field with the topic id. With this id, a topic that is recreated under an old name
    does not inherit the old offsets.
    """

    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1
    topic_id: bytes = ZERO_UUID

    FIELDS: ClassVar[FieldTable] = (
        ("offset", "int64", "0+"),
        ("leader_epoch", "int32", "3+"),
        ("metadata", "string", "0+"),
        ("commit_timestamp", "int64", "0+"),
        ("expire_timestamp", "int64", "1"),
        ("topic_id", "uuid", "4+", "", "0:4+"),
    )


@dataclass(slots=True, kw_only=True)
class GroupMetadataKey:
    """The key of a group."""

    group: str = ""

    FIELDS: ClassVar[FieldTable] = (("group", "string", "0+"),)


@dataclass(slots=True, kw_only=True)
class MemberMetadata:
    """Part of GroupMetadataValue. Timeouts in ms. Subscription and assignment are the clients' own bytes."""

    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = -1
    session_timeout: int = 0
    subscription: bytes = b""
    assignment: bytes = b""

    FIELDS: ClassVar[FieldTable] = (
        ("member_id", "string", "0+"),
        ("group_instance_id", "string", "3+", "3+"),
        ("client_id", "string", "0+"),
        ("client_host", "string", "0+"),
        ("rebalance_timeout", "int32", "1+"),
        ("session_timeout", "int32", "0+"),
        ("subscription", "bytes", "0+"),
        ("assignment", "bytes", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class GroupMetadataValue:
    """A group after its last rebalance. Versions 0-4, flexible from 4."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int = -1
    members: list[MemberMetadata] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (
        ("protocol_type", "string", "0+"),
        ("generation", "int32", "0+"),
        ("protocol", "string", "0+", "0+"),
        ("leader", "string", "0+", "0+"),
        ("current_state_timestamp", "int64", "2+"),
        ("members", "[]MemberMetadata", "0+"),
    )


Record = tuple[bytes, bytes | None]
"""Key and value, encoded."""


@lru_cache(maxsize=32)
def _program(message: type, version: int) -> Program:
    flexible_from = {OffsetCommitValue: OFFSET_FLEXIBLE_FROM, GroupMetadataValue: GROUP_FLEXIBLE_FROM}.get(message)
    return Program(message, version, flexible_from is not None and version >= flexible_from, globals())


def _encode(message: object, version: int, kind: int | None = None) -> bytes:
    prefix = version if kind is None else kind
    program = _program(type(message), version)  # type: ignore[arg-type]  # classes can be hashed
    return prefix.to_bytes(2, "big") + program.encode(message)


def offset_record(group: str, topic: str, partition: int, value: OffsetCommitValue | None) -> Record:
    """Return the record of a committed offset. If `value` is None, return its tombstone."""
    key = _encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 0, OFFSET_KIND)
    if value is None:
        return key, None
    return key, _encode(value, OFFSET_VERSION if value.expire_timestamp < 0 else OFFSET_VERSION_EXPIRING)


def group_record(group: str, value: GroupMetadataValue | None) -> Record:
    """Return the record of a group's metadata. If `value` is None, return its tombstone."""
    key = _encode(GroupMetadataKey(group=group), 0, GROUP_KIND)
    return key, None if value is None else _encode(value, GROUP_VERSION)


def read_key(data: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Decode a record key; None for kinds above 2. CodecError if the key is malformed."""
    kind = _prefix(data)
    if kind in OFFSET_KINDS:
        return _program(OffsetCommitKey, 0).decode(data[2:])  # type: ignore[no-any-return]
    if kind == GROUP_KIND:
        return _program(GroupMetadataKey, 0).decode(data[2:])  # type: ignore[no-any-return]
    return None


def read_offset(data: bytes) -> OffsetCommitValue:
    """Decode the value of an offset record. CodecError if it is malformed."""
    return _program(OffsetCommitValue, _version(data)).decode(data[2:])  # type: ignore[no-any-return]


def read_group(data: bytes) -> GroupMetadataValue:
    """Decode the value of a group record. CodecError if it is malformed."""
    return _program(GroupMetadataValue, _version(data)).decode(data[2:])  # type: ignore[no-any-return]


def _prefix(data: bytes) -> int:
    if len(data) < 2:
        raise CodecError("the record is shorter than its 2-byte version")
    return int.from_bytes(data[:2], "big", signed=True)


def _version(data: bytes) -> int:
    version = _prefix(data)
    if not 0 <= version <= NEWEST_VERSION:
        raise CodecError(f"unsupported record version {version}")
    return version
