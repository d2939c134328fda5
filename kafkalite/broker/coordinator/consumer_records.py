"""Encode and decode the `__consumer_offsets` records of consumer groups (KIP-848), in Kafka's own schemas.

    kind  key               value                                                version
    3     group             group epoch, and a hash of the subscribed topics     0
    4     group             (Kafka 4.0: those topics; ignored)
    5     group, member     the member's identity and subscription               0
    6     group             epoch of the target assignment                       0
    7     group, member     target assignment                                    0
    8     group, member     current assignment, and partitions being revoked     0
    16    group, expression the topics it matches                                0

All values are flexible; a tombstone deletes its key. Assignments are sorted, so that equal ones have equal bytes.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from kafkalite._native.wire.codec import CodecError, Program
from kafkalite.base.dataclass import dataclass
from kafkalite.wire.protocol.schema import ZERO_UUID, FieldTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.broker.coordinator.assignors import Assignment
    from kafkalite.broker.coordinator.records import Record

GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, EXPRESSION = 3, 4, 5, 6, 7, 8, 16
KINDS: Final = frozenset({GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, EXPRESSION})
VERSION: Final = 0

AssignmentEpochs = dict[bytes, dict[int, int]]
"""Topic id → partition → the epoch at which it was assigned to its member. Immutable."""


@dataclass(slots=True, kw_only=True)
class GroupKey:
    """The key of kinds 3, 4 and 6: a group."""

    group_id: str = ""

    FIELDS: ClassVar[FieldTable] = (("group_id", "string", "0"),)


@dataclass(slots=True, kw_only=True)
class MemberKey:
    """The key of a member (kinds 5, 7 and 8), or of a regular expression (kind 16).

    The key of an expression has the expression in the field of the member id.
    """

    group_id: str = ""
    member_id: str = ""

    FIELDS: ClassVar[FieldTable] = (("group_id", "string", "0"), ("member_id", "string", "0"))


@dataclass(slots=True, kw_only=True)
class GroupValue:
    """The value of kind 3: the group epoch, and the hash of the subscribed topics."""

    epoch: int = 0
    metadata_hash: int = 0

    FIELDS: ClassVar[FieldTable] = (("epoch", "int32", "0+"), ("metadata_hash", "int64", "0+", "", "0:0+"))


@dataclass(slots=True, kw_only=True)
class ClassicProtocol:
    """Part of ClassicMemberMetadata."""

    name: str = ""
    metadata: bytes = b""

    FIELDS: ClassVar[FieldTable] = (("name", "string", "0+"), ("metadata", "bytes", "0+"))


@dataclass(slots=True, kw_only=True)
class ClassicMemberMetadata:
    """Part of MemberValue: present for a classic member of a consumer group."""

    session_timeout_ms: int = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (
        ("session_timeout_ms", "int32", "0+"),
        ("supported_protocols", "[]ClassicProtocol", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class MemberValue:
    """The value of kind 5: a member's identity and subscription. Timeout in ms.

    Kafka's schema defaults the classic metadata to an empty value, not to null, so null is written explicitly. Metadata
    that is absent or has no protocols is read as null.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = field(default_factory=ClassicMemberMetadata)

    FIELDS: ClassVar[FieldTable] = (
        ("instance_id", "string", "0+", "0+"),
        ("rack_id", "string", "0+", "0+"),
        ("client_id", "string", "0+"),
        ("client_host", "string", "0+"),
        ("subscribed_topic_names", "[]string", "0+"),
        ("subscribed_topic_regex", "string", "0+", "0+"),
        ("rebalance_timeout_ms", "int32", "0+"),
        ("server_assignor", "string", "0+", "0+"),
        ("classic_member_metadata", "ClassicMemberMetadata", "0+", "0+", "0:0+"),
    )


@dataclass(slots=True, kw_only=True)
class TargetValue:
    """The value of kind 6: the epoch of the target assignment."""

    assignment_epoch: int = 0

    FIELDS: ClassVar[FieldTable] = (("assignment_epoch", "int32", "0+"),)


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """Part of TargetMemberValue."""

    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (("topic_id", "uuid", "0+"), ("partitions", "[]int32", "0+"))


