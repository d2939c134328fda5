"""Operate the log of a partition with replicas on several brokers (`ReplicaLog`), as leader or follower.

    leader      assigns offsets and the leader epoch, as in any log; an epoch begins at the election, even if no batch
                is written in it
    follower    takes offsets and epochs from its leader's batches; truncates the log where it diverges from the
                leader's

If the recovery of the log finds damage, it truncates the log there, and the leader sends the records again. It
quarantines the damage instead if no other replica has every acknowledged record (KIP-966).

Thread rule: the rule of PartitionLog applies. One thread at a time, the partition's fetcher, calls the methods of a
follower.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kafkalite._native.log.leading import settle_low_waits
from kafkalite._native.log.replica import (
    FOLLOW_CORRUPT,
    FOLLOW_DONE,
    FOLLOW_FAILED,
    FOLLOW_OLD_FORMAT,
    FOLLOW_OUT_OF_ORDER,
    FOLLOW_STALE,
    FOLLOWS_NOBODY,
    Replica,
)
from kafkalite._native.log.scan import header_at
from kafkalite.base.logging import fields
from kafkalite.broker.log import files, log_truncation
from kafkalite.broker.log.assignment import NOWHERE
from kafkalite.errors import CorruptMessage, ErrorCode, OffsetOutOfRange, error_for

if TYPE_CHECKING:
    from kafkalite._native.log.record_format import RecordFormat
    from kafkalite._native.log.segment import Segment
    from kafkalite.broker.log.assignment import Assignment
    from kafkalite.broker.log.partition_log import LogServices
    from kafkalite.settings.topic_setting_lookup import TopicConfig

logger = logging.getLogger(__name__)

GAP_MAX: Final = 1 << 30
"""Maximum number of missing offsets at the start of a segment, so that its offsets stay within 2^31 of the base
offset."""


class OffsetsOutOfOrder(Exception):
    """The offsets of a leader's batches do not increase. Nothing was appended."""


