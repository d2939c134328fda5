"""Run the periodic work of a data directory on one thread: retention, checkpoints, flush by age, expiry.

    chore               every                                       does
    flush by age        FLUSH_CHECK_INTERVAL                        requests a flush for records older than flush.ms
    retention           log.retention.check.interval.ms             deletes the segments that retention selects
    checkpoint          log.flush.offset.checkpoint.interval.ms     syncs logs, saves indexes that grew, writes recovery
                                                                    points and log starts, compacts the journal
    producer expiry     producer.id.expiration.check.interval.ms    forgets idle producers
    high watermarks     replica.high.watermark.checkpoint.interval.ms    in a cluster: checkpoints them
    backup              FLUSH_CHECK_INTERVAL                        looks for a backup request
    clock               FLUSH_CHECK_INTERVAL                        checks whether the wall clock has jumped
    expiry time         as checkpoint, at most STORE_INTERVAL_MAX   stores the trusted time (see expiry_checkpoint)
    removal             when due                                    removes files and directories renamed a while ago

A failed chore is logged and tried again after its interval.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files, segment_removal
from kafkalite.broker.log.expiry_checkpoint import STORE_INTERVAL_MAX
from kafkalite.broker.log.flusher import flush_together
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.broker.log.upkeep import LogDirectory

logger = logging.getLogger(__name__)

FLUSH_CHECK_INTERVAL: Final = 0.5
"""Seconds between checks for logs that flush.ms makes due."""
BULK_FLUSH_COUNT_MIN: Final = 32
"""Minimum number of logs for which one sync of the file system is cheaper than a sync of each file and directory."""
RETENTION_DELAY: Final = 30.0
"""Seconds from the start to the first retention, as in Kafka, so that retention does not slow down the start."""


class Chore:
    """A task to run every `interval` seconds."""

    __slots__ = ("due", "interval", "name", "run")

    def __init__(self, name: str, interval: float, first: float, run: Callable[[], object]) -> None:
        self.name = name
        self.interval = interval
        self.due = first
        self.run = run


class Housekeeper:
    """The housekeeping thread of one data directory."""

    def __init__(self, logs: LogDirectory) -> None:
        self._logs = logs
        self._worker = logs.executors.worker("kafkalite-housekeeper", self._turn)
        self._lock = self._worker.lock
        self._stopping = False
        self._removals: list[tuple[float, str]] = []  # heap of (due, path), guarded by _lock
        self._to_notify: list[PartitionLog] = []  # guarded by _lock
        self._chores: list[Chore] = []

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self) -> None:
        """End the thread after its current chore. The next start removes the files that are queued for removal."""
        self._stopping = True
        self._worker.stop()

    def stopping(self) -> bool:
        """Return whether the thread is stopping; long chores then end early."""
        return self._stopping

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        """Remove files or directories after a delay in ms."""
        due = self._logs.clock.monotonic() + delay_ms / 1000
        with self._lock:
            for path in paths:
                heapq.heappush(self._removals, (due, path))
            self._worker.call_locked()

    def notify_later(self, log: PartitionLog) -> None:
        """Wake the requests that wait for a log, on the housekeeper's thread, which holds no lock."""
        with self._lock:
            self._to_notify.append(log)
            self._worker.call_locked()

    def run_due(self) -> float:
        """Run everything that is due; return the seconds until the next chore. Tests call this method, too."""
        now = self._logs.clock.monotonic()
        if not self._chores:
            self._chores = self._make_chores(now)
        with self._lock:
            to_notify, self._to_notify = self._to_notify, []
            removals = []
            while self._removals and self._removals[0][0] <= now:
                removals.append(heapq.heappop(self._removals)[1])
        for log in to_notify:
            log.core.wake_listeners()
        for path in removals:
            _remove(path)
        for chore in self._chores:
            if chore.due <= now:
                chore.due = now + chore.interval
                self._do(chore)
        due = min(chore.due for chore in self._chores)
        with self._lock:
            if self._removals:
                due = min(due, self._removals[0][0])
        return max(0.0, due - self._logs.clock.monotonic())

    def _make_chores(self, now: float) -> list[Chore]:
        config = self._logs.config
        retention = config.log_retention_check_interval_ms / 1000
        checkpoint = max(config.log_flush_offset_checkpoint_interval_ms, 100) / 1000
        store = min(checkpoint, STORE_INTERVAL_MAX)
        expiry = config.producer_id_expiration_check_interval_ms / 1000
        chores = [
            Chore("flush", FLUSH_CHECK_INTERVAL, now, self.flush_by_age),
            Chore("backup", FLUSH_CHECK_INTERVAL, now, self._logs.serve_backup),
            Chore("clock", FLUSH_CHECK_INTERVAL, now, self._logs.expiry_time.time_ms),
            Chore("expiry time", store, now + FLUSH_CHECK_INTERVAL, self._logs.expiry_checkpoint.store),
            Chore("retention", retention, now + min(RETENTION_DELAY, retention), self.apply_retention),
            Chore("checkpoint", checkpoint, now + checkpoint, self.checkpoint),
            Chore("producer expiry", expiry, now + expiry, self.expire_producers),
        ]
        if config.in_cluster:
            interval = config.replica_high_watermark_checkpoint_interval_ms / 1000
            chores.append(
                Chore("high watermarks", interval, now + interval, self._logs.checkpoints.write_high_watermarks)
            )
        return chores

    def _turn(self) -> float | None:
        if self._stopping:
            return None
        try:
            return self.run_due()
        except Exception:  # the thread must survive
            logger.exception("housekeeping failed")
            return FLUSH_CHECK_INTERVAL

    def _do(self, chore: Chore) -> None:
        try:
            chore.run()
        except Exception:  # the next turn may succeed, and the thread must survive
            logger.exception("a housekeeping task failed; retrying later", extra=fields(chore=chore.name))

    def _dirty_logs(self) -> list[PartitionLog]:
        """Return the logs with unflushed records. Their order is always the same."""
        return sorted(self._logs.dirty_logs, key=lambda log: (log.topic, log.partition))

    def flush_by_age(self) -> None:
        """Request a flush of each log whose oldest unflushed record has waited for flush.ms."""
        now = self._logs.clock.monotonic()
        for log in self._dirty_logs():
            since = log.core.unflushed_since
            if since and log.config.flush_ms <= (now - since) * 1000:
                self._logs.flusher.submit(log, log.log_end_offset)

    def apply_retention(self) -> int:
        """Delete expired segments; return their number."""
        now_ms = self._logs.expiry_time.time_ms()
        count = 0
        for log in self._logs.logs():
            if self.stopping():
                break
            try:
                count += segment_removal.apply_retention(log, now_ms)
            except (OSError, KafkaError) as error:
                logger.warning("retention failed for a log", extra=fields(log=log.name, reason=str(error)))
        return count

    def checkpoint(self) -> None:
        """Flush unsynced logs and checkpoint recovery points and log start offsets. Then a start after a crash has less
        to read.
        """
        dirty = self._dirty_logs()
        if len(dirty) >= BULK_FLUSH_COUNT_MIN:
            flush_together(dirty, self._logs.directory)
        for log in dirty:
            try:
                log.checkpoint()
            except (OSError, KafkaError) as error:
                logger.warning("checkpointing failed for a log", extra=fields(log=log.name, reason=str(error)))
        self._logs.checkpoints.write_recovery_points()
        self._logs.checkpoints.write_log_starts()
        self._logs.compact_journal()

    def expire_producers(self) -> int:
        """Forget idle producers; return their number."""
        now_ms = self._logs.expiry_time.time_ms()
        idle_max_ms = self._logs.config.producer_id_expiration_ms
        return sum(log.producer_state.expire(now_ms, idle_max_ms) for log in self._logs.logs())


def _remove(path: str) -> None:
    """Remove a file or a directory. If this fails, the next start removes it."""
    try:
        if disk.is_directory(path) and not disk.is_link(path):
            files.remove_tree(path)
        else:
            file_ops.unlink(path, missing_ok=True)
    except OSError as error:
        logger.warning(
            "could not remove a file or directory; the next start removes it",
            extra=fields(path=path, reason=str(error)),
        )
