"""The way to a cluster: its brokers, who leads what, and asking again when that changed.

    bootstrap servers ─▶ any broker ─▶ metadata ─▶ leaders ─▶ one connection to each
              ▲                                       │
              └──── leader moved, connection lost ◀───┘      waits `retry_backoff_s` doubling, until `retry_timeout_s`

Look-ups and reads are repeated after a lost connection; what changes something is repeated only when the broker says
that it did nothing (a retriable error code).

Thread rule: a Cluster, and whatever asks by it, belongs to one thread at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from kafkalite.base import forks
from kafkalite.client.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection
from kafkalite.client.errors import UNREACHED, BrokerGone, BrokerUnreachable, ForeignProcess, ProtocolError
from kafkalite.errors import ErrorCode, KafkaError, error_for
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, OffsetAndTimestamp, TopicPartition
from kafkalite.wire.protocol.api import LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.client.security import Security

DEFAULT_PORT: Final = 9092
RETRY_TIMEOUT_S: Final = 30.0
RETRY_BACKOFF_S: Final = 0.05
RETRY_BACKOFF_S_MAX: Final = 1.0
FETCH_VERSION_MAX: Final = 12
"""The last version of Fetch that names topics by name."""
METADATA_VERSION_MAX: Final = 12
"""Topics are asked for by name; 13 adds nothing for that."""
AUTO_CREATION_VERSION: Final = 4
"""Before that a Metadata request could not forbid a broker to create what it asks for."""
SHARED: Final = "shared"
"""The lane of questions that are answered before the next one is asked."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATIONS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
"""Isolation levels by the names of Kafka's `isolation.level`."""

Result = TypeVar("Result")


