"""A transaction coordinator without disk, threads or time: logs in memory, jobs that run when the test says so.

`Bench` keeps the logs; `crash()` forgets everything else, and what was appended and not flushed too, when asked. The
logs follow the rules that real ones have for producers: epochs, markers, admission (`kafkalite._native.log.producers`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalite._native.wire.aborted_filter import AbortedFilter
from kafkalite.base.clock import ExpiryTime
from kafkalite.base.deferred import Deferred
from kafkalite.broker.coordinator.groups import GroupCoordinator
from kafkalite.broker.coordinator.offset_requests import Offset
from kafkalite.broker.coordinator.producer_ids import ProducerIds
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.broker.coordinator.transaction_rules import TV1, TV2
from kafkalite.broker.log.markers import marker_batch
from kafkalite.broker.log.partition_log import ANY_EPOCH, AppendInfo
from kafkalite.errors import ErrorCode, UnknownTopicOrPartition, error_for
from kafkalite.model import TopicPartition, new_uuid
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.record.batches import BatchReader, whole_batches
from tests.kit.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSET_SIZE = 8
STATE_PARTITIONS = 2
ANSWER_WAIT_S = 3


class Jobs:
    """A fake I/O pool whose jobs wait until the test runs them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def submit(self, job: Callable[..., object], *args: Any) -> None:
        self.waiting.append((job, args))

    def run_one(self) -> bool:
        if not self.waiting:
            return False
        job, args = self.waiting.popleft()
        job(*args)
        return True


@dataclass
class ProducerState:
    epoch: int = -1
    open_from: int | None = None
    marker_number: int = 0
    coordinator_epoch: int = -1


