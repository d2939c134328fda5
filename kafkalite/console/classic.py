"""Kafka 0.7 beside it: brokers, topics and groups as ZooKeeper keeps them, with what the logs' ends say of lag.

    ZooKeeper ─▶ brokers, partitions, members, owners, offsets ─┐
    brokers by 0.7's protocol ─▶ begin and end of each log ─────┴▶ pages

Offsets and lag are bytes. Nothing is written. Thread rule: any thread; ZooKeeper's client is shared, and made with the
first page that needs it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.classic import wire
from kafkalite.classic.errors import ClassicError
from kafkalite.classic.progress import Logs, group_progress, stored_partitions, topics_of
from kafkalite.client.errors import ClientError
from kafkalite.console.requests import AwayError, NotFoundError
from kafkalite.console.shown import visible
from kafkalite.errors import KafkaError, StartupError
from kafkalite.zookeeper import group as nodes
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.nodes import CONSUMERS, GroupPaths, NodeError, TopicCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kazoo.client import KazooClient

    from kafkalite.classic.progress import PartitionProgress
    from kafkalite.client import Client
    from kafkalite.console.requests import Request
    from kafkalite.zookeeper.nodes import BrokerPartition, Subscription

SESSION_TIMEOUT_S: Final = 10.0
CONNECTION_TIMEOUT_S: Final = 5.0
TOPICS_MAX: Final = 500
GROUPS_MAX: Final = 200
LAGS_MAX: Final = 500
"""Partitions of groups that are looked at for the list of groups; of groups beyond them the lag is not told."""
PARTITIONS_MAX: Final = 2000
"""Of one group that a page tells of."""


class Classic:
    """See the module. `servers` is `host:port,host:port/chroot`; StartupError for what is none."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._client: KazooClient | None = None
        self._lock = threading.Lock()
        zookeeper.new_client(servers, SESSION_TIMEOUT_S).close()

    def close(self) -> None:
        """Ends the session. Idempotent; pages make another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            zookeeper.close(client)

    @contextlib.contextmanager
    def _session(self) -> Iterator[KazooClient]:
        """The session; AwayError where there is none."""
        try:
            with self._lock:
                if self._client is None:
                    self._client = zookeeper.connect(
                        self._servers,
                        session_timeout_s=SESSION_TIMEOUT_S,
                        connection_timeout_s=CONNECTION_TIMEOUT_S,
                        reads_only=True,
                    )
                client = self._client
            yield client
        except StartupError as error:
            raise AwayError(str(error)) from error
        except zookeeper.ZooKeeperError as error:
            raise AwayError(f"ZooKeeper at {self._servers} does not answer: {error or type(error).__name__}") from error

    # --- pages --------------------------------------------------------------------------------------------------------

    def page(self, client: Client, request: Request) -> dict[str, Any]:
        """Brokers, topics and groups."""
        del client
        sought = request.text("q").lower()
        with self._session() as session, Logs(nodes.brokers(session)) as logs:
            topics = [name for name in nodes.topics(session) if sought in name.lower()]
            groups = [name for name in zookeeper.children(session, CONSUMERS) if sought in name.lower()]
            room = LAGS_MAX
            rows = []
            for name in groups[:GROUPS_MAX]:
                row, asked = group_row(session, name, logs, room)
                room -= asked
                rows.append(row)
            return {
                "q": request.text("q"),
                "zookeeper": self._servers,
                "brokers": [
                    {"id": row.broker_id, "host": visible(row.host), "port": row.port}
                    for _, row in sorted(logs.brokers.items())
                ],
                "topics": [topic_row(session, name) for name in topics[:TOPICS_MAX]],
                "topic_count": len(topics),
                "groups": rows,
                "group_count": len(groups),
            }

    def topic_page(self, client: Client, request: Request) -> dict[str, Any]:
        """One topic: its logs, and the groups that have offsets of it."""
        name = request.values[0]
        require_node_name(name)
        with self._session() as session, Logs(nodes.brokers(session)) as logs:
            found = nodes.partitions(session, name)
            if not found and name not in nodes.topics(session):
                raise NotFoundError(f"ZooKeeper knows no topic {name}")
            groups = [
                group
                for group in zookeeper.children(session, CONSUMERS)
                if zookeeper.children(session, GroupPaths(group).topic_offsets(name))
            ]
            return {
                "name": name,
                "partitions": [log_row(logs, name, partition) for partition in found[:PARTITIONS_MAX]],
                "groups": [
                    {"group": group, "lag": lag_of(list(group_progress(session, GroupPaths(group), [name], logs)))}
                    for group in groups[:GROUPS_MAX]
                ],
                "served": is_served(client, name),
            }

    def group_page(self, client: Client, request: Request) -> dict[str, Any]:
        """One group: who is in it, and how far it is."""
        del client
        name = request.values[0]
        require_node_name(name)
        paths = GroupPaths(name)
        with self._session() as session, Logs(nodes.brokers(session)) as logs:
            if name not in zookeeper.children(session, CONSUMERS):
                raise NotFoundError(f"ZooKeeper knows no group {name}")
            topics = sorted({*topics_of(session, paths), *subscribed(session, paths)})
            rows = []
            for row in group_progress(session, paths, topics, logs):
                rows.append(row)
                if len(rows) >= PARTITIONS_MAX:
                    break
            owned = Counter(member_of(row.owner) for row in rows if row.owner is not None)
            return {
                "group": name,
                "lag": lag_of(rows),
                "complete": len(rows) < PARTITIONS_MAX,
                "members": [
                    {
                        "member": visible(consumer_id),
                        "reads": visible(subscription_text(session, paths, consumer_id)),
                        "partitions": owned[consumer_id],
                    }
                    for consumer_id in zookeeper.children(session, paths.ids)
                ],
                "partitions": [progress_row(row) for row in rows],
                "ownerless": sum(row.owner is None for row in rows),
            }


def require_node_name(name: str) -> None:
    """NotFoundError for what would be another node than the one that is meant."""
    if not name or "/" in name or name in {".", ".."} or "\0" in name:
        raise NotFoundError(f"ZooKeeper has nothing called {name!r}")


def topic_row(session: KazooClient, name: str) -> dict[str, Any]:
    """A topic: how many partitions which brokers have."""
    partitions = nodes.partitions(session, name)
    return {
        "name": name,
        "partitions": len(partitions),
        "brokers": sorted({row.broker_id for row in partitions}),
    }


def group_row(session: KazooClient, name: str, logs: Logs, room: int) -> tuple[dict[str, Any], int]:
    """A group, and how many partitions were asked for its lag: none where there are more than `room`."""
    paths = GroupPaths(name)
    topics = topics_of(session, paths)
    count = sum(len(stored_partitions(session, paths, topic)) for topic in topics) if room > 0 else room + 1
    rows = list(group_progress(session, paths, topics, logs)) if count <= room else None
    return {
        "group": name,
        "members": len(zookeeper.children(session, paths.ids)),
        "topics": topics,
        "lag": None if rows is None else lag_of(rows),
    }, 0 if rows is None else len(rows)


def log_row(logs: Logs, topic: str, partition: BrokerPartition) -> dict[str, Any]:
    """A partition's log, as far as its broker tells."""
    start = end = None
    failure = "" if partition.broker_id in logs.brokers else "its broker is not there"
    try:
        start, end = logs.bound(topic, partition, wire.EARLIEST), logs.bound(topic, partition)
    except ClassicError as error:
        failure = visible(str(error))
    return {
        "broker": partition.broker_id,
        "partition": partition.partition,
        "start": start,
        "end": end,
        "failure": failure,
    }