class PartitionDescription(NamedTuple):
    """One partition as metadata has it; leader -1 when there is none now."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int


class TopicDescription(NamedTuple):
    """One topic as metadata has it; partitions in order."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class BrokerDescription(NamedTuple):
    """One broker of the cluster, and where it asks to be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def parse_bootstrap(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """host:port, host, [v6]:port, several with commas between; ValueError for anything else."""
    items = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for item in filter(None, (part.strip() for part in items)):
        host, separator, port = item.rpartition(":")
        if not separator or port.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = item, str(DEFAULT_PORT)
        if not port.isdigit() or not 0 < int(port) < 65536 or not host.strip("[]"):
            raise ValueError(f"{item!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no bootstrap server given; expected host:port")
    return found


class Cluster:
    """See the module. Nothing is connected until something is asked.

    1. Usable as a context manager; `close` drops the connections.
    2. KafkaError carries what a broker refused, ClientError what happened on the way.
    3. It belongs to the process that made it: in a forked child whatever needs a broker raises ForeignProcess, and
       closing it, or what was made from it, says nothing to a broker.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        *,
        client_id: str = "kafkalite",
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        retry_backoff_s: float = RETRY_BACKOFF_S,
        security: Security | None = None,
    ) -> None:
        """`security` says how connections are made secure; None: they are not (see kafkalite.client.security)."""
        self._security = security
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self.client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self.request_timeout_s = request_timeout_s
        self.retry_timeout_s = retry_timeout_s
        self.retry_backoff_s = retry_backoff_s
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._brokers: dict[int, BrokerDescription] = {}
        self._topics: dict[str, TopicDescription] = {}
        self._cluster_id: str | None = None
        self._controller_id = -1
        self._reached: set[tuple[str, int]] = set()
        """Where a broker was connected to."""
        self._interrupted = False
        self._origin = forks.Origin()

    @property
    def inherited(self) -> bool:
        """Whether another process made it, and this one is its forked child."""
        return not self._origin.is_here

    def twin(self) -> Self:
        """Another one of the same settings, with connections of its own: for another thread."""
        return type(self)(
            [f"[{host}]:{port}" for host, port in self._bootstrap],
            client_id=self.client_id,
            connect_timeout_s=self._connect_timeout_s,
            request_timeout_s=self.request_timeout_s,
            retry_timeout_s=self.retry_timeout_s,
            retry_backoff_s=self.retry_backoff_s,
            security=self._security,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops every connection. Idempotent; the next question connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def interrupt(self) -> None:
        """Ends what waits for a broker, now and from now on: BrokerUnreachable or ConnectionLost. Any thread; the
        client is good for `close` alone afterwards."""
        self._interrupted = True
        for connection in list(self._connections.values()):
            connection.interrupt()

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._interrupted

    # --- what the tools and the pipeline use --------------------------------------------------------------------------

    def brokers(self) -> list[BrokerDescription]:
        """The brokers of the cluster, by node id."""
        self.refresh([])
        return sorted(self._brokers.values())

    @property
    def cluster_id(self) -> str | None:
        """As of the last metadata; None before."""
        return self._cluster_id

    @property
    def controller_id(self) -> int:
        """As of the last metadata; -1 before."""
        return self._controller_id

    def topics(self) -> dict[str, TopicDescription]:
        """Every topic of the cluster, by name, in order."""
        self.refresh(None)
        return {name: self._topics[name] for name in sorted(self._topics)}

    def topic(self, name: str, *, create: bool = False) -> TopicDescription:
        """One topic, asked afresh; UnknownTopicOrPartition when there is none.

        `create` lets a broker with auto.create.topics.enable make it.
        """
        return self.with_retries(lambda: self._fresh_topic(name, create=create))

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, in order; remembered from the last look."""
        known = self._topics.get(topic) or self.topic(topic)
        return [partition.partition for partition in known.partitions]

    def described(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Those of these topics that there are, asked afresh, in one request."""
        wanted = dict.fromkeys(names)
        if not wanted:
            return {}

        def ask() -> dict[str, TopicDescription]:
            answer = self.refresh(wanted)
            return {row.name: self._topics[row.name] for row in answer.topics if not row.error_code}

        return self.with_retries(ask)

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        """How many partitions each of these topics has, asked afresh; one that does not exist is left out."""
        wanted = list(names)
        if not wanted:
            return {}
        answer = self.refresh(wanted)
        return {row.name: len(row.partitions) for row in answer.topics if not row.error_code}

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the first record not older than a time in ms, or one of model.OFFSET_*.

        An offset of -1: no record is so young. Times are -1 where the question was for the start or the end.
        """
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        def ask() -> None:
            missing = {key: stamp for key, stamp in timestamps.items() if key not in found}
            for connection, keys in self.by_leader(missing):
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=isolation,
                    topics=[
                        ListOffsetsTopic(
                            name=topic,
                            partitions=[
                                ListOffsetsPartition(
                                    partition_index=partition, timestamp=timestamps[TopicPartition(topic, partition)]
                                )
                                for partition in partitions
                            ],
                        )
                        for topic, partitions in by_topic(keys)
                    ],
                    timeout_ms=int(self.request_timeout_s * 1000),
                )
                answer = connection.request(LIST_OFFSETS, request)
                for topic in answer.topics:
                    for row in topic.partitions:
                        key = TopicPartition(topic.name, row.partition_index)
                        raise_from_leader(row.error_code, key)
                        found[key] = OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)

        self.with_retries(ask)
        require_answers("ListOffsets", timestamps, found)
        return found

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """For each partition the newest leader epoch that is not after this one, and the offset where it ends in the
        leader's log (KIP-320); (-1, -1): the log knows no epoch so old."""
        found: dict[TopicPartition, tuple[int, int]] = {}

        def ask() -> None:
            missing = {key for key in epochs if key not in found}
            for connection, keys in self.by_leader(missing):
                request = OffsetForLeaderEpochRequest(
                    replica_id=-1,
                    topics=[
                        OffsetForLeaderTopic(
                            topic=topic,
                            partitions=[
                                OffsetForLeaderPartition(
                                    partition=partition, leader_epoch=epochs[TopicPartition(topic, partition)]
                                )
                                for partition in partitions
                            ],
                        )
                        for topic, partitions in by_topic(keys)
                    ],
                )
                answer = connection.request(OFFSET_FOR_LEADER_EPOCH, request)
                for topic in answer.topics:
                    for row in topic.partitions:
                        key = TopicPartition(topic.topic, row.partition)
                        raise_from_leader(row.error_code, key)
                        found[key] = row.leader_epoch, row.end_offset

        self.with_retries(ask)
        require_answers("OffsetForLeaderEpoch", epochs, found)
        return found

    def start_offset(self, topic: str, partition: int) -> int:
        """The first offset that is still there."""
        key = TopicPartition(topic, partition)
        return self.list_offsets({key: OFFSET_EARLIEST})[key].offset

    def end_offset(self, topic: str, partition: int, *, isolation: int = READ_UNCOMMITTED) -> int:
        """The offset that the next record will have (read committed: the last stable offset)."""
        key = TopicPartition(topic, partition)
        return self.list_offsets({key: OFFSET_LATEST}, isolation=isolation)[key].offset

    # --- the way to a broker ------------------------------------------------------------------------------------------

    def with_retries(self, attempt: Callable[[], Result]) -> Result:
        """Repeats an attempt that changes nothing until it works, cannot work, or retry_timeout_s is over."""
        deadline = time.monotonic() + self.retry_timeout_s
        backoff = self.retry_backoff_s
        while True:
            try:
                return attempt()
            except (KafkaError, *UNREACHED) as error:
                if not self.is_passing(error) or time.monotonic() + backoff > deadline:
                    raise
            self._topics.clear()
            time.sleep(backoff)
            backoff = min(2 * backoff, RETRY_BACKOFF_S_MAX)

    def of_controller(self, attempt: Callable[[], Result]) -> Result:
        """What the controllers answer, asked again while they say that it cannot be done yet, or that another one of
        them leads (NOT_CONTROLLER); where no answer comes the outcome is the caller's to look into."""
        deadline = time.monotonic() + self.retry_timeout_s
        backoff = self.retry_backoff_s
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not self.is_passing(error) or time.monotonic() + backoff > deadline:
                    raise
            self.refresh([])
            time.sleep(backoff)
            backoff = min(2 * backoff, RETRY_BACKOFF_S_MAX)

    def is_passing(self, error: Exception) -> bool:
        """Whether asking again may help. A cluster never reached will not be there a moment later either."""
        if isinstance(error, KafkaError):
            passing = error.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return passing and not self._interrupted
        return bool(self._reached) and not self._interrupted

    def refresh(self, names: Iterable[str] | None, *, create: bool = False, tells_operations: bool = False) -> Any:
        """Asks any broker about brokers and topics (None: all of them); returns its answer."""
        connection = self.any_connection()
        version = connection.version_for(METADATA, METADATA_VERSION_MAX)
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create or version < AUTO_CREATION_VERSION,
            include_topic_authorized_operations=tells_operations,
        )
        answer = connection.request(METADATA, request, version_max=version)
        if answer.brokers:
            self._brokers = {
                row.node_id: BrokerDescription(row.node_id, row.host, row.port, row.rack) for row in answer.brokers
            }
        self._cluster_id = answer.cluster_id
        self._controller_id = answer.controller_id
        if names is None:
            self._topics.clear()
        for row in answer.topics:
            if not row.error_code and row.name is not None:
                self._topics[row.name] = describe(row)
        return answer

    def _fresh_topic(self, name: str, *, create: bool) -> TopicDescription:
        answer = self.refresh([name], create=create)
        for row in answer.topics:
            if row.name == name:
                raise_for(row.error_code, f"topic {name}")
        if name not in self._topics:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return self._topics[name]

    def leader(self, key: TopicPartition, lane: str = SHARED) -> Connection:
        """A connection to the leader of a partition. Raises what with_retries understands.

        Each lane has connections of its own, so that pipelined requests of one never stand before those of another.
        """
        topic = self._topics.get(key.topic) or self._fresh_topic(key.topic, create=False)
        for partition in topic.partitions:
            if partition.partition == key.partition:
                if partition.leader not in self._brokers:
                    raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{key} has no leader")
                return self.connection_to(partition.leader, lane)
        count = len(topic.partitions)
        raise error_for(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {key.topic} has no partition {key.partition} (partition count: {count})",
        )

    def by_leader(
        self, keys: Iterable[TopicPartition], lane: str = SHARED
    ) -> list[tuple[Connection, list[TopicPartition]]]:
        """The partitions, grouped by the connection that leads to their leader."""
        groups: dict[int, tuple[Connection, list[TopicPartition]]] = {}
        for key in keys:
            connection = self.leader(key, lane)
            groups.setdefault(id(connection), (connection, []))[1].append(key)
        return list(groups.values())

    def forget(self, topic: str) -> None:
        """The next look-up of this topic asks a broker."""
        self._topics.pop(topic, None)

    def controller(self) -> Connection:
        """A connection to the controller; where none is known, to any broker."""
        if self._controller_id not in self._brokers:
            self.refresh([])
        return (
            self.connection_to(self._controller_id) if self._controller_id in self._brokers else self.any_connection()
        )

    def connection_to(self, node_id: int, lane: str = SHARED) -> Connection:
        """A connection to one broker, made when there is none."""
        broker = self._brokers[node_id]
        return self._connection(broker.host, broker.port, lane)

    def connection_at(self, host: str, port: int, lane: str = SHARED) -> Connection:
        """A connection to an address that a broker named, made when there is none."""
        return self._connection(host, port, lane)

    def any_connection(self) -> Connection:
        """A connection to any broker that can be reached: open ones, then known brokers, then the bootstrap list."""
        self._check_own()
        for (_, _, lane), connection in self._connections.items():
            if lane == SHARED and not connection.stale:
                return connection
        addresses = [(broker.host, broker.port) for broker in self._brokers.values()]
        failures = []
        for host, port in dict.fromkeys([*addresses, *self._bootstrap]):
            try:
                return self._connection(host, port, SHARED)
            except BrokerUnreachable as error:
                failures.append(str(error))
        kind = BrokerGone if self._reached else BrokerUnreachable
        raise kind("; ".join(dict.fromkeys(failures)))

    def _check_own(self) -> None:
        if self.inherited:
            raise ForeignProcess(self._origin.refusal("client"))

    def close_lane(self, lane: str) -> None:
        """Drops the connections of one Reader or Producer."""
        for key in [key for key in self._connections if key[2] == lane]:
            self._connections.pop(key).close()

    def _connection(self, host: str, port: int, lane: str) -> Connection:
        self._check_own()
        connection = self._connections.get((host, port, lane))
        if connection is not None and connection.stale:
            connection.close()
            connection = None
        if connection is None and self._interrupted:
            raise BrokerUnreachable(f"not connected to {host}:{port}: the client was interrupted")
        if connection is None:
            try:
                connection = Connection.connect(
                    host,
                    port,
                    client_id=self.client_id,
                    connect_timeout_s=self._connect_timeout_s,
                    request_timeout_s=self.request_timeout_s,
                    security=self._security,
                )
            except BrokerUnreachable as error:
                if (host, port) in self._reached:
                    raise BrokerGone(str(error)) from error
                raise
            self._connections[host, port, lane] = connection
            self._reached.add((host, port))
            if self._interrupted:  # meanwhile
                connection.interrupt()
        return connection