@dataclass(slots=True, kw_only=True)
class TargetMemberValue:
    """The value of kind 7: a member's target assignment."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (("topic_partitions", "[]TopicPartitions", "0+"),)


@dataclass(slots=True, kw_only=True)
class CurrentPartitions:
    """Part of CurrentValue. There is one epoch per partition: the epoch in which it was assigned (KIP-1251).

    Kafka before 4.4 does not write these epochs, and skips them when it reads.
    """

    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    assignment_epochs: list[int] | None = None

    FIELDS: ClassVar[FieldTable] = (
        ("topic_id", "uuid", "0+"),
        ("partitions", "[]int32", "0+"),
        ("assignment_epochs", "[]int32", "0+", "0+", "0:0+"),
    )


@dataclass(slots=True, kw_only=True)
class CurrentValue:
    """The value of kind 8: a member's current assignment."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[CurrentPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[CurrentPartitions] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (
        ("member_epoch", "int32", "0+"),
        ("previous_member_epoch", "int32", "0+"),
        ("state", "int8", "0+"),
        ("assigned_partitions", "[]CurrentPartitions", "0+"),
        ("partitions_pending_revocation", "[]CurrentPartitions", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class ExpressionValue:
    """The value of kind 16: the topics that an expression matches. The timestamp is in ms.

    In Kafka, `version` is the version of the metadata image, which kafkalite does not have.
    """

    topics: list[str] = field(default_factory=list)
    version: int = 0
    timestamp: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("topics", "[]string", "0+"),
        ("version", "int64", "0+"),
        ("timestamp", "int64", "0+"),
    )


Value = GroupValue | MemberValue | TargetValue | TargetMemberValue | CurrentValue | ExpressionValue

_VALUES: Final[dict[int, type]] = {
    GROUP: GroupValue,
    MEMBER: MemberValue,
    TARGET: TargetValue,
    TARGET_MEMBER: TargetMemberValue,
    CURRENT: CurrentValue,
    EXPRESSION: ExpressionValue,
}
_KINDS_OF: Final = {message: kind for kind, message in _VALUES.items()}
_OF_A_GROUP: Final = frozenset({GROUP, TOPICS, TARGET})


@lru_cache(maxsize=16)
def _program(message: type) -> Program:
    return Program(message, VERSION, message not in {GroupKey, MemberKey}, globals())


def _key(kind: int, group_id: str, member_id: str) -> bytes:
    key = GroupKey(group_id=group_id) if kind in _OF_A_GROUP else MemberKey(group_id=group_id, member_id=member_id)
    return kind.to_bytes(2, "big") + _program(type(key)).encode(key)  # type: ignore[arg-type]  # classes can be hashed


def record(group_id: str, member_id: str, value: Value) -> Record:
    """Return a record; the type of `value` determines its kind.

    `member_id` is the expression for kind 16, and empty for records of the whole group.
    """
    message = type(value)
    key = _key(_KINDS_OF[message], group_id, member_id)
    return key, VERSION.to_bytes(2, "big") + _program(message).encode(value)  # type: ignore[arg-type]  # as above


def tombstone(kind: int, group_id: str, member_id: str = "") -> Record:
    """Return the tombstone that deletes a record of this kind."""
    return _key(kind, group_id, member_id), None


def kind_of(key: bytes) -> int:
    """Return the kind of a key, including kinds that the module does not list; CodecError if the key is too short."""
    if len(key) < 2:
        raise CodecError("the record is shorter than its 2-byte version")
    return int.from_bytes(key[:2], "big", signed=True)


def read_key(key: bytes) -> tuple[str, str]:
    """Return (group id, second part) of a key of a listed kind. CodecError if it is malformed.

    The second part is a member id, an expression, or "" for a key of the whole group.
    """
    if kind_of(key) in _OF_A_GROUP:
        return _program(GroupKey).decode(key[2:]).group_id, ""
    decoded = _program(MemberKey).decode(key[2:])
    return decoded.group_id, decoded.member_id


def read_value(kind: int, data: bytes) -> Value:
    """Return the value of a record of a listed kind other than 4. CodecError if it is malformed."""
    version = kind_of(data)
    if version != VERSION:
        raise CodecError(f"unsupported version {version} of record type {kind}")
    return _program(_VALUES[kind]).decode(data[2:])  # type: ignore[no-any-return]


def topic_partitions(assignment: Assignment) -> list[TopicPartitions]:
    """Return an assignment as record fields."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(assignment.items())
    ]


def current_partitions(assignment: Assignment, epochs: AssignmentEpochs) -> list[CurrentPartitions]:
    """Return a member's current assignment as record fields."""
    rows = []
    for topic_id, numbers in sorted(assignment.items()):
        partitions = sorted(numbers)
        assigned_at = [epochs[topic_id][number] for number in partitions]
        rows.append(CurrentPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=assigned_at))
    return rows


def assignment_of(rows: Sequence[TopicPartitions | CurrentPartitions]) -> Assignment:
    """Return an assignment from record fields."""
    return {row.topic_id: frozenset(row.partitions) for row in rows if row.partitions}


def epochs_of(value: CurrentValue) -> AssignmentEpochs:
    """Return the epoch in which each of a member's partitions was assigned. If the record lacks these epochs, return
    the member's epoch for all partitions, as in Kafka.
    """
    epochs: AssignmentEpochs = {}
    for row in (*value.partitions_pending_revocation, *value.assigned_partitions):
        known = row.assignment_epochs or []
        if len(known) != len(row.partitions):
            known = [max(value.member_epoch, 0)] * len(row.partitions)
        epochs.setdefault(row.topic_id, {}).update(zip(row.partitions, known, strict=True))
    return epochs
