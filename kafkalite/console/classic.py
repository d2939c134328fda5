"""Kafka 0.7 beside it: brokers, topics and groups as ZooKeeper keeps them, with what the logs' ends say of lag.

    ZooKeeper ─▶ brokers, partitions, members, owners, offsets ─┐
    brokers by 0.7's protocol ─▶ begin and end of each log ─────┴▶ pages

Offsets and lag are bytes. Nothing is written. What a page asks has bounds, whatever stands in ZooKeeper: reads, time,
and rows; a page that came to one of them says so. Thread rule: any thread; ZooKeeper's client is shared, and made with
the first page that needs it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kafkalite.classic import wire
from kafkalite.classic.errors import ClassicError
from kafkalite.classic.progress import Logs, group_progress, stored_partitions, topics_of
from kafkalite.client.errors import ClientError
from kafkalite.console.rendering import visible
from kafkalite.console.requests import AwayError, NotFoundError
from kafkalite.errors import KafkaError, StartupError
from kafkalite.zookeeper import group as nodes
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.nodes import CONSUMERS, GroupPaths, NodeError, TopicCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kazoo.client import KazooClient

    from kafkalite.classic.progress import PartitionProgress
    from kafkalite.client import Client
    from kafkalite.console.requests import Request
    from kafkalite.zookeeper.nodes import BrokerPartition, Subscription

Row = TypeVar("Row")

SESSION_TIMEOUT_S: Final = 10.0
CONNECTION_TIMEOUT_S: Final = 5.0
TOPICS_MAX: Final = 500
GROUPS_MAX: Final = 200
MEMBERS_MAX: Final = 500
LAGS_MAX: Final = 500
"""Partitions of groups that are looked at for the list of groups; of groups beyond them the lag is not told."""
PARTITIONS_MAX: Final = 2000
"""Of one group that a page tells of."""
NAMES_MAX: Final = 50
"""Topics of one group or member that a line names."""
PATTERN_MAX: Final = 500
READS_MAX: Final = 5000
"""Of ZooKeeper, for a part of a page."""
PART_S_MAX: Final = 10.0
"""So long a part of a page takes at most, but for one read that hangs."""


class EnoughRead(Exception):
    """A page has asked ZooKeeper for as much as it may."""


class Reads:
    """As much of ZooKeeper's client as reads need, for READS_MAX reads and PART_S_MAX seconds; then EnoughRead."""

    def __init__(self, session: KazooClient) -> None:
        self._session = session
        self._left = READS_MAX
        self._until = time.monotonic() + PART_S_MAX

    def get_async(self, path: str) -> Any:
        self.take()
        return self._session.get_async(path)

    def get_children_async(self, path: str, watch: None = None) -> Any:
        self.take()
        return self._session.get_children_async(path, watch=watch)

    def take(self) -> None:
        """For one read, or for as much work; EnoughRead."""
        if self._left <= 0 or time.monotonic() > self._until:
            raise EnoughRead
        self._left -= 1


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
            raise AwayError(f"cannot reach ZooKeeper at {self._servers}: {error or type(error).__name__}") from error

    # --- pages --------------------------------------------------------------------------------------------------------

    def page(self, client: Client, request: Request) -> dict[str, Any]:
        """Brokers, topics and groups."""
        del client
        sought = request.text("q").lower()
        with self._session() as session, Logs(nodes.brokers(session)) as logs:
            names = [name for name in nodes.topics(session) if sought in name.lower()]
            groups = [name for name in zookeeper.children(session, CONSUMERS) if sought in name.lower()]
            reads = Reads(session)
            topics = taken(topic_row(reads, name) for name in names[:TOPICS_MAX])
            return {
                "q": request.text("q"),
                "zookeeper": self._servers,
                "brokers": [
                    {"id": row.broker_id, "host": visible(row.host), "port": row.port}
                    for _, row in sorted(logs.brokers.items())
                ],
                "topics": topics,
                "topic_count": len(names),
                "groups": taken(group_rows(Reads(session), groups[:GROUPS_MAX], logs)),
                "group_count": len(groups),
            }

    def topic_page(self, client: Client, request: Request) -> dict[str, Any]:
        """One topic: its logs, and the groups that have offsets of it."""
        name = request.values[0]
        require_node_name(name)
        with self._session() as session, Logs(nodes.brokers(session)) as logs:
            found = nodes.partitions(session, name)
            if not found and name not in nodes.topics(session):
                raise NotFoundError(f"topic {name} is not registered in ZooKeeper")
            reads = Reads(session)
            partitions = taken(log_row(reads, logs, name, partition) for partition in found[:PARTITIONS_MAX])
            readers: list[dict[str, Any]] = []
            complete = fill(readers, readers_of(Reads(session), name, logs), GROUPS_MAX)
            return {
                "name": name,
                "partitions": partitions,
                "partition_count": len(found),
                "groups": readers,
                "complete": complete,
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
                raise NotFoundError(f"group {name} is not registered in ZooKeeper")
            members: list[Member] = []
            all_known = fill(members, members_of(Reads(session), paths, nodes.topics(session)), MEMBERS_MAX)
            topics = sorted({*topics_of(session, paths), *(topic for row in members for topic in row.topics)})
            rows: list[PartitionProgress] = []
            all_told = fill(rows, group_progress(Reads(session), paths, topics, logs), PARTITIONS_MAX)
            owned = Counter(member_of(row.owner) for row in rows if row.owner is not None)
            return {
                "group": name,
                "lag": lag_of(rows),
                "complete": all_known and all_told,
                "members": [
                    {
                        "member": visible(row.consumer_id),
                        "reads": visible(row.reads),
                        "partitions": owned[row.consumer_id],
                    }
                    for row in members
                ],
                "partitions": [progress_row(row) for row in rows],
                "ownerless": sum(row.owner is None for row in rows),
            }


def fill(rows: list[Row], found: Iterable[Row], count_max: int) -> bool:
    """Adds what is found, up to a bound; whether that is all of it."""
    try:
        for row in found:
            if len(rows) >= count_max:
                return False
            rows.append(row)
    except EnoughRead:
        return False
    return True


def taken(found: Iterable[Row]) -> list[Row]:
    """As much as may be read."""
    rows: list[Row] = []
    fill(rows, found, sys.maxsize)
    return rows


def require_node_name(name: str) -> None:
    """NotFoundError for what would be another node than the one that is meant."""
    if not name or "/" in name or name in {".", ".."} or "\0" in name:
        raise NotFoundError(f"{name!r} is not registered in ZooKeeper")


def topic_row(session: Any, name: str) -> dict[str, Any]:
    """A topic: how many partitions which brokers have."""
    partitions = nodes.partitions(session, name)
    return {
        "name": name,
        "partitions": len(partitions),
        "brokers": sorted({row.broker_id for row in partitions}),
    }


def group_rows(session: Any, names: Iterable[str], logs: Logs) -> Iterator[dict[str, Any]]:
    """Groups; the lag of those that have more partitions than are left of LAGS_MAX is not told."""
    room = LAGS_MAX
    for name in names:
        paths = GroupPaths(name)
        topics = topics_of(session, paths)
        count = 0
        for topic in topics if room else ():
            count += len(stored_partitions(session, paths, topic))
            if count > room:
                break
        rows = list(group_progress(session, paths, topics, logs)) if room and count <= room else None
        room -= count if rows is not None else 0
        yield {
            "group": name,
            "members": len(zookeeper.children(session, paths.ids)),
            "topics": topics[:NAMES_MAX],
            "topic_count": len(topics),
            "lag": None if rows is None else lag_of(rows),
        }


def readers_of(session: Any, topic: str, logs: Logs) -> Iterator[dict[str, Any]]:
    """The groups that have offsets of a topic."""
    for group in zookeeper.children(session, CONSUMERS):
        paths = GroupPaths(group)
        if zookeeper.children(session, paths.topic_offsets(topic)):
            yield {"group": group, "lag": lag_of(list(group_progress(session, paths, [topic], logs)))}


def log_row(reads: Reads, logs: Logs, topic: str, partition: BrokerPartition) -> dict[str, Any]:
    """A partition's log, as far as its broker tells."""
    reads.take()
    start = end = None
    failure = "" if partition.broker_id in logs.brokers else "its broker is not running"
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


class Member(NamedTuple):
    """A consumer, what it reads in words, and which of the topics that there are."""

    consumer_id: str
    reads: str
    topics: Iterable[str]


def members_of(session: Any, paths: GroupPaths, topics: list[str]) -> Iterator[Member]:
    """Those that are there now."""
    for consumer_id in zookeeper.children(session, paths.ids):
        try:
            found = nodes.subscription(session, paths, consumer_id)
        except NodeError as error:
            yield Member(consumer_id, str(error), ())
            continue
        if found is None:
            yield Member(consumer_id, "has left", ())
            continue
        try:
            yield Member(consumer_id, subscription_text(found), found.streams_of(topics, only_linear=True))
        except ValueError as error:
            yield Member(consumer_id, f"{subscription_text(found)}; {error}", ())


def subscription_text(found: Subscription) -> str:
    """In words."""
    if isinstance(found, TopicCounts):
        names = [f"{topic} ({count})" for topic, count in sorted(found.streams.items())]
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        return ", ".join(names[:NAMES_MAX]) + more
    pattern = f"{found.pattern[:PATTERN_MAX]}{'…' if len(found.pattern) > PATTERN_MAX else ''}"
    return f"{'topics matching' if found.marker == '*' else 'topics not matching'} {pattern} ({found.stream_count})"


def is_served(client: Client, topic: str) -> bool:
    """Whether the cluster has the topic for today's clients too."""
    try:
        return topic in client.described([topic])
    except (KafkaError, ClientError):
        return False
