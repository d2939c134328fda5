"""Run group commit: one thread syncs appended records and calls back every producer that waits for them.

    1  flush_async adds a producer's callback to the queue; any number of producers may wait
    2  a round takes all callbacks in the queue; producers that come later wait for the next round
    3  the round syncs each unsynced file of a partition once, by fdatasync
    4  after a partition's sync, the round calls the callbacks of this partition

Every callback is called exactly once, also when the flusher stops.

Thread rule: callbacks must not block. They run on the flusher's thread, without locks; after `stop`, on the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite._native.base.histogram import Histogram
from kafkalite.base.executors import THREADS, Executors
from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

logger = RepeatLogger(logging.getLogger(__name__))

Callback = Callable[[int], object]


class Flusher:
    """The group-commit thread of one data directory.

    Its queue needs no limit: it has at most one entry for each request in flight.
    """

    def __init__(self, on_fatal: Callable[[BaseException], None], executors: Executors = THREADS) -> None:
        self._on_fatal = on_fatal
        self._worker = executors.worker("kafkalite-flusher", self._turn)
        self._lock = self._worker.lock
        self._waiting: dict[PartitionLog, list[tuple[int, Callback]]] = {}  # guarded by _lock
        self._stopping = False  # guarded by _lock
        self.durations = Histogram()
        """Durations of the flushes, in seconds."""

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self) -> None:
        """Serve the waiting requests, then end the thread. Later requests run on their caller's thread."""
        with self._lock:
            self._stopping = True
        self._worker.stop()

    def submit(self, log: PartitionLog, end_offset: int, callback: Callback | None = None) -> None:
        """Request a flush of `log` up to `end_offset`; call back with 0 or an error code when it has ended.

        Never blocks while the flusher runs.
        """
        with self._lock:
            if not self._stopping:
                waiters = self._waiting.setdefault(log, [])
                if callback is not None:
                    waiters.append((end_offset, callback))
                self._worker.call_locked()
                return
        _serve(log, [(end_offset, callback)] if callback is not None else [], self.durations)

    @property
    def waiting(self) -> int:
        """The number of callbacks that wait for a round."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def _turn(self) -> None:
        """Run one round: flush every log for which a request waits. Start all writebacks first, so that the syncs
        overlap.
        """
        with self._lock:  # after a MemoryError here nothing is lost, and the turn starts again
            waiting, self._waiting = self._waiting, {}
        try:
            if len(waiting) > 1:
                for log in waiting:
                    log.active.start_writeback()
            for log, waiters in waiting.items():
                _serve(log, waiters, self.durations)
        except BaseException as error:
            logger.exception("the flusher thread failed")
            self._on_fatal(error)
            raise


def _serve(log: PartitionLog, waiters: list[tuple[int, Callback]], durations: Histogram) -> None:
    """Flush one log, and run its callbacks."""
    code = 0
    try:
        if log.flushed_offset < max((end for end, _ in waiters), default=log.log_end_offset):
            began = log.services.clock.monotonic()
            log.flush()
            durations.add(log.services.clock.monotonic() - began)
    except KafkaError as error:
        code = int(error.code)
    except Exception:  # after any failure, the records may not be durable
        logger.exception("flush failed", extra=fields(log=log.name))
        code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    for end_offset, callback in waiters:
        try:
            callback(code if code or log.flushed_offset >= end_offset else int(ErrorCode.KAFKA_STORAGE_ERROR))
        except Exception:  # the other callbacks still have to run
            logger.exception("a flush callback failed", extra=fields(log=log.name, end_offset=end_offset))


def flush_together(logs: Sequence[PartitionLog], directory: str) -> None:
    """Flush many logs with one sync of their file system. If a log's flush fails, log the error and take its partition
    offline.

    If the sync of the file system fails, each log is flushed separately: the error does not say which file failed.
    """
    states = [log.begin_bulk_flush() for log in logs]
    try:
        file_ops.sync_file_system(directory)
        synced = True
    except OSError as error:
        logger.warning("file system sync failed; flushing each log separately", extra=fields(reason=str(error)))
        synced = False
    for state in states:
        try:
            state.log.end_bulk_flush(state, synced=synced)
        except KafkaError as error:
            logger.warning("flush failed", extra=fields(log=state.log.name, reason=str(error)))
