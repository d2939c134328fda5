"""Read the state of a cluster: brokers with their replicas, partitions with problems, and the controller quorum.

Works with Java brokers and kafkalite. If brokers and topics can be read, but another request fails, its values are None
or empty, and `unknown` has the reason.

Thread rule: one thread at a time, the thread of the Client.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client.admin.quorum import Quorum, describe_quorum
from kafkalite.client.cluster import raise_for
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.client import Client
    from kafkalite.client.admin.admin import LogDirectory
    from kafkalite.client.admin.reassignments import Reassignment
    from kafkalite.client.cluster import PartitionDescription

MIN_IN_SYNC: Final = "min.insync.replicas"
METADATA_VERSION: Final = "metadata.version"
RESOURCE_TOPIC: Final = 2
FENCED_SINCE: Final = 2
CONFIGS_AT_ONCE: Final = 500


@dataclass(slots=True)
class Broker:
    """A broker, with counts of its replicas."""

    node_id: int
    address: str
    rack: str | None
    fenced: bool
    """Registered, but not in service."""
    replicas: int = 0
    leads: int = 0
    preferred: int = 0
    """Number of partitions whose preferred leader it is."""
    behind: int = 0
    """Number of replicas that are not in sync."""
    directories: list[LogDirectory] | None = None

    @property
    def size(self) -> int | None:
        """The total size of its replicas in bytes; None if it is unknown."""
        return None if self.directories is None else sum(sum(each.sizes.values()) for each in self.directories)


@dataclass(slots=True)
class Overview:
    """The state of a cluster. The lists of partitions are sorted."""

    cluster_id: str
    controller: int
    brokers: list[Broker]
    partitions: dict[TopicPartition, PartitionDescription]
    offline: list[TopicPartition] = field(default_factory=list)
    """Partitions without a leader."""
    under_replicated: list[TopicPartition] = field(default_factory=list)
    under_min_isr: list[TopicPartition] = field(default_factory=list)
    at_min_isr: list[TopicPartition] = field(default_factory=list)
    """Partitions that refuse acks=all if one more replica fails. Those without a spare replica are not listed."""
    not_preferred: list[TopicPartition] = field(default_factory=list)
    """Partitions whose leader is not the preferred one."""
    moving: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    quorum: Quorum | None = None
    metadata_version: int | None = None
    unknown: list[str] = field(default_factory=list)
    """What could not be read, and why."""

    @property
    def healthy(self) -> bool:
        """Whether all partitions have leaders and all replicas are in sync."""
        return not (self.offline or self.under_replicated or self.under_min_isr)

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the size of each partition's largest replica in bytes. Partitions without a known size are omitted."""
        found: dict[TopicPartition, int] = {}
        for directory in (each for broker in self.brokers for each in broker.directories or ()):
            for key, size in directory.sizes.items():
                found[key] = max(size, found.get(key, 0))
        return found


def look(client: Client, *, to_move: bool = False) -> Overview:
    """Read the state of the cluster. KafkaError or ClientError if brokers or topics cannot be read.

    With `to_move`, the same errors are raised if the moves in progress cannot be read. A mover needs them, because a
    moving partition temporarily has additional replicas.
    """
    found = _nodes(client)
    # Moves are read before topics: the replicas of a move that ends in between are then the final ones.
    if to_move:
        found.moving = client.reassignments.list_all()
    else:
        _part(found, "reassignments", lambda: setattr(found, "moving", client.reassignments.list_all()))
    for topic in client.topics().values():
        for partition in topic.partitions:
            found.partitions[TopicPartition(topic.name, partition.partition)] = partition
    _count(found)
    _part(found, "the quorum", lambda: setattr(found, "quorum", describe_quorum(client)))
    _part(found, MIN_IN_SYNC, lambda: _judge_minimum(client, found))
    for broker in found.brokers:
        if not broker.fenced:
            _part(found, f"disks of broker {broker.node_id}", partial(_ask_disks, client, broker))
    return found


