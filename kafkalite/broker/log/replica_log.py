"""The log of a partition that has replicas on other brokers, whether this one leads it or follows.

    leads       batches get the offsets and the epoch that are its own to give, as in any log; its epochs begin when it
                is elected, empty ones too
    follows     batches have their leader's offsets and epochs; where the histories part the log is cut
    visible     up to the high watermark, which whoever counts replicas moves, and a checkpoint remembers; where this
                broker leads and has the only replica, up to the end

Offsets are never given out by the log that a restart finds: it ends with its last whole batch, and what is missing
comes from its leader. So nothing is quarantined, and no gap made, at a start (kafkalite.broker.log.loading), unless
nobody else has all of it.

A replica is *fit* while it has what it once had and can be written. One that is not asks for others to lead
(kafkalite.broker.cluster.directories); cut where it is damaged it follows, and is fit again when it has what they have.

Thread rule: PartitionLog's. Methods that append, cut or change epochs belong to one thread at a time, the one that
fetches, or whoever made it stop.
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
"""Offsets that may be missing at the begin of a segment, in which no batch is further than 2^31 from that."""


class OffsetsOutOfOrder(Exception):
    """A leader's batches whose offsets do not rise: nothing was appended."""


class UnexpectedAppendOffset(Exception):
    """A leader's first batch begins below the log's end: nothing was appended."""

    def __init__(self, log: ReplicaLog, first_offset: int, last_offset: int) -> None:
        super().__init__(
            f"{log.name} ends at offset {log.log_end_offset}, but the leader sent a batch of the lower offsets "
            f"{first_offset}-{last_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


class FollowerAppend(NamedTuple):
    """What became of a leader's records."""

    first_offset: int  # of what was appended, -1 where that is nothing
    end_offset: int  # the log's end
    size: int  # bytes appended


class ReplicaChange(NamedTuple):
    """A replica that is here came, went, or has another place in its partition."""

    log: ReplicaLog
    before: Assignment
    """NOWHERE: it was not open."""
    now: Assignment
    """NOWHERE: it is gone, and its log deleted."""


class ReplicaLog(log_truncation.TruncatableLog):
    """A partition's log on one of several brokers."""

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
        """What the controllers said last; replaced as a whole."""
        self.walked: list[tuple[Segment, int]] = []
        """Until that is on the disk: segments, and the positions from which their batches were checked by a start."""
        self.behind = False
        """Whether it has lost, or cannot read, something that it once had, and has not had it from a leader since."""

    def configure(self, config: TopicConfig) -> None:
        """See PartitionLog; min.insync.replicas holds at once, for what waits too."""
        super().configure(config)
        if self.core.followers is not None and self.services.leading is not None:
            self.services.leading.configure(self, self.core.followers)
            self.core.advance(self.services.clock.monotonic())

    # --- who leads ----------------------------------------------------------------------------------------------------

    def lead(self, wanted: Assignment) -> None:
        """This broker leads: appends are taken. Where that is news its epoch begins at the log's end, now and whether
        anything is written in it or not (KIP-101, KAFKA-7415); it is on the disk before the first batch that has it."""
        with self.core.locked():
            elected = not self.led or self.assignment.leader_epoch != wanted.leader_epoch
            if elected:
                self._begin_epoch_locked(wanted.leader_epoch)
            self.assignment = wanted
            if self.behind and elected and self.damage_start is None:
                self.behind = False  # what it has is the truth now
            self.replica.follows = FOLLOWS_NOBODY
            self.core.set_replicated(not wanted.alone)
            leading = None if wanted.alone else self.services.leading
            self.core.use_followers(None if leading is None else leading.lead_locked(self, wanted, elected=elected))
            self.core.set_led(True, wanted.leader_id)
        self.core.wake_listeners()
        self.core.advance(self.services.clock.monotonic())
        settle_low_waits(self.core)  # for one that is no replica any more

    def resign(self, wanted: Assignment) -> None:
        """Somebody else leads, or nobody: no appends are taken, and who waits for records is told so. What was visible
        stays so."""
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
        """Whether it may lead, and be counted on: it has what it once had, and storage takes more."""
        return not (self.behind or self.offline or self.core.storage_full)

    @property
    def damage_start(self) -> int | None:
        """The first offset that is quarantined; None where all is whole, as far as it was looked at."""
        damage = [entry for segment in self.segments for entry in segment.damage or ()]
        return min((first for _, _, first, behind in damage if behind > self.log_start_offset), default=None)

    def note_damage(self) -> None:
        """See PartitionLog: it is not fit any more."""
        if not self.behind and self.damage_start is not None:
            self.behind = True
            self.services.fitness_changed(self)

    def caught_up(self, acknowledged: int) -> None:
        """Its leader's log and this one are the same, as far as this one goes, and nothing was acknowledged at that
        offset or above: where the log reaches it, what it had lost is there again, unless more damage has been found
        since, which `note_damage` did not tell of one that is behind."""
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
        """The recorded epochs of a log being opened; the one to write with is told later, by who elects leaders."""
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
        """Of a leader, before the first batch of its epoch. OSError."""
        self.make_directory_locked()
        self.epochs.save()
        self.core.set_leader_epoch(self.leader_epoch, True)

    def epoch_began_locked(self, epoch: int, start_offset: int) -> bool:
        """Records where an epoch began, of which a leader gave batches; False where the storage failed."""
        try:
            self.make_directory_locked()
            self.epochs.assign(epoch, start_offset)
        except OSError as error:
            self.storage_failed(error, "a leader epoch could not be recorded")
            return False
        self.replica.last_epoch = epoch
        return True

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Where an epoch ends in this log (LeaderEpochs.end_offset_for)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at an offset, or of the next one."""
        return self.leader_epoch if offset >= self.log_end_offset else self.epochs.epoch_at(offset)

    def roll_locked(self) -> None:
        """See PartitionLog. The names of all segments before are on the disk first: one whose front a power cut has
        taken would pass for one that begins there, and have the others drop it, too, when it is elected."""
        with self.flush_lock:
            self.entries.sync()
        super().roll_locked()

    def next_base_locked(self) -> int:
        """Behind the last batch, even where the log was cut further on: a start takes offsets that are missing between
        two segments for records that a power cut has taken, and what follows them goes."""
        last = header_at(self.active, self.active.last_position) if self.active.size else None
        behind = self.log_end_offset if last is None else last["next_offset"]
        return behind if self.log_end_offset - behind < GAP_MAX else self.log_end_offset

    # --- at a start ---------------------------------------------------------------------------------------------------

    def note_walked(self, segment: Segment, position: int) -> None:
        """Their epochs count, since the file may be older than the batches, or newer."""
        self.walked.append((segment, position))

    def opened(self, high_watermark: int | None, recovery_point: int | None) -> None:
        """The high watermark is what was written down, inside the log; the log's start where nothing was. OSError."""
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
        """Before anything is appended: who was killed in a cut may have left files that are not on the disk so. May
        block. OSError."""
        for segment, _ in self.walked:
            if segment in self.segments:
                files.sync_path(segment.path)
        if self.walked:
            self.entries.sync()
        self.walked.clear()

    # --- as a follower ------------------------------------------------------------------------------------------------
    #
    # With `leader_epoch` each of these is of a leader that was asked in that epoch: LeaderChanged, and nothing is done,
    # where the log does not follow in it any more.

    def append_as_follower(
        self, records: bytes | bytearray | memoryview, leader_epoch: int, high_watermark: int = -1
    ) -> FollowerAppend:
        """Appends what a leader answered to a fetch with `leader_epoch`: whole batches, all or none. Then its high
        watermark counts here, as far as the log goes.

        A batch that is cut off, one of a newer epoch, and what follows them are left out. CorruptMessage;
        OffsetsOutOfOrder; UnexpectedAppendOffset; KafkaError (UNSUPPORTED_FOR_MESSAGE_FORMAT) for magic 0 and 1;
        StorageError, after which a front of them may stand. May block.
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
        # The leader's log starts inside a batch (DeleteRecords): an empty log takes all of it, and hides its front.
        self.truncate_fully_and_start_at(first, leader_epoch=leader_epoch)
        appended = self.append_as_follower(records, leader_epoch, high_watermark)
        self.advance_log_start(start, leader_epoch=leader_epoch)
        return appended

    def advance_high_watermark(self, offset: int) -> bool:
        """Moves the high watermark up, at most to the log's end; whether it moved. Who waits for it is told."""
        return self.core.set_high_watermark(offset)

    def advance_log_start(self, offset: int, *, leader_epoch: int | None = None) -> bool:
        """The leader's log starts here: so does this one, and its high watermark is not below. Whether it moved.

        OffsetOutOfRange beyond the log's end: then there is nothing to keep (truncate_fully_and_start_at).
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
                self.services.log_start_moved(self)  # first: a start with the records before has to know their epochs
                self.epochs.cut_front(offset)
            except OSError as error:
                self.storage_failed(error, "leader epochs could not be written")
        self.core.wake_listeners()
        return True

    def truncate_to(self, offset: int, *, leader_epoch: int | None = None) -> bool:
        """Takes off the log all batches that reach beyond `offset`; whether there were any. StorageError. May block.

        What was cut is gone for good when this returns, power cuts included. Epochs that began at the log's end or
        later go even where nothing else does (KAFKA-10706).
        """
        if offset < 0:
            raise ValueError(f"{self.name} cannot be truncated to negative offset {offset}")
        return log_truncation.cut(self, offset, leader_epoch)

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int | None = None) -> None:
        """Drops everything: the log starts, ends and has its high watermark at `offset`. StorageError. May block."""
        log_truncation.begin_anew(self, offset, leader_epoch)
