"""Apply committed batches of the metadata log, and decide when a new image is published.

A published image never contains a part of a controller's transaction. It ends after a whole batch, or before the record
that begins a transaction. Its offset is that of its last record.

Source: MetadataBatchLoader and SnapshotGenerator of Kafka 4.1. Does no I/O; belongs to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.cluster.control_types import SnapshotFooterRecord, SnapshotHeaderRecord
from kafkalite.broker.cluster.image import EMPTY, Delta, Image
from kafkalite.broker.cluster.metadata_types import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from kafkalite.broker.cluster.records import Batch, MetadataFault, read_batches

if TYPE_CHECKING:
    from collections.abc import Iterable


class Replay:
    """The latest image, and the records that were applied since it was published."""

    def __init__(self) -> None:
        self.image: Image = EMPTY
        """The last published image."""
        self.end_offset = 0
        """The offset after the last applied batch, published or not."""
        self.last_epoch = 0
        """The quorum epoch of the last applied batch."""
        self._delta = Delta(EMPTY)
        self._before: Image | None = None  # the image before an open transaction

    def apply(self, batches: Iterable[Batch]) -> Image | None:
        """Apply committed batches in order. Return the image to publish, or None if there is none yet.

        Records of an open transaction are applied, but not published. If the transaction is aborted, they are dropped.
        """
        for batch in batches:
            for offset, record in batch.records:
                self._apply(offset, record, batch.epoch)
            self.end_offset, self.last_epoch = batch.last_offset + 1, batch.epoch
        image = self._before
        if image is None:
            if self.end_offset - 1 == self.image.offset:
                return None
            image = self._delta.build(self.end_offset - 1, self.last_epoch)
        if image.offset <= self.image.offset:
            return None
        self.image = image
        return image

    def load(self, data: bytes | bytearray, end_offset: int, epoch: int) -> Image:
        """Replace the image by that of a complete snapshot. Raises MetadataFault if the snapshot is incomplete."""
        delta = Delta(EMPTY)
        first = last = None
        for batch in read_batches(memoryview(data)):
            for _, record in batch.records:
                first, last = first or record, record
                delta.apply(record)
        if not isinstance(first, SnapshotHeaderRecord) or not isinstance(last, SnapshotFooterRecord):
            raise MetadataFault(f"the metadata snapshot at offset {end_offset} is incomplete")
        self.image = delta.build(end_offset - 1, epoch)
        self.end_offset, self.last_epoch = end_offset, epoch
        self._delta, self._before = delta, None
        return self.image

    def _apply(self, offset: int, record: object, epoch: int) -> None:
        match record:
            case BeginTransactionRecord():
                if self._before is not None:
                    raise MetadataFault(f"the metadata log begins a transaction inside another one at offset {offset}")
                self._before = self._delta.build(offset - 1, epoch)
            case EndTransactionRecord() | AbortTransactionRecord():
                if self._before is None:
                    raise MetadataFault(f"the metadata log ends a transaction at offset {offset} that it never began")
                if isinstance(record, AbortTransactionRecord):
                    self._delta = Delta(self._before)
                self._before = None
            case _:
                self._delta.apply(record)