class UnexpectedAppendOffset(Exception):
    """A leader's first batch begins below the log end. Nothing was appended."""

    def __init__(self, log: ReplicaLog, first_offset: int, last_offset: int) -> None:
        super().__init__(
            f"{log.name} ends at offset {log.log_end_offset}, but the leader sent a batch of the lower offsets "
            f"{first_offset}-{last_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


class FollowerAppend(NamedTuple):
    """The result of appending a leader's records."""

    first_offset: int  # of the appended batches; -1 if there were none
    end_offset: int  # the log's end
    size: int  # bytes appended


class ReplicaChange(NamedTuple):
    """A change of a replica on this broker: it was added or removed, or its assignment changed."""

    log: ReplicaLog
    before: Assignment
    """The assignment before the change; NOWHERE if the replica was not open."""
    now: Assignment
    """The assignment after the change; NOWHERE if the replica is removed and its log deleted."""


class ReplicaLog(log_truncation.TruncatableLog):
    """The log of this broker's replica of a partition in a cluster."""

    __slots__ = ("assignment", "behind", "walked")

    REPLICATED: ClassVar[bool] = True

    def __init__(
        self,
        topic: str,
        partition: int,
        record_format: RecordFormat,
        services: LogServices,
        *,
        directory: str,
        topic_id: bytes,
        config: TopicConfig,
    ) -> None:
        super().__init__(
            topic, partition, record_format, services, directory=directory, topic_id=topic_id, config=config
        )
        self.replica = Replica(self.core)
        self.assignment: Assignment = NOWHERE
        """The controllers' latest assignment; replaced as a whole."""
        self.walked: list[tuple[Segment, int]] = []
        """Segments, each with the position from which a start checked its batches; empty once the segments are
        durable."""
        self.behind = False
        """Whether the replica has lost, or cannot read, records that it once had and has not got back from a leader."""

    def configure(self, config: TopicConfig) -> None:
        """Apply the topic's settings. A new min.insync.replicas also applies at once to requests that already wait."""
        super().configure(config)
        if self.core.followers is not None and self.services.leading is not None:
            self.services.leading.configure(self, self.core.followers)
            self.core.advance(self.services.clock.monotonic())

    # --- who leads ----------------------------------------------------------------------------------------------------

    def lead(self, wanted: Assignment) -> None:
        """Become or stay the leader, and accept appends.

        A new leader epoch begins at the log end, even if no batch is written in it (KIP-101, KAFKA-7415). The epoch's
        start is durable before the first batch of the epoch. If this is the only replica, the high watermark is the log
        end.
        """
        with self.core.locked():
            elected = not self.led or self.assignment.leader_epoch != wanted.leader_epoch
            if elected:
                self._begin_epoch_locked(wanted.leader_epoch)
            self.assignment = wanted
            if self.behind and elected and self.damage_start is None:
                self.behind = False  # the log of an elected leader counts as complete
            self.replica.follows = FOLLOWS_NOBODY
            self.core.set_replicated(not wanted.alone)
            leading = None if wanted.alone else self.services.leading
            self.core.use_followers(None if leading is None else leading.lead_locked(self, wanted, elected=elected))
            self.core.set_led(True, wanted.leader_id)
        self.core.wake_listeners()
        self.core.advance(self.services.clock.monotonic())
        settle_low_waits(self.core)  # requests that wait for a removed replica

    def resign(self, wanted: Assignment) -> None:
        """Stop leading: refuse appends, and wake the requests that wait for records. Visible records stay visible."""
        with self.core.locked():
            self.assignment = wanted
            self.replica.follows = wanted.leader_epoch
            self.core.set_replicated(True)
            self.core.set_leader_epoch(wanted.leader_epoch, True)
            self.core.use_followers(None)
            self.core.set_led(False, wanted.leader_id)
        self.core.wake_listeners()

    # --- whether it is fit --------------------------------------------------------------------------------------------

    @property
    def fit(self) -> bool:
        """Whether the replica may lead and be in sync: it has lost no record, and its storage can be written.

        The module `kafkalite.broker.cluster.directories` makes a replica fit again.
        """
        return not (self.behind or self.offline or self.core.storage_full)

    @property
    def damage_start(self) -> int | None:
        """The start of the first quarantined range that ends above the log start; None without such a range."""
        damage = [entry for segment in self.segments for entry in segment.damage or ()]
        return min((first for _, _, first, next_offset in damage if next_offset > self.log_start_offset), default=None)

    def note_damage(self) -> None:
        """Mark the replica as unfit if damage was found."""
        if not self.behind and self.damage_start is not None:
            self.behind = True
            self.services.fitness_changed(self)

    def caught_up(self, acknowledged: int) -> None:
        """Mark the replica as fit again if its log reaches the offset `acknowledged` and has no damage.

        The caller knows that the log equals the leader's up to its own end, and that all acknowledged records are below
        `acknowledged`. So a log that reaches this offset has its lost records again. Damage is looked up here, because
        `note_damage` does not report further damage of an unfit replica.
        """
        if self.behind and 0 <= acknowledged <= self.log_end_offset and self.damage_start is None:
            self.behind = False
            logger.info(
                "a replica that had lost records has caught up again",
                extra=fields(log=self.name, end=self.log_end_offset),
            )
            self.services.fitness_changed(self)
        if self.damage_start is not None:
            self.behind = True
            self.services.fitness_changed(self)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def set_epochs(self, entries: list[tuple[int, int]], leader_epoch: int) -> None:
        """Set the recorded epochs of a log that is being opened.

        Later, the controllers' metadata sets the epoch for new batches.
        """
        self.epochs.load(entries)
        self.replica.last_epoch = self.epochs.latest
        self.core.set_leader_epoch(max(leader_epoch, self.epochs.latest), True)

    def _begin_epoch_locked(self, epoch: int) -> None:
        if self.epochs.latest > epoch:
            logger.warning(
                "the log has a later leader epoch than the cluster",
                extra=fields(log=self.name, has=self.epochs.latest, cluster=epoch),
            )
        self.epochs.begin(epoch, self.log_end_offset)
        self.replica.last_epoch = epoch
        self.core.set_leader_epoch(epoch, False)

    def _record_epoch_locked(self) -> None:
        """Write a leader's epoch to the file, before the first batch of the epoch. OSError."""
        self.make_directory_locked()
        self.epochs.save()
        self.core.set_leader_epoch(self.leader_epoch, True)

    def epoch_began_locked(self, epoch: int, start_offset: int) -> bool:
        """Write the start of an epoch that begins in the leader's batches; return False if the storage failed."""
        try:
            self.make_directory_locked()
            self.epochs.assign(epoch, start_offset)
        except OSError as error:
            self.storage_failed(error, "a leader epoch could not be recorded")
            return False
        self.replica.last_epoch = epoch
        return True

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch up to `epoch`, its end offset), as LeaderEpochs.end_offset_for does."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at an offset. At the log end, return the epoch of the next record."""
        return self.leader_epoch if offset >= self.log_end_offset else self.epochs.epoch_at(offset)

    def roll_locked(self) -> None:
        """Roll as PartitionLog does, after making the names of all earlier segments durable.

        If a power cut removed the first segments, the log would seem to begin later. If this replica then became the
        leader, its followers would drop these records, too."""
        with self.flush_lock:
            self.entries.sync()
        super().roll_locked()

    def next_base_locked(self) -> int:
        """Return the base offset of the next segment: the offset after the last batch, even if the log end is higher.

        The log end can be higher after a truncation. A start treats missing offsets between two segments as records
        lost in a power cut, and drops what follows.
        """
        last = header_at(self.active, self.active.last_position) if self.active.size else None
        next_offset = self.log_end_offset if last is None else last["next_offset"]
        return next_offset if self.log_end_offset - next_offset < GAP_MAX else self.log_end_offset

    # --- at a start ---------------------------------------------------------------------------------------------------

    def note_walked(self, segment: Segment, position: int) -> None:
        """Note a segment that was checked at a start, so that `opened` takes leader epochs from its batches.

        The epochs in the checkpoint may be older or newer.
        """
        self.walked.append((segment, position))

    def opened(self, high_watermark: int | None, recovery_point: int | None) -> None:
        """Finish opening: correct the leader epochs, and set the high watermark to its checkpointed value. OSError.

        The value is limited to the log's offsets. Without a value, the high watermark is the log start.
        """
        known = max(high_watermark or 0, recovery_point or 0)
        self.behind = self.log_end_offset < known or self.damage_start is not None
        if self.log_end_offset < known:
            logger.error(
                "a replica ends before its last known high watermark or recovery point",
                extra=fields(log=self.name, log_end=self.log_end_offset, known=known),
            )
        for segment, position in self.walked:
            if segment in self.segments:
                self.correct_epochs(segment, position)
        self.replica.last_epoch = self.epochs.latest
        if high_watermark is not None:
            self.core.set_high_watermark(high_watermark)

    def sync_walked(self) -> None:
        """Make the segments durable that a start has checked, before anything is appended. May block. OSError.

        After a crash during a truncation, the shorter size of a segment may be in memory only.
        """
        for segment, _ in self.walked:
            if segment in self.segments:
                files.sync_path(segment.path)
        if self.walked:
            self.entries.sync()
        self.walked.clear()

    # --- as a follower ------------------------------------------------------------------------------------------------
    #
    # With `leader_epoch`, each of these methods applies the response of a leader to a request in this epoch. If the log
    # no longer follows a leader in this epoch, it raises LeaderChanged and does nothing.

    def append_as_follower(
        self, records: bytes | bytearray | memoryview, leader_epoch: int, high_watermark: int = -1
    ) -> FollowerAppend:
        """Append the batches that the leader sent for a fetch in `leader_epoch`, all or none.

        Then set the high watermark to the leader's, but at most to the log end. An incomplete last batch, a batch of a
        newer epoch, and everything after them are left out. May block. Errors:

            CorruptMessage, OffsetsOutOfOrder, UnexpectedAppendOffset, LeaderChanged
            KafkaError      UNSUPPORTED_FOR_MESSAGE_FORMAT: a batch has magic 0 or 1
            StorageError    some of the batches may have been appended
        """
        outcome, error, first, last, size = self.replica.append(records, leader_epoch, high_watermark)
        if outcome == FOLLOW_DONE:
            return FollowerAppend(first if size else -1, self.log_end_offset, size)
        if outcome == FOLLOW_STALE:
            raise self.leader_changed(leader_epoch)
        if outcome == FOLLOW_CORRUPT:
            raise CorruptMessage(f"{self.name}: the leader's records are damaged")
        if outcome == FOLLOW_OLD_FORMAT:
            code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            raise error_for(code, f"{self.name}: the leader has batches in a format older than magic 2")
        if outcome == FOLLOW_OUT_OF_ORDER:
            raise OffsetsOutOfOrder(f"{self.name}: the offsets of the leader's batches do not increase")
        if outcome == FOLLOW_FAILED:
            raise error_for(error, f"{self.name} could not append the leader's records")
        start = self.log_start_offset
        if start != self.log_end_offset or not first < start <= last:
            raise UnexpectedAppendOffset(self, first, last)
        # The leader's log starts inside a batch (DeleteRecords): an empty log takes the batch and hides its beginning.
        self.truncate_fully_and_start_at(first, leader_epoch=leader_epoch)
        appended = self.append_as_follower(records, leader_epoch, high_watermark)
        self.advance_log_start(start, leader_epoch=leader_epoch)
        return appended

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, at most to the log end, and wake waiting requests; return whether it rose."""
        return self.core.set_high_watermark(offset)

    def advance_log_start(self, offset: int, *, leader_epoch: int | None = None) -> bool:
        """Raise the log start to the leader's; return whether it rose. The high watermark is then at least the log
        start.

        OffsetOutOfRange if `offset` is beyond the log end. The caller then drops all records
        (truncate_fully_and_start_at).
        """
        with self.core.locked():
            self.check_follows_locked(leader_epoch)
            if offset <= self.log_start_offset:
                return False
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(
                    f"{self.name} ends at offset {self.log_end_offset}, so its start cannot move to {offset}"
                )
            self.core.set_log_start(offset)
            try:
                self.services.log_start_moved(self)  # first: a start with the earlier records needs their epochs
                self.epochs.cut_front(offset)
            except OSError as error:
                self.storage_failed(error, "leader epochs could not be written")
        self.core.wake_listeners()
        return True

    def truncate_to(self, offset: int, *, leader_epoch: int | None = None) -> bool:
        """Remove all batches that reach beyond `offset`; return whether any were removed. StorageError. May block.

        The truncation is durable on return. Leader epochs that begin at the new log end or later are always removed
        (KAFKA-10706).
        """
        if offset < 0:
            raise ValueError(f"{self.name} cannot be truncated to negative offset {offset}")
        return log_truncation.cut(self, offset, leader_epoch)

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int | None = None) -> None:
        """Drop all records; log start, log end and high watermark become `offset`. StorageError. May block."""
        log_truncation.begin_anew(self, offset, leader_epoch)
