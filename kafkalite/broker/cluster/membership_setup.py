"""Build a broker's membership in a cluster from its settings, and connect the metadata to the broker's parts."""

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
"""Free bytes that a full disk must have before it accepts records again."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's ScramMechanism."""


class ControllerRoutes(NamedTuple):
    """The addresses and security settings for connections to the other nodes of the cluster."""

    controllers: Controllers
    inner: Security | None
    """The TLS and SASL settings for the inter-broker listener; None for plaintext."""

    def reload_certificates(self) -> None:
        """Read the certificates again, for new connections."""
        for each in (self.controllers.security, self.inner):
            if each is not None:
                each.reload()


def ways_of(config: BrokerConfig) -> ControllerRoutes:
    """Return the addresses and security settings for the other nodes, from the broker's settings. Raises
    ConfigError.
    """
    controllers = Controllers(
        voters={number: Server(*server) for number, server in config.quorum_voters().items()},
        servers=tuple(Server(*server) for server in config.quorum_servers()),
        listener=config.controller_listener_names[0],
        security=of_controllers(config),
    )
    return ControllerRoutes(controllers, of_brokers(config))


def cluster_id_of(ways: ControllerRoutes, config: BrokerConfig, clock: Clock, given_up: Event) -> str:
    """Ask a controller for the cluster id and return it. Raises StartupError."""
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
    """Build a member that is not started. `listeners` has the advertised address and the protocol of each listener
    name.
    """
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
    """Return the data for registering a broker with these settings and this data directory.

    It has a new incarnation id.
    """
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
    """Return the durations of the lifecycle, from the settings."""
    return Times(
        registration_max=config.initial_broker_registration_timeout_ms / 1000,
        beat=config.broker_heartbeat_interval_ms / 1000,
        session=config.broker_session_timeout_ms / 1000,
        start_max=config.server_max_startup_time_ms / 1000,
    )


def brokers_of(member: Member, ways: ControllerRoutes, config: BrokerConfig) -> Brokers:
    """Return the object that connects to the other brokers."""
    return Brokers(lambda: member.image, config.inner_listener.name, ways.inner)


def producer_ids(member: Member, config: BrokerConfig, clock: Clock) -> BlockIds:
    """Return the source of producer ids, which the controller allocates in blocks."""
    return BlockIds(config.node_id, lambda: member.epoch, member.ask, clock)


def follow_replicas(
    member: Member, brokers: Brokers, config: BrokerConfig, topics: AssignedTopics, clock: Clock
) -> Fetchers:
    """Build the fetchers for replicas that other brokers lead. They start with the first image."""
    fetchers = Fetchers(OwnBroker(config.node_id, lambda: member.image), brokers, config, clock)
    topics.replica_listeners.append(fetchers.use)
    return fetchers


def lead_replicas(member: Member, config: BrokerConfig, topics: AssignedTopics, clock: Clock) -> InSyncReplicas:
    """Build and start the management of the ISRs of led partitions.

    The caller must add its method `use_brokers` to the member's listeners.
    """
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
    """Build and start the part that takes unfit replicas out of service."""
    assignments = DirectoryAssignments(
        config.node_id,
        directory_id(topics.logs.directory),
        lambda: member.epoch,
        lambda: member.image.features.get("metadata.version", 0),
        member.propose,
        clock,
        recheck=fetchers.recheck,
        has_room=lambda: has_room(topics.logs.directory),
    )
    topics.logs.services.fitness_changed = assignments.fitness_changed
    topics.replica_listeners.append(assignments.replicas_changed)
    member.listeners.append(assignments.use_features)
    assignments.start()
    return assignments


def has_room(directory: str) -> bool:
    """Return whether the disk of a directory has room for records; False if the free space cannot be read."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= ROOM_MIN


def tell_of(member: Member) -> Source:
    """Return a source of cluster metrics. It counts elections from now on."""
    from kafkalite.broker.cluster.metrics import ClusterMetrics  # not needed without metrics

    cluster_metrics = ClusterMetrics(member)
    member.listeners.append(cluster_metrics.use)
    return cluster_metrics.families


def use_quotas(quotas: Quotas, before: Image, now: Image) -> None:
    """Apply the cluster's quotas. A listener of the member."""
    if now.quotas is not before.quotas:
        quotas.replace(now.quotas)


def use_users(logs: LogManager, before: Image, now: Image) -> None:
    """Apply the cluster's users. A listener of the member."""
    if now.credentials is not before.credentials or before is EMPTY:
        known = {number: row for number, row in now.credentials.items() if number[0] in MECHANISMS}
        logs.metadata.use_credentials({(MECHANISMS[number], user): row for (number, user), row in known.items()})


def use_rules(authorizer: Authorizer | None, before: Image, now: Image) -> None:
    """Apply the cluster's ACLs. A listener of the member.

    Raises MetadataFault for an ACL that this release does not support: ignoring it could allow more than the cluster
    allows.
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
        gone.difference_update(now.acls.values())  # another ACL id may have the same content
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
