"""Truncate a replica's log, durably, while other threads read it.

The *new end* is the offset at which the truncated log ends. The *cut segment* is the segment that contains it.

    1  Lower the log start, recovery point and high watermark to the new end, durably.
    2  Remove the cut segment's saved index, and snapshots and aborted transactions above the new end.
    3  Publish a new list of segments, with a shorter segment instead of the cut segment and without the later ones.
    4  Shorten the file of the cut segment. Rename the files of the later segments, to be removed. Sync file and
       directory.
    5  Remove leader epochs that begin at the new end or above it, durably.

If a reader uses the cut segment, its file is not shortened. Then a copy of its beginning gets the file's name before
step 3, and the reader keeps the old file.

A power cut between the steps loses no record below the new end.

Thread rule: all steps run under the log's lock and its flush lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.index import SegmentIndex
from kafkalite._native.log.replica import FOLLOWS_ANYBODY, epoch_starts
from kafkalite._native.log.scan import SegmentScan, batch_headers, header_at
from kafkalite._native.log.segment import Segment, SegmentUnreadable
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files, index_file, quarantine_file, segment_removal, transaction_index
from kafkalite.broker.log.partition_log import PartitionLog
from kafkalite.errors import StorageError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from kafkalite._native.log.replica import Replica

logger = logging.getLogger(__name__)

COPY_SIZE: Final = 4 * 1024 * 1024


class LeaderChanged(Exception):
    """The leader changed before an operation for the old leader. Nothing was done."""


class TruncatableLog(PartitionLog):
    """A log that can be truncated, and its leader epochs."""

    __slots__ = ("replica",)

    replica: Replica

    def check_follows_locked(self, leader_epoch: int | None) -> None:
        """Raise LeaderChanged unless the log follows a leader in this leader epoch. With None, check nothing."""
        if leader_epoch is not None and self.replica.follows not in (leader_epoch, FOLLOWS_ANYBODY):
            raise self.leader_changed(leader_epoch)

    def correct_epochs(self, segment: Segment, position: int = 0) -> None:
        """Replace a segment's recorded leader epochs by those in its batches, beginning with the batch at `position`.
        OSError.
        """
        first = header_at(segment, position)
        if first is not None and segment.damage is None:
            offset = first["base_offset"]
            found = epoch_starts(segment, position, segment.size, self.epochs.epoch_at(offset - 1))
            self.epochs.correct(offset, self.indexes.behind(segment), found)

    def leader_changed(self, leader_epoch: int) -> LeaderChanged:
        """Return the error for an operation in `leader_epoch`, which is no longer the current epoch."""
        return LeaderChanged(f"{self.name} is no longer a follower in leader epoch {leader_epoch}")


def cut(log: TruncatableLog, offset: int, leader_epoch: int | None = None) -> bool:
    """Truncate a log to `offset`; return whether batches were removed.

    The flush lock is held, so a sync that began earlier does not count for later writes.

    LeaderChanged unless the log follows a leader in `leader_epoch` (None: not checked); StorageError;
    UnknownTopicOrPartition.
    """
    end = log.log_end_offset
    with log.core.locked(), log.flush_lock:
        log.check_follows_locked(leader_epoch)
        _check_usable(log)
        try:
            if offset >= log.log_end_offset:
                if log.epochs.cut_end(log.log_end_offset):
                    log.replica.last_epoch = log.epochs.latest
                return False
            if offset < log.segments[0].base_offset:
                _begin_anew(log, offset)
            else:
                _cut(log, offset)
        except OSError as error:
            raise _failed(log, error) from error
        _load_producers(log)
    logger.info(
        "truncated the log",
        extra=fields(log=log.name, offset=offset, log_end_offset=log.log_end_offset, log_end_before=end),
    )
    log.core.wake_listeners()
    return True


def begin_anew(log: TruncatableLog, offset: int, leader_epoch: int | None = None) -> None:
    """Drop all records of a log; it then starts and ends at `offset`.

    LeaderChanged unless the log follows a leader in `leader_epoch` (None: not checked); StorageError;
    UnknownTopicOrPartition.
    """
    with log.core.locked(), log.flush_lock:
        log.check_follows_locked(leader_epoch)
        _check_usable(log)
        try:
            _begin_anew(log, offset)
        except OSError as error:
            raise _failed(log, error) from error
        _load_producers(log)
    logger.info("emptied the log and moved its start offset", extra=fields(log=log.name, offset=offset))
    log.core.wake_listeners()


def _check_usable(log: TruncatableLog) -> None:
    if log.deleted:
        raise UnknownTopicOrPartition(f"{log.name} was deleted")
    if log.offline:
        raise StorageError(f"{log.name} is offline")


def _failed(log: TruncatableLog, error: OSError) -> StorageError:
    log.storage_failed(error, "the log could not be truncated")
    return StorageError(f"{log.name} could not be truncated: {error}")


def _give_up(log: TruncatableLog, error: OSError) -> None:
    """Take the log offline after a failed step, since only a start can read its files now.

    Another thread wakes the waiting requests.
    """
    if log.core.set_offline():
        reason = f"a truncation could not be completed: {error}"
        logger.error("partition is offline until the broker restarts", extra=fields(log=log.name, reason=reason))
        log.services.went_offline(log, reason)


def _load_producers(log: TruncatableLog) -> None:
    """Load the producer state at the new end if the truncation discarded it."""
    if log.producers is None and not log.load_producers_locked():
        raise StorageError(f"{log.name}: the producer state could not be read")


def _lower(log: TruncatableLog, offset: int) -> None:
    """Lower the log start, recovery point and high watermark to `offset`, durably: step 1 of the module's docstring.

    After that, a start trusts nothing above `offset`. The checkpoint files are shared with other logs.

    If `offset` is below the log start, the records from `offset` on are readable again after a crash during the
    truncation. So the leader epochs recorded for their segments are first corrected from the batches.
    """
    start = log.log_start_offset
    if offset < start:  # records below the log start become readable again if this truncation does not complete
        for segment in log.segments:
            if segment.base_offset < start and log.indexes.behind(segment) > offset:
                with contextlib.suppress(SegmentUnreadable):
                    log.correct_epochs(segment)
    log.replica.lower(offset)
    if log.log_start_offset < start:
        log.services.log_start_moved(log)  # a checkpointed start above the end would hide later records
    log.services.end_lowered(log, offset)


def _cut(log: TruncatableLog, offset: int) -> None:
    """Truncate the log to `offset`, by the steps of the module's docstring.

    The epochs are removed last, since a start after a crash may need them. Epochs above the log end are harmless.
    Nothing is appended before all steps are done, so old and new batches never mix.
    """
    segments = log.segments
    i = max(i for i, segment in enumerate(segments) if segment.base_offset <= offset)
    old = segments[i]
    position, end = _place(log, old, offset)
    _lower(log, end)
    file_ops.unlink(index_file.path_of(old), missing_ok=True)
    log.forget_foreign_indexes(old)
    log.producer_state.cut_locked(end)
    file_ops.sync_directory(log.directory)  # a snapshot that a power cut restored would be trusted for the shorter file
    transaction_index.cut(log.directory, old.base_offset, end)
    start = min(log.log_start_offset, end)
    if old.path_suffix or not _cut_in_place(log, old, position, segments[:i], start, end):
        with old:
            _replace_by_copy(log, old, position, segments[:i], start, end)
    try:
        _take_away(log, segments[i + 1 :])
        files.sync_path(log.active.path)
        log.active.set_flushed(position)
        file_ops.sync_directory(log.directory)
        log.epochs.cut_end(end)
    except OSError as error:
        _give_up(log, error)
        raise
    log.replica.last_epoch = log.epochs.latest
    log.services.log_start_moved(log)


def _place(log: TruncatableLog, segment: Segment, offset: int) -> tuple[int, int]:
    """Find the place in a segment at which to truncate the log to `offset`.

    Return (position of the first batch that reaches beyond `offset`, the log end after the truncation). This log end is
    `offset`, unless `offset` lies inside a batch or after damage.
    """
    for begin, _, first, next_offset in segment.damage or ():
        if first <= offset < next_offset:
            return begin, first  # the contents of a damaged range are unknown
    if segment.size == 0:
        return 0, offset
    position = log.indexes.position_of_offset(segment, offset, locked=True)
    found = _walk(segment, position, offset)
    if found is None and position > 0:
        found = _walk(segment, 0, offset)
    return found or (0, segment.base_offset)


def _walk(segment: Segment, position: int, offset: int) -> tuple[int, int] | None:
    """Compute the result of _place() by reading batches from `position` on; None if no batch begins there."""
    end = None
    while headers := batch_headers(segment, position, segment.size):
        for header in headers:
            if header["next_offset"] > offset:
                return header["position"], min(offset, header["base_offset"])
            end = header["next_offset"]
            position = header["position"] + header["size"]
    if position >= segment.size:
        return segment.size, offset
    return None if end is None else (position, end)


def _cut_in_place(
    log: TruncatableLog, old: Segment, position: int, before: tuple[Segment, ...], start: int, end: int
) -> bool:
    """Do steps 3 and 4 of the module's docstring in the segment's own file. If a reader uses the segment, do nothing
    and return False.

    After step 3 no reader can open the old segment, so its file can be shortened.
    """
    new = _front_of(log, old, position)
    if not log.replica.publish_cut((*before, new), start, end, unpinned=old):
        new.close()
        return False
    try:
        new.trim(unknown=True)
    except OSError as error:
        _give_up(log, error)
        raise
    return True


def _replace_by_copy(
    log: TruncatableLog, old: Segment, position: int, before: tuple[Segment, ...], start: int, end: int
) -> None:
    """Do steps 3 and 4 of the module's docstring with a copy of the segment's beginning. Readers keep the old file."""
    target = f"{log.directory}/{old.name}{log.format.suffix}"
    temporary = target + files.TEMPORARY_SUFFIX
    fd = file_ops.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for at in range(0, position, COPY_SIZE):
            file_ops.write_all(fd, old.read_bytes(at, min(COPY_SIZE, position - at)), at)
        file_ops.sync_file(fd)
    finally:
        disk.close(fd)
    announced = old.path if old.path_suffix else None
    file_ops.rename(temporary, target)
    try:
        new = _front_of(log, old, position)
        log.replica.publish_cut((*before, new), start, end)
        if announced is not None:  # a compaction was about to rename the old file
            file_ops.unlink(announced, missing_ok=True)
    except OSError as error:
        _give_up(log, error)
        raise


def _front_of(log: TruncatableLog, old: Segment, position: int) -> Segment:
    """Return a new segment with the first `position` bytes of the segment `old`, with index and damage.
    SegmentUnreadable; OSError.
    """
    new = Segment(
        log.services.cache,
        log.format,
        log.directory,
        old.base_offset,
        map_reserve=max(log.core.segment_size_max, position),
        size=position,
    )
    new.created_ms = old.created_ms
    for entry in old.damage or ():
        if entry[1] <= position:
            new.add_damage(*entry)
    if old.damage:
        quarantine_file.save(new)
    scan = _scan_of(log, new, old, position)
    while not scan.run(position, verify=False):
        following = scan.resync(position)
        if following is None:
            break
        scan.skip_to(*following)
    scan.install(verified_from=0 if old.unverified == 0 else position)
    return new


def _scan_of(log: TruncatableLog, new: Segment, old: Segment, position: int) -> SegmentScan:
    """Return a scan that builds the index of a segment's first `position` bytes.

    The scan continues from the last entry of the old index that is below `position`, if the record with
    the maximum timestamp precedes that entry. Otherwise it starts at 0.
    """
    index = old.index
    interval = log.core.index_interval
    if index is not None and not index.failed and old.max_timestamp_offset >= 0:
        columns = index.columns()
        count = int((columns[1] < position).sum())
        if count and old.max_timestamp_offset < int(columns[0, count - 1]):
            return SegmentScan(
                new,
                position=int(columns[1, count - 1]),
                next_offset=int(columns[0, count - 1]),
                index=SegmentIndex.from_columns(columns[:, :count].copy()),
                index_interval=interval,
                max_timestamp=old.max_timestamp,
                max_timestamp_offset=old.max_timestamp_offset,
            )
    return SegmentScan(new, next_offset=new.base_offset, index=SegmentIndex(), index_interval=interval)


def _take_away(log: TruncatableLog, segments: tuple[Segment, ...]) -> None:
    """Rename the files of removed segments, so that they are deleted later."""
    if not segments:
        return
    log.entries.removal_began()
    for segment in segments:
        if segment.has_file:
            segment_removal.remove_files(log, segment)
    log.entries.removal_ended()


def _begin_anew(log: TruncatableLog, offset: int) -> None:
    old = log.segments
    _lower(log, min(offset, log.log_start_offset))
    for segment in old:
        if segment.has_file:
            file_ops.unlink(index_file.path_of(segment), missing_ok=True)
    if disk.is_directory(log.directory):
        log.producer_state.cut_locked(-1)
        file_ops.sync_directory(log.directory)
        log.epochs.clear()  # without snapshots, a start that finds the old log reads all of it
    log.replica.last_epoch = log.epochs.latest
    new = Segment(log.services.cache, log.format, log.directory, offset, map_reserve=log.core.segment_size_max)
    log.replica.publish_cut((new,), offset, offset, is_restart=True)
    try:
        _take_away(log, old)
        log.make_segment_locked(new)
        log.entries.sync()
    except OSError as error:
        _give_up(log, error)
        raise
    log.services.log_start_moved(log)
