"""The topic `__consumer_offsets`: where groups keep what must outlive the broker.

    write(group, records, callback) ─▶ queue of the group's partition ─▶ one job on the I/O pool appends all that wait
                                                 └─▶ one flush ─▶ callbacks, in the order of the writes

A group's records all go to one partition, chosen as Kafka does: abs(Java's hashCode of the group id) modulo the number
of partitions. The topic is made by the first write. A write that failed is told so by its callback; those behind it are
tried all the same, since a record that is too large is its own fault alone.

Thread rule: `write` from any thread, it does not wait. Callbacks run on the flusher or on the I/O pool, one at a time
for a partition and in order, with no lock of ours held; they must not block.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode, KafkaError, TopicAlreadyExists
from kafkalite.logging import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafkalite._native.topic_table import Topic
    from kafkalite.clock import Clock
    from kafkalite.coordinator.records import Record as Stored
    from kafkalite.log.manager import LogManager
    from kafkalite.log.partition_log import PartitionLog
    from kafkalite.pool import IoPool
    from kafkalite.record.columns import RecordColumns

logger = logging.getLogger(__name__)

TOPIC_NAME: Final = "__consumer_offsets"
READ_SIZE: Final = 1024 * 1024
"""Bytes read at a time while loading."""
_MARKER_COMMIT: Final = 1


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition that keeps a group."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


class _Write:
    """Some records that are answered for together."""

    __slots__ = ("callback", "code", "done", "records")

    def __init__(self, records: list[Stored], callback: Callable[[int], None]) -> None:
        self.records = records
        self.callback = callback
        self.code = 0
        self.done = False


class _Writer:
    """What waits to be written to one partition. Guarded by the OffsetsLog's lock."""

    __slots__ = ("announcing", "in_order", "partition", "scheduled", "waiting")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.waiting: list[_Write] = []
        self.in_order: deque[_Write] = deque()
        self.scheduled = False
        self.announcing = False


