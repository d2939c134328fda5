"""Show Kafka 0.7's brokers, topics and groups on read-only pages, with the lag of the groups.

    ZooKeeper ─▶ brokers, partitions, members, owners, offsets ─┐
    brokers, by 0.7's protocol ─▶ start and end of each log ────┴▶ pages

Offsets and lag are in bytes. The number of reads, the time and the rows of a page are limited. A page that reaches a
limit shows only a part.

Thread rule: any thread. All pages share one ZooKeeper client, which the first page creates.
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
"""Partitions read for the list of groups; groups beyond this have no lag."""
PARTITIONS_MAX: Final = 2000
"""Partitions shown of one group."""
NAMES_MAX: Final = 50
"""Topics listed per group or member."""
PATTERN_MAX: Final = 500
READS_MAX: Final = 5000
"""Reads from ZooKeeper per part of a page."""
PART_S_MAX: Final = 10.0
"""Time limit of a part of a page, not counting one read that hangs."""


class EnoughRead(Exception):
    """Raised when a part of a page reaches its limit of reads or of time."""


class Reads:
    """A ZooKeeper client that raises EnoughRead after READS_MAX reads or PART_S_MAX seconds."""

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
        """Count one read. Raises EnoughRead if a limit is reached."""
        if self._left <= 0 or time.monotonic() > self._until:
            raise EnoughRead
        self._left -= 1


class Classic:
    """The pages about Kafka 0.7.

    `servers` is `host:port,host:port/chroot`. Raises StartupError if it is invalid.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._client: KazooClient | None = None
        self._lock = threading.Lock()
        zookeeper.new_client(servers, SESSION_TIMEOUT_S).close()

    def close(self) -> None:
        """End the ZooKeeper session. A later page opens another session. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            zookeeper.close(client)

    @contextlib.contextmanager
    def _session(self) -> Iterator[KazooClient]:
        """Return the shared ZooKeeper session. Raises AwayError if ZooKeeper does not respond."""
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
        """Return the data of the page with all brokers, topics and groups."""
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
        """Return the page of one topic: its logs, and the groups with offsets for it."""
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
        """Return the page of one group: members, owners and progress."""
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
    """Append items to `rows`, at most `count_max` of them. Return whether all were appended."""
    try:
        for row in found:
            if len(rows) >= count_max:
                return False
            rows.append(row)
    except EnoughRead:
        return False
    return True


def taken(found: Iterable[Row]) -> list[Row]:
    """Return the items that could be read before EnoughRead was raised."""
    rows: list[Row] = []
    fill(rows, found, sys.maxsize)
    return rows


def require_node_name(name: str) -> None:
    """Raise NotFoundError if the name cannot be the name of a ZooKeeper node."""
    if not name or "/" in name or name in {".", ".."} or "\0" in name:
        raise NotFoundError(f"{name!r} is not registered in ZooKeeper")


def topic_row(session: Any, name: str) -> dict[str, Any]:
    """Return a topic as plain data, with the number of its partitions and the ids of their brokers."""
    partitions = nodes.partitions(session, name)
    return {
        "name": name,
        "partitions": len(partitions),
        "brokers": sorted({row.broker_id for row in partitions}),
    }


def group_rows(session: Any, names: Iterable[str], logs: Logs) -> Iterator[dict[str, Any]]:
    """Yield a row for each group. A group has no lag if its partitions would exceed the page's limit, LAGS_MAX."""
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
    """Yield the groups with offsets for a topic."""
    for group in zookeeper.children(session, CONSUMERS):
        paths = GroupPaths(group)
        if zookeeper.children(session, paths.topic_offsets(topic)):
            yield {"group": group, "lag": lag_of(list(group_progress(session, paths, [topic], logs)))}


def log_row(reads: Reads, logs: Logs, topic: str, partition: BrokerPartition) -> dict[str, Any]:
    """Return a partition's log as plain data, from the broker's response."""
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
    """Return a partition's progress as plain data."""
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
    """Return the sum of the known lags in bytes. None if no lag is known."""
    known = [row.lag for row in rows if row.lag is not None]
    return sum(known) if known else None


def member_of(owner: str) -> str:
    """Return the consumer id in an owner's thread id, which is the consumer id with a number at its end."""
    return owner.rpartition("-")[0] or owner


class Member(NamedTuple):
    """A consumer, with its subscription in words and the existing topics that match the subscription."""

    consumer_id: str
    reads: str
    topics: Iterable[str]


def members_of(session: Any, paths: GroupPaths, topics: list[str]) -> Iterator[Member]:
    """Yield the connected members of a group."""
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
    """Describe a subscription in words."""
    if isinstance(found, TopicCounts):
        names = [f"{topic} ({count})" for topic, count in sorted(found.streams.items())]
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        return ", ".join(names[:NAMES_MAX]) + more
    pattern = f"{found.pattern[:PATTERN_MAX]}{'…' if len(found.pattern) > PATTERN_MAX else ''}"
    return f"{'topics matching' if found.marker == '*' else 'topics not matching'} {pattern} ({found.stream_count})"


def is_served(client: Client, topic: str) -> bool:
    """Return whether current clients can use the topic, too."""
    try:
        return topic in client.described([topic])
    except (KafkaError, ClientError):
        return False
