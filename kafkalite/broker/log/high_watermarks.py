"""replication-offset-checkpoint: the high watermark of each replica, as last known.

Kafka's file, in the data directory; partitions that only this broker has are not in it. It is written every few
seconds, at a stop, and before a log is cut, so that what it says is never above what was seen: a start that believes
too little learns the rest from the leader, one that believes too much would show records that may still go.

Thread rule: any thread; writing is a leaf lock's. It may block.
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
        """Takes in what an earlier run has written."""
        self._written = checkpoints.read_offsets(self._path) or {}

    def of(self, topic: str, partition: int) -> int | None:
        """Return the checkpointed high watermark of a partition, None if there is none."""
        return self._written.get((topic, partition))

    def forget(self, is_gone: Callable[[tuple[str, int]], bool]) -> None:
        """Takes partitions out, durably: one of the same name has to find its own. OSError."""
        with self._lock:
            kept = {key: offset for key, offset in self._written.items() if not is_gone(key)}
            if len(kept) < len(self._written):
                checkpoints.write_offsets(self._path, kept)
                self._written = kept

    def write(self) -> None:
        """Writes down where they are, durably, unless the file says the same. OSError."""
        with self._lock:
            found = {
                (log.topic, log.partition): log.high_watermark
                for log in self._logs()
                if log.core.replicated and not log.deleted
            }
            if found != self._written:
                checkpoints.write_offsets(self._path, found)
                self._written = found
