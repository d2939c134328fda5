"""Load, save and expire a partition's producer state: sequence numbers, open and aborted transactions.

    load    1  read the newest valid snapshot; S is its offset
            2  read the segments' NNN.txnindex files; take the transactions whose markers are below S
            3  read the log's batches from S on
    save    1  write the NNN.txnindex files that changed, durably
            2  write the snapshot and its companion, the file NNN.producers

The *mark* of a txnindex file is its entry count and CRC. The companion has the marks of all txnindex files.

State is saved at a roll, after a compaction with transactions, and at a checkpoint or clean stop that leaves the next
start less to read.

Thread rule: methods named `..._locked` need the log's lock. `save` writes files without it, one save at a time.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.base import file_ops
from kafkalite._native.log.producers import ProducerTable
from kafkalite._native.log.scan import SegmentScan
from kafkalite.base.logging import fields
from kafkalite.broker.log import snapshots, transaction_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.log.log_core import LogCore
    from kafkalite._native.log.segment import Segment
    from kafkalite.broker.log.indexes import SegmentIndexes

logger = logging.getLogger(__name__)

WALK_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of log after the last snapshot above which a clean stop or a checkpoint saves a new snapshot."""
OFFSET_MAX: Final = (1 << 63) - 1

Marks = dict[int, tuple[int, int]]
"""Base offset of a segment → (count, CRC) of the entries in its txnindex, for segments with entries."""


class CapturedProducers(NamedTuple):
    """The encoded producer state at one moment."""

    number: int  # rises with every capture of a log
    offset: int  # the log end at that moment
    size: int  # bytes of the active segment at that moment
    snapshot: tuple[bytes, bytes]
    marks: Marks
    indexes: dict[int, bytes]  # base offset of a segment → new contents of its txnindex


