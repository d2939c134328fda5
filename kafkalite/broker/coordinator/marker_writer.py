"""Write a transaction's outcome to its partitions, one marker each, and retry until all markers are durable.

    1  write(marker, partitions, done) appends the marker to each partition, and has it flushed
    2  for `__consumer_offsets`, the groups append the marker, and then commit or drop their pending offsets
    3  a partition that failed is tried again after a delay
    4  when the markers of all partitions are durable, done() is called

A partition needs no marker if its topic was deleted, or if it has seen a later epoch of the producer or (in a cluster)
of the coordinator. If another broker leads the partition, the marker is sent to that broker.

Thread rule: any thread; nothing waits. `done` is called without a lock, on the thread that ends the last write. The
lock is a leaf.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.failure_log import Troubles
from kafkalite.broker.coordinator.log_writer import LogWriter
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC
from kafkalite.errors import ErrorCode, UnknownTopicOrPartition, error_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.base.pool import IoPool
    from kafkalite.broker.coordinator.failure_log import Trouble
    from kafkalite.broker.coordinator.groups import GroupCoordinator
    from kafkalite.broker.coordinator.marker_requests import RemoteMarker
    from kafkalite.broker.coordinator.remote import Remote
    from kafkalite.broker.coordinator.timer_queue import TimerQueue
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.model import TopicPartition

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)

RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0

_NOTHING_OPEN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Refusals that mean that the partition has no open transaction of the producer."""

_NOT_SERVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Codes of a partition of `__consumer_offsets` that is not led or not loaded here: the marker is retried, as for other
partitions. Source: TransactionMarkerRequestCompletionHandler of Kafka, where these codes are illegal."""
_OUTDATED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerWriter:
    """Writes markers for the transaction coordinator, and for WriteTxnMarkers requests."""

    def __init__(self, logs: LogManager, groups: GroupCoordinator, pool: IoPool, timers: TimerQueue) -> None:
        self._logs = logs
        self._groups = groups
        self._pool = pool
        self._timers = timers
        self._lock = threading.Lock()
        self._writers: dict[TopicPartition, LogWriter] = {}  # guarded by _lock
        self._troubles = Troubles(timers.clock)
        self.remote: Remote | None = None
        """In a cluster: sends markers to other leaders."""

    def write(self, mark: RemoteMarker, partitions: Iterable[TopicPartition], done: Callable[[], object]) -> None:
        """Write a marker to each partition. When all partitions are done, call `done` once."""
        wanted = sorted(partitions)  # a set of them has another order in each process
        left = len(wanted)

        def settled() -> None:
            nonlocal left
            with self._lock:
                left -= 1
                last = left == 0
            if last:
                done()

        if not wanted:
            done()
        for partition in wanted:
            self._write_until_done(mark, partition, settled, RETRY_S_MIN)

    def _write_until_done(
        self, mark: RemoteMarker, partition: TopicPartition, settled: Callable[[], object], delay_s: float
    ) -> None:
        def written(code: int) -> None:
            if code == 0 or code in (_NOTHING_OPEN if self.remote is None else self._settles(partition)):
                if code:
                    logger.info("a transaction marker is not needed", extra=_fields(mark, partition, code))
                if (past := self._troubles.over(partition)) is not None:
                    logger.warning(
                        "transaction markers can be written again", extra=_fields(mark, partition, code, past)
                    )
                settled()
                return
            if (trouble := self._troubles.failed(partition)) is not None:
                told = _fields(mark, partition, code, trouble)
                logger.warning("could not write a transaction marker; retrying", extra=told)
            again = min(delay_s * 2, RETRY_S_MAX)
            self._timers.timer(lambda: self._write_until_done(mark, partition, settled, again)).set(delay_s)

        if self.remote is None:
            self._append(mark, mark.append_as_only_coordinator, partition, written)
            return
        leader = self._led_elsewhere(partition)
        if leader is None:
            self._append(mark, mark.append, partition, written)
        else:
            self.remote.write_marker(leader, mark, partition, written)

    def _led_elsewhere(self, partition: TopicPartition) -> int | None:
        """Return the id of the other broker that leads a partition; -1 if the partition has no leader.

        None if this broker leads the partition, or if the partition was deleted.
        """
        topic = self._logs.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        log = topic.partitions[partition.partition]
        return None if log.led else int(log.core.leader_id)

    def _settles(self, partition: TopicPartition) -> frozenset[ErrorCode]:
        """Return the error codes after which a marker is not retried in a cluster.

        They mean that the partition has seen a later epoch of the producer or of the coordinator.
        UNKNOWN_TOPIC_OR_PARTITION is included only if this broker does not know the partition either: the other broker
        might not know a new topic yet.
        """
        topic = self._logs.topics.get(partition.topic)
        gone = topic is None or partition.partition >= len(topic.partitions)  # or created again with fewer partitions
        return _OUTDATED | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if gone else _OUTDATED

    def write_one(self, mark: RemoteMarker, partition: TopicPartition, callback: Callable[[int], object]) -> None:
        """Write a marker once; call callback(0) when it is durable, or callback(code) after a failure."""
        self._append(mark, mark.append, partition, callback)

    def _append(
        self,
        mark: RemoteMarker,
        append: Callable[[PartitionLog], int],
        partition: TopicPartition,
        callback: Callable[[int], object],
    ) -> None:
        if partition.topic == OFFSETS_TOPIC:
            if partition.partition >= len(self._groups.log.partitions):
                callback(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return
            self._groups.offsets.write_marker(
                partition.partition,
                append,
                mark.producer_id,
                mark.producer_epoch,
                commit=mark.commit,
                callback=lambda code: callback(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_SERVED else code),
            )
            return

        def written(code: int) -> None:
            with self._lock:
                if self._writers.get(partition) is writer and writer.idle:
                    del self._writers[partition]
            callback(code)

        with self._lock:
            writer = self._writers.get(partition) or self._new_writer_locked(partition)
        writer.write(append, written)

    def _new_writer_locked(self, partition: TopicPartition) -> LogWriter:
        def find() -> PartitionLog:
            topic = self._logs.topics.get(partition.topic)
            if topic is None or not 0 <= partition.partition < len(topic.partitions):
                raise UnknownTopicOrPartition(f"{partition} no longer exists")
            log: PartitionLog = topic.partitions[partition.partition]
            if not log.led:
                raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by another broker")
            return log

        writer = LogWriter(
            f"{partition.topic}-{partition.partition}", find, self._pool, flush=self._logs.config.flush_on_acks_all
        )
        self._writers[partition] = writer
        return writer


def _fields(
    mark: RemoteMarker, partition: TopicPartition, code: int, trouble: Trouble | None = None
) -> Mapping[str, Any]:
    known = code in ErrorCode.__members__.values()  # another broker may return a code that this release does not know
    error = ErrorCode(code).name if known else code
    more = {} if trouble is None else {"failures": trouble.failures, "seconds": round(trouble.seconds, 1)}
    return fields(
        topic=partition.topic, partition=partition.partition, producer_id=mark.producer_id, error=error, **more
    )
