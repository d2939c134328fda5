"""From settings and a data directory to a member of a cluster, and from its metadata to what the broker goes by."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker.cluster.alter_partition import InSyncReplicas
from kafkalite.broker.cluster.brokers import Brokers
from kafkalite.broker.cluster.directories import DirectoryAssignments
from kafkalite.broker.cluster.fetchers import Fetchers, OwnBroker
from kafkalite.broker.cluster.image import EMPTY, AclState, Address, Image
from kafkalite.broker.cluster.lifecycle import Node, Times
from kafkalite.broker.cluster.member import Controllers, Member, find_cluster_id
from kafkalite.broker.cluster.producer_ids import BlockIds
from kafkalite.broker.cluster.quorum import Address as Server
from kafkalite.broker.cluster.records import MetadataFault
from kafkalite.broker.cluster.security import of_brokers, of_controllers
from kafkalite.broker.log.directory import directory_id
from kafkalite.errors import InvalidRequest
from kafkalite.model import new_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.base.clock import Clock
    from kafkalite.base.executors import Event
    from kafkalite.base.metric_families import Source
    from kafkalite.broker.cluster.security import Security
    from kafkalite.broker.log.assigned import AssignedTopics
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.quotas.quotas import Quotas
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.model import Endpoint
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger("kafkalite.broker.cluster")

PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's SecurityProtocol."""
ROOM_MIN: Final = 64 << 20
"""Free bytes of a disk that was full from which on it takes records again."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's ScramMechanism."""


class ControllerRoutes(NamedTuple):
    """How a broker reaches the other nodes of its cluster."""

    controllers: Controllers
    inner: Security | None
    """What the listener asks for that brokers use among themselves; None: nothing."""

    def reload_certificates(self) -> None:
        """For connections from now on."""
        for each in (self.controllers.security, self.inner):
            if each is not None:
                each.reload()


def ways_of(config: BrokerConfig) -> ControllerRoutes:
    """As the settings say. ConfigError."""
    controllers = Controllers(
        voters={number: Server(*server) for number, server in config.quorum_voters().items()},
        servers=tuple(Server(*server) for server in config.quorum_servers()),
        listener=config.controller_listener_names[0],
        security=of_controllers(config),
    )
    return ControllerRoutes(controllers, of_brokers(config))


def cluster_id_of(ways: ControllerRoutes, config: BrokerConfig, clock: Clock, given_up: Event) -> str:
    """As the controllers say. StartupError."""
    timeout_s = config.initial_broker_registration_timeout_ms / 1000
    return find_cluster_id(ways.controllers, f"broker-{config.node_id}", timeout_s, clock, given_up)


def join(
    ways: ControllerRoutes,
    config: BrokerConfig,
    logs: LogManager,
    listeners: Mapping[str, tuple[Endpoint, str]],
    clock: Clock,
    *,
    on_fatal: Callable[[BaseException], None],
) -> Member:
    """A member that is not started. `listeners` are where clients are told to connect, with the protocol."""
    node = node_of(config, logs.cluster_id, logs.directory, listeners, logs.previous_broker_epoch)
    return Member(
        node,
        ways.controllers,
        times_of(config),
        clock,
        serves=True,
        on_fatal=on_fatal,
        cordoned=lambda: logs.config.cordoned,
    )


def node_of(
    config: BrokerConfig,
    cluster_id: str,
    directory: str,
    listeners: Mapping[str, tuple[Endpoint, str]],
    previous_epoch: int,
) -> Node:
    """Who registers: a broker of these settings on this directory, in a new process."""
    return Node(
        node_id=config.node_id,
        cluster_id=cluster_id,
        incarnation=new_uuid(),
        addresses=tuple(
            Address(name, endpoint.host, endpoint.port, PROTOCOLS[protocol])
            for name, (endpoint, protocol) in listeners.items()
        ),
        rack=config.broker_rack,
        directory_id=directory_id(directory),
        previous_epoch=previous_epoch,
    )


def times_of(config: BrokerConfig) -> Times:
    """Of its membership."""
    return Times(
        registration_max=config.initial_broker_registration_timeout_ms / 1000,
        beat=config.broker_heartbeat_interval_ms / 1000,
        session=config.broker_session_timeout_ms / 1000,
        start_max=config.server_max_startup_time_ms / 1000,
    )


