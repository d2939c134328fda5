"""Report the progress of 0.7 groups: owner, stored offset and log end of each partition.

Owners and stored offsets come from ZooKeeper, log ends from the brokers. Offsets and lag are in bytes.

Thread rule: any thread except ZooKeeper's own. A `Logs` belongs to one thread.

Source: kafka.tools.ConsumerOffsetChecker of Kafka 0.7.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafkalite.classic import wire
from kafkalite.classic.errors import ClassicError, ConnectionFailed
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.zookeeper import group as nodes
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.assignment import java_order
from kafkalite.zookeeper.nodes import BrokerPartition, GroupPaths, NodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kazoo.client import KazooClient

    from kafkalite.zookeeper.nodes import BrokerNode

CONNECT_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 10.0


class PartitionProgress(NamedTuple):
    """A group's progress in a partition. Owner, offset and end are None if they do not exist or could not be read."""

    topic: str
    partition: BrokerPartition
    owner: str | None
    offset: int | None
    end: int | None
    failure: str
    """Why a value is missing, or ""."""

    @property
    def lag(self) -> int | None:
        """The bytes between the stored offset and the log end."""
        return None if self.offset is None or self.end is None else self.end - self.offset


class Logs:
    """Asks live brokers for starts and ends of logs. A broker that failed to respond is not asked again."""

    def __init__(self, brokers: Mapping[int, BrokerNode]) -> None:
        self.brokers = brokers
        self._consumers: dict[int, SimpleConsumer] = {}
        self._failed: dict[int, ClassicError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    @property
    def asked(self) -> list[int]:
        """The ids of the brokers that were asked."""
        return sorted(self._consumers)

    def bound(self, topic: str, partition: BrokerPartition, when: int = wire.LATEST) -> int | None:
        """Return the log's end; with wire.EARLIEST return its start. None without a live broker or an offset. Raises
        ClassicError."""
        broker = self.brokers.get(partition.broker_id)
        if broker is None:
            return None
        consumer = self._consumers.get(broker.broker_id)
        if consumer is None:
            consumer = self._consumers[broker.broker_id] = SimpleConsumer(
                broker.host, broker.port, connect_timeout_s=CONNECT_TIMEOUT_S, socket_timeout_s=ANSWER_TIMEOUT_S
            )
        if broker.broker_id in self._failed:
            raise self._failed[broker.broker_id]
        try:
            offsets = consumer.get_offsets_before(topic, partition.partition, when, 1)
        except ConnectionFailed as error:
            self._failed[broker.broker_id] = error
            raise
        return offsets[0] if offsets else None


def topics_of(client: KazooClient, paths: GroupPaths) -> list[str]:
    """Return the topics for which a group has stored offsets, in 0.7's order of names."""
    return sorted(zookeeper.children(client, paths.offsets), key=java_order)


def stored_partitions(client: KazooClient, paths: GroupPaths, topic: str) -> list[BrokerPartition]:
    """Return the partitions of a topic that exist now or for which the group has an offset."""
    found = set(nodes.partitions(client, topic))
    for name in zookeeper.children(client, paths.topic_offsets(topic)):
        with contextlib.suppress(NodeError):
            found.add(BrokerPartition.parse(name))
    return sorted(found, key=lambda partition: java_order(str(partition)))


def group_progress(
    client: KazooClient, paths: GroupPaths, topics: Iterable[str], logs: Logs
) -> Iterator[PartitionProgress]:
    """Yield the progress in each partition of these topics."""
    for topic in topics:
        for partition in stored_partitions(client, paths, topic):
            failures = []
            offset = end = None
            try:
                offset = nodes.offset(client, paths, topic, partition)
            except NodeError as error:
                failures.append(str(error))
            try:
                end = logs.bound(topic, partition)
            except ClassicError as error:
                failures.append(str(error))
            owner = nodes.owner(client, paths, topic, partition)
            yield PartitionProgress(topic, partition, owner, offset, end, "; ".join(failures))
