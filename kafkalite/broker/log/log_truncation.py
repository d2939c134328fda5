"""Takes the end of a replica's log off, durably, while others read it.

    1  epochs below the log start are known again, where the cut is there; then log
       start, recovery point and high watermark are lowered, durably                  from here on a start takes
    2  saved indexes, snapshots, then aborted transactions above go                     nothing above the cut for whole
    3  the new list of segments is published: later segments are gone, and the one
       that holds the cut has a shorter one in its place                                readers see the new end
    4  its file is shortened, or a copy of its front has its name; later ones' files
       are renamed away; file and directory are synced
    5  epochs that began above go, durably                                              what was cut is gone for good

Readers never see a file change. A segment that somebody has pinned keeps its file, which loses its name; its front
is copied to a new one before step 3. One that nobody has pinned at that step cannot be opened any more, so its file can
be shortened in place.

A power cut in the middle leaves a front of the old log, in any of its files: a start walks it from the recovery point,
and keeps what is whole (kafkalite.broker.log.loading). Epochs go last, since those batches may be that front; of a log
that is shorter they say nothing. Nothing is appended before all of it is done, so that old and new batches are never
mixed; nor after a kill in the middle, before the file that was found shorter is so on the disk
(ReplicaLog.sync_walked).

All of it runs under the log's lock and its flush lock: no sync that began before counts for what is written after.
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
    """Something of a leader's came too late: nothing was done."""


class TruncatableLog(PartitionLog):
    """A log whose end can be taken off: what it remembers of its leaders' epochs is cut with it."""

    __slots__ = ("replica",)

    replica: Replica

    def check_follows_locked(self, leader_epoch: int | None) -> None:
        """LeaderChanged unless the log follows in this epoch; None: whatever it does."""
        if leader_epoch is not None and self.replica.follows not in (leader_epoch, FOLLOWS_ANYBODY):
            raise self.leader_changed(leader_epoch)

    def correct_epochs(self, segment: Segment, position: int = 0) -> None:
        """The epochs of what a segment has from a batch's position on are those of its batches. OSError."""
        first = header_at(segment, position)
        if first is not None and segment.damage is None:
            offset = first["base_offset"]
            found = epoch_starts(segment, position, segment.size, self.epochs.epoch_at(offset - 1))
            self.epochs.correct(offset, self.indexes.behind(segment), found)

    def leader_changed(self, leader_epoch: int) -> LeaderChanged:
        """What to raise where something of a leader of this epoch came too late."""
        return LeaderChanged(f"{self.name} is no longer a follower in leader epoch {leader_epoch}")


def cut(log: TruncatableLog, offset: int, leader_epoch: int | None = None) -> bool:
    """Cuts a log at `offset`, if it follows in this epoch; whether anything was above. StorageError;
    UnknownTopicOrPartition."""
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
    """Drops all of a log, which starts and ends at `offset` then, if it follows in this epoch. StorageError;
    UnknownTopicOrPartition."""
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
    """Half of a cut is no log to serve: only a start knows what there is. Who waits is told by another thread."""
    if log.core.set_offline():
        reason = f"a truncation could not be completed: {error}"
        logger.error("partition is offline until the broker restarts", extra=fields(log=log.name, reason=reason))
        log.services.went_offline(log, reason)


def _load_producers(log: TruncatableLog) -> None:
    """The state at the new end, where what was known reached beyond it."""
    if log.producers is None and not log.load_producers_locked():
        raise StorageError(f"{log.name}: the producer state could not be read")


def _lower(log: TruncatableLog, offset: int) -> None:
    """Step 1. What is written down of other logs comes with it."""
    start = log.log_start_offset
    if offset < start:  # what was below it counts again if nothing more comes of this cut
        for segment in log.segments:
            if segment.base_offset < start and log.indexes.behind(segment) > offset:
                with contextlib.suppress(SegmentUnreadable):
                    log.correct_epochs(segment)
    log.replica.lower(offset)
    if log.log_start_offset < start:
        log.services.log_start_moved(log)  # a start above the end would hide what comes there next
    log.services.end_lowered(log, offset)


def _cut(log: TruncatableLog, offset: int) -> None:
    segments = log.segments
    i = max(i for i, segment in enumerate(segments) if segment.base_offset <= offset)
    old = segments[i]
    position, end = _place(log, old, offset)
    _lower(log, end)
    file_ops.unlink(index_file.path_of(old), missing_ok=True)
    log.forget_foreign_indexes(old)
    log.producer_state.cut_locked(end)
    file_ops.sync_directory(log.directory)  # a snapshot that came back would take the shorter file for whole
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
    """(position of the first batch that reaches beyond `offset`, where the log ends then).

    That is `offset`, unless it lies inside a batch, or behind bytes that are none.
    """
    for begin, _, first, behind in segment.damage or ():
        if first <= offset < behind:
            return begin, first  # nobody knows what is in there
    if segment.size == 0:
        return 0, offset
    position = log.indexes.position_of_offset(segment, offset, locked=True)
    found = _walk(segment, position, offset)
    if found is None and position > 0:
        found = _walk(segment, 0, offset)
    return found or (0, segment.base_offset)


def _walk(segment: Segment, position: int, offset: int) -> tuple[int, int] | None:
    """As _place, from a batch boundary on; None where there is no batch."""
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
    """Steps 3 and 4 in the segment's own file; False, and nothing done, while somebody has it pinned."""
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
    """Steps 3 and 4 by a new file with the front of a segment whose own stays with its readers."""
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
        if announced is not None:  # a compaction was about to give it its name
            file_ops.unlink(announced, missing_ok=True)
    except OSError as error:
        _give_up(log, error)
        raise


def _front_of(log: TruncatableLog, old: Segment, position: int) -> Segment:
    """A segment of the first bytes of another, with all that is known of them. SegmentUnreadable, OSError."""
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
    """A scan that completes the index of a segment's front: from the last entry in it, where the newest time that
    the whole had stands before that; else from its begin."""
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
    """Renames the files of segments that are no longer the log's."""
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
        log.epochs.clear()  # a start that finds the old log reads all of it: nothing vouches for it any more
    log.replica.last_epoch = log.epochs.latest
    new = Segment(log.services.cache, log.format, log.directory, offset, map_reserve=log.core.segment_size_max)
    log.replica.publish_cut((new,), offset, offset, anew=True)
    try:
        _take_away(log, old)
        log.make_segment_locked(new)
        log.entries.sync()
    except OSError as error:
        _give_up(log, error)
        raise
    log.services.log_start_moved(log)
