"""Read and write a coordinator's durable state in its topic: `__consumer_offsets` or `__transaction_state`.

    write(owner, records, callback) ─▶ writer of the owner's partition ─▶ safe ─▶ callback, in the order of the writes
    entries(log) ─▶ syncs a partition's log if necessary, and yields its records and transaction markers, in order
    when_read(partition, epoch, callback) ─▶ in a cluster: callback when the records that were read are safe

Records are *safe* when all in-sync replicas have them (`log_writer`).

All records of one *owner* (a group or a transactional id) are in one partition. The first write creates the topic.

Thread rule: any thread may write, without waiting; callbacks run as in `log_writer`. The lock of the writers is a
leaf.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from kafkalite.broker.coordinator.log_writer import LogWriter, when_safe
from kafkalite.broker.coordinator.shard_epoch import NO_EPOCH, ShardEpoch
from kafkalite.errors import ErrorCode, InvalidTxnState, TopicAlreadyExists, error_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.base.clock import Clock
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.coordinator.records import Record
    from kafkalite.broker.coordinator.shard_leadership import LedPartitions
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import AppendInfo, PartitionLog
    from kafkalite.wire.record.batches import Producer
    from kafkalite.wire.record.columns import RecordColumns

T = TypeVar("T")
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
READ_SIZE: Final = 1024 * 1024
"""Bytes read at a time while loading."""
BATCH_ROOM: Final = 64
"""Bytes of max.message.bytes reserved for a batch's header."""
NO_PRODUCER: Final = -1


class Stored(NamedTuple):
    """A record in the log. The producer id is -1 outside transactions."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER


class Marker(NamedTuple):
    """A marker in the log: the end of a producer's transaction in this partition."""

    producer_id: int
    commit: bool


class Watch:
    """Notes whether a producer's transaction has ended in a partition since this broker asked its coordinator about it.

    A marker with producer epoch `ended_by` or later ends the transaction. A marker with an earlier epoch ended the
    previous transaction.
    """

    __slots__ = ("ended", "ended_by", "home", "producer_id")

    def __init__(self, home: ShardEpoch, producer_id: int, ended_by: int) -> None:
        self.home = home
        self.producer_id = producer_id
        self.ended_by = ended_by
        self.ended = False


