"""Calls handlers the way dispatch does, without sockets: request object in, bytes both ways, response object out.

`LogsInMemory` replaces the log manager where a test needs to say exactly what a partition holds, or to make
storage fail; `HandlerCalls` takes it or a real one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalite.base.clock import ExpiryTime
from kafkalite.base.deferred import Deferred
from kafkalite.base.pool import IoPool
from kafkalite.broker.coordinator.groups import GroupCoordinator
from kafkalite.broker.coordinator.producer_ids import ProducerIds
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.broker.handlers import table
from kafkalite.broker.handlers.context import BrokerServices, ClusterView, RequestContext
from kafkalite.broker.log import journal
from kafkalite.broker.quotas.quotas import Quotas
from kafkalite.errors import KafkaError, OffsetOutOfRange, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.model import Endpoint, OffsetAndTimestamp, new_uuid
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.topic_setting_lookup import TopicConfig
from kafkalite.wire import protocol
from kafkalite.wire.protocol import header
from tests.kit.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.base.quota_entities import Change, Entity
    from kafkalite.broker.features import Features
    from kafkalite.model import ScramCredential
    from kafkalite.settings.client_metrics import ClientMetricsConfig
    from kafkalite.settings.group import GroupConfig

CORRELATION_ID = 4711
NODE_ID = 7


@dataclass
class LogInMemory:
    """A partition whose record number n has offset log_start_offset + n and the n-th timestamp."""

    timestamps: list[int] = field(default_factory=list)
    leader_epoch: int = 0
    offline: bool = False
    log_start_offset: int = 0
    size_bytes: int = 0
    unstable_count: int = 0
    """Records at the end that an open transaction keeps from read_committed."""
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    failure: KafkaError | None = None
    led: bool = True
    segments: tuple[None, ...] = (None,)
    REPLICATED: ClassVar[bool] = False
    followers: None = None
    replicated: bool = False

    @property
    def core(self) -> LogInMemory:
        return self

    @property
    def high_watermark(self) -> int:
        return self.log_start_offset + len(self.timestamps)

    @property
    def log_end_offset(self) -> int:
        return self.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark - self.unstable_count

    @property
    def producers(self) -> object:
        return self

    def producer_rows(self) -> list[object]:
        self._fail()
        return []

    def ensure_producers(self) -> object:
        self._fail()
        return self

    def find_timestamp(self, timestamp: int, upper_offset: int) -> OffsetAndTimestamp | None:
        self._fail()
        for offset, found in enumerate(self.timestamps, self.log_start_offset):
            if found >= timestamp and offset < upper_offset:
                return OffsetAndTimestamp(offset, found, self.epoch_at(offset))
        return None

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        self._fail()
        if not self.timestamps:
            return None
        index = max(range(len(self.timestamps)), key=lambda i: (self.timestamps[i], -i))
        return OffsetAndTimestamp(self.log_start_offset + index, self.timestamps[index], self.leader_epoch)

    def epoch_at(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        known = [entry for entry in self.epochs if entry[0] <= epoch]
        if epoch > self.leader_epoch or not known:
            return -1, -1
        following = [entry for entry in self.epochs if entry[0] > epoch]
        return known[-1][0], following[0][1] if following else self.log_end_offset

    def append_marker(self, *_mark: int, commit: bool, transaction_version: int) -> int:
        self._fail()
        self.timestamps.append(0)
        return self.log_end_offset

    def flush_async(self, end_offset: int, callback: Callable[[int], object]) -> None:
        assert end_offset <= self.log_end_offset
        callback(0)

    def delete_records(self, offset: int) -> int:
        self._fail()
        if not -1 <= offset <= self.high_watermark:
            raise OffsetOutOfRange
        gone = max((self.high_watermark if offset == -1 else offset) - self.log_start_offset, 0)
        self.timestamps = self.timestamps[gone:]
        self.log_start_offset += gone
        return self.log_start_offset

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class LogsInMemory:
    """What handlers use of a log manager, kept in dictionaries."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.metadata = self.removals = self  # one fake for the manager and its parts
        self.topic_listeners: list[Any] = []
        self.topics: dict[str, Any] = {}
        self.topics_by_id: dict[bytes, Any] = {}
        self.deleted_names: dict[str, None] = {}
        self.broker_overrides: dict[str, str] = {}
        self.group_configs: dict[str, GroupConfig] = {}
        self.client_metrics: dict[str, ClientMetricsConfig] = {}
        self.next_producer_id = 1000
        self.expiry_time: ExpiryTime
        self.failure: KafkaError | None = None
        self._journal_state = journal.MetadataState("cluster")
        self.sync_count = 0
        self.sync_failure: KafkaError | None = None

    def create_topic(self, name: str, partition_count: int, overrides: dict[str, str]) -> Any:
        self._fail()
        if name in self.topics:
            raise TopicAlreadyExists
        topic = SimpleNamespace(
            name=name,
            id=new_uuid(),
            partitions=tuple(LogInMemory() for _ in range(partition_count)),
            overrides=dict(overrides),
            config=TopicConfig.resolve(self.config, overrides),
            internal=name.startswith("__"),
        )
        self.topics_by_id[topic.id] = topic
        self.topics = {**self.topics, name: topic}  # another mapping at each change, as in LogManager
        self.deleted_names.pop(name, None)
        return topic

    def delete_topic(self, name: str, *, durable: bool = True) -> None:
        self._fail()
        if name not in self.topics:
            raise UnknownTopicOrPartition
        del self.topics_by_id[self.topics[name].id]
        self.topics = {other: topic for other, topic in self.topics.items() if other != name}
        self.deleted_names[name] = None
        if durable:
            self.sync_renames()

    def sync_renames(self) -> None:
        self.sync_count += 1
        if self.sync_failure is not None:
            raise self.sync_failure

    def add_partitions(self, name: str, total: int) -> Any:
        self._fail()
        topic = self.topics[name]
        topic.partitions += tuple(LogInMemory() for _ in range(total - len(topic.partitions)))
        self.topics = dict(self.topics)
        return topic

    def alter_topic(self, name: str, overrides: dict[str, str]) -> Any:
        self._fail()
        topic = self.topics[name]
        topic.overrides = dict(overrides)
        topic.config = TopicConfig.resolve(self.config, overrides)
        return topic

    def alter_broker(self, overrides: dict[str, str], *, cluster: bool = False) -> BrokerConfig:
        self._fail()
        self.config = self.config.with_dynamic(overrides, cluster=cluster)
        self.broker_overrides = {**self.config.cluster_texts, **self.config.dynamic_texts}
        return self.config

    def allocate_producer_ids(self, count: int) -> int:
        self._fail()
        first = self.next_producer_id
        self.next_producer_id += count
        return first

    def alter_credentials(self, decide: Callable[[], list[dict[str, Any]]]) -> None:
        changes = decide()
        self._fail()
        for change in changes:
            journal.apply(self._journal_state, change)

    def alter_client_metrics(self, name: str, config: ClientMetricsConfig) -> None:
        kept = {other: one for other, one in self.client_metrics.items() if other != name}
        self.client_metrics = kept | ({name: config} if config.overrides else {})

    def alter_group(self, group_id: str, config: GroupConfig) -> None:
        self._fail()
        self.group_configs[group_id] = config
        if not config.overrides:
            del self.group_configs[group_id]

    @property
    def features(self) -> Features:
        return self._journal_state.features

    def change_features(self, levels: dict[str, int]) -> None:
        self._fail()
        journal.apply(self._journal_state, journal.features_change(self.features.changed_to(levels)))

    def position(self) -> tuple[int, int]:
        return 17, 3

    def quotas(self) -> dict[Entity, dict[str, float]]:
        return {entity: dict(values) for entity, values in self._journal_state.quotas.items()}

    def change_quotas(self, changes: Sequence[Change]) -> None:
        self._fail()
        journal.apply(self._journal_state, journal.quotas_change(changes))

    @property
    def credentials(self) -> dict[tuple[str, str], ScramCredential]:
        return self._journal_state.credentials

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