class OffsetsLog:
    """Reads and writes the topic. Its lock is a leaf: nothing is called while it is held."""

    def __init__(self, logs: LogManager, pool: IoPool, clock: Clock) -> None:
        self._logs = logs
        self._pool = pool
        self._clock = clock
        self._lock = threading.Lock()
        self._creating = threading.Lock()
        self._writers: dict[int, _Writer] = {}

    @property
    def partition_count(self) -> int:
        """Of the topic as it is, or as it will be made."""
        topic = self._logs.topics.get(TOPIC_NAME)
        return self._logs.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    @property
    def partitions(self) -> tuple[PartitionLog, ...]:
        """The logs; none before the first write."""
        topic = self._logs.topics.get(TOPIC_NAME)
        return () if topic is None else tuple(topic.partitions)

    def partition_of(self, group_id: str) -> int:
        """The partition that keeps a group."""
        return partition_of(group_id, self.partition_count)

    def write(self, group_id: str, records: list[Stored], callback: Callable[[int], None]) -> None:
        """Appends records of a group; callback(0) when they are durable, or a code of Kafka's when they are not."""
        write = _Write(records, callback)
        with self._lock:
            number = self.partition_of(group_id)
            writer = self._writers.setdefault(number, _Writer(number))
            writer.waiting.append(write)
            writer.in_order.append(write)
            if writer.scheduled:
                return
            writer.scheduled = True
        self._schedule(writer)

    def _schedule(self, writer: _Writer) -> None:
        try:
            self._pool.submit(self._append_waiting, writer)
        except RuntimeError:  # the broker stops; whoever waits loses its connection with everybody else
            logger.info("group records come too late to be written", extra=fields(partition=writer.partition))

    def _append_waiting(self, writer: _Writer) -> None:
        """One turn of a writer: appends what waits, flushes once, and comes again when more has arrived."""
        with self._lock:
            writes, writer.waiting = writer.waiting, []
        end_offset = -1
        log: PartitionLog | None = None
        for write in writes:
            try:
                log = self._topic().partitions[writer.partition]
                end_offset = self._append(log, write.records)
            except Exception as error:  # noqa: BLE001 - each write is told of its own failure
                write.code = self._code_of(error)
                write.done = True
        if log is not None and end_offset >= 0 and self._logs.config.flush_on_acks_all:
            log.flush_async(end_offset, lambda code: self._finish(writer, writes, code))
        else:
            self._finish(writer, writes, 0)
        with self._lock:
            if not writer.waiting:
                writer.scheduled = False
                return
        self._schedule(writer)

    def _append(self, log: PartitionLog, records: list[Stored]) -> int:
        """Appends records as one batch where they fit in one; the log's end behind them."""
        from kafkalite.record.batches import encode_batch
        from kafkalite.record.columns import Record, RecordColumns

        now_ms = self._clock.time_ms()
        columns = RecordColumns.from_records(Record(-1, now_ms, key, value) for key, value in records)
        first = 0
        end_offset = -1
        while first < len(columns):
            batch, count = encode_batch(columns, first, size_max=max(log.config.max_message_bytes - 64, 1))
            end_offset = log.append(batch).end_offset
            first += count
        return end_offset

    def _finish(self, writer: _Writer, writes: list[_Write], code: int) -> None:
        """Calls back for everything that is done, in order, whichever thread it was that finished last."""
        with self._lock:
            for write in writes:
                write.code = write.code or code
                write.done = True
        while True:
            with self._lock:
                if writer.announcing or not writer.in_order or not writer.in_order[0].done:
                    return
                writer.announcing = True
                ready = []
                while writer.in_order and writer.in_order[0].done:
                    ready.append(writer.in_order.popleft())
            for write in ready:
                try:
                    write.callback(write.code)
                except Exception:
                    logger.exception("taking note of a group's write failed")
            with self._lock:
                writer.announcing = False

    @staticmethod
    def _code_of(error: Exception) -> int:
        if isinstance(error, KafkaError):
            logger.warning("group records could not be written: %s", error)
            return int(error.code)
        logger.error("group records could not be written", exc_info=error)
        return int(ErrorCode.KAFKA_STORAGE_ERROR)

    def _topic(self) -> Topic:
        topic = self._logs.topics.get(TOPIC_NAME)
        if topic is not None:
            return topic
        with self._creating:
            config = self._logs.config
            settings = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
            try:
                return self._logs.create_topic(TOPIC_NAME, config.offsets_topic_num_partitions, settings)
            except TopicAlreadyExists:
                return self._logs.topics[TOPIC_NAME]

    def read(self, log: PartitionLog) -> Iterator[Stored]:
        """Every record of a partition that counts, in order: those of aborted transactions are left out.

        Records of a transaction appear where its commit marker stands, which is when they came to hold. KafkaError when
        something cannot be read.
        """
        open_transactions: dict[int, list[Stored]] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, READ_SIZE)
            if not data:
                return
            offset = yield from _records_in(data, offset, open_transactions)


def _records_in(data: bytes, offset: int, open_transactions: dict[int, list[Stored]]) -> Generator[Stored, None, int]:
    """The records of whole batches; returns the offset behind them."""
    from kafkalite.record.batches import BatchReader, decode, whole_batches

    batches = list(whole_batches(data))
    if not any(info.is_transactional or info.is_control for _, info in batches):
        with BatchReader() as reader:
            behind = reader.read(data, offset)
            columns = reader.take()
        yield from _pairs(columns)
        return behind
    for position, info in batches:
        batch = memoryview(data)[position : position + info.size]
        if info.is_control:
            ended = open_transactions.pop(info.producer_id, [])
            if _is_commit(batch):
                yield from ended
        elif info.is_transactional:
            open_transactions.setdefault(info.producer_id, []).extend(_pairs(decode(batch, offset)))
        else:
            yield from _pairs(decode(batch, offset))
    return batches[-1][1].last_offset + 1


def _pairs(columns: RecordColumns) -> Iterator[Stored]:
    for key, value in zip(columns.keys, columns.values, strict=True):
        if key is not None:
            yield key, value


def _is_commit(batch: memoryview) -> bool:
    """Whether a control batch is a commit marker: its one record's key is int16 version, int16 type."""
    from kafkalite._native.batch import read_info
    from kafkalite._native.columns import ColumnBuilder
    from kafkalite.record.batches import HEADER_SIZE, columns_from

    builder = ColumnBuilder()
    builder.add(read_info(batch), batch[HEADER_SIZE:])
    keys = list(columns_from(builder).keys)
    return any(key is not None and int.from_bytes(key[2:4], "big") == _MARKER_COMMIT for key in keys)