@dataclass
class MemoryLog:
    """A partition whose batches are kept as bytes; `flushed` is the position up to which a crash keeps them."""

    REPLICATED: ClassVar[bool] = False
    topic: str
    partition: int
    jobs: Jobs
    clock: FakeClock
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    log_end_offset: int = 0
    flushed: int = 0
    leader_epoch: int = 0
    log_start_offset: int = 0
    deleted: bool = False
    led: bool = True
    failing: ErrorCode | None = None
    """What every append and flush meets."""
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    marker_count: int = 0
    config: Any = field(default_factory=lambda: SimpleNamespace(max_message_bytes=1 << 20))

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def last_stable_offset(self) -> int:
        opened = [state.open_from for state in self.producers.values() if state.open_from is not None]
        return min(opened, default=self.log_end_offset)

    def append(self, batch: Any, *, in_epoch: int = ANY_EPOCH) -> AppendInfo:
        self._check_epoch(in_epoch)
        return self._put(bytes(batch))

    def _check_epoch(self, in_epoch: int) -> None:
        if in_epoch not in (ANY_EPOCH, self.leader_epoch):
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    append_internal = append

    def _put(self, batch: bytes) -> AppendInfo:
        if self.deleted:
            raise UnknownTopicOrPartition(self.name)
        if self.failing is not None:
            raise error_for(self.failing)
        ((_, info),) = whole_batches(batch)
        self._check(info)
        base = self.log_end_offset
        self.batches.append((base, base.to_bytes(OFFSET_SIZE, "big") + batch[OFFSET_SIZE:]))
        self.log_end_offset = base + info.last_offset - info.base_offset + 1
        self._note(info, base)
        return AppendInfo(base, -1, 0, self.log_end_offset)

    def _check(self, info: Any) -> None:
        known = self.producers.get(info.producer_id)
        if known is not None and info.producer_epoch < known.epoch:
            raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH)

    def _note(self, info: Any, base: int) -> None:
        if info.producer_id < 0:
            return
        state = self.producers.setdefault(info.producer_id, ProducerState())
        state.epoch = info.producer_epoch
        if info.is_control:
            self.marker_count += 1
            state.marker_number = self.marker_count
        elif info.is_transactional and state.open_from is None:
            state.open_from = base

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        transaction_version: int = 1,
        in_epoch: int = ANY_EPOCH,
    ) -> int:
        self._check_epoch(in_epoch)
        known = self.producers.get(producer_id)
        opened = None if known is None else known.open_from
        if known is not None and opened is not None and transaction_version >= 2 and producer_epoch == known.epoch:
            raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH)
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            raise error_for(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        time_ms = self.clock.time_ms()
        end = self._put(marker_batch(producer_id, producer_epoch, coordinator_epoch, time_ms, commit=commit))
        self.producers[producer_id].open_from = None
        self.producers[producer_id].coordinator_epoch = coordinator_epoch
        if opened is not None and not commit:
            self.aborted.append((producer_id, opened))
        return end.end_offset

    def producer_rows(self) -> list[Any]:
        return [
            SimpleNamespace(producer_id=producer_id, coordinator_epoch=state.coordinator_epoch)
            for producer_id, state in self.producers.items()
        ]

    def read(self, offset: int, size_max: int) -> bytes:
        return b"".join(batch for base, batch in self.batches if base >= offset)

    def flush_async(self, end_offset: int, callback: Callable[[int], object]) -> None:
        def flush() -> None:
            if self.failing is None:
                self.flushed = max(self.flushed, end_offset)
            callback(0 if self.failing is None else int(self.failing))

        self.jobs.submit(flush)

    @property
    def flushed_offset(self) -> int:
        return self.flushed

    def flush(self) -> None:
        if self.failing is not None:
            raise error_for(self.failing)
        self.flushed = self.log_end_offset

    def crash(self, *, keep_unflushed: bool) -> None:
        """Rebuilds what is derived from the bytes, as recovery does.

        What was kept without a sync, as kill -9 does, is no more on the disk than before.
        """
        self.failing = None
        batches = [item for item in self.batches if keep_unflushed or item[0] < self.flushed]
        self.batches, self.log_end_offset = [], 0
        self.producers, self.aborted, self.marker_count = {}, [], 0
        self.leader_epoch += 1
        for _, batch in batches:
            ((_, info),) = whole_batches(batch)
            known = self.producers.get(info.producer_id)
            opened = None if known is None else known.open_from
            self._put(batch)
            if info.is_control:
                self.producers[info.producer_id].open_from = None
                if opened is not None and not is_commit(batch):
                    self.aborted.append((info.producer_id, opened))

    def committed(self) -> list[bytes]:
        """Return the values that a read-committed reader sees."""
        with BatchReader() as reader:
            data = b"".join(batch for base, batch in self.batches)
            reader.read(data, 0, self.last_stable_offset, AbortedFilter(self.aborted))
            return [value for value in reader.take().values if value is not None]


def is_commit(batch: bytes) -> bool:
    """Of a marker: its key's type."""
    from kafkalite.broker.coordinator.state_log import _is_commit

    return _is_commit(memoryview(batch))


class MemoryLogs:
    """A fake log manager."""

    def __init__(self, config: BrokerConfig, jobs: Jobs, clock: FakeClock) -> None:
        self.config = config
        self.metadata = self  # one fake for both
        self.jobs = jobs
        self.clock = clock
        self.topics: dict[str, Any] = {}
        self.next_producer_id = 1000
        self.group_configs: dict[str, Any] = {}
        self.on_topic_deleted: Any = None
        self.topic_listeners: list[Any] = []
        self.expiry_time = ExpiryTime(clock, config.clock_jump_hold_ms)

    def create_topic(self, name: str, partition_count: int, overrides: Any = None) -> Any:
        logs = tuple(MemoryLog(name, number, self.jobs, self.clock) for number in range(partition_count))
        self.topics[name] = SimpleNamespace(name=name, id=new_uuid(), partitions=logs)
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        for log in self.topics.pop(name).partitions:
            log.deleted = True
        if self.on_topic_deleted is not None:
            self.on_topic_deleted(name)

    def allocate_producer_ids(self, count: int) -> int:
        first = self.next_producer_id
        self.next_producer_id += count
        return first


class Bench:
    """The coordinators over logs in memory. Times in seconds."""

    def __init__(self, **settings: str) -> None:
        texts = {key.replace("_", "."): value for key, value in settings.items()}
        counts = {"transaction.state.log.num.partitions": STATE_PARTITIONS, "offsets.topic.num.partitions": 2}
        self.config = BrokerConfig.load(overrides={**counts, **texts})
        self.clock = FakeClock()
        self.jobs = Jobs()
        self.logs = MemoryLogs(self.config, self.jobs, self.clock)
        self.logs.create_topic("t", 3)
        self._open()

    def _open(self) -> None:
        self.timers = TimerQueue(self.clock, threaded=False)
        parts: Any = (self.config, self.logs, self.jobs, self.clock)
        self.groups = GroupCoordinator(*parts, self.timers)
        self.groups.start()
        ids = ProducerIds(self.logs)  # type: ignore[arg-type]  # a fake
        self.transactions = TransactionCoordinator(*parts, self.groups, ids, self.timers)
        self.transactions.start()
        assert self.groups.shards.wait_loaded(30)
        assert self.transactions.shards.wait_loaded(30)
        loader = self.transactions.shards._loader
        if loader is not None:
            loader.join(30)

    def crash(self, *, keep_unflushed: bool = True) -> None:
        """The process dies and is started again; with `keep_unflushed` it was killed, otherwise the power failed."""
        self.jobs = Jobs()
        self.logs.jobs = self.jobs
        for topic in self.logs.topics.values():
            for log in topic.partitions:
                log.jobs = self.jobs
                log.crash(keep_unflushed=keep_unflushed)
        self._open()

    def settle(self) -> None:
        """Everything that can be done without time passing is done."""
        while self.jobs.run_one():
            pass

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(min(step, end - self.clock.monotonic()))
            self.timers.run_due()
            self.settle()

    def log(self, partition: int, topic: str = "t") -> MemoryLog:
        found: MemoryLog = self.logs.topics[topic].partitions[partition]
        return found

    # ---- requests, answered when everything is settled -------------------------------------------------------------

    def answer(self, deferred: Any) -> Any:
        if not isinstance(deferred, Deferred):
            return deferred
        self.settle()
        if not deferred.done:  # it waits for an end whose marker cannot be written, and gives that up soon
            self.pass_time(ANSWER_WAIT_S)
        assert deferred.done, "no answer"
        return deferred.response

    def init(
        self, name: str = "tx", asked: tuple[int, int] | None = None, timeout_ms: int = 60_000
    ) -> tuple[int, int, int]:
        code, producer_id, epoch = self.answer(self.transactions.initialise(name, timeout_ms, asked))
        return int(code), producer_id, epoch

    def producer(self, name: str = "tx", version: int = TV1, timeout_ms: int = 60_000) -> Client:
        """A producer that has its id; an open transaction of an earlier one is waited for."""
        for _ in range(5):
            code, producer_id, epoch = self.init(name, timeout_ms=timeout_ms)
            if code == 0:
                return Client(self, name, producer_id, epoch, version)
        raise AssertionError(ErrorCode(code).name)

    def state(self, name: str = "tx") -> str:
        found = self.transactions.find(name)
        return "" if found is None else found.now.state.label


@dataclass
class Client:
    """A producer as clients' libraries are one; codes are returned, not raised."""

    bench: Bench
    name: str
    producer_id: int
    epoch: int
    version: int = TV1

    def at(self, epoch: int) -> Client:
        """What it was in another epoch: for requests that come late."""
        return Client(self.bench, self.name, self.producer_id, epoch, self.version)

    def add(self, *partitions: int) -> int:
        wanted = frozenset(TopicPartition("t", number) for number in partitions)
        return int(
            self.bench.answer(
                self.bench.transactions.add(self.name, self.producer_id, self.epoch, wanted, self.version)
            )
        )

    def write(self, partition: int, value: bytes) -> int:
        """Produce of one record: admission, then the append, as ProduceServer does both."""
        log = self.bench.log(partition)
        known = log.producers.get(self.producer_id)
        if known is None or known.open_from is None or known.epoch != self.epoch:
            if known is not None and self.epoch < known.epoch:
                return int(ErrorCode.INVALID_PRODUCER_EPOCH)
            version = 12 if self.version >= TV2 else 11
            transactions = self.bench.transactions
            code = self.bench.answer(
                transactions.admit(self.name, self.producer_id, self.epoch, "t", partition, version)
            )
            if code:
                return int(code)
        return self.append(log, value)

    def append(self, log: MemoryLog, value: bytes) -> int:
        from kafkalite.errors import KafkaError
        from kafkalite.wire.record.batches import Producer, encode_batch
        from kafkalite.wire.record.columns import Record, RecordColumns

        columns = RecordColumns.from_records([Record(-1, self.bench.clock.time_ms(), None, value)])
        batch, _ = encode_batch(columns, producer=Producer(self.producer_id, self.epoch, 0, transactional=True))
        try:
            end = log.append(batch).end_offset
        except KafkaError as error:
            return int(error.code)
        log.flushed = max(log.flushed, end)
        return 0

    def end(self, *, commit: bool) -> int:
        answer = self.bench.answer(
            self.bench.transactions.end(self.name, self.producer_id, self.epoch, commit=commit, version=self.version)
        )
        if answer.code == 0 and self.version >= TV2:
            self.producer_id, self.epoch = answer.producer_id, answer.epoch
        return int(answer.code)

    def add_group(self, group: str = "g") -> int:
        return int(
            self.bench.answer(self.bench.transactions.offsets.add_group(self.name, self.producer_id, self.epoch, group))
        )

    def commit_offset(self, offset: int, partition: int = 0, group: str = "g", version: int | None = None) -> int:
        asked = Offset(TopicPartition("t", partition), offset, -1, "")
        if version is None:
            version = 5 if self.version >= TV2 else 3
        (code,) = self.bench.answer(
            self.bench.transactions.offsets.commit(
                self.name, self.producer_id, self.epoch, group, ("", None, -1), [asked], version
            )
        )
        return int(code)