def describe(row: Any) -> TopicDescription:
    """A topic out of a Metadata answer."""
    partitions = (
        PartitionDescription(
            part.partition_index,
            part.leader_id,
            part.leader_epoch,
            tuple(part.replica_nodes),
            tuple(part.isr_nodes),
            part.error_code,
        )
        for part in row.partitions
    )
    return TopicDescription(row.name, row.topic_id, row.is_internal, tuple(sorted(partitions)))


def by_topic(keys: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partition numbers grouped by topic, as most requests want them."""
    groups: dict[str, list[int]] = {}
    for key in keys:
        groups.setdefault(key.topic, []).append(key.partition)
    return list(groups.items())


def require_answers(name: str, asked: Iterable[TopicPartition], found: Mapping[TopicPartition, object]) -> None:
    """ProtocolError when a broker left out a partition that it was asked about."""
    missing = [str(key) for key in asked if key not in found]
    if missing:
        raise ProtocolError(f"the broker's {name} response lacks {', '.join(missing)}")


def raise_from_leader(code: int, key: TopicPartition) -> None:
    """As raise_for. A leader that does not know a partition which metadata shows is no leader of it (any more)."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise error_for(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{key}: the broker that metadata names as leader does not host it"
        )
    raise_for(code, str(key))


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """The error of a code, with what it is about; nothing for 0."""
    if code:
        raise error_for(code, f"{what}: {error_for(code, message).message}")
