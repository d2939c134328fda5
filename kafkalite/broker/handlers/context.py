"""What a handler is given beside the request: the broker's parts, and whose request it is.

Thread rule: shared by all workers and immutable, but for `BrokerServices.config`, which is replaced as a whole.
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
    """Who is in the cluster: one node today; handlers ask here, so that more can come."""

    cluster_id: str
    node_id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]

    @property
    def identity(self) -> tuple[str, int]:
        """(cluster id, node id) of this broker."""
        return self.cluster_id, self.node_id

    @property
    def controller_id(self) -> int:
        """The node that answers for the cluster."""
        return self.node_id


@dataclass(slots=True)
class BrokerServices:
    """What handlers may use. `config` is replaced as a whole when dynamic settings change, by `use_config`."""

    config: BrokerConfig
    logs: LogManager
    cluster: ClusterView
    clock: Clock
    pool: IoPool
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    quotas: Quotas
    member: Member | None = None
    """In a cluster with controllers of Apache Kafka's: who knows it; None: the broker stands alone."""
    authorizer: Authorizer | None = None
    """Who may do what; None: everybody everything."""
    client_metrics: ClientMetrics | None = None
    """Clients' own metrics; None: nobody asks for them."""
    config_checks: list[Callable[[BrokerConfig], None]] = field(default_factory=list)
    """Asked before settings change while running; they raise ConfigError."""
    config_listeners: list[Callable[[BrokerConfig], None]] = field(default_factory=list)
    partition_shares: PartitionShares = field(default_factory=PartitionShares)
    """Who created how many of the partitions that count towards max.partitions."""
    metric_sources: list[Source] = field(default_factory=list)
    """What parts tell of themselves, where somebody asks for metrics."""

    def feature_level(self, name: str) -> int:
        """The level of a feature; 0 is off."""
        if self.member is None:
            return self.logs.metadata.features.level(name)
        return self.member.image.features.get(name, 0)

    @property
    def cordoned(self) -> bool:
        """Whether the data directory gets no new partitions (KIP-1066)."""
        return self.config.cordoned and self.feature_level(METADATA_VERSION) >= CORDON_LEVEL

    def topic_config(self, name: str) -> TopicConfig | None:
        """The settings of a topic, of a cluster's wherever it is; None for one that is not there."""
        if self.member is None:
            topic = self.logs.topics.get(name)
            return None if topic is None else topic.config
        from kafkalite.broker.cluster.settings import topic_config

        image = self.member.image
        return topic_config(self.config, image, name) if name in image.topic_ids else None

    def use_config(self, config: BrokerConfig) -> None:
        """Settings changed while running: from now on these count. The log manager, which knows them, is not told."""
        self.config = config
        for listener in self.config_listeners:
            listener(config)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request's surroundings."""

    broker: BrokerServices
    connection: Connection
    api_key: int
    api_version: int
    client_id: str | None
    throttle_ms: int = 0
    """What the client is to be told to wait, for what it did before."""
    request_meter: Meter | None = None
    """Of the time that threads spend on it; None: that is not counted."""

    def mutations(self, *, strict_since: int) -> Mutations:
        """What the client's quota has to say of partitions that this request creates and deletes."""
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
        """Whom entries of the broker's tables are charged to."""
        return holder_of(self.principal, self.client_host)

    @property
    def endpoint(self) -> Endpoint:
        """What this broker is called on the listener the request came through."""
        endpoint: Endpoint = self.connection.listener.endpoint
        return endpoint

    @property
    def principal(self) -> str:
        """Who asks, as `User:name`: the authoriser's seam."""
        principal: str = self.connection.principal
        return principal
