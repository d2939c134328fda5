"""Checkpoint the high watermark of each replica in the file replication-offset-checkpoint.

The file is Kafka's. It has no entries for partitions with a single replica. It is written every few seconds, at a stop,
and before a truncation.

A checkpointed value may be too low: the replica learns the current one from its leader. A value that is too high would
expose records that may still be truncated.

Thread rule: any thread; a leaf lock guards writes. Writes may block.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kafkalite.broker.log import checkpoints, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.broker.log.partition_log import PartitionLog


class HighWatermarks:
    """The checkpoint of one data directory."""

    def __init__(self, directory: str, logs: Callable[[], Iterable[PartitionLog]]) -> None:
        self._path = f"{directory}/{files.HIGH_WATERMARKS_NAME}"
        self._logs = logs
        self._lock = threading.Lock()
        self._written: dict[tuple[str, int], int] = {}

    def read(self) -> None:
        """Read the checkpoint of an earlier run."""
        self._written = checkpoints.read_offsets(self._path) or {}

    def of(self, topic: str, partition: int) -> int | None:
        """Return the checkpointed high watermark of a partition; None if the checkpoint has no entry for it."""
        return self._written.get((topic, partition))

    def forget(self, is_gone: Callable[[tuple[str, int]], bool]) -> None:
        """Remove partitions from the checkpoint, durably, so that a new partition with an old name gets no old value.
        OSError.
        """
        with self._lock:
            kept = {key: offset for key, offset in self._written.items() if not is_gone(key)}
            if len(kept) < len(self._written):
                checkpoints.write_offsets(self._path, kept)
                self._written = kept

    def write(self) -> None:
        """Write the current high watermarks, durably, if they have changed. OSError."""
        with self._lock:
            found = {
                (log.topic, log.partition): log.high_watermark
                for log in self._logs()
                if log.core.replicated and not log.deleted
            }
            if found != self._written:
                checkpoints.write_offsets(self._path, found)
                self._written = found
