"""The interface of a data directory to its maintenance threads: the housekeeper and the cleaners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.base.clock import Clock, ExpiryTime
    from kafkalite.base.executors import Executors
    from kafkalite.broker.log.expiry_checkpoint import ExpiryCheckpoint
    from kafkalite.broker.log.flusher import Flusher
    from kafkalite.broker.log.offset_checkpoints import OffsetCheckpoints
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
    checkpoints: OffsetCheckpoints
    expiry_checkpoint: ExpiryCheckpoint

    def logs(self) -> Iterable[PartitionLog]:
        """All logs, those that are offline too."""

    def compact_journal(self) -> None:
        """Shortens the journal of topics and settings where that pays."""

    def serve_backup(self) -> None:
        """Makes what a backup that was asked for needs."""
