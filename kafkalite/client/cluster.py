"""Find brokers and partition leaders, keep connections to them, and retry requests after leader changes.

    first request       connects to a bootstrap server
    metadata            any broker lists the brokers and the leader of each partition
    request             goes to the leader; a Reader or Producer has separate connections
    leader has moved    metadata is fetched again, and the request is retried
    connection lost     the same, if a retry is safe

`with_retries` also repeats a request after a lost connection. `of_controller`, for requests that change something,
repeats only after a retriable error code.

Thread rule: a Cluster, and everything created from it, belongs to one thread at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from kafkalite.base import forks
from kafkalite.base.numbers import whole_number
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
PORT_MAX: Final = 65_535
RETRY_TIMEOUT_S: Final = 30.0
RETRY_BACKOFF_S: Final = 0.05
RETRY_BACKOFF_S_MAX: Final = 1.0
FETCH_VERSION_MAX: Final = 12
"""The last Fetch version that identifies topics by name."""
METADATA_VERSION_MAX: Final = 12
"""The last Metadata version used: topics are looked up by name, and 13 adds nothing for that."""
AUTO_CREATION_VERSION: Final = 4
"""The first Metadata version in which a request can forbid the broker to create topics."""
SHARED: Final = "shared"
"""The lane of requests whose response is read before the next request is sent."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATIONS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
"""Isolation levels by the names of Kafka's `isolation.level`."""

Result = TypeVar("Result")