class ProducerState:
    """Loads, saves and expires the producer state of one log."""

    __slots__ = (
        "_captures",
        "_directory",
        "_indexes",
        "_log",
        "_producer_count_max",
        "_producer_id_seen",
        "_saved",
        "_saved_number",
        "_saving",
        "_snapshot_size",
        "snapshot_offset",
    )

    def __init__(
        self,
        log: LogCore,
        indexes: SegmentIndexes,
        directory: str,
        *,
        producer_count_max: int,
        producer_id_seen: Callable[[int], None],
    ) -> None:
        self._log = log
        self._indexes = indexes
        self._directory = directory
        self._producer_count_max = producer_count_max
        self._producer_id_seen = producer_id_seen
        self._saving = threading.Lock()  # a leaf: only files are written under it
        self._captures = 0  # guarded by the log's lock
        self._saved_number = -1  # guarded by _saving
        self._saved: tuple[int, Marks] = (0, {})  # the files have all markers below this offset; replaced as a whole
        self.snapshot_offset = -1
        self._snapshot_size = 0  # of the active segment at the last snapshot

    # --- load ---------------------------------------------------------------------------------------------------------

    def load_locked(self) -> ProducerTable:
        """Return the producer state at the log end, loaded from files and the log; OSError, KafkaError."""
        log = self._log
        table = ProducerTable(self._producer_count_max, replicated=log.replicated)
        start = snapshots.load(self._directory, log.segments[0].base_offset, log.log_end_offset, table)
        self.snapshot_offset = start
        if start > log.segments[0].base_offset:
            self._load_aborted(table, start)
        self._walk(table, max(start, 0), OFFSET_MAX)
        self._producer_id_seen(max((entry.producer_id for entry in table), default=-1))
        return table

    def _load_aborted(self, table: ProducerTable, start: int) -> None:
        """Load the aborted transactions whose markers are below `start`.

        They come from the txnindex files, or from the log if a file does not match its mark. A snapshot without marks
        is from Kafka or an older release. Its txnindex files are used if their entries are in order.
        """
        log = self._log
        expected = snapshots.aborted_marks(self._directory, start)
        bases = {segment.base_offset for segment in log.segments}
        sound = expected is None or all(base in bases for base in expected if base >= log.segments[0].base_offset)
        rows: list[transaction_index.Row] = []
        found: Marks = {}
        for i, segment in enumerate(log.segments):
            if segment.base_offset >= start or not sound:
                break
            data = transaction_index.read(self._directory, segment.base_offset)
            limit = log.segments[i + 1].base_offset if i + 1 < len(log.segments) else OFFSET_MAX
            decoded = self._meant(data, segment.base_offset, limit, expected, start)
            if decoded is None or not _adjoins(rows, decoded):
                sound = False
                break
            if data:
                found[segment.base_offset] = transaction_index.mark_of(data)
            rows += [row for row in decoded if row[2] < start]
        if sound:
            self._saved = (start, found)
        else:
            rows = self._rebuild(start)
            table.dirty = True
        for row in rows:
            table.aborted.add(*row)
        if not sound or expected is None:
            self._vouch(table, start)

    @staticmethod
    def _meant(
        data: bytes, base: int, limit: int, expected: Marks | None, start: int
    ) -> list[transaction_index.Row] | None:
        """Return those entries of a segment's txnindex that the snapshot's mark covers; None if the file does not match
        the mark.

        Such a file may be lost, incomplete, older than the snapshot, left by an interrupted compaction, or rewritten by
        Kafka. The entries after the covered ones must belong to transaction markers after the snapshot.
        """
        if expected is None:
            return transaction_index.decode(data, base, limit)
        mark = expected.get(base, (0, 0))
        size = mark[0] * transaction_index.ENTRY.size
        meant, later = data[:size], data[size:]
        if transaction_index.mark_of(meant) != mark or not transaction_index.begins_from(later, start):
            return None
        return transaction_index.decode(meant, base, limit)

    def _rebuild(self, start: int) -> list[transaction_index.Row]:
        log = self._log
        logger.warning("rebuilding the list of aborted transactions from the log", extra=fields(log=log.name))
        scratch = ProducerTable(self._producer_count_max)
        self._walk(scratch, 0, start)
        return [row for row in scratch.aborted.rows() if row[2] < start]

    def _vouch(self, table: ProducerTable, start: int) -> None:
        """Rewrite txnindex files that differ from `table`, and write a snapshot with the marks of all txnindex files.

        `table` is the state at offset `start`.
        """
        log = self._log
        marks: Marks = {}
        try:
            for i, segment in enumerate(log.segments):
                next_offset = log.segments[i + 1].base_offset if i + 1 < len(log.segments) else OFFSET_MAX
                data = transaction_index.encode(table.aborted.rows(segment.base_offset, next_offset))
                if data != transaction_index.read(self._directory, segment.base_offset):
                    transaction_index.write(self._directory, segment.base_offset, data)
                if data:
                    marks[segment.base_offset] = transaction_index.mark_of(data)
            snapshots.write(self._directory, start, snapshots.encode(table, marks))
        except OSError as error:
            logger.warning(
                "could not save the list of aborted transactions", extra=fields(log=log.name, reason=str(error))
            )
            return
        self._saved = (start, marks)

    def _walk(self, table: ProducerTable, start: int, limit: int) -> None:
        """Add the batches of the log to the table, from offset `start` to the end of the last segment that begins below
        `limit`.
        """
        log = self._log
        for i, segment in enumerate(log.segments):
            next_offset = log.segments[i + 1].base_offset if i + 1 < len(log.segments) else log.log_end_offset
            if segment.size > 0 and next_offset > start and segment.base_offset < limit:
                self._walk_segment(segment, start, table)

    def _walk_segment(self, segment: Segment, start_offset: int, table: ProducerTable) -> None:
        scan = SegmentScan(
            segment,
            position=self._indexes.position_of_offset(segment, start_offset, locked=True),
            producers=table,
            producers_from=start_offset,
        )
        while not scan.run(segment.size, verify=False):
            following = scan.resync(segment.size)
            if following is None:
                return
            scan.skip_to(*following)

    # --- expire -------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int, idle_max_ms: int) -> int:
        """Forget producers that were idle for longer than `idle_max_ms`; return their number. Takes the log's lock."""
        log = self._log
        with log.locked():
            return log.producers.expire(now_ms, idle_max_ms) if log.producers is not None else 0

    # --- save ---------------------------------------------------------------------------------------------------------

    def is_due_locked(self, *, stopping: bool) -> bool:
        """Return whether saving a snapshot now would save work at the next start."""
        log = self._log
        table = log.producers
        if table is None or self.snapshot_offset == log.log_end_offset:
            return table is not None and table.dirty and stopping
        grown = log.active.size - (self._snapshot_size if self.snapshot_offset > log.active.base_offset else 0)
        return grown > WALK_SIZE_MAX or (table.dirty and stopping)

    def capture_locked(self) -> CapturedProducers:
        """Return the current state, encoded, and mark the table as saved (clean)."""
        log = self._log
        table = log.producers
        assert table is not None, "there is no state to capture before it was loaded"
        filed, known = self._saved
        marks: Marks = {}
        indexes: dict[int, bytes] = {}
        next_offset = log.log_end_offset
        for segment in reversed(log.segments):
            base = segment.base_offset
            if next_offset <= filed:
                start = log.segments[0].base_offset
                marks |= {other: mark for other, mark in known.items() if start <= other < next_offset}
                break
            data = transaction_index.encode(table.aborted.rows(base, next_offset))
            if data:
                marks[base] = transaction_index.mark_of(data)
            if known.get(base) != marks.get(base):
                indexes[base] = data
            next_offset = base
        table.dirty = False
        self._captures += 1
        encoded = snapshots.encode(table, marks)
        return CapturedProducers(self._captures, log.log_end_offset, log.active.size, encoded, marks, indexes)

    def save(self, captured: CapturedProducers, *, durable: bool = False) -> None:
        """Write a captured state unless a later one is saved. An OSError is harmless, since the log contains the same
        state.
        """
        log = self._log
        with self._saving:
            if captured.number <= self._saved_number or log.deleted:
                return
            present = {segment.base_offset for segment in log.segments}
            for base, data in captured.indexes.items():
                if base in present:
                    transaction_index.write(self._directory, base, data)
            snapshots.write(self._directory, captured.offset, captured.snapshot, durable=durable)
            self._saved_number = captured.number
            self._saved = (captured.offset, captured.marks)
            self.snapshot_offset = captured.offset
            self._snapshot_size = captured.size

    def cut_locked(self, log_end: int) -> None:
        """Remove the saved state above `log_end`, because the log is about to be truncated there; discard earlier
        captures.

        The caller syncs the directory. OSError.
        """
        with self._saving:
            self._saved_number = self._captures
            self._saved = (0, {})
            for offset in snapshots.offsets_in(self._directory):
                if offset > log_end:
                    snapshots.remove(self._directory, offset)
            if self.snapshot_offset > log_end:
                self.snapshot_offset = -1

    def save_or_warn(self, captured: CapturedProducers) -> None:
        """Call `save`, but log an error instead of raising it."""
        try:
            self.save(captured)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        logger.warning("could not save a producer snapshot", extra=fields(log=self._log.name, reason=str(error)))

    def save_compacted(self, below: int) -> None:
        """Save the state after a compaction up to offset `below`, durably, and remove earlier snapshots.

        In an earlier snapshot, a transaction may be open whose marker the compaction removed. A power cut must not
        restore such a snapshot, so the directory is synced.
        """
        log = self._log
        with log.locked():
            if log.producers is None or log.deleted or log.offline:
                return
            self._saved = (0, {})
            captured = self.capture_locked()
        try:
            self.save(captured, durable=True)
        except OSError as error:
            self._warn(error)
        for offset in snapshots.offsets_in(self._directory):
            if offset < min(below, self.snapshot_offset):
                snapshots.remove(self._directory, offset)
        try:
            file_ops.sync_directory(self._directory)
        except OSError as error:
            self._warn(error)


def _adjoins(rows: list[transaction_index.Row], following: list[transaction_index.Row]) -> bool:
    """Return whether a segment's entries `rows` may come directly before the entries `following` of later segments."""
    return not rows or not following or rows[-1][3] <= following[0][3]
