"""Requests with as many names as a client likes: one attack for each list of each API that this broker serves.

The lists come from the table of APIs and the messages' fields, so that an API or a list that is added is attacked
without a line here. A list is attacked by each field that names its items (Metadata's topics by name and by id), at the
newest version that has both. The other lists of the request hold one item, which exists.

    list_attacks() → ListAttack → message(EXISTING, 90_000) → frame(…), the bytes of the request, length included
"""

from __future__ import annotations

import functools
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafkalite.broker.handlers import table
from kafkalite.broker.handlers.table import ROWS, find
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.schema import covers
from tests.kit.harness import wire

EXISTING, UNKNOWN, REPEATED, NULL, EMPTY = NAMES = ("existing", "unknown", "repeated", "null", "empty")
"""A list's content: all existing names, in turn; unknown names; the same name each time; nothing."""

CLIENT_ID: Final = "hostile"
CORRELATION_ID: Final = 7
NAMESPACE: Final = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
BATCH: Final = wire.batch_of([wire.Record(b"k", b"v")])

TOPIC, TOPIC_ID, PARTITION, GROUP, TRANSACTION, USER, SETTING, MEMBER, NUMBER, WORD = range(10)
"""Kinds of names."""

KINDS: Final[dict[str, int]] = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topic_names": TOPIC,
    "resource_name": TOPIC,
    "resource_name_filter": TOPIC,
    "subscribed_topic_names": TOPIC,
    "topic_id": TOPIC_ID,
    "group_id": GROUP,
    "groups": GROUP,
    "group_ids": GROUP,
    "groups_names": GROUP,
    "coordinator_keys": GROUP,
    "transactional_id": TRANSACTION,
    "transactional_ids": TRANSACTION,
    "v3_and_below_transactional_id": TRANSACTION,
    "partition": PARTITION,
    "partition_index": PARTITION,
    "index": PARTITION,
    "partitions": PARTITION,
    "partition_indexes": PARTITION,
    "member_id": MEMBER,
    "principal_name": USER,
    "entity_name": USER,
    "match": USER,
    "configuration_keys": SETTING,
    "key": SETTING,
    "broker_ids": NUMBER,
    "replicas": NUMBER,
    "producer_id": NUMBER,
    "producer_id_filters": NUMBER,
    "resource_types": NUMBER,
    "states_filter": WORD,
    "types_filter": WORD,
    "state_filters": WORD,
    "feature": WORD,
    "path": WORD,
    "assignments": NUMBER,
    "protocols": WORD,
}
"""The kind of a field by its name; `NAMED_OTHERWISE` has those whose name means something else in one message."""

NAMED_OTHERWISE: Final[dict[str, int]] = {
    "JoinGroupRequestProtocol.name": WORD,
    "CreatableTopicConfig.name": SETTING,
    "AlterableConfig.name": SETTING,
    "UserName.name": USER,
    "ScramCredentialDeletion.name": USER,
    "ScramCredentialUpsertion.name": USER,
    "OpData.key": SETTING,
    "ComponentData.entity_type": WORD,
}

FIRST_NAMES: Final = (
    "name", "topic", "topic_name", "topic_id", "resource_name", "resource_name_filter", "group_id", "entity_name",
    "principal_name", "member_id", "path", "feature", "partition_index", "partition", "index", "producer_id", "key",
    "match", "entity_type",
)  # fmt: skip
"""Fields that name an item, the most telling first."""

DEFAULTS: Final[dict[str, Any]] = {
    "timeout_ms": 1000,
    "session_timeout_ms": 60_000,
    "rebalance_timeout_ms": 60_000,
    "protocol_type": "consumer",
    "num_partitions": 1,
    "replication_factor": 1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "principal": "User:hostile",
    "principal_type": "User",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
    "timestamp": -1,
    "partition_max_bytes": 1000,
    "max_bytes": 1 << 20,
    "producer_id": 1,
    "count": 2,
    "entity_type": "user",
    "remove": True,
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "salted_password": bytes(32),
    "acks": 1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": -1,
    "generation_id": -1,
    "response_partition_limit": 2000,
    "replica_id": -1,
    "election_type": 1,
    "metadata": b"\0\0\0\0\0\0\0\0\0\0",
    "records": BATCH,
    "max_version_level": 1,
    "upgrade_type": 1,
    "marker": 1,
    "member_id": "",
    "value": "1000000",
}
"""Values of fields that name nothing, so that the broker goes as far as it can; the others keep the message's own."""