def java_hash(text: str) -> int:
    """Return java.lang.String.hashCode of a text: over its UTF-16 code units, as a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of(owner: str, partition_count: int) -> int:
    """Return the partition that keeps an owner's records: abs(Java's hashCode of its name) modulo the count, as in
    Kafka.
    """
    value = java_hash(owner)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


class StateLog:
    """Reads and writes one coordinator's topic."""

    def __init__(
        self,
        name: str,
        logs: LogManager,
        pool: IoPool,
        clock: Clock,
        *,
        partition_count: int,
        segment_bytes: int,
        in_sync: bool,
    ) -> None:
        """Begin without writers. With `in_sync`, writes need the topic's minimum number of in-sync replicas
        (`LogWriter`).
        """
        self.name = name
        self._in_sync = in_sync
        self._logs = logs
        self._pool = pool
        self._clock = clock
        self._partition_count = partition_count
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._creating = threading.Lock()
        self._writers: dict[int, LogWriter] = {}  # guarded by _lock
        self.led: LedPartitions | None = None
        """In a cluster: the partitions that this broker leads; None: all."""

    @property
    def partition_count(self) -> int:
        """The topic's number of partitions; if it does not exist yet, the number with which it will be created."""
        topic = self._logs.topics.get(self.name)
        return self._partition_count if topic is None else len(topic.partitions)

    @property
    def partitions(self) -> tuple[PartitionLog, ...]:
        """The logs of the topic's partitions; none before the first write, which creates the topic."""
        topic = self._logs.topics.get(self.name)
        return () if topic is None else tuple(topic.partitions)

    def partition_of(self, owner: str) -> int:
        """Return the partition that keeps an owner's records."""
        return partition_of(owner, self.partition_count)

    def waits_for_others(self, owner: str) -> bool:
        """Return whether a write for this owner would have to wait for other brokers now."""
        partitions = self.partitions
        log = partitions[self.partition_of(owner)] if self.led is not None and partitions else None
        return log is not None and log.led and log.REPLICATED and log.core.followers is not None

    def write(
        self,
        owner: str,
        records: list[Record],
        callback: Callable[[int], object],
        producer: Producer | None = None,
        watch: Watch | None = None,
        home: ShardEpoch | None = None,
    ) -> None:
        """Append records of an owner. Call callback(0) when they are durable, or callback(code) after a failure.

        With `producer` the records are part of its transaction and take effect after its commit marker. With `watch`
        the records are refused (INVALID_TXN_STATE) if the watch has seen the end of that transaction.

        In a cluster, `home` is the partition and leader epoch of the state that the records change. In any other leader
        epoch they are refused (NOT_COORDINATOR).
        """

        def append(log: PartitionLog) -> int:
            if watch is not None and watch.ended:
                raise InvalidTxnState(f"{log.name}: the transaction may already have ended")
            return append_records(log, records, self._clock.time_ms(), producer)

        self.append(home or self.home_of(owner), append, callback)

    def record_size_max(self) -> int:
        """Return the topic's maximum record size in bytes; if the topic does not exist yet, the one that it will be
        created with.
        """
        topic = self._logs.topics.get(self.name)
        size_max = self._logs.config.message_max_bytes if topic is None else topic.config.max_message_bytes
        return max(size_max - BATCH_ROOM, 1)

    def home_of(self, owner: str) -> ShardEpoch:
        """Return an owner's partition. In a cluster, it has the leader epoch in which it is served now."""
        number = self.partition_of(owner)
        return ShardEpoch(number, NO_EPOCH) if self.led is None else self.led.home(number)

    def lookup(self, owner: str, ask: Callable[[], tuple[T | None, int]]) -> tuple[T | None, int]:
        """Return (the result of `ask` for an owner, or None; the error code if the owner cannot be served now, else 0).

        Both results belong to the same leader epoch. If `ask` finds nothing and the owner's partition was loaded or
        unloaded meanwhile, `ask` is called again.
        """
        home: ShardEpoch | None = None
        while True:
            found, code = ask()
            if code or found is not None or self.led is None:
                return found, code
            before, home = home, self.home_of(owner)
            if before == home:
                return None, 0

    def append(
        self, home: ShardEpoch, append: Callable[[PartitionLog], int], callback: Callable[[int], object]
    ) -> None:
        """Queue a call of `append`, for example to append a marker, after all writes that are queued already (see
        `LogWriter.write`). In a cluster, it is refused in another leader epoch than that of `home`.
        """
        partition = home.partition
        if self.led is not None:
            append = _in_epoch(append, home.epoch)
        with self._lock:
            writer = self._writers.get(partition)
            if writer is None:
                writer = self._writers[partition] = LogWriter(
                    f"{self.name}-{partition}",
                    lambda: self._log(partition),
                    self._pool,
                    flush=self._logs.config.flush_on_acks_all,
                    in_sync=self._in_sync,
                )
        writer.write(append, callback)

    def _log(self, partition: int) -> PartitionLog:
        log: PartitionLog = self._topic().partitions[partition]
        if not log.led:
            raise error_for(ErrorCode.NOT_COORDINATOR, f"{log.name} is led by another broker")
        return log

    def _topic(self) -> Topic:
        topic = self._logs.topics.get(self.name)
        if topic is not None:
            return topic
        with self._creating:
            settings = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._segment_bytes),
            }
            try:
                return self._logs.create_topic(self.name, self._partition_count, settings)
            except TopicAlreadyExists:
                return self._logs.topics[self.name]

    def when_read(self, number: int, epoch: int, callback: Callable[[int], object]) -> None:
        """Call callback(0) when all records that were read from a partition in this leader epoch are safe.

        If the epoch ends first, call callback(code). An earlier leader may have written these records without
        acknowledging them.
        """
        log = self.partitions[number]
        when_safe(log, log.log_end_offset, epoch, callback, flush=False)

    def entries(self, log: PartitionLog) -> Iterator[Stored | Marker]:
        """Yield every record that has a key, and every marker, in the order of the log.

        With flush.on.acks.all, the log is synced first. Responses will depend on its records, and records of a killed
        process may be in the page cache only. KafkaError if something cannot be read or synced.
        """
        if self._logs.config.flush_on_acks_all and log.flushed_offset < log.log_end_offset:
            log.flush()
        return entries_of(log)


