"""A controller of a cluster, scripted: answers as Apache Kafka's do in the good case, and as a test says in others.

For faults that a real one shows at no wish (a log that is not committed, or diverges; a leader that leaves at this very
request). Tests of what Kafka's own controllers do run those.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kafkalite._native.wire.batch import CONTROL
from kafkalite._native.wire.codec import Program
from kafkalite._native.wire.columns import encode_records, seal
from kafkalite.broker.cluster import control_types, metadata_types
from kafkalite.broker.cluster.records import RECORD_TYPES, encode_value
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages import alter_configs, incremental_alter_configs
from kafkalite.wire.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalite.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from kafkalite.wire.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkalite.wire.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from kafkalite.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkalite.wire.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kafkalite.wire.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kafkalite.wire.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterResponse
from kafkalite.wire.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kafkalite.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kafkalite.wire.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseSnapshotId,
    FetchSnapshotResponseTopicSnapshot,
)
from kafkalite.wire.record.columns import Record, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC_ID = bytes(15) + b"\x01"
RECEIVE_S = 30
BLOCK_SIZE = 20
"""Producer ids that a broker is given at a time."""
SERVED = {
    api.FETCH: (4, 18),
    api.API_VERSIONS: (0, 4),
    api.CREATE_TOPICS: (3, 6),
    api.DELETE_TOPICS: (1, 6),
    api.ENVELOPE: (0, 0),
    api.FETCH_SNAPSHOT: (0, 1),
    api.DESCRIBE_CLUSTER: (0, 1),
    api.BROKER_REGISTRATION: (0, 4),
    api.BROKER_HEARTBEAT: (0, 1),
    api.ALTER_CONFIGS: (0, 2),
    api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    api.ALLOCATE_PRODUCER_IDS: (0, 0),
    api.ALTER_PARTITION: (2, 3),
    api.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    api.CREATE_DELEGATION_TOKEN: (1, 3),
    api.RENEW_DELEGATION_TOKEN: (1, 2),
    api.EXPIRE_DELEGATION_TOKEN: (1, 2),
}
ALTERED = {
    api.ALTER_CONFIGS: (alter_configs.AlterConfigsResponse, alter_configs.AlterConfigsResourceResponse),
    api.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        incremental_alter_configs.AlterConfigsResourceResponse,
    ),
}


def data_batch(base_offset: int, epoch: int, *records: object) -> bytes:
    """A batch of metadata records, each in its newest version."""
    values = [encode_value(record, _newest(record)) for record in records]
    return _batch(base_offset, epoch, [(None, value) for value in values], 0)


def control_batch(base_offset: int, epoch: int, *records: tuple[int, object]) -> bytes:
    """A batch of control records: (type, record), or (type, bytes)."""
    pairs = []
    for kind, record in records:
        body = record if isinstance(record, bytes) else _control_program(type(record)).encode(record)
        pairs.append((b"\0\0" + kind.to_bytes(2, "big"), body))
    return _batch(base_offset, epoch, pairs, CONTROL)


def snapshot_of(epoch: int, *records: object) -> bytes:
    """A whole snapshot."""
    return (
        control_batch(0, epoch, (3, control_types.SnapshotHeaderRecord()))
        + data_batch(1, epoch, *records)
        + control_batch(1 + len(records), epoch, (4, control_types.SnapshotFooterRecord()))
    )


def _newest(record: object) -> int:
    return next(row[2] for row in RECORD_TYPES.values() if row[0] is type(record))


def _control_program(cls: type) -> Program:
    return Program(cls, 0, True, vars(control_types))


def _batch(base_offset: int, epoch: int, pairs: list[tuple[bytes | None, bytes]], attributes: int) -> bytes:
    columns = RecordColumns.from_records(Record(-1, 1000, key, value, ()) for key, value in pairs)
    draft, count, base_timestamp, max_timestamp = encode_records(
        columns.values, columns.keys, columns.timestamps, -1, None, 0, len(columns), 1 << 30
    )
    seal(
        draft,
        attributes=attributes,
        count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        leader_epoch=epoch,
    )
    return bytes(draft)


class Stored(NamedTuple):
    """A batch of the log."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