VALUES_OTHERWISE: Final[dict[str, Any]] = {
    "OpData.value": 1e9,
    "SyncGroupRequestAssignment.member_id": MEMBER,
    "DeleteAclsFilter.operation": 1,
    "DeleteAclsFilter.permission_type": 1,
    "ProduceRequest.acks": 1,
    "OffsetFetchRequestGroup.member_id": None,
    "ConsumerGroupHeartbeatRequest.member_epoch": 0,
    "ConsumerGroupHeartbeatRequest.member_id": str(uuid.uuid5(NAMESPACE, "member")),
}

MUTATING: Final = frozenset({
    api.PRODUCE, api.CREATE_TOPICS, api.DELETE_TOPICS, api.DELETE_RECORDS, api.CREATE_PARTITIONS, api.DELETE_GROUPS,
    api.CREATE_ACLS, api.DELETE_ACLS, api.ALTER_CONFIGS, api.INCREMENTAL_ALTER_CONFIGS, api.ALTER_CLIENT_QUOTAS,
    api.ALTER_USER_SCRAM_CREDENTIALS, api.OFFSET_COMMIT, api.OFFSET_DELETE, api.JOIN_GROUP,
    api.CONSUMER_GROUP_HEARTBEAT, api.TXN_OFFSET_COMMIT, api.ADD_PARTITIONS_TO_TXN, api.WRITE_TXN_MARKERS,
    api.ALTER_PARTITION_REASSIGNMENTS, api.UPDATE_FEATURES,
})  # fmt: skip
"""APIs after whose attacks a broker no longer has what it had before."""


@dataclass(frozen=True)
class Populace:
    """How many of each kind a broker holds, by the names that `tests.kit.hostile.world` gives them."""

    topics: int = 2000
    partitions: int = 1000  # of the topic `wide`
    groups: int = 2000
    transactions: int = 500
    users: int = 500
    acls: int = 2000
    topic_ids: tuple[bytes, ...] = ()
    wide_id: bytes = bytes(16)

    def name(self, kind: int, names: str, number: int) -> Any:
        """The number-th name of a kind: one that exists, one that does not, or always the same one."""
        if names == REPEATED:
            number = 0
        known = names != UNKNOWN
        match kind:
            case _ if kind == TOPIC:
                return topic_name(number % self.topics) if known else f"no-topic-{number}"
            case _ if kind == TOPIC_ID:
                if known and self.topic_ids:
                    return self.topic_ids[number % len(self.topic_ids)]
                return (number + 1).to_bytes(16, "little")
            case _ if kind == PARTITION:
                return number % self.partitions if known else self.partitions + number
            case _ if kind == GROUP:
                return group_name(number % self.groups) if known else f"no-group-{number}"
            case _ if kind == TRANSACTION:
                return transaction_name(number % self.transactions) if known else f"no-transaction-{number}"
            case _ if kind == USER:
                return user_name(number % self.users) if known else f"no-user-{number}"
            case _ if kind == SETTING:
                return SETTINGS[number % len(SETTINGS)] if known else f"no.setting.{number}"
            case _ if kind == NUMBER:
                return 1 if known else 2 + number % 100
            case _:
                return f"{'word' if known else 'no-word'}-{number}"


SETTINGS: Final = ("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy", "min.insync.replicas")
WIDE: Final = "wide"
"""The topic with many partitions."""


def topic_name(number: int) -> str:
    return f"topic-{number}"


def group_name(number: int) -> str:
    return f"group-{number}"


def transaction_name(number: int) -> str:
    return f"transaction-{number}"


def user_name(number: int) -> str:
    return f"user-{number}"


