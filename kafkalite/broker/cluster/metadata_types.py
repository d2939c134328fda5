"""Records of a cluster's metadata, from the schemas of Apache Kafka 4.4.0.

Written by tools/generate_metadata_records.py, do not edit.

A FIELDS row: name, type, versions, versions in which it may be null, tag and its versions.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.wire.protocol.schema import ZERO_UUID, FieldTable


@dataclass(slots=True, kw_only=True)
class BrokerEndpoint:
    """Part of RegisterBrokerRecord."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("host", "string", "0+"),
        ("port", "uint16", "0+"),
        ("security_protocol", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class BrokerFeature:
    """Part of RegisterBrokerRecord."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("min_supported_version", "int16", "0+"),
        ("max_supported_version", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class RegisterBrokerRecord:
    """Versions 0-4, flexible from 0."""

    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: bytes = ZERO_UUID
    broker_epoch: int = 0
    end_points: list[BrokerEndpoint] = field(default_factory=list)
    features: list[BrokerFeature] = field(default_factory=list)
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: list[bytes] = field(default_factory=list)
    cordoned_log_dirs: list[bytes] | None = None

    FIELDS: ClassVar[FieldTable] = (
        ("broker_id", "int32", "0+"),
        ("is_migrating_zk_broker", "bool", "2+"),
        ("incarnation_id", "uuid", "0+"),
        ("broker_epoch", "int64", "0+"),
        ("end_points", "[]BrokerEndpoint", "0+"),
        ("features", "[]BrokerFeature", "0+"),
        ("rack", "string", "0+", "0+"),
        ("fenced", "bool", "0+"),
        ("in_controlled_shutdown", "bool", "1+"),
        ("log_dirs", "[]uuid", "3+", "", "0:3+"),
        ("cordoned_log_dirs", "[]uuid", "4+", "4+", "1:4+"),
    )


@dataclass(slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """Versions 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("broker_id", "int32", "0+"),
        ("broker_epoch", "int64", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class TopicRecord:
    """Versions 0, flexible from 0."""

    name: str = ""
    topic_id: bytes = ZERO_UUID

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("topic_id", "uuid", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class PartitionRecord:
    """Versions 0-2, flexible from 0."""

    partition_id: int = -1
    topic_id: bytes = ZERO_UUID
    replicas: list[int] = field(default_factory=list)
    isr: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: list[bytes] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    FIELDS: ClassVar[FieldTable] = (
        ("partition_id", "int32", "0+"),
        ("topic_id", "uuid", "0+"),
        ("replicas", "[]int32", "0+"),
        ("isr", "[]int32", "0+"),
        ("removing_replicas", "[]int32", "0+"),
        ("adding_replicas", "[]int32", "0+"),
        ("leader", "int32", "0+"),
        ("leader_recovery_state", "int8", "0+", "", "0:0+"),
        ("leader_epoch", "int32", "0+"),
        ("partition_epoch", "int32", "0+"),
        ("directories", "[]uuid", "1+"),
        ("eligible_leader_replicas", "[]int32", "2+", "2+", "1:2+"),
        ("last_known_elr", "[]int32", "2+", "2+", "2:2+"),
    )


@dataclass(slots=True, kw_only=True)
class ConfigRecord:
    """Versions 0, flexible from 0."""

    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""

    FIELDS: ClassVar[FieldTable] = (
        ("resource_type", "int8", "0+"),
        ("resource_name", "string", "0+"),
        ("name", "string", "0+"),
        ("value", "string", "0+", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class PartitionChangeRecord:
    """Versions 0-2, flexible from 0."""

    partition_id: int = -1
    topic_id: bytes = ZERO_UUID
    isr: list[int] | None = None
    leader: int = -2
    replicas: list[int] | None = None
    removing_replicas: list[int] | None = None
    adding_replicas: list[int] | None = None
    leader_recovery_state: int = -1
    directories: list[bytes] | None = None
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    FIELDS: ClassVar[FieldTable] = (
        ("partition_id", "int32", "0+"),
        ("topic_id", "uuid", "0+"),
        ("isr", "[]int32", "0+", "0+", "0:0+"),
        ("leader", "int32", "0+", "", "1:0+"),
        ("replicas", "[]int32", "0+", "0+", "2:0+"),
        ("removing_replicas", "[]int32", "0+", "0+", "3:0+"),
        ("adding_replicas", "[]int32", "0+", "0+", "4:0+"),
        ("leader_recovery_state", "int8", "0+", "", "5:0+"),
        ("directories", "[]uuid", "1+", "1+", "8:1+"),
        ("eligible_leader_replicas", "[]int32", "2+", "2+", "6:2+"),
        ("last_known_elr", "[]int32", "2+", "2+", "7:2+"),
    )


@dataclass(slots=True, kw_only=True)
class FenceBrokerRecord:
    """Versions 0, flexible from 0."""

    id: int = 0
    epoch: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("id", "int32", "0+"),
        ("epoch", "int64", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class UnfenceBrokerRecord:
    """Versions 0, flexible from 0."""

    id: int = 0
    epoch: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("id", "int32", "0+"),
        ("epoch", "int64", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class RemoveTopicRecord:
    """Versions 0, flexible from 0."""

    topic_id: bytes = ZERO_UUID

    FIELDS: ClassVar[FieldTable] = (("topic_id", "uuid", "0+"),)


@dataclass(slots=True, kw_only=True)
class DelegationTokenRecord:
    """Versions 0, flexible from 0."""

    owner: str = ""
    requester: str = ""
    renewers: list[str] = field(default_factory=list)
    issue_timestamp: int = 0
    max_timestamp: int = 0
    expiration_timestamp: int = 0
    token_id: str = ""

    FIELDS: ClassVar[FieldTable] = (
        ("owner", "string", "0+"),
        ("requester", "string", "0+"),
        ("renewers", "[]string", "0+"),
        ("issue_timestamp", "int64", "0+"),
        ("max_timestamp", "int64", "0+"),
        ("expiration_timestamp", "int64", "0+"),
        ("token_id", "string", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class UserScramCredentialRecord:
    """Versions 0, flexible from 0."""

    name: str = ""
    mechanism: int = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("mechanism", "int8", "0+"),
        ("salt", "bytes", "0+"),
        ("stored_key", "bytes", "0+"),
        ("server_key", "bytes", "0+"),
        ("iterations", "int32", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class FeatureLevelRecord:
    """Versions 0, flexible from 0."""

    name: str = ""
    feature_level: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("feature_level", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class EntityData:
    """Part of ClientQuotaRecord."""

    entity_type: str = ""
    entity_name: str | None = ""

    FIELDS: ClassVar[FieldTable] = (
        ("entity_type", "string", "0+"),
        ("entity_name", "string", "0+", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class ClientQuotaRecord:
    """Versions 0, flexible from 0."""

    entity: list[EntityData] = field(default_factory=list)
    key: str = ""
    value: float = 0.0
    remove: bool = False

    FIELDS: ClassVar[FieldTable] = (
        ("entity", "[]EntityData", "0+"),
        ("key", "string", "0+"),
        ("value", "float64", "0+"),
        ("remove", "bool", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class ProducerIdsRecord:
    """Versions 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("broker_id", "int32", "0+"),
        ("broker_epoch", "int64", "0+"),
        ("next_producer_id", "int64", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """Versions 0-3, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: list[bytes] = field(default_factory=list)
    cordoned_log_dirs: list[bytes] | None = None

    FIELDS: ClassVar[FieldTable] = (
        ("broker_id", "int32", "0+"),
        ("broker_epoch", "int64", "0+"),
        ("fenced", "int8", "0+", "", "0:0+"),
        ("in_controlled_shutdown", "int8", "1+", "", "1:1+"),
        ("log_dirs", "[]uuid", "2+", "", "2:2+"),
        ("cordoned_log_dirs", "[]uuid", "3+", "3+", "3:3+"),
    )


@dataclass(slots=True, kw_only=True)
class AccessControlEntryRecord:
    """Versions 0, flexible from 0."""

    id: bytes = ZERO_UUID
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("id", "uuid", "0+"),
        ("resource_type", "int8", "0+"),
        ("resource_name", "string", "0+"),
        ("pattern_type", "int8", "0+"),
        ("principal", "string", "0+"),
        ("host", "string", "0+"),
        ("operation", "int8", "0+"),
        ("permission_type", "int8", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    """Versions 0, flexible from 0."""

    id: bytes = ZERO_UUID

    FIELDS: ClassVar[FieldTable] = (("id", "uuid", "0+"),)


@dataclass(slots=True, kw_only=True)
class NoOpRecord:
    """Versions 0, flexible from 0."""

    FIELDS: ClassVar[FieldTable] = ()


@dataclass(slots=True, kw_only=True)
class ZkMigrationStateRecord:
    """Versions 0, flexible from 0."""

    zk_migration_state: int = 0

    FIELDS: ClassVar[FieldTable] = (("zk_migration_state", "int8", "0+"),)


@dataclass(slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    """Versions 0, flexible from 0."""

    name: str = ""
    mechanism: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("mechanism", "int8", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class BeginTransactionRecord:
    """Versions 0, flexible from 0."""

    name: str | None = None

    FIELDS: ClassVar[FieldTable] = (("name", "string", "0+", "0+", "0:0+"),)


@dataclass(slots=True, kw_only=True)
class EndTransactionRecord:
    """Versions 0, flexible from 0."""

    FIELDS: ClassVar[FieldTable] = ()


@dataclass(slots=True, kw_only=True)
class AbortTransactionRecord:
    """Versions 0, flexible from 0."""

    reason: str | None = None

    FIELDS: ClassVar[FieldTable] = (("reason", "string", "0+", "0+", "0:0+"),)


@dataclass(slots=True, kw_only=True)
class RemoveDelegationTokenRecord:
    """Versions 0, flexible from 0."""

    token_id: str = ""

    FIELDS: ClassVar[FieldTable] = (("token_id", "string", "0+"),)


@dataclass(slots=True, kw_only=True)
class ControllerEndpoint:
    """Part of RegisterControllerRecord."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("host", "string", "0+"),
        ("port", "uint16", "0+"),
        ("security_protocol", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class ControllerFeature:
    """Part of RegisterControllerRecord."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0

    FIELDS: ClassVar[FieldTable] = (
        ("name", "string", "0+"),
        ("min_supported_version", "int16", "0+"),
        ("max_supported_version", "int16", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class RegisterControllerRecord:
    """Versions 0, flexible from 0."""

    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = field(default_factory=list)
    features: list[ControllerFeature] = field(default_factory=list)

    FIELDS: ClassVar[FieldTable] = (
        ("controller_id", "int32", "0+"),
        ("incarnation_id", "uuid", "0+"),
        ("zk_migration_ready", "bool", "0+"),
        ("end_points", "[]ControllerEndpoint", "0+"),
        ("features", "[]ControllerFeature", "0+"),
    )


@dataclass(slots=True, kw_only=True)
class ClearElrRecord:
    """Versions 0, flexible from 0."""

    topic_name: str = ""

    FIELDS: ClassVar[FieldTable] = (("topic_name", "string", "0+"),)


@dataclass(slots=True, kw_only=True)
class UnregisterControllerRecord:
    """Versions 0, flexible from 0."""

    controller_id: int = 0

    FIELDS: ClassVar[FieldTable] = (("controller_id", "int32", "0+"),)


ROWS: Final[tuple[tuple[int, type, int, int], ...]] = (
    (0, RegisterBrokerRecord, 0, 4),
    (1, UnregisterBrokerRecord, 0, 0),
    (2, TopicRecord, 0, 0),
    (3, PartitionRecord, 0, 2),
    (4, ConfigRecord, 0, 0),
    (5, PartitionChangeRecord, 0, 2),
    (7, FenceBrokerRecord, 0, 0),
    (8, UnfenceBrokerRecord, 0, 0),
    (9, RemoveTopicRecord, 0, 0),
    (10, DelegationTokenRecord, 0, 0),
    (11, UserScramCredentialRecord, 0, 0),
    (12, FeatureLevelRecord, 0, 0),
    (14, ClientQuotaRecord, 0, 0),
    (15, ProducerIdsRecord, 0, 0),
    (17, BrokerRegistrationChangeRecord, 0, 3),
    (18, AccessControlEntryRecord, 0, 0),
    (19, RemoveAccessControlEntryRecord, 0, 0),
    (20, NoOpRecord, 0, 0),
    (21, ZkMigrationStateRecord, 0, 0),
    (22, RemoveUserScramCredentialRecord, 0, 0),
    (23, BeginTransactionRecord, 0, 0),
    (24, EndTransactionRecord, 0, 0),
    (25, AbortTransactionRecord, 0, 0),
    (26, RemoveDelegationTokenRecord, 0, 0),
    (27, RegisterControllerRecord, 0, 0),
    (28, ClearElrRecord, 0, 0),
    (29, UnregisterControllerRecord, 0, 0),
)
"""Key of a record, its class, oldest and newest version."""
