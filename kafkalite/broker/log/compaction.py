"""Compact one log: keep the newest record of each key, at its offset.

    [ compacted before | dirty ............... | not yet: lag, open transactions, active segment ]
                         ▲ first dirty           ▲ upper
    1  read the batch headers of the whole log: find aborted transactions, open transactions and markers
    2  add the keys of the dirty part to the key map, until it is full
    3  rewrite all segments below the mapped end, merge small ones, and swap them in (kafkalite.broker.log.swap)

The *mapped end* is the first offset whose key is not in the key map. kafkalite._native.log.compaction decides which
records of a batch stay. A segment with quarantined bytes stays as it is.

Thread rule: a compaction belongs to one cleaner thread. Reads and appends continue meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.compaction import (
    BATCH_MARKER,
    DAMAGED,
    END,
    MAP_FULL,
    PAUSE,
    BatchFilter,
    index_batches,
    marker_type,
    transaction_batches,
)
from kafkalite._native.log.index import SegmentIndex
from kafkalite._native.log.key_map import KeyMap
from kafkalite._native.log.scan import SegmentScan, batch_headers
from kafkalite._native.log.segment import Segment
from kafkalite._native.wire.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, MARKER_ABORT
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files, swap
from kafkalite.wire.record.compression import CompressionError, Decompressor, compress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalite._native.log.scan import BatchHeaderDict
    from kafkalite.broker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

GROUP_COUNT_MAX: Final = 128
"""Maximum number of segments merged into one segment: all of them are open during the swap."""
OFFSET_SPAN_MAX: Final = (1 << 31) - 1
"""Maximum number of offsets in a segment: Kafka's index stores them relative to the base offset."""
SEGMENT_SIZE_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1


class CompactionStopped(Exception):
    """The compaction ended early, for example because the broker is stopping. Segments that were swapped in stay; the
    next compaction does the rest.
    """


class SegmentDamaged(Exception):
    """A segment turned out to be damaged while it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """The memory that a compaction may use.

        the key map              log.cleaner.dedupe.buffer.size, 24 bytes per key
        an output buffer         log.cleaner.io.buffer.size and one batch
        one decompressed batch   filtered in place; copied once if its tombstones get a delete horizon
        transactions             eight bytes for each marker and for each batch of an aborted transaction

    `kafkalite.broker.limits.budget` adds all this up.
    """

    key_map_size: int  # bytes
    key_map_load_factor: float
    output_size: int  # bytes buffered before a write


@dataclass(slots=True)
class Transactions:
    """The transactions found in a log's batch headers. The offsets in both arrays are in ascending order."""

    aborted: array[int]  # base offsets of batches of aborted transactions
    finished: array[int]  # base offsets of markers whose transaction has no batch left
    open_offset: int | None = None  # first offset of the earliest transaction without a marker
    producers: bool = False  # whether any batch has a producer id
    seen: bool = False  # whether any batch is transactional or a marker


def holds(offsets: array[int], offset: int) -> bool:
    """Return whether a sorted array contains an offset."""
    at = bisect_left(offsets, offset)
    return at < len(offsets) and offsets[at] == offset


