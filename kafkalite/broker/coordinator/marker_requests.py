"""What a coordinator and the leader of a partition ask of each other: the marker that ends a transaction there, and
whether a transaction may have the partition.

Thread rule: immutable; appending as PartitionLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.errors import TransactionCoordinatorFenced

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.model import TopicPartition


class RemoteMarker(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int

    def append(self, log: PartitionLog) -> int:
        """Writes it; the log's end after it. The refusals of `PartitionLog.append_marker`."""
        return log.append_marker(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            commit=self.commit,
            transaction_version=self.transaction_version,
        )

    def append_as_only_coordinator(self, log: PartitionLog) -> int:
        """As append, in the name of a later coordinator that the partition has seen."""
        try:
            return self.append(log)
        except TransactionCoordinatorFenced:
            seen = [row.coordinator_epoch for row in log.producer_rows() if row.producer_id == self.producer_id]
            return self._replace(coordinator_epoch=max(seen, default=self.coordinator_epoch)).append(log)


class Ask(NamedTuple):
    """May a transaction have a partition? `only_verify`: it has to have it already."""

    transactional_id: str
    producer_id: int
    epoch: int
    partition: TopicPartition
    only_verify: bool
    abortable: bool
    """Whether who asked knows TRANSACTION_ABORTABLE."""