def progress_row(row: PartitionProgress) -> dict[str, Any]:
    """As plain data."""
    return {
        "topic": row.topic,
        "broker": row.partition.broker_id,
        "partition": row.partition.partition,
        "owner": None if row.owner is None else visible(row.owner),
        "offset": row.offset,
        "end": row.end,
        "lag": row.lag,
        "failure": visible(row.failure),
    }


def lag_of(rows: list[PartitionProgress]) -> int | None:
    """Bytes of those that are known; None where none is."""
    known = [row.lag for row in rows if row.lag is not None]
    return sum(known) if known else None


def member_of(owner: str) -> str:
    """The consumer of a thread, whose id ends in its number."""
    return owner.rpartition("-")[0] or owner


def subscribed(session: KazooClient, paths: GroupPaths) -> Mapping[str, list[str]]:
    """Topics that members read now, offsets or not."""
    return nodes.threads_by_topic(session, paths, nodes.topics(session))


def subscription_text(session: KazooClient, paths: GroupPaths, consumer_id: str) -> str:
    """In words."""
    try:
        found: Subscription | None = nodes.subscription(session, paths, consumer_id)
    except NodeError as error:
        return str(error)
    if found is None:
        return "gone meanwhile"
    if isinstance(found, TopicCounts):
        return ", ".join(f"{topic} ({count})" for topic, count in sorted(found.streams.items()))
    return f"{'topics like' if found.marker == '*' else 'topics not like'} {found.pattern} ({found.stream_count})"


def is_served(client: Client, topic: str) -> bool:
    """Whether the cluster has the topic for today's clients too."""
    try:
        return topic in client.described([topic])
    except (KafkaError, ClientError):
        return False
