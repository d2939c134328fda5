"""Read the nodes of a Kafka 0.7 consumer group (subscriptions, partition owners and offsets), and store offsets.

Also reads the nodes of brokers and topics. Nothing is cached, because a rebalance must see the current nodes. Each
function waits for ZooKeeper and may raise `ZooKeeperError`. Source: `kafkalite.classic`, facts 3 and 5.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.assignment import thread_ids
from kafkalite.zookeeper.nodes import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerNode,
    BrokerPartition,
    GroupPaths,
    NodeError,
    Subscription,
    broker_number,
    broker_path,
    decode_count,
    decode_offset,
    decode_subscription,
    topic_broker_path,
    topic_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kazoo.client import KazooClient

logger = logging.getLogger(__name__)


def brokers(client: KazooClient, watch: Callable[[object], None] | None = None) -> dict[int, BrokerNode]:
    """Return the live brokers by id. A broker with an invalid node is logged and skipped.

    `watch` is called once, when the set of brokers changes.
    """
    found = {}
    for name in zookeeper.children(client, BROKER_IDS, watch):
        number = broker_number(name)
        value = None if number is None else zookeeper.read(client, broker_path(number))
        if number is None or value is None:
            continue
        try:
            found[number] = BrokerNode.decode(number, value)
        except NodeError as error:
            logger.warning("%s", error)
    return found


def topics(client: KazooClient, watch: Callable[[object], None] | None = None) -> list[str]:
    """Return all topics that are or were on a broker.

    `watch` is called once, when the set of topics changes.
    """
    return zookeeper.children(client, BROKER_TOPICS, watch)


def partitions(client: KazooClient, topic: str, watch: Callable[[object], None] | None = None) -> list[BrokerPartition]:
    """Return the partitions of a topic on live brokers, ordered by broker and number.

    `watch` is called once, when the set of the topic's brokers changes.
    """
    found = []
    for name in zookeeper.children(client, topic_path(topic), watch):
        broker = broker_number(name)
        value = None if broker is None else zookeeper.read(client, topic_broker_path(topic, broker))
        if broker is None or value is None:
            continue
        try:
            found += [BrokerPartition(broker, number) for number in range(decode_count(value))]
        except NodeError as error:
            logger.warning("ignored topic %s on broker %s: %s", topic, name, error)
    return sorted(found)


def subscription(client: KazooClient, group: GroupPaths, consumer_id: str) -> Subscription | None:
    """Return the subscription of a consumer; None if the consumer is gone. NodeError if its node is invalid."""
    value = zookeeper.read(client, group.id_of(consumer_id))
    return None if value is None else decode_subscription(value)


def threads_by_topic(client: KazooClient, group: GroupPaths, all_topics: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids of all consumer threads of a group, by topic.

    A member with an invalid node is logged and skipped.
    """
    known = list(all_topics)
    found: dict[str, list[str]] = {}
    for consumer_id in zookeeper.children(client, group.ids):
        try:
            wanted = subscription(client, group, consumer_id)
            streams = {} if wanted is None else wanted.streams_of(known)
        except ValueError as error:
            logger.warning("ignored member %s of group %s: %s", consumer_id, group.group, error)
            continue
        for topic, count in streams.items():
            found.setdefault(topic, []).extend(thread_ids(consumer_id, count))
    return found


def owner(client: KazooClient, group: GroupPaths, topic: str, partition: BrokerPartition) -> str | None:
    """Return the consumer thread that owns a partition; None without an owner."""
    value = zookeeper.read(client, group.owner(topic, partition))
    return None if value is None else value.decode("utf-8", "replace")


def offset(client: KazooClient, group: GroupPaths, topic: str, partition: BrokerPartition) -> int | None:
    """Return the group's next offset in a partition; None before its first commit. NodeError if the node is invalid."""
    value = zookeeper.read(client, group.offset(topic, partition))
    return None if value is None else decode_offset(value)


def store_offset(client: KazooClient, group: GroupPaths, topic: str, partition: BrokerPartition, value: int) -> None:
    """Store the group's next offset in a partition. If two members write, the last write counts."""
    zookeeper.write(client, group.offset(topic, partition), str(value).encode())
