"""Open a log from its partition directory, and recover it after an unclean stop.

    clean stop      read sizes, index headers and the last batch's header; nothing else if they match
    otherwise       check the segments that end after the flushed offset, without the bytes that saved indexes cover;
                    quarantine damage below the flushed offset, and truncate the log at damage above it (see recovery)

The *flushed offset* is the offset up to which the log is known to be durable. Recovery points and saved indexes show
it. Offsets below it are never reused, even if their records are lost.

Thread rule: several threads may load different directories at once. Everything here may block.
"""

from __future__ import annotations

import itertools
import logging
import os
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.segment import Segment
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.broker.log import (
    checkpoints,
    disk,
    files,
    index_file,
    quarantine_file,
    recovery,
    snapshots,
    swap,
    transaction_index,
)
from kafkalite.broker.log.classic.log import check_contiguous, make_visible
from kafkalite.broker.log.formats import LOGS, format_named

if TYPE_CHECKING:
    from collections.abc import Container

    from kafkalite.broker.log.partition_log import LogServices, PartitionLog
    from kafkalite.settings.topic_setting_lookup import TopicConfig

logger = logging.getLogger(__name__)

LEFTOVER_SUFFIXES: Final = (files.DELETED_SUFFIX, files.TEMPORARY_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The facts about a partition that are known before its own directory is read."""

    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig
    directory: str
    clean: bool  # whether the last stop was clean
    recovery_point: int | None  # None: never checkpointed
    log_start: int | None
    leader_epoch: int
    adopted: bool = False  # copied here from elsewhere, so its file names may not be durable
    cleaned: bool = False  # was ever compacted, whether or not it is compacted now
    replicated: bool = False  # belongs to a cluster, whose brokers may have replicas of it
    sole: bool = False  # replicated, and no other replica has every acknowledged record
    high_watermark: int | None = None  # the checkpointed one of a replicated partition; None: not checkpointed
    points_known: bool = True  # the file of recovery points was intact, with or without this partition

    @property
    def refetched(self) -> bool:
        """Whether a leader has all records of this replica, and will send again those that are damaged or missing
        here.
        """
        return self.replicated and not self.sole

    @property
    def sparse(self) -> bool:
        """Whether compaction here or at a leader may have removed records, so that intact batches may have gaps between
        them.
        """
        return self.cleaned or self.config.compacted or self.replicated


@dataclass(slots=True)
class Listing:
    """The segment files and Kafka's index files in a partition directory."""

    segment_sizes: dict[int, int]  # base offset → bytes
    kafka_indexes: set[int]  # base offsets that have an index file of Kafka's


def _make(plan: LoadPlan, services: LogServices) -> PartitionLog:
    """Return a new log object, which is not open yet."""
    made = LOGS[plan.config.message_format]
    if plan.replicated:
        from kafkalite.broker.log.replica_log import ReplicaLog

        made = ReplicaLog
    return made(
        plan.topic,
        plan.partition,
        format_named(plan.config.message_format),
        services,
        directory=plan.directory,
        topic_id=plan.topic_id,
        config=plan.config,
    )


def load(plan: LoadPlan, services: LogServices) -> PartitionLog:
    """Open the log of one partition. OSError if the log's files cannot be read; the caller then uses load_offline.

    After an unclean stop, file names may not be durable, and saved indexes do not prove that they are. So the log
    counts as durable only up to the recovery point until its next flush.
    """
    log = _make(plan, services)
    if (plan.adopted or not plan.clean) and disk.is_directory(plan.directory):
        log.entries.doubted()
    swap.finish(plan.directory, log.format, services.cache)
    listing = list_directory(plan.directory, log.format.suffix)
    start = max(plan.log_start or 0, 0)
    if not listing.segment_sizes:
        _load_empty(log, plan, start)
        return log
    _remove_below(log, listing, start)
    if log.format.positional:
        check_contiguous(plan.directory, listing.segment_sizes)
    bases = sorted(listing.segment_sizes)
    segments = tuple(
        Segment(
            services.cache,
            log.format,
            plan.directory,
            base,
            map_reserve=max(plan.config.segment_bytes, listing.segment_sizes[base]),
            size=listing.segment_sizes[base],
        )
        for base in bases
    )
    quarantine_file.restore(segments, log.name)
    foreign = bases[-1] in listing.kafka_indexes
    log.indexes.dense = not (plan.sparse or foreign or log.format.positional)
    segments, log_end, flushed = _find_end(log, plan, segments, start, foreign=foreign)
    for segment in segments[:-1]:
        segment.mark_sealed()
    if log.format.positional:
        make_visible(segments)
        if not plan.clean:
            file_ops.sync_directory(plan.directory)  # visible bytes are durable, including the file's name
        flushed = log_end
    elif not plan.clean:
        flushed = min(flushed, plan.recovery_point or 0)
    _open_at(log, plan, segments, start, flushed, log_end)
    if log.indexes.dense:
        _check_empty(log, segments)
    for segment in segments:
        segment.close()
    if foreign:
        if plan.refetched:
            log.forget_foreign_indexes(log.active)
        else:
            log.taken_over = True
        if not plan.replicated:
            _note_producers(log)
    return log


def load_offline(plan: LoadPlan, services: LogServices, error: OSError) -> PartitionLog:
    """Return an offline log for a directory that cannot be read. The log answers requests with KAFKA_STORAGE_ERROR, and
    its files stay untouched.
    """
    log = _make(plan, services)
    _load_empty(log, plan, max(plan.log_start or 0, 0), quiet=True)
    log.go_offline(f"its directory cannot be read: {error}")
    return log


def list_directory(directory: str, segment_suffix: str) -> Listing:
    """Return the files in a partition directory, after removing the leftovers of an earlier process."""
    listing = Listing({}, set())
    snapshots_found: set[int] = set()
    companions: list[tuple[int, str, Container[int]]] = []  # (offset, path, offsets of the files it belongs to)
    try:
        entries = disk.entries(directory)
    except FileNotFoundError:
        return listing
    for entry in entries:
        stem, suffix = os.path.splitext(entry.name)
        if entry.name.endswith(LEFTOVER_SUFFIXES):
            if entry.is_file(follow_symlinks=False):
                file_ops.unlink(entry.path, missing_ok=True)
        elif files.SEGMENT_STEM.fullmatch(stem) is None:
            continue
        elif suffix == segment_suffix:
            if entry.is_file():
                listing.segment_sizes[int(stem)] = entry.stat().st_size
            else:
                logger.warning("ignored an entry that is not a regular file", extra=fields(path=entry.path))
        elif suffix in files.KAFKA_INDEX_SUFFIXES:
            listing.kafka_indexes.add(int(stem))
        elif suffix in (files.INDEX_SUFFIX, files.TRANSACTION_INDEX_SUFFIX, files.QUARANTINE_SUFFIX):
            companions.append((int(stem), entry.path, listing.segment_sizes))
        elif suffix == files.SNAPSHOT_SUFFIX:
            snapshots_found.add(int(stem))
        elif suffix == files.PRODUCERS_SUFFIX:
            companions.append((int(stem), entry.path, snapshots_found))
    for offset, path, others in companions:
        if offset not in others:
            file_ops.unlink(path, missing_ok=True)  # a Java broker removed its segment or snapshot and left our file
    return listing


def _remove_below(log: PartitionLog, listing: Listing, start: int) -> None:
    """Remove the segments that end at the log start or below it.

    These segments were deleted, but a power cut undid or prevented the removal. Segments above the log start have no
    gaps between them.
    """
    bases = sorted(listing.segment_sizes)
    gone = [base for base, next_base in itertools.pairwise(bases) if next_base <= start]
    for base in gone:
        for suffix in (log.format.suffix, *files.COMPANION_SUFFIXES):
            file_ops.unlink(f"{log.directory}/{files.stem(base)}{suffix}", missing_ok=True)
        del listing.segment_sizes[base]
    if gone:
        log.entries.name_changed()
        logger.info(
            "removed segments below the log start offset",
            extra=fields(log=log.name, count=len(gone), log_start_offset=start),
        )


def _load_empty(log: PartitionLog, plan: LoadPlan, start: int, *, quiet: bool = False) -> None:
    """Open a partition without segment files: a new partition, or a partition that lost its records."""
    end = start if plan.refetched else max(start, plan.recovery_point or 0)
    if end > start and not quiet:
        logger.error(
            "records are missing: the partition has no segment files; their offsets are not reused",
            extra=fields(log=log.name, first_offset=start, next_offset=end),
        )
    segment = Segment(log.services.cache, log.format, plan.directory, end, map_reserve=plan.config.segment_bytes)
    log.core.set_segments((segment,))
    log.core.set_offsets(end, end, end)
    log.set_epochs(_read_epochs(plan, end), _epoch_of(plan))
    log.opened(plan.high_watermark, plan.recovery_point)


def _find_end(
    log: PartitionLog, plan: LoadPlan, segments: tuple[Segment, ...], start: int, *, foreign: bool
) -> tuple[tuple[Segment, ...], int, int]:
    """Find the end of the log; return (segments, log end, flushed offset). Read as little as the last stop allows.

    `foreign`: Kafka wrote the directory last, which its index files next to the active segment show. Then fewer gaps
    and bad bytes count as damage.

    - On a standalone broker, the directory may be a copy that ends below our recovery point. So no offset counts as
      missing, and bad bytes are not truncated if intact batches follow them.
    - In a cluster, a Java broker used this data directory and also wrote the recovery point. Below that point only the
      last segment is read. Above it Kafka also compacts, so offsets may be missing there. If a leader has them, the
      log is truncated at the gap.
    """
    active = segments[-1]
    summary = index_file.summary_of(active, plan.topic_id, plan.partition)
    if plan.clean and summary is not None and summary.covered_size == active.size:
        active.set_summary(summary.max_timestamp, summary.max_timestamp_offset, summary.last_position)
        active.indexed_size = summary.covered_size
        active.created_ms = int(disk.stat(active.path).st_mtime * 1000)
        for segment in segments:
            segment.set_flushed(segment.size)
        if foreign or plan.recovery_point is None or summary.end_offset >= max(plan.recovery_point, start):
            return segments, summary.end_offset, summary.end_offset
    if plan.clean and active.size == 0 and not foreign and active.base_offset >= (plan.recovery_point or 0):
        for segment in segments:
            segment.set_flushed(segment.size)
        return segments, active.base_offset, active.base_offset
    return _recover(log, plan, segments, start, foreign=foreign)


def _recover(
    log: PartitionLog, plan: LoadPlan, segments: tuple[Segment, ...], start: int, *, foreign: bool
) -> tuple[tuple[Segment, ...], int, int]:
    """Read and check everything that could be lost or incomplete; return (segments, log end, flushed offset)."""
    covered = [_covered_end(plan, segment) for segment in segments]
    believed = plan.replicated or not foreign  # whether the recovery point was written for these files
    known = max(start, (plan.recovery_point or 0) if believed else 0)
    flushed = _flushed_end(segments, covered, known, sparse=plan.sparse)
    keep = foreign and not plan.refetched
    gaps_until = _gaps_until(plan, flushed, keep=keep)
    if log.format.positional:
        flushed = max(flushed, segments[-1].base_offset)  # a roll makes everything before it durable
    end = segments[0].base_offset
    for i, segment in enumerate(segments):
        last = i + 1 == len(segments)
        next_base = recovery.OFFSET_MAX if last else segments[i + 1].base_offset
        summary = covered[i][1]
        if (
            not last
            and next_base <= flushed
            and believed
            and not recovery.may_end_in_zeros(segment, summary.covered_size if summary else -1)
        ):
            segment.set_flushed(segment.size)
            end = next_base
            continue
        scan = index_file.scan_after(segment, summary, index_interval=log.core.index_interval, mapped=False)
        from_position = scan.position
        tail = recovery.walk_tail(
            scan,
            flushed_offset=0 if plan.refetched else flushed,  # the leader has the damaged records
            offset_limit=next_base,
            contiguous_from=gaps_until if last and not plan.refetched else recovery.OFFSET_MAX,
            keep_valid=keep,
        )
        end = max(end, scan.next_offset)
        scan.install(verified_from=from_position)
        log.note_walked(segment, from_position)
        if tail.ahead:
            segment.cut(scan.position)
        elif tail.cut_position is not None:
            segments = _cut(log, segments, i, tail.cut_position)
            break
        if tail.quarantined:
            segment.mark_sealed()
            end = max(end, min(flushed, next_base))
        if not last and scan.next_offset < next_base and next_base > max(flushed, gaps_until):
            segments = _cut(log, segments, i, segment.size)
            break
        if log.indexes.dense and not last and not tail.quarantined and max(start, scan.next_offset) < next_base:
            recovery.quarantine_gap(segment, max(start, scan.next_offset), next_base)
    active = segments[-1]
    active.created_ms = int(disk.stat(active.path).st_mtime * 1000)
    active.trim(unknown=True)
    if end < flushed and not plan.refetched:
        logger.error(
            "records are missing: the log ends before its flushed offset; their offsets are not reused",
            extra=fields(log=log.name, log_end=end, flushed=flushed),
        )
        active.add_damage(active.size, active.size, end, flushed)
        quarantine_file.save(active)
        active.mark_sealed()
        end = flushed
    _remove_snapshots_above(plan.directory, end)
    transaction_index.cut(plan.directory, active.base_offset, end)
    return segments, end, min(flushed, end)


def _check_empty(log: PartitionLog, segments: tuple[Segment, ...]) -> None:
    """Quarantine the offsets of sealed segments that were truncated to zero bytes.

    Otherwise the loss would never be found, since no reader opens an empty segment.
    """
    for segment, following in itertools.pairwise(segments):
        summary = index_file.read_summary(index_file.path_of(segment)) if segment.size == 0 else None
        if summary is not None and summary.covered_size > 0:
            recovery.check_end(segment, max(segment.base_offset, log.log_start_offset), following.base_offset)


def _flushed_end(
    segments: tuple[Segment, ...],
    covered: list[tuple[int, index_file.IndexSummary | None]],
    known: int,
    *,
    sparse: bool,
) -> int:
    """Return the offset up to which the log is durable: `known`, or the end of the saved indexes that continue from it.

    A saved index is written only after its segment's bytes were synced, so it proves that they are durable. It proves
    nothing about the earlier segments, which may have been recovered and not synced since.
    """
    known = max(known, segments[0].base_offset)
    for i, (segment, (end, summary)) in enumerate(zip(segments, covered, strict=True)):
        if segment.base_offset > known:
            break
        known = max(known, end)
        if sparse and i + 1 < len(segments) and summary is not None and summary.covered_size == segment.size:
            known = max(known, segments[i + 1].base_offset)
    return known


def _gaps_until(plan: LoadPlan, flushed: int, *, keep: bool) -> int:
    """Return the offset below which missing offsets do not count as damage.

    A power cut can leave a gap between two segments: the name of the later segment survived, but not the end of the
    earlier segment. The log is truncated at a gap above the flushed offset.

    In a log that was ever compacted, gaps below the flushed offset are normal: compaction writes recovery points before
    it removes anything. Without the file of recovery points, no gap of such a log counts as damage. In any other log,
    a gap is damage. Below the flushed offset, it is found when the earlier segment's index is first loaded.
    """
    if keep or (plan.sparse and not plan.points_known):
        return recovery.OFFSET_MAX
    return flushed if plan.sparse else 0


def _covered_end(plan: LoadPlan, segment: Segment) -> tuple[int, index_file.IndexSummary | None]:
    """Return (end offset, header) of a segment's saved index; (0, None) without a valid index."""
    summary = index_file.summary_of(segment, plan.topic_id, plan.partition)
    return (0, None) if summary is None else (summary.end_offset, summary)


def _cut(log: PartitionLog, segments: tuple[Segment, ...], i: int, position: int) -> tuple[Segment, ...]:
    """Truncate the log at a position of its i-th segment, and remove the later segments."""
    segment = segments[i]
    logger.warning(
        "truncated the unflushed end of the log at the first bytes that are not a batch",
        extra=fields(
            path=segment.path, position=position, size=segment.size - position, segments=len(segments) - i - 1
        ),
    )
    segment.cut(position)
    log.forget_foreign_indexes(segment)
    for later in segments[i + 1 :]:
        later.close()
        for suffix in (log.format.suffix, *files.COMPANION_SUFFIXES):
            file_ops.unlink(f"{later.directory}/{later.name}{suffix}", missing_ok=True)
    return segments[: i + 1]


def _remove_snapshots_above(directory: str, log_end: int) -> None:
    for offset in snapshots.offsets_in(directory):
        if offset > log_end:
            snapshots.remove(directory, offset)


def _open_at(
    log: PartitionLog, plan: LoadPlan, segments: tuple[Segment, ...], start: int, flushed: int, log_end: int
) -> None:
    log.core.set_segments(segments)
    if plan.refetched:
        start = min(start, log_end)  # the checkpoint is older than a truncation below it
    start = max(start, segments[0].base_offset)
    log_end = max(log_end, start)
    log.core.set_offsets(start, min(max(flushed, start), log_end), log_end)
    log.set_epochs(_read_epochs(plan, log_end), _epoch_of(plan))
    log.opened(plan.high_watermark, plan.recovery_point)
    if log.flushed_offset < log_end:
        log.services.dirty_logs.add(log)  # the next checkpoint makes the recovered bytes durable


def _read_epochs(plan: LoadPlan, log_end: int) -> list[tuple[int, int]]:
    entries = checkpoints.read_epochs(f"{plan.directory}/{files.EPOCHS_NAME}")
    return [entry for entry in entries if entry[1] < log_end]


def _epoch_of(plan: LoadPlan) -> int:
    """Return the leader epoch for new batches: the higher one of the journal's epoch and the last epoch in the
    directory.
    """
    entries = checkpoints.read_epochs(f"{plan.directory}/{files.EPOCHS_NAME}")
    return max(plan.leader_epoch, entries[-1][0] if entries else 0)


def _note_producers(log: PartitionLog) -> None:
    """Note the producer ids in a log from another broker, so that they are never allocated again here."""
    with log.core.locked():
        log.load_producers_locked()
