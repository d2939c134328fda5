"""Define what a coordinator and a partition leader send each other: the marker that ends a transaction there, and
the check whether a transaction may write to it.

Thread rule: immutable; appending as PartitionLog.
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
        """Append it; return the log's end offset. Refusals as of `PartitionLog.append_marker`."""
        return log.append_marker(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            commit=self.commit,
            transaction_version=self.transaction_version,
        )

    def append_as_only_coordinator(self, log: PartitionLog) -> int:
        """Append it under a later coordinator's epoch, if the partition has seen one."""
        try:
            return self.append(log)
        except TransactionCoordinatorFenced:
            seen = [row.coordinator_epoch for row in log.producer_rows() if row.producer_id == self.producer_id]
            return self._replace(coordinator_epoch=max(seen, default=self.coordinator_epoch)).append(log)


class Ask(NamedTuple):
    """A request to add a partition to a transaction, or, with `only_verify`, to check that it was added."""

    transactional_id: str
    producer_id: int
    epoch: int
    partition: TopicPartition
    only_verify: bool
    abortable: bool
    """Whether the requester supports TRANSACTION_ABORTABLE."""
