"""Define the requests between a transaction coordinator and a partition leader.

The coordinator sends a marker to the leader; a marker ends a transaction in the partition. The leader asks the
coordinator to add the partition to a transaction, or whether the transaction has it.

Thread rule: the objects are immutable. Their methods that append to a log follow the thread rule of PartitionLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite.errors import TransactionCoordinatorFenced

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.model import TopicPartition


class RemoteMarker(NamedTuple):
    """The content of a transaction marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int

    def append(self, log: PartitionLog) -> int:
        """Append the marker to a log; return the log's end offset. Raises what `PartitionLog.append_marker` raises."""
        return log.append_marker(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            commit=self.commit,
            transaction_version=self.transaction_version,
        )

    def append_as_only_coordinator(self, log: PartitionLog) -> int:
        """Append the marker, as a broker that is the only coordinator; return the log's end offset.

        If the partition has seen a later coordinator epoch, the marker gets that epoch.
        """
        try:
            return self.append(log)
        except TransactionCoordinatorFenced:
            seen = [row.coordinator_epoch for row in log.producer_rows() if row.producer_id == self.producer_id]
            return self._replace(coordinator_epoch=max(seen, default=self.coordinator_epoch)).append(log)


class Ask(NamedTuple):
    """A request to add a partition to a transaction; with `only_verify`, to check that the partition was added."""

    transactional_id: str
    producer_id: int
    epoch: int
    partition: TopicPartition
    only_verify: bool
    abortable: bool
    """Whether the requester supports TRANSACTION_ABORTABLE."""
