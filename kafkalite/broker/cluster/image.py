"""Represent a cluster at one offset of its metadata log: the immutable Image, and the Delta that builds the next one.

    image ─▶ Delta(image) ─▶ apply(record) … ─▶ build(offset, epoch) ─▶ image

An image has one mapping (a *section*) for each kind of object. Consecutive images share all unchanged objects, so a
reader finds changes by comparing identities.

Source: the images and deltas of org.apache.kafka.image in Kafka 4.1, and PartitionRegistration.merge.

Thread rule: any thread may read an image; a delta belongs to one thread. Does no I/O.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.control_types import KRaftVersionRecord, VotersRecord
from kafkalite.broker.cluster.records import METADATA_LEVELS, MetadataFault, taken_when_formatted
from kafkalite.broker.features import METADATA_VERSION
from kafkalite.model import ZERO_UUID, ScramCredential, uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LEADER_UNCHANGED: Final = -2
_RECOVERY_UNCHANGED: Final = -1
RECOVERED: Final = 0
"""The recovery state of a leader that was not elected uncleanly."""
MIGRATING: Final = ZERO_UUID
"""The directory of a replica whose location has not been reported."""
UNASSIGNED: Final = bytes(15) + b"\x01"
"""The directory of a replica whose broker has yet to choose one."""
KRAFT_VERSION: Final = "kraft.version"


class Address(NamedTuple):
    """The address of one listener of a node."""

    name: str
    host: str
    port: int
    protocol: int = 0
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class BrokerState(NamedTuple):
    """A registered broker."""

    node_id: int
    incarnation: bytes
    epoch: int
    addresses: Mapping[str, Address]
    """By listener name."""
    features: Mapping[str, tuple[int, int]]
    """Supported features: name → oldest and newest level."""
    rack: str | None
    fenced: bool
    stopping: bool
    """Whether the broker is in controlled shutdown."""
    directories: tuple[bytes, ...]


class ControllerState(NamedTuple):
    """A registered controller."""

    node_id: int
    incarnation: bytes
    addresses: Mapping[str, Address]
    features: Mapping[str, tuple[int, int]]


class PartitionState(NamedTuple):
    """A partition's replicas, leader and ISR, as decided by the controllers."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    """The directory of each replica, in the order of `replicas`."""
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    recovery: int
    """RECOVERED, or 1 from an unclean election until the leader has recovered."""
    leader_epoch: int
    epoch: int
    elr: tuple[int, ...]
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: tuple[int, ...]

    def merged(self, change: types.PartitionChangeRecord) -> PartitionState:
        """Return the state after a change. The partition epoch rises by one. If the change has a leader, the leader
        epoch rises, too.
        """
        replicas = _or(change.replicas, self.replicas)
        directories = _or(change.directories, self.directories)
        if len(directories) != len(replicas):  # written by a controller that does not support directories
            directories = (MIGRATING,) * len(replicas)
        elected = change.leader != _LEADER_UNCHANGED
        unchanged = change.leader_recovery_state == _RECOVERY_UNCHANGED
        return PartitionState(
            replicas=replicas,
            directories=directories,
            isr=_or(change.isr, self.isr),
            removing=_or(change.removing_replicas, self.removing),
            adding=_or(change.adding_replicas, self.adding),
            leader=change.leader if elected else self.leader,
            recovery=self.recovery if unchanged else change.leader_recovery_state,
            leader_epoch=self.leader_epoch + elected,
            epoch=self.epoch + 1,
            elr=_or(change.eligible_leader_replicas, self.elr),
            last_known_elr=_or(change.last_known_elr, self.last_known_elr),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TopicState:
    """A topic. Its id identifies it, since another topic may get the name of a deleted topic."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)


class AclState(NamedTuple):
    """An ACL, with the protocol's numbers for its types."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


Entity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs in the order of types."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Image:
    """The metadata of a cluster up to one offset."""

    offset: int = -1
    """The offset of the last record in the image."""
    epoch: int = -1
    """The quorum epoch of the leader that wrote that record."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized level of each enabled feature, including kraft.version if it is above 0."""
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    controllers: Mapping[int, ControllerState] = field(default_factory=dict)
    voters: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)
    """The voters of a dynamic quorum: node id → listener → address."""
    voter_directories: Mapping[int, bytes] = field(default_factory=dict)
    """The voters' metadata directory ids, by node id."""
    topics: Mapping[bytes, TopicState] = field(default_factory=dict)
    """By topic id."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """Topic name → topic id."""
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    """(type, name) of a resource → its settings. Types: 2 topic, 4 broker ("" for all), 16 client metrics, 32 group."""
    acls: Mapping[bytes, AclState] = field(default_factory=dict)
    """By ACL id."""
    credentials: Mapping[tuple[int, str], ScramCredential] = field(default_factory=dict)
    """By (mechanism, user); mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    producer_ids_node: int = -1
    """The broker that was allocated the last block of ids, or -1 if unknown: a snapshot does not contain it."""

    def topic(self, name: str) -> TopicState | None:
        """Return the topic of this name, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]


EMPTY: Final = Image()


class Delta:
    """The changes that records make to an image; `build` returns the next image.

    A delta copies only the sections that its records change, and the `partitions` of the topics that they change. A
    snapshot is applied to EMPTY: objects that it does not contain no longer exist.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._sections: dict[str, dict[Any, Any]] = {}  # copies of the changed sections
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}  # copies of the changed topics' partitions
        self._settings: set[tuple[int, str]] = set()  # keys whose mapping inside a section is already a copy
        self._limits: set[Entity] = set()
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # interns the tuples of partitions
        self._next_producer_id = image.next_producer_id
        self._producer_ids_node = image.producer_ids_node

    def build(self, offset: int, epoch: int) -> Image:
        """Return the image with the applied records. Later records are applied to that image."""
        topics = self._sections.get("topics", {})
        for topic_id, partitions in self._partitions.items():
            topics[topic_id] = replace(topics[topic_id], partitions=partitions)
        self._image = replace(
            self._image,
            offset=offset,
            epoch=epoch,
            next_producer_id=self._next_producer_id,
            producer_ids_node=self._producer_ids_node,
            **self._sections,
        )
        self._sections, self._partitions, self._settings, self._limits, self._tuples = {}, {}, set(), set(), {}
        return self._image

    def apply(self, record: object) -> None:
        """Apply one record of the log; raise MetadataFault if the record does not fit the image.

        An example is a change of a partition that does not exist.
        """
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)

    def set_voters(self, record: VotersRecord) -> None:
        """Set the voters of a dynamic quorum."""
        self._sections["voters"] = {
            voter.voter_id: {each.name: Address(each.name, each.host, each.port) for each in voter.endpoints}
            for voter in record.voters
        }
        self._sections["voter_directories"] = {voter.voter_id: voter.voter_directory_id for voter in record.voters}

    def set_kraft_version(self, record: KRaftVersionRecord) -> None:
        """Set the level of kraft.version."""
        self._set_feature(KRAFT_VERSION, record.kraft_version)

    def _section(self, name: str) -> dict[Any, Any]:
        found = self._sections.get(name)
        if found is None:
            found = self._sections[name] = dict(getattr(self._image, name))
        return found

    def _looked_up(self, name: str) -> Mapping[Any, Any]:
        found: Mapping[Any, Any] = self._sections[name] if name in self._sections else getattr(self._image, name)
        return found

    def _set_feature(self, name: str, level: int) -> None:
        features = self._section("features")
        if level:
            features[name] = level
        else:
            features.pop(name, None)

    def feature_level(self, record: types.FeatureLevelRecord) -> None:
        """Set a feature's level.

        Raises MetadataFault for a metadata.version that is newer than this release supports: the meaning of later
        records may have changed.
        """
        if record.name == METADATA_VERSION and record.feature_level > METADATA_LEVELS[1]:
            level, newest = record.feature_level, METADATA_LEVELS[1]
            why = f"the cluster has metadata.version={level}, but this release supports at most {newest}"
            raise MetadataFault(f"{why}: {taken_when_formatted()}")
        self._set_feature(record.name, record.feature_level)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def register_broker(self, record: types.RegisterBrokerRecord) -> None:
        self._section("brokers")[record.broker_id] = BrokerState(
            node_id=record.broker_id,
            incarnation=record.incarnation_id,
            epoch=record.broker_epoch,
            addresses={e.name: Address(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            stopping=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
        )

    def _broker(self, node_id: int, epoch: int) -> BrokerState:
        found: BrokerState | None = self._looked_up("brokers").get(node_id)
        if found is None:
            raise MetadataFault(f"the metadata log changes broker {node_id}, which is not registered")
        if found.epoch != epoch:
            raise MetadataFault(
                f"the metadata log changes broker {node_id} in epoch {epoch}, but its epoch is {found.epoch}"
            )
        return found

    def unregister_broker(self, record: types.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._section("brokers")[record.broker_id]

    def fence_broker(self, record: types.FenceBrokerRecord) -> None:
        self._section("brokers")[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def unfence_broker(self, record: types.UnfenceBrokerRecord) -> None:
        self._section("brokers")[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def change_broker(self, record: types.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(stopping=True)
        if record.log_dirs:
            broker = broker._replace(directories=tuple(record.log_dirs))
        self._section("brokers")[record.broker_id] = broker

    def register_controller(self, record: types.RegisterControllerRecord) -> None:
        self._section("controllers")[record.controller_id] = ControllerState(
            node_id=record.controller_id,
            incarnation=record.incarnation_id,
            addresses={e.name: Address(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        )

    def unregister_controller(self, record: types.UnregisterControllerRecord) -> None:
        self._section("controllers").pop(record.controller_id, None)

    # --- topics -------------------------------------------------------------------------------------------------------

    def add_topic(self, record: types.TopicRecord) -> None:
        self._section("topics")[record.topic_id] = TopicState(record.name, record.topic_id)
        self._section("topic_ids")[record.name] = record.topic_id

    def _partitions_of(self, topic_id: bytes) -> dict[int, PartitionState]:
        found = self._partitions.get(topic_id)
        if found is None:
            topic = self._looked_up("topics").get(topic_id)
            if topic is None:
                raise MetadataFault(f"the metadata log changes topic {uuid_text(topic_id)}, which does not exist")
            self._section("topics")
            found = self._partitions[topic_id] = dict(topic.partitions)
        return found

    def set_partition(self, record: types.PartitionRecord) -> None:
        directories = tuple(record.directories) or (MIGRATING,) * len(record.replicas)
        self._partitions_of(record.topic_id)[record.partition_id] = PartitionState(
            replicas=self._shared(tuple(record.replicas)),
            directories=self._shared(directories),
            isr=self._shared(tuple(record.isr)),
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            leader=record.leader,
            recovery=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            epoch=record.partition_epoch,
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def _shared(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return an equal tuple that this delta has seen before, or the tuple itself.

        This saves memory: a large cluster has many equal tuples.
        """
        return self._tuples.setdefault(values, values)

    def change_partition(self, record: types.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        found = partitions.get(record.partition_id)
        if found is None:
            name = f"{uuid_text(record.topic_id)}-{record.partition_id}"
            raise MetadataFault(f"the metadata log changes partition {name}, which does not exist")
        partitions[record.partition_id] = found.merged(record)

    def remove_topic(self, record: types.RemoveTopicRecord) -> None:
        topic: TopicState | None = self._section("topics").pop(record.topic_id, None)
        if topic is None:
            raise MetadataFault(f"the metadata log removes topic {uuid_text(record.topic_id)}, which does not exist")
        self._partitions.pop(record.topic_id, None)
        if self._looked_up("topic_ids").get(topic.name) == record.topic_id:
            del self._section("topic_ids")[topic.name]
        if (_TOPIC, topic.name) in self._looked_up("configs"):
            del self._section("configs")[_TOPIC, topic.name]
            self._settings.discard((_TOPIC, topic.name))

    def clear_elr(self, record: types.ClearElrRecord) -> None:
        names = self._looked_up("topic_ids")
        if record.topic_name and record.topic_name not in names:
            raise MetadataFault(
                f"the metadata log clears replicas of topic {record.topic_name!r}, which does not exist"
            )
        for topic_id in [names[record.topic_name]] if record.topic_name else list(names.values()):
            known = self._partitions.get(topic_id) or self._looked_up("topics")[topic_id].partitions
            if any(each.elr or each.last_known_elr for each in known.values()):
                partitions = self._partitions_of(topic_id)
                for index, each in partitions.items():
                    partitions[index] = each._replace(elr=(), last_known_elr=())

    # --- settings, ACLs, users, quotas --------------------------------------------------------------------------------

    def set_config(self, record: types.ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        configs = self._section("configs")
        if key not in self._settings:
            configs[key] = dict(configs.get(key, {}))
            self._settings.add(key)
        if record.value is None:
            configs[key].pop(record.name, None)
        else:
            configs[key][record.name] = record.value
        if not configs[key]:
            del configs[key]
            self._settings.discard(key)

    def add_acl(self, record: types.AccessControlEntryRecord) -> None:
        self._section("acls")[record.id] = AclState(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def remove_acl(self, record: types.RemoveAccessControlEntryRecord) -> None:
        if self._section("acls").pop(record.id, None) is None:
            raise MetadataFault(f"the metadata log removes ACL {uuid_text(record.id)}, which does not exist")

    def set_credential(self, record: types.UserScramCredentialRecord) -> None:
        self._section("credentials")[record.mechanism, record.name] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def remove_credential(self, record: types.RemoveUserScramCredentialRecord) -> None:
        self._section("credentials").pop((record.mechanism, record.name), None)

    def set_quota(self, record: types.ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self._section("quotas")
        if entity not in self._limits:
            quotas[entity] = dict(quotas.get(entity, {}))
            self._limits.add(entity)
        if record.remove:
            quotas[entity].pop(record.key, None)
        else:
            quotas[entity][record.key] = record.value
        if not quotas[entity]:
            del quotas[entity]
            self._limits.discard(entity)

    def set_producer_ids(self, record: types.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id
        self._producer_ids_node = record.broker_id


_TOPIC: Final = 2
_HANDLERS: Final[dict[type, Callable[[Delta, Any], None]]] = {
    types.RegisterBrokerRecord: Delta.register_broker,
    types.UnregisterBrokerRecord: Delta.unregister_broker,
    types.FenceBrokerRecord: Delta.fence_broker,
    types.UnfenceBrokerRecord: Delta.unfence_broker,
    types.BrokerRegistrationChangeRecord: Delta.change_broker,
    types.RegisterControllerRecord: Delta.register_controller,
    types.UnregisterControllerRecord: Delta.unregister_controller,
    types.TopicRecord: Delta.add_topic,
    types.PartitionRecord: Delta.set_partition,
    types.PartitionChangeRecord: Delta.change_partition,
    types.RemoveTopicRecord: Delta.remove_topic,
    types.ClearElrRecord: Delta.clear_elr,
    types.ConfigRecord: Delta.set_config,
    types.AccessControlEntryRecord: Delta.add_acl,
    types.RemoveAccessControlEntryRecord: Delta.remove_acl,
    types.UserScramCredentialRecord: Delta.set_credential,
    types.RemoveUserScramCredentialRecord: Delta.remove_credential,
    types.FeatureLevelRecord: Delta.feature_level,
    types.ClientQuotaRecord: Delta.set_quota,
    types.ProducerIdsRecord: Delta.set_producer_ids,
    VotersRecord: Delta.set_voters,
    KRaftVersionRecord: Delta.set_kraft_version,
}
"""The records that change an image.

Delegation tokens, cordoned directories (KIP-1066), the ZooKeeper migration state and NoOp change nothing that this
broker uses. `kafkalite.broker.cluster.replay` handles the records of transactions.
"""


def _or(changed: Any, present: tuple[Any, ...]) -> tuple[Any, ...]:
    return present if changed is None else tuple(changed)