@dataclass(eq=False)
class ConnectionStub:
    """What handlers look at of a connection."""

    listener: Any
    client_host: str = "10.0.0.9"
    principal: str = "User:ANONYMOUS"
    client_port: int = 50_000
    software_name: str = ""
    software_version: str = ""


class HandlerCalls:
    """A broker reduced to its handlers. `blocked` is whether the last call had to run on the I/O pool."""

    def __init__(self, logs: Any = None, **settings: str) -> None:
        texts = {key.replace("_", "."): value for key, value in settings.items()}
        self.config = BrokerConfig.load(overrides={"node.id": str(NODE_ID), "broker.rack": "r1", **texts})
        self.logs = LogsInMemory(self.config) if logs is None else logs
        self.endpoint = Endpoint("PLAINTEXT", "broker.example", 19092)
        cluster = ClusterView("the-cluster", NODE_ID, "r1", {"PLAINTEXT": self.endpoint})
        self.connection: Any = ConnectionStub(SimpleNamespace(endpoint=self.endpoint))
        self.clock = FakeClock()
        self.logs.expiry_time = ExpiryTime(self.clock, self.config.clock_jump_hold_ms)
        self.pool = IoPool(1)
        timers = TimerQueue(self.clock, threaded=False)
        self.groups = GroupCoordinator(self.config, self.logs, self.pool, self.clock, timers)
        self.transactions = TransactionCoordinator(
            self.config, self.logs, self.pool, self.clock, self.groups, ProducerIds(self.logs), timers
        )
        self.quotas = Quotas(self.logs.metadata.quotas(), self.logs.metadata.change_quotas, self.config)
        self.services = BrokerServices(
            self.config, self.logs, cluster, self.clock, self.pool, self.groups, self.transactions, self.quotas
        )
        self.blocked = False

    def context(self, key: int, version: int) -> RequestContext:
        return RequestContext(self.services, self.connection, key, version, "test")

    def call(self, key: int, version: int, request: object) -> Any:
        row = table.find(key)
        assert row is not None
        assert row.serves(version)
        decoded = row.decode(version, protocol.encode_request(key, version, request))
        context = self.context(key, version)
        self.blocked = row.blocks(context, decoded)
        response = row.handler(context, decoded)
        if isinstance(response, Deferred):
            response = awaited(response)
        frame = row.encode(version, CORRELATION_ID, response)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, position = header.decode_response_header(key, version, frame[4:])
        assert correlation_id == CORRELATION_ID
        return protocol.decode_response(key, version, frame[4 + position :])


def awaited(deferred: Deferred[Any], timeout_s: float = 10.0) -> Any:
    """What an answer that comes later turns out to be."""
    came = threading.Event()
    deferred.then(lambda _response: came.set())
    assert came.wait(timeout_s), "the answer did not come"
    return deferred.response


def versions(key: int) -> range:
    """Every version of an API that is served."""
    row = table.find(key)
    assert row is not None
    return range(row.oldest, row.newest + 1)