@dataclass(frozen=True)
class ListAttack:
    """A list of a request, and the field by which its items are named (None: the items are the names)."""

    key: int
    version: int
    path: tuple[str, ...]
    identity: str | None
    nullable: bool

    @property
    def api_name(self) -> str:
        return api.APIS[self.key].name

    @property
    def id(self) -> str:
        """`Metadata.topics/name`, which filters and results go by."""
        return f"{self.api_name}.{'.'.join(self.path)}" + (f"/{self.identity}" if self.identity else "")

    @property
    def mutates(self) -> bool:
        return self.key in MUTATING

    @property
    def needs_acls(self) -> bool:
        """Whether only a broker with an authoriser does anything for it."""
        return self.key in {api.CREATE_ACLS, api.DELETE_ACLS, api.DESCRIBE_ACLS}

    def kinds_of_names(self) -> tuple[str, ...]:
        """Return the kinds of names that the list may hold."""
        return tuple(names for names in NAMES if self.nullable or names != NULL)

    def message(self, names: str, count: int, populace: Populace) -> Any:
        """Return the request with `count` items in the list; null and empty lists have none."""
        return _Maker(self, names, count, populace).make()

    def frame(self, names: str, count: int, populace: Populace) -> bytes:
        """The bytes of the request. It says as correlation id always the same."""
        message = self.message(names, count, populace)
        return protocol.encode_request_frame(self.key, self.version, CORRELATION_ID, CLIENT_ID, message)


class _Maker:
    """Fills a request for one attack."""

    def __init__(self, attack: ListAttack, names: str, count: int, populace: Populace) -> None:
        self.attack, self.names, self.count, self.populace = attack, names, count, populace
        self.wide = _kind_of_path(attack) == PARTITION

    def make(self) -> Any:
        message = protocol.request_program(self.attack.key, self.attack.version).message
        return self._struct(message, self.attack.path, 0)

    def _struct(self, cls: type, path: tuple[str, ...], number: int, identity: str | None = None) -> Any:
        values = {}
        for name, kind, _ in _fields(cls, self.attack.version):
            if path and name == path[0]:
                values[name] = self._list(cls, name, kind, path[1:])
            elif name == identity:
                values[name] = self.populace.name(_kind(cls, name), self.names, number)
            else:
                found = self._value(cls, name, kind, number)
                if found is not _MISSING:
                    values[name] = found
        return cls(**values)

    def _list(self, cls: type, name: str, kind: str, path: tuple[str, ...]) -> Any:
        """The attacked list, or one on the way to it, which has a single item."""
        if not path and self.names in {NULL, EMPTY}:
            return None if self.names == NULL else []
        item, count = kind.removeprefix("[]"), 1 if path else self.count
        if not item[0].isupper():
            return [self.populace.name(_kind(cls, name), self.names, number) for number in range(count)]
        struct = _struct_of(cls, item)
        identity = None if path else self.attack.identity
        return [self._struct(struct, path, number, identity) for number in range(count)]

    def _value(self, cls: type, name: str, kind: str, number: int) -> Any:
        """Return the value of a field that is not attacked: lists have one item.

        Items without a field that names them differ by their content (entries of AlterClientQuotas).
        """
        if f"{cls.__name__}.{name}" in VALUES_OTHERWISE:
            return VALUES_OTHERWISE[f"{cls.__name__}.{name}"]
        if kind.startswith("[]"):
            item = kind.removeprefix("[]")
            if name in LEFT_EMPTY:
                return _MISSING
            if item[0].isupper():
                return [self._struct(_struct_of(cls, item), (), number)]
            return [self.populace.name(_kind(cls, name), EXISTING, 0)]
        if kind[0].isupper():
            return _MISSING  # of Fetch's replica and of a cursor the defaults say that there is none
        if name in DEFAULTS:
            return DEFAULTS[name]
        if name in {*KINDS, *FIRST_NAMES} and kind in {"string", "uuid"}:
            what = _kind(cls, name)
            if self.wide and what in {TOPIC, TOPIC_ID}:
                return WIDE if what == TOPIC else self.populace.wide_id
            nameless = self.attack.identity is None and self.names not in {NULL, EMPTY}
            return self.populace.name(what, self.names if nameless else EXISTING, number if nameless else 0)
        return _MISSING


LEFT_EMPTY: Final = frozenset({
    "forgotten_topics_data", "configs", "assignments", "topic_partitions", "subscribed_topic_names", "state_filters",
    "states_filter", "types_filter", "producer_id_filters", "configuration_keys", "components", "renewers",
})  # fmt: skip
"""Lists that narrow a request or lead elsewhere, and are empty where they are not attacked."""

_MISSING: Final = object()