class ScriptedController:
    """See the module. A context; its threads end with it."""

    def __init__(self, cluster_id: str, node_id: int = 3000) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.epoch = 1
        self.log: list[Stored] = []
        self.committed: int | None = None
        """The high watermark, None: all there is."""
        self.snapshot: tuple[int, int, bytes] | None = None
        """(end offset, epoch, bytes) of the snapshot before which nothing is in the log any more."""
        self.piece_size = 1 << 20
        self.answers: dict[int, deque[Callable[[Any], Any]]] = defaultdict(deque)
        """By API: what answers the next requests in place of the good case; a None closes the connection."""
        self.seen: list[tuple[int, int, Any]] = []
        """(API, version, request) of all there were."""
        self.registered: dict[int, tuple[int, int]] = {}
        """Node id → (epoch, whether it is fenced)."""
        self.next_producer_id = 1000
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._connections: set[socket.socket] = set()
        self._closed = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def end_offset(self) -> int:
        if self.log:
            return self.log[-1].last_offset + 1
        return 0 if self.snapshot is None else self.snapshot[0]

    def append(self, *records: object) -> int:
        """Writes a batch; its first offset."""
        with self._changed:
            base = self.end_offset
            self.log.append(Stored(base, base + len(records) - 1, self.epoch, data_batch(base, self.epoch, *records)))
            self._changed.notify_all()
            return base

    def append_control(self, *records: tuple[int, object]) -> int:
        """As append(), of control records: (type, record)."""
        with self._changed:
            base = self.end_offset
            data = control_batch(base, self.epoch, *records)
            self.log.append(Stored(base, base + len(records) - 1, self.epoch, data))
            self._changed.notify_all()
            return base

    def change(self) -> threading.Condition:
        """Held while a test changes the state; `notify_all` wakes those who wait for data."""
        return self._changed

    def wait_for(self, condition: Callable[[], object], timeout_s: float = RECEIVE_S) -> None:
        """Returns when it holds; looked at with every request."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s), "it never came to that"

    def requests(self, api_key: int) -> list[Any]:
        """Those of one API."""
        with self._changed:
            return [request for key, _, request in self.seen if key == api_key]

    def drop_connections(self) -> None:
        """Closes all that are open."""
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                asked = header.decode_request_header(frame)
                request = protocol.decode_request(
                    asked.api_key, asked.api_version, memoryview(frame)[asked.body_position :]
                )
                response = self._answer(asked.api_key, asked.api_version, request)
                if response is None:
                    break
                connection.sendall(
                    protocol.encode_response_frame(asked.api_key, asked.api_version, asked.correlation_id, response)
                )
        with self._changed:
            self._connections.discard(connection)

    def _answer(self, key: int, version: int, request: Any) -> Any:
        with self._changed:
            self.seen.append((key, version, request))
            self._changed.notify_all()
            if self.answers[key]:
                return self.answers[key].popleft()(request)
            handlers: dict[int, Callable[[Any], Any]] = {
                api.API_VERSIONS: self._api_versions,
                api.DESCRIBE_CLUSTER: self._describe_cluster,
                api.FETCH: self._fetch,
                api.ENVELOPE: self._open_envelope,
                api.FETCH_SNAPSHOT: self._fetch_snapshot,
                api.BROKER_REGISTRATION: self._register,
                api.BROKER_HEARTBEAT: self._beat,
                api.ALLOCATE_PRODUCER_IDS: self._allocate,
                api.ALTER_PARTITION: self.alter_partition,
                api.ASSIGN_REPLICAS_TO_DIRS: lambda _: AssignReplicasToDirsResponse(),
            }
            return handlers[key](request)

    def _api_versions(self, _request: object) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in SERVED.items()]
        )

    def _describe_cluster(self, _request: object) -> DescribeClusterResponse:
        return DescribeClusterResponse(cluster_id=self.cluster_id, controller_id=self.node_id, endpoint_type=2)

    def _open_envelope(self, request: EnvelopeRequest) -> EnvelopeResponse:
        """Answer that each topic was created or deleted, and each setting changed."""
        asked = header.decode_request_header(request.request_data)
        inner = protocol.decode_request(
            asked.api_key, asked.api_version, memoryview(request.request_data)[asked.body_position :]
        )
        if asked.api_key == api.CREATE_TOPICS:
            response: Any = CreateTopicsResponse(topics=[CreatableTopicResult(name=each.name) for each in inner.topics])
        elif asked.api_key in ALTERED:
            make, make_one = ALTERED[asked.api_key]
            results = [
                make_one(resource_type=each.resource_type, resource_name=each.resource_name, error_message=None)
                for each in inner.resources
            ]
            response = make(responses=results)
        else:
            names = [*inner.topic_names, *(each.name for each in inner.topics)]
            response = DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])
        frame = protocol.encode_response_frame(asked.api_key, asked.api_version, asked.correlation_id, response)
        return EnvelopeResponse(response_data=frame[4:])

    # --- the log ------------------------------------------------------------------------------------------------------

    def refusal(self, code: ErrorCode, leader_id: int, epoch: int, *endpoints: tuple[int, str, int]) -> FetchResponse:
        """Return a Fetch response that names the leader; `endpoints` are (id, host, port) of brokers with a known
        address.
        """
        part = PartitionData(
            error_code=code,
            high_watermark=-1,
            current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
            records=None,
        )
        return FetchResponse(
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])],
            node_endpoints=[NodeEndpoint(node_id=number, host=host, port=port) for number, host, port in endpoints],
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        if request.cluster_id != self.cluster_id:
            return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if asked.current_leader_epoch != self.epoch:
            code = (
                ErrorCode.FENCED_LEADER_EPOCH
                if asked.current_leader_epoch < self.epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
            return self.refusal(code, self.node_id, self.epoch, (self.node_id, "127.0.0.1", self.port))
        part = PartitionData(log_start_offset=0)
        start = 0 if self.snapshot is None else self.snapshot[0]
        if asked.fetch_offset < start and self.snapshot is not None:
            part.snapshot_id = SnapshotId(end_offset=self.snapshot[0], epoch=self.snapshot[1])
        elif (diverging := self._diverging(asked.fetch_offset, asked.last_fetched_epoch)) is not None:
            part.diverging_epoch = diverging
        else:
            known = (asked.fetch_offset, asked.high_watermark)
            self._changed.wait_for(
                lambda: self._closed or self.end_offset > known[0] or self._high_watermark != known[1],
                request.max_wait_ms / 1000,
            )
            part.records = b"".join(each.data for each in self.log if each.last_offset >= asked.fetch_offset)
        part.high_watermark = self._high_watermark
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])])

    @property
    def _high_watermark(self) -> int:
        return self.end_offset if self.committed is None else self.committed

    def _diverging(self, offset: int, epoch: int) -> EpochEndOffset | None:
        """Where this log and the asker's part, if they do."""
        ends = {each.epoch: each.last_offset + 1 for each in self.log}
        if self.snapshot is not None:
            ends.setdefault(self.snapshot[1], self.snapshot[0])
        known = max((each for each in ends if each <= epoch), default=0)
        end = ends.get(known, 0)
        return EpochEndOffset(epoch=known, end_offset=end) if end < offset or (known < epoch and offset) else None

    def _fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        asked = request.topics[0].partitions[0]
        part = FetchSnapshotResponsePartitionSnapshot(snapshot_id=FetchSnapshotResponseSnapshotId())
        wanted = (asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if self.snapshot is None or wanted != self.snapshot[:2]:
            part.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            data = self.snapshot[2]
            part.size, part.position = len(data), asked.position
            part.unaligned_records = data[asked.position : asked.position + self.piece_size]
            part.snapshot_id = FetchSnapshotResponseSnapshotId(end_offset=wanted[0], epoch=wanted[1])
        topic = FetchSnapshotResponseTopicSnapshot(name="__cluster_metadata", partitions=[part])
        return FetchSnapshotResponse(topics=[topic])

    # --- brokers ------------------------------------------------------------------------------------------------------

    def _register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        epoch = self.end_offset
        self.registered[request.broker_id] = (epoch, True)
        self.append(
            metadata_types.RegisterBrokerRecord(
                broker_id=request.broker_id,
                incarnation_id=request.incarnation_id,
                broker_epoch=epoch,
                end_points=[
                    metadata_types.BrokerEndpoint(
                        name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                    )
                    for each in request.listeners
                ],
                rack=request.rack,
                log_dirs=request.log_dirs,
            )
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _allocate(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        if self.registered.get(request.broker_id, (-1, True))[0] != request.broker_epoch:
            return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        start, self.next_producer_id = self.next_producer_id, self.next_producer_id + BLOCK_SIZE
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Takes every change of who is in sync, as that of the newest partition epoch."""
        answered = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                isr = [each.broker_id for each in row.new_isr_with_epochs]
                self.append(
                    metadata_types.PartitionChangeRecord(
                        topic_id=topic.topic_id, partition_id=row.partition_index, isr=isr
                    )
                )
                rows.append(
                    AlterPartitionResponsePartitionData(
                        partition_index=row.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=row.leader_epoch,
                        isr=isr,
                        partition_epoch=row.partition_epoch + 1,
                    )
                )
            answered.append(AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=rows))
        return AlterPartitionResponse(topics=answered)

    def _beat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        epoch, fenced = self.registered.get(request.broker_id, (-1, True))
        if request.broker_epoch != epoch:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        caught_up = request.current_metadata_offset >= epoch
        wanted = request.want_fence or request.want_shut_down or (fenced and not caught_up)
        if wanted != fenced:
            self.registered[request.broker_id] = (epoch, wanted)
            self.append(
                metadata_types.BrokerRegistrationChangeRecord(
                    broker_id=request.broker_id, broker_epoch=epoch, fenced=1 if wanted else -1
                )
            )
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up, is_fenced=wanted, should_shut_down=request.want_shut_down and wanted
        )