def _part(found: Overview, what: str, ask: Callable[[], object]) -> None:
    try:
        ask()
    except (KafkaError, ClientError) as error:
        found.unknown.append(f"{what}: {error}")


def _nodes(client: Client) -> Overview:
    """Return an overview with the brokers only, including fenced brokers if the cluster reports them."""

    def ask() -> Overview:
        connection = client.any_connection()
        request = DescribeClusterRequest(
            include_fenced_brokers=connection.version_for(api.DESCRIBE_CLUSTER) >= FENCED_SINCE
        )
        answer = connection.request(api.DESCRIBE_CLUSTER, request)
        raise_for(answer.error_code, "the cluster", answer.error_message)
        brokers = [
            Broker(row.broker_id, f"{row.host}:{row.port}" if row.host else "", row.rack, row.is_fenced)
            for row in sorted(answer.brokers, key=lambda row: row.broker_id)
        ]
        found = Overview(answer.cluster_id, answer.controller_id, brokers, {})
        found.metadata_version = connection.features.get(METADATA_VERSION)
        return found

    return client.with_retries(ask)


def _count(found: Overview) -> None:
    """Count the replicas of each broker, and find the partitions with problems, from the metadata."""
    brokers = {broker.node_id: broker for broker in found.brokers}
    for key, partition in found.partitions.items():
        for node_id in partition.replicas:
            broker = brokers.get(node_id)
            if broker is None:  # unregistered, or not reported
                broker = brokers[node_id] = Broker(node_id, "", None, fenced=True)
                found.brokers.append(broker)
            broker.replicas += 1
            broker.leads += node_id == partition.leader
            broker.preferred += node_id == partition.replicas[0]
            broker.behind += node_id not in partition.in_sync
        if partition.leader < 0:
            found.offline.append(key)
        elif partition.leader != partition.replicas[0]:
            found.not_preferred.append(key)
        if len(partition.in_sync) < len(partition.replicas):
            found.under_replicated.append(key)
    found.brokers.sort(key=lambda broker: broker.node_id)


def _judge_minimum(client: Client, found: Overview) -> None:
    minimum = _minimum_in_sync(client, sorted({key.topic for key in found.partitions}))
    for key, partition in found.partitions.items():
        wanted = minimum.get(key.topic)
        if wanted is None:
            continue
        if len(partition.in_sync) < wanted:
            found.under_min_isr.append(key)
        elif len(partition.in_sync) == wanted < len(partition.replicas):
            found.at_min_isr.append(key)


def _minimum_in_sync(client: Client, topics: list[str]) -> dict[str, int]:
    """Return min.insync.replicas by topic. Topics that no longer exist are omitted."""
    found: dict[str, int] = {}
    for row in describe_topics(client, topics, [MIN_IN_SYNC]):
        found.update((row.resource_name, int(entry.value)) for entry in row.configs if entry.value)
    return found


def describe_topics(client: Client, topics: list[str], names: Iterable[str]) -> Iterator[Any]:
    """Yield the DescribeConfigs result of each topic, with the settings `names`.

    Topics that no longer exist are omitted.
    """
    keys = list(names)
    for first in range(0, len(topics), CONFIGS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=RESOURCE_TOPIC, resource_name=topic, configuration_keys=keys)
            for topic in topics[first : first + CONFIGS_AT_ONCE]
        ]
        for row in _describe_configs(client, resources).results:
            if not row.error_code:
                yield row


def _describe_configs(client: Client, resources: list[DescribeConfigsResource]) -> Any:
    request = DescribeConfigsRequest(resources=resources)
    return client.with_retries(lambda: client.any_connection().request(api.DESCRIBE_CONFIGS, request))


def _ask_disks(client: Client, broker: Broker) -> None:
    broker.directories = client.admin.log_directories(broker.node_id)