def _kind_of_path(attack: ListAttack) -> int | None:
    """The kind of what the attacked list holds."""
    message = protocol.request_program(attack.key, attack.version).message
    for name in attack.path:
        kind = next(kind for field, kind, _ in _fields(message, attack.version) if field == name)
        if not kind.removeprefix("[]")[0].isupper():
            return _kind(message, name)
        message = _struct_of(message, kind.removeprefix("[]"))
    return _kind(message, attack.identity) if attack.identity else None


def _kind(cls: type, name: str) -> int:
    return NAMED_OTHERWISE.get(f"{cls.__name__}.{name}", KINDS.get(name, WORD))


def _struct_of(cls: type, name: str) -> type:
    found: type = getattr(sys.modules[cls.__module__], name)
    return found


def _fields(cls: Any, version: int) -> Iterator[tuple[str, str, bool]]:
    """Name, kind and whether it may be null of each field that a version has."""
    for name, kind, versions, nullable, *_ in ((*row, "") for row in cls.FIELDS):
        if covers(versions, version):
            yield name, kind, bool(nullable) and covers(nullable, version)


def _lists(cls: Any, version: int) -> Iterator[tuple[tuple[str, ...], str | None, bool]]:
    """Path, naming field and whether it may be null of each list in a message, those in structs of lists too."""
    for name, kind, nullable in _fields(cls, version):
        if not kind.startswith("[]"):
            continue
        item = kind.removeprefix("[]")
        if not item[0].isupper():
            yield (name,), None, nullable
            continue
        struct = _struct_of(cls, item)
        fields = {field for field, *_ in _fields(struct, version)}
        naming = [field for field in FIRST_NAMES if field in fields]
        ids = [field for field in naming if field in {"name", "topic", "topic_id"}]
        for identity in ids or naming[:1] or [None]:
            yield (name,), identity, nullable
        for path, identity, inner in _lists(struct, version):
            yield (name, *path), identity, inner


@functools.cache
def list_attacks() -> tuple[ListAttack, ...]:
    """Each list of each served API, by each field that names its items, at the newest version that has them."""
    found: dict[tuple[int, tuple[str, ...], str | None], ListAttack] = {}
    for row in ROWS:
        for version in range(row.oldest, row.newest + 1):
            for path, identity, nullable in _lists(protocol.request_program(row.key, version).message, version):
                found[row.key, path, identity] = ListAttack(row.key, version, path, identity, nullable)
    return tuple(sorted(found.values(), key=lambda attack: (attack.key, attack.path, attack.identity or "")))


def attacks_named(patterns: Iterable[str]) -> tuple[ListAttack, ...]:
    """Attacks whose id begins with one of these; all where there is none."""
    wanted = tuple(patterns)
    return tuple(attack for attack in list_attacks() if not wanted or attack.id.startswith(wanted))


def whole_requests() -> dict[str, bytes]:
    """Requests without a list that ask for all there is of something."""
    from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
    from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest

    anything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    messages: list[tuple[int, object]] = [
        (api.DESCRIBE_ACLS, anything),
        (api.DESCRIBE_CLUSTER, DescribeClusterRequest(include_cluster_authorized_operations=True)),
    ]
    return {api.APIS[key].name: request_frame(key, message) for key, message in messages}


def request_frame(key: int, message: object, version: int | None = None) -> bytes:
    """A request of the newest version served."""
    row = find(key)
    assert row is not None, f"API {key} is not served"
    newest = row.newest if version is None else version
    return protocol.encode_request_frame(key, newest, CORRELATION_ID, CLIENT_ID, message)


def inline_items(attack: ListAttack, populace: Populace) -> int:
    """How many names the table of APIs lets a network thread serve in one request."""
    row: Any = find(attack.key)
    program: Any = protocol.request_program(attack.key, attack.version)
    items = [program.count_items(attack.message(EXISTING, count, populace)) for count in (0, 100)]
    sizes = [len(attack.frame(EXISTING, count, populace)) for count in (0, 100)]
    left_us = table.INLINE_US - table.REQUEST_US - row.item_us * items[0]
    by_cost = left_us / (row.item_us * max(0.01, (items[1] - items[0]) / 100))
    by_size = (table.INLINE_SIZE - sizes[0]) / ((sizes[1] - sizes[0]) / 100)
    return max(1, int(0.9 * min(by_cost, by_size)))