class Compaction:
    """Compacts `log` from `first_dirty` up to at most `upper`.

    `spend` is called with the number of bytes read or written; it may wait, or raise CompactionStopped.

    `now_ms` is the trusted time. A tombstone or marker is removed when `now_ms` has reached its delete horizon. A new
    delete horizon is delete.retention.ms after the wall clock, which is `ahead_ms` ahead of the trusted time. Otherwise
    the tombstone would be removed too early if the trusted time jumps to the wall clock.
    """

    def __init__(
        self,
        log: PartitionLog,
        first_dirty: int,
        upper: int,
        *,
        now_ms: int,
        limits: CompactionLimits,
        spend: Callable[[int], None],
        ahead_ms: int = 0,
    ) -> None:
        self.log = log
        self.first_dirty = first_dirty
        self.upper = upper
        self.now_ms = now_ms
        self.ahead_ms = ahead_ms
        self.limits = limits
        self.size_before = 0
        self.size_after = 0
        self._spend_bytes = spend
        self._damaged: set[int] = set()  # base offsets of segments with damage
        self._decompressor = Decompressor(log.services.decompressed_size_max, in_turns=True)
        self._filter: BatchFilter | None = None

    def run(self) -> int:
        """Compact the log; return the offset up to which it is compacted now. OSError; CompactionStopped;
        SwapAbandoned.
        """
        try:
            segments = self._prepare()
            transactions = self._transactions(segments)
            if transactions.open_offset is not None:
                self.upper = min(self.upper, transactions.open_offset)
            if self.upper <= self.first_dirty:
                return self.first_dirty
            keys = KeyMap(
                self.limits.key_map_size, self.limits.key_map_load_factor, max(0, self.upper - self.first_dirty)
            )
            mapped_end = self._note_keys(keys, segments, transactions)
            self._filter = BatchFilter(
                keys,
                mapped_end=mapped_end,
                retain_end=self.upper,
                now_ms=self.now_ms,
                delete_retention_ms=min(self.log.config.delete_retention_ms + self.ahead_ms, INT64_MAX),
                producers=self._active_producers() if transactions.producers else {},
                aborted=transactions.aborted,
                unpack=self._unpack,
                pack=compress,
            )
            for group in self._groups([entry for entry in segments if entry[0].base_offset < mapped_end]):
                self._clean_group(self._filter, group, transactions)
            if transactions.seen:
                self._forget_aborted(transactions)
                self.log.producer_state.save_compacted(mapped_end)
            return mapped_end
        finally:
            self._decompressor.close()

    def _spend(self, size: int) -> None:
        self._decompressor.rest()
        self._spend_bytes(size)

    # --- what is there ------------------------------------------------------------------------------------------------

    def _prepare(self) -> list[tuple[Segment, int]]:
        """Index and check all segments before the active one. Return (segment, base offset of the next segment) for
        each.
        """
        segments = self.log.segments
        pairs = [(segment, segments[i + 1].base_offset) for i, segment in enumerate(segments[:-1])]
        for segment, next_offset in pairs:
            if segment.size > 0:
                self.log.indexes.checked(segment, segment.base_offset, segment.size, next_offset)
                if segment.damage is not None:
                    self.log.note_damage()
                self._spend(0)
            if segment.damage is not None:
                self._damaged.add(segment.base_offset)
                logger.error(
                    "a segment is damaged and is not compacted",
                    extra=fields(log=self.log.name, path=segment.path),
                )
        return pairs

    def _transactions(self, segments: Sequence[tuple[Segment, int]]) -> Transactions:
        """Find aborted and open transactions in these segments and the active segment.

        The records of a transaction that crosses damage stay, because its outcome is unknown.
        """
        found = Transactions(array("q"), array("q"))
        running: dict[int, list[int]] = {}  # producer id → base offsets of its transaction's batches
        aborted: list[int] = []
        for segment in (*(segment for segment, _ in segments), self.log.active):
            if segment.base_offset in self._damaged:
                running.clear()
                continue
            for header in self._transaction_headers(segment, found):
                producer_id = header["producer_id"]
                if not header["attributes"] & CONTROL:
                    running.setdefault(producer_id, []).append(header["base_offset"])
                    continue
                batches = running.pop(producer_id, None)
                if batches is None:
                    found.finished.append(header["base_offset"])
                elif marker_type(segment, header["position"]) == MARKER_ABORT:
                    aborted += batches
        found.aborted.extend(sorted(aborted))
        found.open_offset = min((batches[0] for batches in running.values()), default=None)
        return found

    def _transaction_headers(self, segment: Segment, found: Transactions) -> Iterator[BatchHeaderDict]:
        position = 0
        while position >= 0 and segment.size > 0:
            headers, producers, position = transaction_batches(segment, position)
            found.producers |= producers
            found.seen |= bool(headers)
            yield from headers
            self._spend(0)

    def _active_producers(self) -> dict[int, int]:
        """Return producer id → offset after the producer's last batch.

        This batch must stay, because it has the producer's last sequence number.
        """
        producers = self.log.ensure_producers()
        with self.log.core.locked():
            return {
                entry.producer_id: (entry.last_data_offset if entry.span_count else entry.last_offset) + 1
                for entry in producers
            }

    def _forget_aborted(self, transactions: Transactions) -> None:
        """Drop the entries of aborted transactions that had no batch left when this pass began: no reader needs these
        entries.

        Do nothing if a segment is damaged, since the damage may hide batches.
        """
        if self._damaged or not transactions.finished:
            return
        producers = self.log.ensure_producers()
        with self.log.core.locked():
            producers.aborted.drop(transactions.finished)

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _note_keys(self, keys: KeyMap, segments: Sequence[tuple[Segment, int]], transactions: Transactions) -> int:
        """Add the keys of the dirty part to the map; return the first offset whose key is not in the map."""
        for segment, next_offset in segments:
            if next_offset <= self.first_dirty or segment.base_offset in self._damaged:
                continue
            if segment.base_offset >= self.upper:
                break
            full_offset = self._note_segment(keys, segment, transactions)
            if full_offset is not None:
                logger.info(
                    "the key map is full; the next compaction continues with the rest of the log",
                    extra=fields(log=self.log.name, keys=len(keys), up_to_offset=full_offset),
                )
                return full_offset
        return min(self.upper, segments[-1][1]) if segments else self.first_dirty

    def _note_segment(self, keys: KeyMap, segment: Segment, transactions: Transactions) -> int | None:
        """Add a segment's keys to the map. Return None, or the first offset whose key did not fit because the map is
        full.
        """
        position = self.log.indexes.position_of_offset(segment, self.first_dirty)
        stop = PAUSE
        while stop != END:
            start = position
            stop, position, offset = index_batches(
                keys,
                segment,
                position,
                segment.size,
                start_offset=self.first_dirty,
                upper=self.upper,
                aborted=transactions.aborted,
                unpack=self._unpack,
            )
            if stop == MAP_FULL:
                return offset
            if stop == DAMAGED:
                self._found_damage(segment, position)
            self._spend(position - start)
        return None

    def _unpack(self, codec: int, packed: memoryview, base_offset: int) -> memoryview | None:
        """Return the decompressed records of a batch, valid until the next call; None if decompression fails."""
        try:
            return self._decompressor.decompress(codec, packed, writable=True)
        except CompressionError as error:
            logger.warning(
                "could not decompress a batch; compaction keeps all its records",
                extra=fields(log=self.log.name, offset=base_offset, reason=str(error)),
            )
            return None

    def _found_damage(self, segment: Segment, position: int) -> None:
        logger.error("found damage in a segment", extra=fields(path=segment.path, position=position))
        raise SegmentDamaged(f"{segment.path}: no intact batch at position {position}")

    # --- writing ------------------------------------------------------------------------------------------------------

    def _groups(self, segments: Sequence[tuple[Segment, int]]) -> Iterator[list[tuple[Segment, int]]]:
        """Yield groups of adjacent segments, each of which fits into one segment. A damaged segment ends a group and is
        left out, so that damage is never overwritten.
        """
        group: list[tuple[Segment, int]] = []
        size = 0
        for segment, next_offset in segments:
            damaged = segment.base_offset in self._damaged
            fits = (
                group
                and not damaged
                and size + segment.size <= self.log.core.segment_size_max
                and len(group) < GROUP_COUNT_MAX
                and next_offset - group[0][0].base_offset <= OFFSET_SPAN_MAX
            )
            if group and not fits:
                yield group
                group, size = [], 0
            if not damaged:
                group.append((segment, next_offset))
                size += segment.size
        if group:
            yield group

    def _clean_group(
        self, batches: BatchFilter, group: Sequence[tuple[Segment, int]], transactions: Transactions
    ) -> None:
        """Replace a group of segments by one compacted segment.

        Tombstones and markers after damage stay, because the damage may hide older records of any key.
        """
        log = self.log
        first, last = group[0][0], group[-1][0]
        if any(segment.flushed_size < segment.size for segment, _ in group):
            raise CompactionStopped("a full segment is not yet flushed to the disk")
        batches.may_forget = not any(base < first.base_offset for base in self._damaged)
        changed = batches.changed_count
        path = f"{log.directory}/{files.stem(first.base_offset)}{log.format.suffix}{files.CLEANED_SUFFIX}"
        try:
            size = self._write_group(batches, group, transactions, path)
            self.size_before += sum(segment.size for segment, _ in group)
            self.size_after += size
            if batches.changed_count == changed and len(group) == 1:
                file_ops.unlink(path)
                return
            modified = disk.stat(last.path).st_mtime_ns
            disk.set_times(path, modified, modified)
            new = self._read_back(first.base_offset, size, group[-1][1])
            swap.replace(log, [segment for segment, _ in group], new)
        except BaseException:
            with contextlib.suppress(OSError):
                file_ops.unlink(path, missing_ok=True)
            raise

    def _write_group(
        self, batches: BatchFilter, group: Sequence[tuple[Segment, int]], transactions: Transactions, path: str
    ) -> int:
        """Write the batches that stay to a new segment file at `path`, and sync the file; return its size in bytes."""
        fd = file_ops.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        size = 0
        try:
            for segment, _ in group:
                position = 0
                stop = PAUSE
                while stop != END:
                    start = position
                    stop, position = batches.run(segment, position, segment.size, self.limits.output_size)
                    if stop == DAMAGED:
                        self._found_damage(segment, position)
                    if stop == BATCH_MARKER:
                        header = batch_headers(segment, position, segment.size, count_max=1)[0]
                        self._filter_marker(batches, segment, header, transactions)
                        position += header["size"]
                    written = 0
                    if batches.out_size >= self.limits.output_size or stop == END:
                        written = batches.write(fd, size)
                        size += written
                    self._spend(position - start + written)
            if size > SEGMENT_SIZE_MAX:
                raise CompactionStopped("the compacted segment would be too large")
            file_ops.sync_file(fd)
        finally:
            disk.close(fd)
        return size

    def _filter_marker(
        self, batches: BatchFilter, segment: Segment, header: BatchHeaderDict, transactions: Transactions
    ) -> None:
        """Copy or drop a marker. It is dropped once its transaction has no batch left and delete.retention.ms has
        passed since then (KIP-534).
        """
        position = header["position"]
        needed = not holds(transactions.finished, header["base_offset"]) or not batches.may_forget
        if header["record_count"] == 0:
            batches.drop(segment, position)
        elif needed or header["attributes"] & CODEC_MASK:
            batches.copy(segment, position)
        elif not header["attributes"] & DELETE_HORIZON:
            batches.postpone(segment, position)
        elif header["base_timestamp"] <= self.now_ms:
            batches.drop(segment, position)
        else:
            batches.copy(segment, position)

    def _read_back(self, base_offset: int, size: int, next_offset: int) -> Segment:
        """Read, check and index every batch of the written file; return the file as a segment."""
        log = self.log
        segment = Segment(
            log.services.cache,
            log.format,
            log.directory,
            base_offset,
            map_reserve=max(size, swap.MAP_SIZE_MIN),
            size=size,
            path_suffix=files.CLEANED_SUFFIX,
        )
        scan = SegmentScan(
            segment, next_offset=base_offset, index=SegmentIndex(), index_interval=log.core.index_interval
        )
        if not scan.run(size, verify=True, offset_limit=next_offset):
            raise SegmentDamaged(f"{segment.path}: a compacted segment does not read back at position {scan.position}")
        scan.install(verified_from=0)
        segment.set_flushed(size)
        segment.mark_sealed()
        self._spend(size)
        return segment

    def summary(self) -> dict[str, int]:
        """Return the fields for the log line."""
        found = self._filter
        if found is None:
            return {}
        return {
            "size_before": self.size_before,
            "size_after": self.size_after,
            "records": found.record_count,
            "kept": found.kept_count,
            "superseded": found.superseded_count,
            "tombstones_dropped": found.forgotten_count,
            "keyless_dropped": found.keyless_count,
            "unreadable_batches_kept": found.malformed_count,
        }