class PartitionDescription(NamedTuple):
    """One partition in the metadata. `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int


class TopicDescription(NamedTuple):
    """One topic in the metadata, with its partitions in order."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class BrokerDescription(NamedTuple):
    """One broker of the cluster and its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None


def parse_bootstrap(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """Parse bootstrap servers: host, host:port or [v6]:port, in a list or separated by commas. Raises ValueError."""
    items = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for item in filter(None, (part.strip() for part in items)):
        host, separator, port = item.rpartition(":")
        if not separator or port.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = item, str(DEFAULT_PORT)
        number = whole_number(port, 1, PORT_MAX)
        if number is None or not host.strip("[]"):
            raise ValueError(f"{item!r} is not host:port")
        found.append((host.strip("[]"), number))
    if not found:
        raise ValueError("no bootstrap server given; expected host:port")
    return found


class Cluster:
    """Metadata, offsets and connections of one cluster. The first request opens the first connection.

    1. A Cluster is a context manager; `close` drops the connections.
    2. KafkaError carries an error code from a broker. ClientError is a failure between client and broker.
    3. A Cluster belongs to the process that created it. In a forked child, every request raises ForeignProcess. There,
       closing the Cluster, or anything created from it, sends nothing to a broker.
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
        retry_first_timeout: bool = False,
        security: Security | None = None,
    ) -> None:
        """Connections are opened when a request needs them.

        `retry_first_timeout`   whether a first connection that times out is retried for `retry_timeout_s`, as later
                                connections are
        `security`              TLS and SASL (see kafkalite.client.security); None means plaintext
        """
        self._security = security
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self.client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self.request_timeout_s = request_timeout_s
        self.retry_timeout_s = retry_timeout_s
        self.retry_backoff_s = retry_backoff_s
        self._retry_first_timeout = retry_first_timeout
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._brokers: dict[int, BrokerDescription] = {}
        self._topics: dict[str, TopicDescription] = {}
        self._cluster_id: str | None = None
        self._controller_id = -1
        self._reached: set[tuple[str, int]] = set()
        """Addresses to which a connection has succeeded."""
        self._interrupted = False
        self._origin = forks.Origin()

    @property
    def inherited(self) -> bool:
        """Whether another process made this client and this process is its forked child."""
        return not self._origin.is_here

    def twin(self) -> Self:
        """Return a Cluster with the same settings and separate connections, for use in another thread."""
        return type(self)(
            [f"[{host}]:{port}" for host, port in self._bootstrap],
            client_id=self.client_id,
            connect_timeout_s=self._connect_timeout_s,
            request_timeout_s=self.request_timeout_s,
            retry_timeout_s=self.retry_timeout_s,
            retry_backoff_s=self.retry_backoff_s,
            retry_first_timeout=self._retry_first_timeout,
            security=self._security,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop every connection. Idempotent; the next request connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def interrupt(self) -> None:
        """Make current and future waits for a broker fail with BrokerUnreachable or ConnectionLost.

        Any thread may call this method. Afterwards the Cluster can only be closed.
        """
        self._interrupted = True
        for connection in list(self._connections.values()):
            connection.interrupt()

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._interrupted

    # --- metadata and offsets -----------------------------------------------------------------------------------------

    def brokers(self) -> list[BrokerDescription]:
        """List the brokers of the cluster by node id."""
        self.refresh([])
        return sorted(self._brokers.values())

    @property
    def cluster_id(self) -> str | None:
        """The cluster id in the last metadata response; None before the first response."""
        return self._cluster_id

    @property
    def controller_id(self) -> int:
        """The controller's node id in the last metadata response; -1 before the first response."""
        return self._controller_id

    def topics(self) -> dict[str, TopicDescription]:
        """Fetch and return every topic of the cluster, by name, in order."""
        self.refresh(None)
        return {name: self._topics[name] for name in sorted(self._topics)}

    def topic(self, name: str, *, create: bool = False) -> TopicDescription:
        """Fetch and return one topic. Raises UnknownTopicOrPartition.

        With `create`, a broker with auto.create.topics.enable may create it.
        """
        return self.with_retries(lambda: self._fresh_topic(name, create=create))

    def partitions(self, topic: str) -> list[int]:
        """List the partition numbers of a topic in order, from cached metadata if it has the topic."""
        known = self._topics.get(topic) or self.topic(topic)
        return [partition.partition for partition in known.partitions]

    def described(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Fetch the topics among `names` that exist, in one request."""
        wanted = dict.fromkeys(names)
        if not wanted:
            return {}

        def ask() -> dict[str, TopicDescription]:
            answer = self.refresh(wanted)
            return {row.name: self._topics[row.name] for row in answer.topics if not row.error_code}

        return self.with_retries(ask)

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        """Fetch the partition count of each of these topics. Topics that do not exist are left out."""
        wanted = list(names)
        if not wanted:
            return {}
        answer = self.refresh(wanted)
        return {row.name: len(row.partitions) for row in answer.topics if not row.error_code}

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return each partition's first offset at or after its timestamp in ms.

        The timestamp can also be OFFSET_EARLIEST, for the start of the log, or OFFSET_LATEST, for its end. The returned
        timestamp is then -1. The returned offset is -1 if there is no such record.
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
        """Return (epoch, end offset) for each partition, given a leader epoch (OffsetForLeaderEpoch, KIP-320).

        The returned epoch is the log's newest epoch that is not newer than the given one. Both values are -1 if the
        broker knows no such epoch.
        """
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
        """Return the log start offset."""
        key = TopicPartition(topic, partition)
        return self.list_offsets({key: OFFSET_EARLIEST})[key].offset

    def end_offset(self, topic: str, partition: int, *, isolation: int = READ_UNCOMMITTED) -> int:
        """Return the high watermark, or the last stable offset for READ_COMMITTED."""
        key = TopicPartition(topic, partition)
        return self.list_offsets({key: OFFSET_LATEST}, isolation=isolation)[key].offset

    # --- connections and retries --------------------------------------------------------------------------------------

    def with_retries(self, attempt: Callable[[], Result]) -> Result:
        """Repeat a read-only request until it succeeds, a retry cannot help, or `retry_timeout_s` has passed."""
        return self._repeated(attempt, (KafkaError, *UNREACHED), self.is_passing, self._topics.clear)

    def of_controller(self, attempt: Callable[[], Result]) -> Result:
        """Send a request to the controller. Repeat it after a retriable error code, such as NOT_CONTROLLER.

        If no response arrives, the request is not repeated, because it may have taken effect.
        """
        return self._repeated(attempt, (KafkaError,), self.is_passing, lambda: self.refresh([]))

    def _repeated(
        self,
        attempt: Callable[[], Result],
        errors: tuple[type[Exception], ...],
        is_passing: Callable[[Any], bool],
        prepare: Callable[[], object],
    ) -> Result:
        """Call `attempt` until it succeeds or raises an error after which a retry cannot help.

        A retry may help after an exception in `errors` for which `is_passing` is true. `prepare` is called before each
        pause. The pauses start at `retry_backoff_s` and double, up to RETRY_BACKOFF_S_MAX. After `retry_timeout_s`, the
        last error is raised.
        """
        deadline = time.monotonic() + self.retry_timeout_s
        backoff = self.retry_backoff_s
        while True:
            try:
                return attempt()
            except errors as error:
                if not is_passing(error) or time.monotonic() + backoff > deadline:
                    raise
            prepare()
            time.sleep(backoff)
            backoff = min(2 * backoff, RETRY_BACKOFF_S_MAX)

    def is_passing(self, error: Exception) -> bool:
        """Return whether a retry may help after this error.

        It cannot help after `interrupt`, or if no broker of the cluster was ever reached.
        """
        if isinstance(error, KafkaError):
            passing = error.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return passing and not self._interrupted
        return bool(self._reached) and not self._interrupted

    def refresh(self, names: Iterable[str] | None, *, create: bool = False, tells_operations: bool = False) -> Any:
        """Fetch metadata of the brokers and of these topics (None: all topics) from any broker; return the response."""
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
        """Return a connection to the leader of a partition. `with_retries` handles the errors that this method raises.

        `lane` names a separate set of connections, so that pipelined requests of one Reader or Producer never delay
        other requests.
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
        """Group the partitions by the connection to their leader."""
        groups: dict[int, tuple[Connection, list[TopicPartition]]] = {}
        for key in keys:
            connection = self.leader(key, lane)
            groups.setdefault(id(connection), (connection, []))[1].append(key)
        return list(groups.values())

    def forget(self, topic: str) -> None:
        """Drop a topic from the metadata cache."""
        self._topics.pop(topic, None)

    def controller(self) -> Connection:
        """Return a connection to the controller, or to any broker if the controller is unknown."""
        if self._controller_id not in self._brokers:
            self.refresh([])
        return (
            self.connection_to(self._controller_id) if self._controller_id in self._brokers else self.any_connection()
        )

    def connection_to(self, node_id: int, lane: str = SHARED) -> Connection:
        """Return a connection to one broker, opened if needed. `lane` as in `leader`."""
        broker = self._brokers[node_id]
        return self._connection(broker.host, broker.port, lane)

    def connection_at(self, host: str, port: int, lane: str = SHARED) -> Connection:
        """Return a connection to an advertised address, opened if needed. `lane` as in `leader`."""
        return self._connection(host, port, lane)

    def any_connection(self) -> Connection:
        """Return a connection to any broker. Try open connections first, then known brokers, then bootstrap servers."""
        if self._reached or not self._retry_first_timeout:
            return self._any_connection()
        return self._repeated(self._any_connection, (BrokerUnreachable,), self._is_first_timeout, lambda: None)

    def _is_first_timeout(self, error: BrokerUnreachable) -> bool:
        return error.timed_out and not self._reached and not self._interrupted

    def _any_connection(self) -> Connection:
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
                failures.append(error)
        kind = BrokerGone if self._reached else BrokerUnreachable
        unreachable = kind("; ".join(dict.fromkeys(map(str, failures))))
        unreachable.timed_out = any(failure.timed_out for failure in failures)
        raise unreachable

    def _check_own(self) -> None:
        if self.inherited:
            raise ForeignProcess(self._origin.refusal("client"))

    def close_lane(self, lane: str) -> None:
        """Close the connections of one lane (of one Reader or Producer)."""
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
    """Convert a topic of a Metadata response."""
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
    """Group partition numbers by topic, the shape of most requests."""
    groups: dict[str, list[int]] = {}
    for key in keys:
        groups.setdefault(key.topic, []).append(key.partition)
    return list(groups.items())


def require_answers(name: str, asked: Iterable[TopicPartition], found: Mapping[TopicPartition, object]) -> None:
    """Raise ProtocolError if the response `found` leaves out a partition of the request `asked`."""
    missing = [str(key) for key in asked if key not in found]
    if missing:
        raise ProtocolError(f"the broker's {name} response lacks {', '.join(missing)}")


def raise_from_leader(code: int, key: TopicPartition) -> None:
    """Raise the KafkaError of an error code, but replace UNKNOWN_TOPIC_OR_PARTITION by NOT_LEADER_OR_FOLLOWER.

    The metadata lists the partition. So a broker that does not know the partition is not its leader.
    """
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise error_for(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{key}: the broker that metadata names as leader does not host it"
        )
    raise_for(code, str(key))


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raise the KafkaError of an error code, with the request in its message; do nothing for 0."""
    if code:
        raise error_for(code, f"{what}: {error_for(code, message).message}")
