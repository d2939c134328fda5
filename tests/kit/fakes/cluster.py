"""A Kafka cluster of a few lines, in memory, that fails on request: for tests of the client.

Nodes are listening sockets of 127.0.0.1 with a thread a connection; all share one state under one lock. It serves
ApiVersions, Metadata, Produce (with the idempotence rules), Fetch, ListOffsets, InitProducerId, CreateTopics, and a
group of one member at a time (`fake_group`), decoding with kafkalite's own codec, which has oracles elsewhere. A Fault
is used up by the first request it fits.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from kafkalite._native.wire import batch as native
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol.header import decode_request_header
from kafkalite.wire.protocol.messages import (
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from tests.kit.fakes.one_id_transactions import FakeTransactions
from tests.kit.fakes.one_member_group import FakeGroup

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = range(8, 15)
VERSIONS = {
    PRODUCE: (3, 11),
    FETCH: (4, 16),
    LIST_OFFSETS: (1, 9),
    METADATA: (0, 12),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (2, 7),
    INIT_PRODUCER_ID: (0, 5),
    OFFSET_COMMIT: (2, 9),
    OFFSET_FETCH: (1, 9),
    FIND_COORDINATOR: (0, 6),
    JOIN_GROUP: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE_GROUP: (0, 5),
    SYNC_GROUP: (0, 5),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    ADD_OFFSETS_TO_TXN: (0, 4),
    END_TXN: (0, 4),
    TXN_OFFSET_COMMIT: (0, 4),
}
SECOND_PROTOCOL = {**VERSIONS, PRODUCE: (3, 12), END_TXN: (0, 5), TXN_OFFSET_COMMIT: (0, 5)}
"""With transactions by KIP-890."""

CLOSE = "close the connection unserved"
CLOSE_AFTER = "serve, then close the connection without an answer"
SILENCE = "neither serve nor answer"
GARBAGE = "answer with bytes that are none"


@dataclass
class Fault:
    """What happens to the next request of `api_key`: one of the words above, or an error code for every partition."""

    api_key: int
    action: str | int
    times: int = 1
    skip: int = 0
    """The number of requests of the kind that are served first."""


@dataclass
class FakePartition:
    leader: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    start: int = 0
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """Producer id and epoch → the sequence that comes next."""
    offsets: dict[tuple[tuple[int, int], int], int] = field(default_factory=dict)
    """(producer id and epoch, sequence) → base offset, to answer duplicates."""

    def append(self, raw: bytes, size_max: int) -> tuple[int, int]:
        """(error code, base offset)."""
        info = native.check(raw)
        if info.size > size_max:
            return 10, -1
        if info.producer_id >= 0:
            who = (info.producer_id, info.producer_epoch)
            expected = self.sequences.get(who, 0)
            if info.base_sequence < expected:
                known = self.offsets.get((who, info.base_sequence))
                return (0, known) if known is not None else (45, -1)
            if info.base_sequence > expected:
                return 45, -1
            self.sequences[who] = expected + info.record_count
            self.offsets[who, info.base_sequence] = self.end
        stamped = bytearray(raw)
        native.stamp(stamped, self.end, 0)
        self.batches.append((self.end, bytes(stamped)))
        self.end += info.record_count
        return 0, self.end - info.record_count

    def read(self, offset: int, size_max: int) -> bytes:
        found = b""
        for base, raw in self.batches:
            if base + native.read_info(raw).record_count <= offset:
                continue
            if found and len(found) + len(raw) > size_max:
                break
            found += raw
        return found


class FakeCluster:
    """`FakeCluster(nodes=2)`, then `create`; usable as a context manager. `bootstrap` is the first node's address."""

    def __init__(self, nodes: int = 1, *, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self.followers_in_sync: tuple[int, ...] = ()
        """Brokers that metadata names as in sync beside each leader."""
        self.versions = VERSIONS if versions is None else versions
        self.lock = threading.RLock()
        self.topics: dict[str, list[FakePartition]] = {}
        self.faults: deque[Fault] = deque()
        self.requests: list[tuple[int, int]] = []
        """(API key, version) of every request, in order."""
        self.fetch_waits_ms: list[int] = []
        """For how long each Fetch would have waited for its first byte; here none waits."""
        self.batch_size_max = 1_048_588
        self.auto_create = False
        self.next_producer_id = 100
        self.mutate: Callable[[bytes], bytes] | None = None
        """Applied to every answer frame on its way out."""
        self.group = FakeGroup()
        self.transactions = FakeTransactions(second=self.versions[END_TXN][1] >= 5)
        self.metadata_lags = 0
        """The number of Metadata responses that show a topic without a leader."""
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        self._connections: list[socket.socket] = []
        self._closed = False
        for node, listener in enumerate(self._listeners):
            threading.Thread(target=self._accept, args=(node, listener), daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closed = True
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.drop_connections()

    def create(self, name: str, partitions: int = 1) -> None:
        with self.lock:
            self.topics[name] = [FakePartition(leader=i % len(self.ports)) for i in range(partitions)]

    def fail(self, api_key: int, action: str | int, times: int = 1, skip: int = 0) -> None:
        self.faults.append(Fault(api_key, action, times, skip))

    def drop_connections(self) -> None:
        with self.lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._connections.clear()

    def count(self, api_key: int) -> int:
        return sum(key == api_key for key, _ in self.requests)

    # --- threads -----------------------------------------------------------------------------------------------------

    def _accept(self, node: int, listener: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self._connections.append(connection)
            threading.Thread(target=self._serve, args=(node, connection), daemon=True).start()

    def _serve(self, node: int, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            while True:
                (size,) = struct.unpack(">i", receive_exactly(connection, 4))
                answer = self._answer(node, receive_exactly(connection, size))
                if answer is None:
                    return
                connection.sendall(self.mutate(answer) if self.mutate is not None else answer)

    def _answer(self, node: int, frame: bytes) -> bytes | None:
        """The whole answer frame; empty for silence, None to close."""
        head = decode_request_header(frame)
        with self.lock:
            self.requests.append((head.api_key, head.api_version))
            action = self._fault(head.api_key)
            if action == CLOSE:
                return None
            if action == SILENCE:
                return b""
            if action == GARBAGE:
                return struct.pack(">ii", 9, head.correlation_id) + b"\xff" * 5
            oldest, newest = self.versions[head.api_key]
            if head.api_key == API_VERSIONS and head.api_version > newest:
                refusal = api_versions.ApiVersionsResponse(
                    error_code=ErrorCode.UNSUPPORTED_VERSION,
                    api_keys=[api_versions.ApiVersion(api_key=18, min_version=oldest, max_version=newest)],
                )
                return protocol.encode_response_frame(API_VERSIONS, 0, head.correlation_id, refusal)
            if self.mutate is not None and not oldest <= head.api_version <= newest:
                return None  # the client may have got false version ranges
            assert oldest <= head.api_version <= newest, f"API {head.api_key} v{head.api_version} was not offered"
            request = protocol.decode_request(head.api_key, head.api_version, frame[head.body_position :])
            code = action if isinstance(action, int) else 0
            message = HANDLERS[head.api_key](self, node, request, code)
            if action == CLOSE_AFTER:
                return None
            if head.api_key == PRODUCE and request.acks == 0:
                return b""
            return protocol.encode_response_frame(head.api_key, head.api_version, head.correlation_id, message)

    def _fault(self, api_key: int) -> str | int | None:
        for fault in self.faults:
            if fault.api_key == api_key:
                if fault.skip:
                    fault.skip -= 1
                    return None
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                return fault.action
        return None

    # --- the APIs ----------------------------------------------------------------------------------------------------

    def api_versions(self, node: int, request: Any, code: int) -> Any:
        rows = [
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        features = []
        if self.transactions.second:
            features.append(
                api_versions.FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
            )
        return api_versions.ApiVersionsResponse(
            error_code=code, api_keys=rows, finalized_features=features, finalized_features_epoch=len(features) - 1
        )

    def metadata(self, node: int, request: Any, code: int) -> Any:
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        leaderless = self.metadata_lags > 0
        self.metadata_lags -= leaderless
        rows = []
        for name in names:
            if name not in self.topics and self.auto_create and request.allow_auto_topic_creation:
                self.create(name)
            known = name in self.topics
            rows.append(
                metadata.MetadataResponseTopic(
                    error_code=code or (0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    name=name,
                    partitions=[
                        metadata.MetadataResponsePartition(
                            partition_index=index,
                            leader_id=-1 if leaderless else partition.leader,
                            replica_nodes=[partition.leader],
                            isr_nodes=[partition.leader, *self.followers_in_sync],
                        )
                        for index, partition in enumerate(self.topics.get(name, ()))
                    ],
                )
            )
        brokers = [
            metadata.MetadataResponseBroker(node_id=index, host="127.0.0.1", port=port)
            for index, port in enumerate(self.ports)
        ]
        return metadata.MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=0, topics=rows)

    def partition(self, node: int, topic: str, index: int, code: int) -> tuple[int, FakePartition | None]:
        """(error code, partition)."""
        partitions = self.topics.get(topic, [])
        if index >= len(partitions):
            return 3, None
        found = partitions[index]
        return code or (0 if found.leader == node else 6), found

    def produce(self, node: int, request: Any, code: int) -> Any:
        topics = []
        for topic in request.topic_data:
            rows = []
            for part in topic.partition_data:
                error, partition = self.partition(node, topic.name, part.index, code)
                base = -1
                key = (topic.name, part.index)
                error = error or self.transactions.admit(key, part.records)
                if not error and partition is not None:
                    end = partition.end
                    error, base = partition.append(part.records, self.batch_size_max)
                    if partition.end > end:
                        self.transactions.wrote(key, part.records)
                rows.append(produce.PartitionProduceResponse(index=part.index, error_code=error, base_offset=base))
            topics.append(produce.TopicProduceResponse(name=topic.name, partition_responses=rows))
        return produce.ProduceResponse(responses=topics)

    def fetch(self, node: int, request: Any, code: int) -> Any:
        self.fetch_waits_ms.append(request.max_wait_ms)
        topics = []
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                error, partition = self.partition(node, topic.topic, part.partition, code)
                if not error and partition and not partition.start <= part.fetch_offset <= partition.end:
                    error = ErrorCode.OFFSET_OUT_OF_RANGE
                good = partition is not None and not error
                rows.append(
                    fetch.PartitionData(
                        partition_index=part.partition,
                        error_code=error,
                        high_watermark=partition.end if good else -1,
                        log_start_offset=partition.start if good else -1,
                        records=partition.read(part.fetch_offset, part.partition_max_bytes) if good else b"",
                    )
                )
            topics.append(fetch.FetchableTopicResponse(topic=topic.topic, partitions=rows))
        return fetch.FetchResponse(responses=topics)

    def list_offsets(self, node: int, request: Any, code: int) -> Any:
        topics = []
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                error, partition = self.partition(node, topic.name, part.partition_index, code)
                known = {-1: partition.end, -2: partition.start} if partition and not error else {}
                rows.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        error_code=error,
                        offset=known.get(part.timestamp, -1),
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def init_producer_id(self, node: int, request: Any, code: int) -> Any:
        if request.transactional_id is not None:
            return self.transactions.initialise(node, request, code)
        self.next_producer_id += 1
        return init_producer_id.InitProducerIdResponse(
            error_code=code, producer_id=-1 if code else self.next_producer_id, producer_epoch=0
        )

    def find_coordinator(self, node: int, request: Any, code: int) -> Any:
        home = 0 if code else self.group.node
        return find_coordinator.FindCoordinatorResponse(
            error_code=code, node_id=home, host="127.0.0.1", port=self.ports[home], error_message=None
        )

    def create_topics(self, node: int, request: Any, code: int) -> Any:
        rows = []
        for topic in request.topics:
            error = code or (ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else 0)
            if not error:
                self.create(topic.name, max(topic.num_partitions, 1))
            rows.append(create_topics.CreatableTopicResult(name=topic.name, error_code=error, error_message=None))
        return create_topics.CreateTopicsResponse(topics=rows)


HANDLERS = {
    PRODUCE: FakeCluster.produce,
    FETCH: FakeCluster.fetch,
    LIST_OFFSETS: FakeCluster.list_offsets,
    METADATA: FakeCluster.metadata,
    API_VERSIONS: FakeCluster.api_versions,
    CREATE_TOPICS: FakeCluster.create_topics,
    INIT_PRODUCER_ID: FakeCluster.init_producer_id,
    FIND_COORDINATOR: FakeCluster.find_coordinator,
    JOIN_GROUP: lambda cluster, *arguments: cluster.group.join(*arguments),
    SYNC_GROUP: lambda cluster, *arguments: cluster.group.sync(*arguments),
    HEARTBEAT: lambda cluster, *arguments: cluster.group.heartbeat(*arguments),
    LEAVE_GROUP: lambda cluster, *arguments: cluster.group.leave(*arguments),
    OFFSET_COMMIT: lambda cluster, *arguments: cluster.group.commit(*arguments),
    OFFSET_FETCH: lambda cluster, *arguments: cluster.group.fetch(*arguments),
    ADD_PARTITIONS_TO_TXN: lambda cluster, *arguments: cluster.transactions.add_partitions(*arguments),
    ADD_OFFSETS_TO_TXN: lambda cluster, *arguments: cluster.transactions.add_offsets(*arguments),
    END_TXN: lambda cluster, *arguments: cluster.transactions.end(*arguments),
    TXN_OFFSET_COMMIT: lambda cluster, *arguments: cluster.transactions.commit_offsets(*arguments),
}


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """EOFError when the peer closes first."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