def brokers_of(member: Member, ways: ControllerRoutes, config: BrokerConfig) -> Brokers:
    """The way to the other brokers."""
    return Brokers(lambda: member.image, config.inner_listener.name, ways.inner)


def producer_ids(member: Member, config: BrokerConfig, clock: Clock) -> BlockIds:
    """The cluster's ids, as far as this broker hands them out."""
    return BlockIds(config.node_id, lambda: member.epoch, member.ask, clock)


def follow_replicas(
    member: Member, brokers: Brokers, config: BrokerConfig, topics: AssignedTopics, clock: Clock
) -> Fetchers:
    """Who follows what other brokers lead, from the first image on."""
    fetchers = Fetchers(OwnBroker(config.node_id, lambda: member.image), brokers, config, clock)
    topics.replica_listeners.append(fetchers.use)
    return fetchers


def lead_replicas(member: Member, config: BrokerConfig, topics: AssignedTopics, clock: Clock) -> InSyncReplicas:
    """Who is in sync with what is led here; it has begun. Its `use_brokers` is to be a listener of the member's."""
    in_sync = InSyncReplicas(
        config.node_id,
        lambda: member.epoch,
        member.propose,
        clock,
        lag_s_max=config.replica_lag_time_max_ms / 1000,
        flush=config.flush_on_acks_all,
    )
    topics.logs.services.leading = in_sync
    topics.replica_listeners.append(in_sync.replicas_changed)
    in_sync.start()
    return in_sync


def assign_directories(
    member: Member, config: BrokerConfig, topics: AssignedTopics, fetchers: Fetchers, clock: Clock
) -> DirectoryAssignments:
    """Who keeps replicas that are not fit from leading; it has begun."""
    assignments = DirectoryAssignments(
        config.node_id,
        directory_id(topics.logs.directory),
        lambda: member.epoch,
        lambda: member.image.features.get("metadata.version", 0),
        member.propose,
        clock,
        mend=fetchers.mend,
        has_room=lambda: has_room(topics.logs.directory),
    )
    topics.logs.services.fitness_changed = assignments.fitness_changed
    topics.replica_listeners.append(assignments.replicas_changed)
    member.listeners.append(assignments.use_features)
    assignments.start()
    return assignments


def has_room(directory: str) -> bool:
    """Whether the disk of a directory takes records; not where that cannot be asked."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= ROOM_MIN


def tell_of(member: Member) -> Source:
    """A source of metrics of the cluster, of elections from now on."""
    from kafkalite.broker.cluster.metrics import ClusterMetrics  # only where somebody can be told

    told = ClusterMetrics(member)
    member.listeners.append(told.use)
    return told.families


def use_quotas(quotas: Quotas, before: Image, now: Image) -> None:
    """A listener of the member's: the cluster's quotas are those that count here."""
    if now.quotas is not before.quotas:
        quotas.replace(now.quotas)


def use_users(logs: LogManager, before: Image, now: Image) -> None:
    """A listener of the member's: the cluster's users are those that are known here."""
    if now.credentials is not before.credentials or before is EMPTY:
        known = {number: row for number, row in now.credentials.items() if number[0] in MECHANISMS}
        logs.metadata.use_credentials({(MECHANISMS[number], user): row for (number, user), row in known.items()})


def use_rules(authorizer: Authorizer | None, before: Image, now: Image) -> None:
    """A listener of the member's: the cluster's rules (ACLs) are those that count here.

    MetadataFault for what is no rule that this release knows: nobody may do more than the cluster allows.
    """
    if now.acls is before.acls:
        return
    if authorizer is None:
        if now.acls and not before.acls:
            logger.warning("the cluster has ACLs, but this broker ignores them; set authorizer.class.name")
        return
    added = [each for number, each in now.acls.items() if before.acls.get(number) != each]
    gone = {each for number, each in before.acls.items() if now.acls.get(number) != each}
    if gone:
        gone.difference_update(now.acls.values())  # another id may say the same
    authorizer.use(map(_rule, added), map(_rule, gone))


def _rule(state: AclState) -> Acl:
    rule = Acl(
        ResourceType(state.resource_type),
        state.resource_name,
        PatternType(state.pattern_type),
        state.principal,
        state.host,
        AclOperation(state.operation),
        AclPermission(state.permission),
    )
    try:
        rule.check()
    except InvalidRequest as error:
        raise MetadataFault(f"the cluster has an ACL that this release does not support: {error}") from error
    return rule
