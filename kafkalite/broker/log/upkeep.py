"""What the threads that keep a data directory in order see of it: the housekeeper and the cleaners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.base.clock import Clock, ExpiryTime
    from kafkalite.base.executors import Executors
    from kafkalite.broker.log.flusher import Flusher
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.settings.broker import BrokerConfig


class LogDirectory(Protocol):
    """One data directory and its logs. Any thread."""

    config: BrokerConfig
    clock: Clock
    executors: Executors
    expiry_time: ExpiryTime
    directory: str
    dirty_logs: set[PartitionLog]
    flusher: Flusher

    def logs(self) -> Iterable[PartitionLog]:
        """All logs, those that are offline too."""

    def note_flushed(self, log: PartitionLog, offset: int) -> None:
        """Writes down, durably, that a log is on the disk up to an offset."""

    def write_recovery_points(self) -> None:
        """Writes down how far each log is on the disk."""

    def write_log_starts(self) -> None:
        """Writes down where logs start whose files do not tell."""

    def write_high_watermarks(self) -> None:
        """Writes down how far logs with replicas are known to be on all of them."""

    def compact_journal(self) -> None:
        """Shortens the journal of topics and settings where that pays."""

    def store_time(self) -> None:
        """Stores the trusted time, durably."""

    def serve_backup(self) -> None:
        """Makes what a backup that was asked for needs."""
