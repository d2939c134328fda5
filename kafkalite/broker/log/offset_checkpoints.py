"""Read and write Kafka's checkpoint files of one data directory: recovery points, log start offsets, high watermarks.

    recovery-point-offset-checkpoint      offset up to which each log is durable
    log-start-offset-checkpoint           log start offsets that differ from the first segment's name
    replication-offset-checkpoint         kafkalite.broker.log.high_watermarks

A file is replaced as a whole, durably, and only if its contents have changed.

Thread rule: any thread; the locks are leaves. Everything but `points` and `starts` blocks.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kafkalite.base.logging import fields
from kafkalite.broker.log import checkpoints, files
from kafkalite.broker.log.high_watermarks import HighWatermarks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.broker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class OffsetCheckpoints:
    """The checkpoint files of the logs in a directory. `offline` has the logs whose storage failed."""

    def __init__(
        self, directory: str, logs: Callable[[], Iterable[PartitionLog]], offline: Iterable[PartitionLog]
    ) -> None:
        self.complete = True
        """Whether `logs` returns all logs; until it does, the files keep the contents of the previous run."""
        self.high_watermarks = HighWatermarks(directory, logs)
        self._directory = directory
        self._logs = logs
        self._offline = offline
        self._lock = threading.Lock()
        self._written: dict[str, dict[tuple[str, int], int]] = {}  # file name → its contents; guarded by _lock

    def read(self) -> None:
        """Read the files of the previous run."""
        for name in (files.RECOVERY_POINTS_NAME, files.LOG_STARTS_NAME):
            found = checkpoints.read_offsets(f"{self._directory}/{name}")
            if found is not None:
                self._written[name] = found
        self.high_watermarks.read()

    @property
    def points(self) -> Mapping[tuple[str, int], int] | None:
        """The recovery points from the file, by topic and partition; None if the file is not readable."""
        return self._written.get(files.RECOVERY_POINTS_NAME)

    @property
    def starts(self) -> Mapping[tuple[str, int], int]:
        """The log start offsets from the file, by topic and partition."""
        return self._written.get(files.LOG_STARTS_NAME, {})

    def write_recovery_points(self) -> None:
        """Write the offset up to which each log is durable. OSError."""
        if self.complete:
            self._write_offsets(files.RECOVERY_POINTS_NAME, self._recovery_points)

    def write_log_starts(self) -> None:
        """Write the log start offsets that differ from the name of the log's first segment. OSError.

        Also write those of logs whose first segment has no file, or whose file names a power cut could still undo.
        """
        if self.complete:
            self._write_offsets(files.LOG_STARTS_NAME, self._log_starts)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks of logs with other replicas. OSError."""
        if self.complete:
            self.high_watermarks.write()

    def add_recovery_points(self, logs: Iterable[PartitionLog]) -> None:
        """Write recovery points, also for `logs`, which are not published yet. OSError."""
        ends = {(log.topic, log.partition): log.flushed_offset for log in logs if not log.offline}
        self._write_offsets(files.RECOVERY_POINTS_NAME, lambda: {**self._recovery_points(), **ends})

    def correct_log_starts(self, logs: Iterable[PartitionLog]) -> None:
        """Correct the entries of logs whose checkpointed log start offset is too high. OSError."""
        found = {(log.topic, log.partition): log.log_start_offset for log in logs}
        self._write_offsets(files.LOG_STARTS_NAME, lambda: {**self._written[files.LOG_STARTS_NAME], **found})

    def note_flushed(self, log: PartitionLog, offset: int) -> None:
        """Make a log durable up to an offset, and write a recovery point at or above it. OSError; KafkaError."""
        if log.flushed_offset < offset or log.entries.dirty:
            log.flush()
        if (self.points or {}).get((log.topic, log.partition), -1) < offset:
            self.write_recovery_points()

    def note_front(self, log: PartitionLog) -> bool:
        """Write a log's new log start before the files of its first segments are removed; return whether this
        succeeded.

        A power cut may undo the removal of any of these files. With the log start written, the next start removes
        segments below it, and a gap between such segments does not truncate the log.

        If the write fails, as on a full disk, retention must still be able to free space. The caller then makes each
        removal durable before the next one.
        """
        first = log.segments[0].base_offset
        try:
            self.write_log_starts()
            if (self.points or {}).get((log.topic, log.partition), -1) < first:
                self.write_recovery_points()
        except OSError as error:
            reason = str(error)
            logger.warning("could not write the log start offset", extra=fields(log=log.name, reason=reason))
            return False
        return self.starts.get((log.topic, log.partition), -1) >= first

    def forget(self, is_gone: Callable[[tuple[str, int]], bool]) -> None:
        """Remove partitions from the files, durably, so that a new partition with an old name gets no old value.
        OSError.
        """
        with self._lock:
            for name, offsets in self._written.items():
                kept = {key: offset for key, offset in offsets.items() if not is_gone(key)}
                if len(kept) < len(offsets):
                    checkpoints.write_offsets(f"{self._directory}/{name}", kept)
                    self._written[name] = kept
        self.high_watermarks.forget(is_gone)

    def _recovery_points(self) -> dict[tuple[str, int], int]:
        points = {(log.topic, log.partition): log.flushed_offset for log in self._logs() if not log.offline}
        for log in self._offline:
            if not log.deleted:
                points[log.topic, log.partition] = log.flushed_offset
        return points

    def _log_starts(self) -> dict[tuple[str, int], int]:
        return {
            (log.topic, log.partition): log.log_start_offset
            for log in self._logs()
            if log.log_start_offset > log.segments[0].base_offset
            or not log.segments[0].has_file
            or (log.log_start_offset > 0 and log.entries.dirty)
        }

    def _write_offsets(self, name: str, current: Callable[[], dict[tuple[str, int], int]]) -> None:
        """Replace a checkpoint file unless its contents are unchanged.

        `current` returns the contents. It is called under the lock, so that an older state never replaces the
        state after a topic's deletion.
        """
        with self._lock:
            offsets = current()
            if self._written.get(name) != offsets:
                checkpoints.write_offsets(f"{self._directory}/{name}", offsets)
                self._written[name] = offsets
