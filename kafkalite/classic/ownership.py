"""Compute which partitions a consumer owns in its group, and claim them in ZooKeeper.

    read subscriptions, partitions, brokers ─▶ assign (pure) ─▶ create owner nodes ─▶ find offsets ─▶ ConsumerShare

Each member does this by itself. If two members claim the same partition, only one can create its owner node. The other
member's claim fails.

Thread rule: one thread at a time, the connector's.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 5).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.classic.errors import ClassicError, ConnectionFailed, RebalanceFailed
from kafkalite.classic.fetcher import reset_offset
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.zookeeper import group as nodes
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.assignment import assign, thread_ids
from kafkalite.zookeeper.nodes import topic_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient

    from kafkalite.classic.config import ConsumerConfig
    from kafkalite.zookeeper.nodes import BrokerNode, BrokerPartition, GroupPaths

UNKNOWN_OFFSET: Final = -1
"""The start of a partition whose broker could not be asked: out of range at the first fetch, which resets it."""
ASK_TIMEOUT_S: Final = 2.0
"""The timeout for asking a broker for offsets, so that a rebalance does not wait for an unresponsive one."""
ASK_CONNECT_TIMEOUT_S: Final = 1.0


@dataclass(slots=True)
class ConsumerShare:
    """The partitions of the group that one attempt assigns to this consumer."""

    owners: dict[tuple[str, BrokerPartition], str] = field(default_factory=dict)
    """(topic, partition) → the thread of this consumer that owns it."""
    offsets: dict[tuple[str, BrokerPartition], int] = field(default_factory=dict)
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    """All subscribed topics, owned or not."""


def decide(
    client: KazooClient, group: GroupPaths, consumer_id: str, watch: Callable[[object], None], *, watch_topics: bool
) -> ConsumerShare:
    """Read the group, and compute the partitions of this consumer. `watch` is called at the next change of the
    group."""
    zookeeper.children(client, group.ids, watch)
    all_topics = nodes.topics(client, watch if watch_topics else None)
    own = nodes.subscription(client, group, consumer_id)
    if own is None:
        raise RebalanceFailed(f"the ZooKeeper node of consumer {consumer_id} no longer exists")
    share = ConsumerShare()
    threads = nodes.threads_by_topic(client, group, all_topics)
    for topic, stream_count in own.streams_of(all_topics).items():
        share.topics.add(topic)
        zookeeper.children(client, topic_path(topic), watch)
        partitions = nodes.partitions(client, topic)
        ours = set(thread_ids(consumer_id, stream_count))
        for partition, thread in assign(partitions, threads.get(topic, [])).items():
            if thread in ours:
                share.owners[topic, partition] = thread
    share.brokers = nodes.brokers(client)  # last: a broker registers itself before its topics
    return share


def find_offsets(client: KazooClient, group: GroupPaths, share: ConsumerShare, config: ConsumerConfig) -> None:
    """Find where to read each owned partition: at the group's stored offset, or else where autooffset.reset selects.

    Call it after `claim`, because the previous owner stores its last offset before it releases a partition. (Kafka 0.7
    reads the offsets first.)
    """
    silent: set[int] = set()
    for topic, partition in share.owners:
        stored = nodes.offset(client, group, topic, partition)
        if stored is None:
            stored = UNKNOWN_OFFSET
            if partition.broker_id not in silent:
                stored = _first_offset(share, topic, partition, config)
            if stored == UNKNOWN_OFFSET:
                silent.add(partition.broker_id)
        share.offsets[topic, partition] = stored


def claim(client: KazooClient, group: GroupPaths, share: ConsumerShare) -> None:
    """Create the owner node of each of this consumer's partitions. Raises NodeConflict if another consumer has one.

    After this error, the caller releases the nodes that were created.
    """
    for (topic, partition), thread in share.owners.items():
        zookeeper.create_ephemeral(client, group.owner(topic, partition), thread.encode())


def release(client: KazooClient, group: GroupPaths, owners: dict[tuple[str, BrokerPartition], str]) -> None:
    """Delete the owner nodes of this consumer. Nodes that another consumer has by now, or that do not exist, are
    ignored.

    Each node is removed from `owners` once it is released. After a lost connection, a later call releases the others.
    """
    for (topic, partition), thread in list(owners.items()):
        if nodes.owner(client, group, topic, partition) == thread:
            zookeeper.delete(client, group.owner(topic, partition))
        del owners[topic, partition]


def _first_offset(share: ConsumerShare, topic: str, partition: BrokerPartition, config: ConsumerConfig) -> int:
    broker = share.brokers.get(partition.broker_id)
    if broker is None:
        return UNKNOWN_OFFSET
    timeout_s = min(ASK_TIMEOUT_S, config.socket_timeout_ms / 1000)
    with SimpleConsumer(
        broker.host, broker.port, socket_timeout_s=timeout_s, connect_timeout_s=ASK_CONNECT_TIMEOUT_S
    ) as consumer:
        try:
            return reset_offset(consumer, topic, partition.partition, config.auto_offset_reset)
        except ConnectionFailed:
            return UNKNOWN_OFFSET
        except ClassicError as error:
            raise RebalanceFailed(f"no offset to start {topic}-{partition} at: {error}") from error