def append_records(log: PartitionLog, records: list[Record], now_ms: int, producer: Producer | None = None) -> int:
    """Append records, as one batch if they fit; return the log's end offset."""
    from kafkalite.wire.record.batches import NOBODY, encode_batch
    from kafkalite.wire.record.columns import Record as Row
    from kafkalite.wire.record.columns import RecordColumns

    columns = RecordColumns.from_records(Row(-1, now_ms, key, value) for key, value in records)
    size_max = max(log.config.max_message_bytes - BATCH_ROOM, 1)
    first = 0
    end_offset = -1
    while first < len(columns):
        batch, count = encode_batch(columns, first, size_max=size_max, producer=producer or NOBODY)
        end_offset = (log.append if producer is None else log.append_internal)(batch).end_offset
        first += count
    return end_offset


def entries_of(log: PartitionLog) -> Iterator[Stored | Marker]:
    """Yield every record that has a key, and every marker, in the order of the log.

    KafkaError if something cannot be read.
    """
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, READ_SIZE)
        if not data:
            return
        offset = yield from _entries_in(data, offset)


class _LogInEpoch:
    """A log that accepts appends only in one leader epoch. It checks the epoch under the log's lock."""

    __slots__ = ("_epoch", "_log")

    def __init__(self, log: PartitionLog, epoch: int) -> None:
        self._log = log
        self._epoch = epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, batch: bytes | bytearray) -> AppendInfo:
        return self._log.append(batch, in_epoch=self._epoch)

    def append_internal(self, batch: bytes | bytearray) -> AppendInfo:
        return self._log.append_internal(batch, in_epoch=self._epoch)

    def append_marker(self, *mark: int, commit: bool, transaction_version: int) -> int:
        return self._log.append_marker(
            *mark, commit=commit, transaction_version=transaction_version, in_epoch=self._epoch
        )


def _in_epoch(append: Callable[[PartitionLog], int], epoch: int) -> Callable[[PartitionLog], int]:
    """Return `append` as a function that fails unless this broker leads the log in this leader epoch.

    In a later epoch, a coordinator may have loaded newer state.
    """

    def checked(log: PartitionLog) -> int:
        if not log.led or log.leader_epoch != epoch:
            raise error_for(ErrorCode.NOT_COORDINATOR, f"this broker does not lead {log.name} in epoch {epoch}")
        return append(cast("PartitionLog", _LogInEpoch(log, epoch)))

    return checked


def _entries_in(data: bytes, offset: int) -> Generator[Stored | Marker, None, int]:
    """Yield the records and markers of whole batches; return the offset after them."""
    from kafkalite.wire.record.batches import BatchReader, decode, whole_batches

    batches = list(whole_batches(data))
    if not any(info.is_transactional or info.is_control for _, info in batches):
        with BatchReader() as reader:
            behind = reader.read(data, offset)
            columns = reader.take()
        yield from _records(columns, NO_PRODUCER)
        return behind
    for position, info in batches:
        batch = memoryview(data)[position : position + info.size]
        if info.is_control:
            yield Marker(info.producer_id, _is_commit(batch))
        else:
            producer_id = info.producer_id if info.is_transactional else NO_PRODUCER
            yield from _records(decode(batch, offset), producer_id)
    return batches[-1][1].last_offset + 1


def _records(columns: RecordColumns, producer_id: int) -> Iterator[Stored]:
    for offset, key, value in zip(columns.offsets.tolist(), columns.keys, columns.values, strict=True):
        if key is not None:
            yield Stored(offset, key, value, producer_id)


def _is_commit(batch: memoryview) -> bool:
    """Return whether a control batch is a commit marker.

    The key of its record shows this: int16 version, int16 type.
    """
    from kafkalite._native.wire.batch import HEADER_SIZE, MARKER_COMMIT, read_info
    from kafkalite._native.wire.columns import ColumnBuilder
    from kafkalite.wire.record.batches import columns_from

    builder = ColumnBuilder()
    builder.add(read_info(batch), batch[HEADER_SIZE:])
    keys = list(columns_from(builder).keys)
    return any(key is not None and int.from_bytes(key[2:4], "big") == MARKER_COMMIT for key in keys)
