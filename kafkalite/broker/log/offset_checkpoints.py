"""Kafka's checkpoint files of one data directory: recovery points, log start offsets, high watermarks.

    recovery-point-offset-checkpoint      up to where each log is on the disk
    log-start-offset-checkpoint           log starts that the names of the segment files do not tell
    replication-offset-checkpoint         kafkalite.broker.log.high_watermarks

A file is replaced as a whole, durably, unless it says the same already. What it said last is kept here, and so is what
the previous run wrote, until the first write.

Thread rule: any thread; each file's lock is a leaf. Everything but `points` and `starts` blocks.
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
    """The checkpoint files of the logs in a directory. `offline` has those that storage failures took away."""

    def __init__(
        self, directory: str, logs: Callable[[], Iterable[PartitionLog]], offline: Iterable[PartitionLog]
    ) -> None:
        self.complete = True
        """Whether `logs` gives all logs; until it does, the files keep what the previous run wrote."""
        self.high_watermarks = HighWatermarks(directory, logs)
        self._directory = directory
        self._logs = logs
        self._offline = offline
        self._lock = threading.Lock()
        self._written: dict[str, dict[tuple[str, int], int]] = {}  # what the files say; guarded by _lock

    def read(self) -> None:
        """Takes in what the previous run wrote."""
        for name in (files.RECOVERY_POINTS_NAME, files.LOG_STARTS_NAME):
            found = checkpoints.read_offsets(f"{self._directory}/{name}")
            if found is not None:
                self._written[name] = found
        self.high_watermarks.read()

    @property
    def points(self) -> Mapping[tuple[str, int], int] | None:
        """Recovery points by topic and partition, as they are written down; None without a file that can be read."""
        return self._written.get(files.RECOVERY_POINTS_NAME)

    @property
    def starts(self) -> Mapping[tuple[str, int], int]:
        """Log start offsets that are written down."""
        return self._written.get(files.LOG_STARTS_NAME, {})

    def write_recovery_points(self) -> None:
        """Writes down up to where each log is on the disk."""
        if self.complete:
            self._write_offsets(files.RECOVERY_POINTS_NAME, self._recovery_points)

    def write_log_starts(self) -> None:
        """Writes down log start offsets that the names of the segment files do not tell, or not durably yet."""
        if self.complete:
            self._write_offsets(files.LOG_STARTS_NAME, self._log_starts)

    def write_high_watermarks(self) -> None:
        """Writes down how far logs with replicas are known to be on all of them, where there are any. OSError."""
        if self.complete:
            self.high_watermarks.write()

    def add_recovery_points(self, logs: Iterable[PartitionLog]) -> None:
        """Writes down how far logs are on the disk that are not among all logs yet. OSError."""
        ends = {(log.topic, log.partition): log.flushed_offset for log in logs if not log.offline}
        self._write_offsets(files.RECOVERY_POINTS_NAME, lambda: {**self._recovery_points(), **ends})

    def correct_log_starts(self, logs: Iterable[PartitionLog]) -> None:
        """Writes down where logs start that were found to end before what is written down. OSError."""
        found = {(log.topic, log.partition): log.log_start_offset for log in logs}
        self._write_offsets(files.LOG_STARTS_NAME, lambda: {**self._written[files.LOG_STARTS_NAME], **found})

    def note_flushed(self, log: PartitionLog, offset: int) -> None:
        """Returns when all below an offset is on the disk and the recovery points say so. OSError, KafkaError."""
        if log.flushed_offset < offset or log.entries.dirty:
            log.flush()
        if (self.points or {}).get((log.topic, log.partition), -1) < offset:
            self.write_recovery_points()

    def note_front(self, log: PartitionLog) -> bool:
        """Of several names that go, any may come back. Writes down where the log starts now: a start removes what ends
        below. Below the recovery point the hole between them and the log start is no reason to cut the log there.

        False where it could not be written down: on a full disk it is retention that makes room."""
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
        """Takes partitions out of the files, durably: one of the same name has to find its own. OSError."""
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
        """Replaces a checkpoint file unless it says the same already.

        `current` is asked under the lock, so that nobody writes what was true before a topic went.
        """
        with self._lock:
            offsets = current()
            if self._written.get(name) != offsets:
                checkpoints.write_offsets(f"{self._directory}/{name}", offsets)
                self._written[name] = offsets
