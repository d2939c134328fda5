"""Define the interface of a data directory for its maintenance threads: the housekeeper and the cleaners."""

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
        """Return all logs, including offline ones."""

    def compact_journal(self) -> None:
        """Shorten the journal of topics and settings if it has many surplus lines."""

    def serve_backup(self) -> None:
        """Make the links for a pending backup request."""
