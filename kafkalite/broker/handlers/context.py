"""Define the context of a request for its handler: the parts of the broker, and the client that sent the request.

Thread rule: all workers share the broker's parts. No part is replaced after the start, except `BrokerServices.config`
(by `use_config`).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.features import CORDON_LEVEL, METADATA_VERSION
from kafkalite.broker.limits.holder import holder_of
from kafkalite.broker.limits.partitions import PartitionShares
from kafkalite.broker.quotas.mutations import Mutations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite._native.serve.connection import Connection
    from kafkalite._native.serve.quota import Meter
    from kafkalite.base.clock import Clock
    from kafkalite.base.metric_families import Source
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.cluster.member import Member
    from kafkalite.broker.coordinator.groups import GroupCoordinator
    from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.quotas.quotas import Quotas
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.broker.telemetry.clients import ClientMetrics
    from kafkalite.model import Endpoint
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.settings.topic_setting_lookup import TopicConfig


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A standalone broker's view of its cluster: one node."""

    cluster_id: str
    node_id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]

    @property
    def identity(self) -> tuple[str, int]:
        """(Cluster id, node id) of this broker."""
        return self.cluster_id, self.node_id

    @property
    def controller_id(self) -> int:
        """The node id that is reported as the controller."""
        return self.node_id


@dataclass(slots=True)
class BrokerServices:
    """The parts of the broker that handlers use. `use_config` replaces `config` when dynamic settings change."""

    config: BrokerConfig
    logs: LogManager
    cluster: ClusterView
    clock: Clock
    pool: IoPool
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    quotas: Quotas
    member: Member | None = None
    """This broker's membership in a cluster with Kafka's controllers; None for a standalone broker."""
    authorizer: Authorizer | None = None
    """Checks ACLs; if None, every client may do everything."""
    client_metrics: ClientMetrics | None = None
    """Clients' pushed metrics (KIP-714); None unless the broker serves metrics."""
    config_checks: list[Callable[[BrokerConfig], None]] = field(default_factory=list)
    """Checks of dynamic settings before a change; they raise ConfigError."""
    config_listeners: list[Callable[[BrokerConfig], None]] = field(default_factory=list)
    partition_shares: PartitionShares = field(default_factory=PartitionShares)
    """Counts of partitions created by each client, within max.partitions."""
    metric_sources: list[Source] = field(default_factory=list)
    """Sources of metrics, read when metrics are requested."""

    def feature_level(self, name: str) -> int:
        """Return the level of a feature; 0 is off."""
        if self.member is None:
            return self.logs.metadata.features.level(name)
        return self.member.image.features.get(name, 0)

    @property
    def cordoned(self) -> bool:
        """Whether the data directory gets no new partitions (KIP-1066)."""
        return self.config.cordoned and self.feature_level(METADATA_VERSION) >= CORDON_LEVEL

    def topic_config(self, name: str) -> TopicConfig | None:
        """Return the settings of a topic; None if it does not exist. In a cluster this broker may have no replica of
        it."""
        if self.member is None:
            topic = self.logs.topics.get(name)
            return None if topic is None else topic.config
        from kafkalite.broker.cluster.settings import topic_config

        image = self.member.image
        return topic_config(self.config, image, name) if name in image.topic_ids else None

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed settings to the parts of the broker, except to the log manager, which has them already."""
        self.config = config
        for listener in self.config_listeners:
            listener(config)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of one request."""

    broker: BrokerServices
    connection: Connection
    api_key: int
    api_version: int
    client_id: str | None
    throttle_ms: int = 0
    """Throttle time in ms that the response reports; earlier requests of the client caused it."""
    request_meter: Meter | None = None
    """Meters the thread time spent on the request; if None, the time is not counted."""

    def mutations(self, *, strict_since: int) -> Mutations:
        """Return the client's quota check for partitions that this request creates or deletes (KIP-599)."""
        control = self.broker.quotas.control
        quota = control.quota_of(self.principal, self.client_id)
        strict = self.api_version >= strict_since
        return Mutations(None if quota is None else quota.mutation, self.broker.clock, strict=strict)

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.connection.client_host

    @property
    def holder(self) -> Holder:
        """The client to which this request's entries in the broker's limited tables are charged."""
        return holder_of(self.principal, self.client_host)

    @property
    def endpoint(self) -> Endpoint:
        """This broker's advertised address on the request's listener."""
        endpoint: Endpoint = self.connection.listener.endpoint
        return endpoint

    @property
    def principal(self) -> str:
        """The client's principal, as `User:name`."""
        principal: str = self.connection.principal
        return principal
