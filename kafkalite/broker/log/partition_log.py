"""One partition's log: all that its LogCore, which appends and reads, leaves to Python.

    create file ─▶ append … append ─▶ roll: new active segment, the old one handed to the sealer
                                              └▶ trim, fdatasync, index and producer snapshot saved

Thread rule: any thread may call anything. `_..._locked` methods need the log's lock. The second lock, `flush_lock`,
lets one sync run at a time, so that a failed one is never overtaken by a later success; it may be taken under the log's
own lock, never the other way round. Nothing that waits for the disk holds the log's lock, except creating a file at a
roll, writing down a new leader epoch and loading producer state before the first idempotent append;
`append(may_block=False)` runs into none of them.

Failures. A full disk refuses appends and nothing else, until a write succeeds again. A failed sync, and any other error
of a write, takes the partition offline for the life of the process: only what is on the disk counts, and only a fresh
start reads that.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kafkalite._native.base import file_ops
from kafkalite._native.log.log_append import APPEND_ASK, append_batch, append_marker_batch
from kafkalite._native.log.log_core import LogCore
from kafkalite._native.log.producers import FROM_CLIENT, FROM_COORDINATOR, ProducerTable
from kafkalite._native.log.scan import header_at
from kafkalite._native.log.segment import FileCache, Segment, SegmentUnreadable
from kafkalite._native.log.segment_read import READ_DEFER
from kafkalite.base import randomness
from kafkalite.base.clock import Clock, SystemClock
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.log import checkpoints, disk, files, record_checks
from kafkalite.broker.log.entries import DirectoryEntries
from kafkalite.broker.log.indexes import SegmentIndexes
from kafkalite.broker.log.leader_epochs import UNDEFINED, LeaderEpochs
from kafkalite.broker.log.log_state import LogState
from kafkalite.broker.log.markers import marker_batch
from kafkalite.broker.log.producer_state import CapturedProducers, ProducerState
from kafkalite.broker.log.time_lookup import SearchedLog, find_newest, find_timestamp
from kafkalite.errors import (
    ErrorCode,
    KafkaError,
    StorageError,
    UnknownTopicOrPartition,
    error_for,
)
from kafkalite.wire.record.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite._native.log.log_slice import LogSlice
    from kafkalite._native.log.record_format import RecordFormat
    from kafkalite._native.wire.batch import RecordFaults
    from kafkalite.broker.log.assignment import Leading
    from kafkalite.broker.log.retention import RetentionPolicy
    from kafkalite.model import OffsetAndTimestamp
    from kafkalite.settings.topic_setting_lookup import TopicConfig

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)

ANY_EPOCH: Final = -1
"""In place of a leader epoch: whichever it is by then."""
STRICT_EPOCHS_SINCE: Final = 2
"""First transaction.version in which every marker has an epoch above its transaction's."""
READ_ATTEMPTS_MAX: Final = 100
"""Rounds of opening and checking before a blocking read gives up; each round makes progress."""
INDEX_SAVE_GROWTH_MIN: Final = 1024 * 1024
"""A checkpoint saves the active segment's index again only after so many bytes, or a quarter of the segment."""
FULL_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PASSING_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
CODECS: Final = {"producer": -1, "uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec}}


@dataclass(slots=True, kw_only=True)
class LogServices:
    """What the logs of one data directory share; the manager owns it."""

    cache: FileCache
    clock: Clock
    dirty_logs: set[PartitionLog]
    seal: Callable[[PartitionLog, Segment, CapturedProducers], None]
    remove_later: Callable[[list[str], int], None]  # paths, delay in ms
    request_flush: Callable[[PartitionLog, int, Callable[[int], object]], None]
    log_start_moved: Callable[[PartitionLog], None]  # writes it down, durably
    went_offline: Callable[[PartitionLog, str], None]
    producer_id_seen: Callable[[int], None]
    sync_root: Callable[[], None]  # makes new partition directories durable
    end_lowered: Callable[[PartitionLog, int], None] = lambda _log, _offset: None  # before a cut: writes it down
    front_goes: Callable[[PartitionLog], bool] = lambda _log: False
    """Segments below the log start are about to go: writes it down, durably; False where it could not."""
    leading: Leading | None = None  # in a cluster: knows who follows
    fitness_changed: Callable[[PartitionLog], None] = lambda _log: None  # of a replica: any thread, never blocks
    producer_count_max: int = 50_000
    decompressed_size_max: int = 256 * 1024 * 1024
    nesting_max: int = 4  # wrappers of classic messages in each other
    policies: Sequence[RetentionPolicy] = ()


class AppendInfo(NamedTuple):
    """Where an append went. Times in ms, -1 unless the topic stamps records."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    end_offset: int


class ProducerRow(NamedTuple):
    """What a log knows of one producer; -1 where there is nothing to tell."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int  # ms
    coordinator_epoch: int
    transaction_offset: int


class BulkFlush(NamedTuple):
    """What a log had to be made durable when a bulk flush began."""

    log: PartitionLog
    target: int
    sizes: list[tuple[Segment, int]]
    cut_count: int
    entries_mark: int


class PartitionLog(LogState):
    """The log of one partition. Made by `loading`; closed by the manager.

    It owns a LogCore, `core`, to which network workers go directly, and answers what that asks its owner. Offsets,
    segments and state are the core's.
    """

    __slots__ = (
        "config",
        "directory",
        "entries",
        "epochs",
        "flush_lock",
        "indexes",
        "producer_state",
        "services",
        "taken_over",
        "topic_id",
    )

    REPLICATED: ClassVar[bool] = False
    """Whether the high watermark is something else than the log's end."""
    PRODUCER_STATE: ClassVar[type[ProducerState]] = ProducerState
    """What loads and saves the state of the log's producers."""

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
        self.core = LogCore(
            self,
            topic,
            partition,
            record_format,
            services.clock,
            dirty_logs=services.dirty_logs,
            system_clock=type(services.clock) is SystemClock,
            replicated=self.REPLICATED,
        )
        self.services = services
        self.directory = directory
        self.topic_id = topic_id
        self.taken_over = False
        """Whether Kafka wrote it last, nobody else has it, and no recovery point tells of all of it."""
        self.flush_lock = threading.Lock()
        self.entries = DirectoryEntries(directory, services.sync_root)
        self.indexes = SegmentIndexes(self.core, topic_id, self.flush_lock if self.REPLICATED else None)
        self.epochs = LeaderEpochs(directory)
        self.producer_state = self.PRODUCER_STATE(
            self.core,
            self.indexes,
            directory,
            producer_count_max=services.producer_count_max,
            producer_id_seen=services.producer_id_seen,
        )
        self.configure(config)

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    def configure(self, config: TopicConfig) -> None:
        """Takes over the topic's settings; they hold from the next append, roll or retention check on."""
        self.config = config
        jitter_max = min(config.segment_jitter_ms, config.segment_ms)
        self.core.configure(
            segment_size_max=config.segment_bytes,
            segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if config.compacted else config.segment_ms,
            roll_jitter_ms=randomness.below(jitter_max) if jitter_max > 0 else 0,
            index_interval=config.index_interval_bytes,
            index_count_max=max(1, config.segment_index_bytes // 8),
            message_size_max=config.max_message_bytes,
            log_append_time=config.log_append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.compacted,
            validate_records=config.record_validation == "full",
            flush_messages=config.flush_messages,
            codec=CODECS[config.compression_type],
            preallocate=config.preallocate,
        )

    # --- append -------------------------------------------------------------------------------------------------------

    def append(self, batch: bytes | bytearray | memoryview, *, in_epoch: int = ANY_EPOCH) -> AppendInfo:
        """Appends one batch, blocking where need be; KafkaError with the code that a producer would get,
        NOT_LEADER_OR_FOLLOWER in another leader epoch than `in_epoch`."""
        return self._append(batch, FROM_CLIENT, in_epoch)

    def append_internal(self, batch: bytes | bytearray | memoryview, *, in_epoch: int = ANY_EPOCH) -> AppendInfo:
        """As append(), for a coordinator's own batches: those of a producer (TxnOffsetCommit's, which are
        transactional) have no sequence, and nobody is asked whether the transaction may begin."""
        return self._append(batch, FROM_COORDINATOR, in_epoch)

    def _append(self, batch: bytes | bytearray | memoryview, origin: int, in_epoch: int) -> AppendInfo:
        outcome, error, base_offset, append_time_ms, log_start, end_offset, bad_index = append_batch(
            self.core, batch, origin=origin, in_epoch=in_epoch
        )
        if outcome == APPEND_ASK:
            error = ErrorCode.INVALID_TXN_STATE  # only a coordinator can admit a transaction
        if error:
            where = f", record {bad_index}" if bad_index >= 0 else ""
            raise error_for(error, f"{self.name} refused a batch: {ErrorCode(error).name}{where}")
        return AppendInfo(base_offset, append_time_ms, log_start, end_offset)

    def check_compressed(
        self, batch: bytes, key_required: bool, timestamp_min: int, timestamp_max: int
    ) -> tuple[int, int, int]:
        """(error code, index of the bad record or -1, largest timestamp in ms) of a compressed batch."""
        return record_checks.check_compressed(
            batch,
            key_required=key_required,
            timestamp_min=timestamp_min,
            timestamp_max=timestamp_max,
            size_max=self.services.decompressed_size_max,
        )

    def faults_of(self, batch: bytes, timestamp_min: int, timestamp_max: int) -> RecordFaults:
        """Which records of a batch that was refused are bad; bounds in ms."""
        return record_checks.faults_of(
            batch,
            key_required=self.core.compacted,
            timestamp_min=timestamp_min,
            timestamp_max=timestamp_max,
            size_max=self.services.decompressed_size_max,
        )

    def recode(self, batch: bytes, codec: int) -> bytearray:
        """The batch in another codec, with a right header."""
        from kafkalite.broker.log.recode import recode

        return recode(batch, codec, self.config, self.services.decompressed_size_max)

    # --- making the active segment writable ---------------------------------------------------------------------------

    def prepare_segment_locked(self, roll: bool) -> Segment | None:
        """Makes the active segment writable: index, file, recorded epoch, or a roll. None: the storage failed."""
        try:
            if roll:
                self.roll_locked()
            elif not self.active.has_file:
                self.make_segment_locked(self.active)
            elif self.active.index is None:
                self.indexes.loaded_locked(self.active)
                self.forget_foreign_indexes(self.active)
            if not self.core.epoch_recorded:
                self._record_epoch_locked()
        except OSError as error:
            self.storage_failed(error, "the next segment could not be prepared")
            return None
        return self.active

    def make_directory_locked(self) -> None:
        """Makes the partition's directory, with the topic's id in it, unless it is there. OSError."""
        if not disk.exists(f"{self.directory}/{files.PARTITION_METADATA_NAME}"):
            if not disk.is_directory(self.directory):
                file_ops.make_directory(self.directory)
            checkpoints.write_partition_topic_id(self.directory, self.topic_id)
            self.entries.directory_made()

    def make_segment_locked(self, segment: Segment) -> None:
        """Creates the file of a segment that has none yet. OSError."""
        self.make_directory_locked()
        segment.create_file(self.services.clock.time_ms())
        self.entries.name_changed()
        if self.producers is None and self.log_end_offset == self.segments[0].base_offset:
            self.core.set_producers(ProducerTable(self.services.producer_count_max, replicated=self.core.replicated))

    def roll_locked(self) -> None:
        """Makes a new active segment at the log end; the old one goes to the sealer."""
        old = self.active
        if self.producers is None and not self.load_producers_locked():
            raise OSError(errno.EIO, "the producer state could not be loaded", self.directory)
        new = Segment(
            self.services.cache,
            self.format,
            self.directory,
            self.next_base_locked(),
            map_reserve=self.core.segment_size_max,
        )
        old.trim_zeros()
        self.make_segment_locked(new)
        old.mark_sealed()
        self.core.set_segments((*self.segments, new))
        self.services.seal(self, old, self.producer_state.capture_locked())

    def next_base_locked(self) -> int:
        """Where the next segment begins."""
        return self.log_end_offset

    def roll(self) -> None:
        """Starts a new segment now, unless the active one is empty."""
        with self.core.locked():
            try:
                if self.active.size > 0 and not self.offline and not self.deleted:
                    self.roll_locked()
            except OSError as error:
                self.storage_failed(error, "the next segment could not be created")
                raise StorageError(f"{self.name} could not roll to a new segment: {error}") from error

    def _record_epoch_locked(self) -> None:
        """Writes down from which offset on batches carry the current leader epoch."""
        if self.epochs.latest < self.leader_epoch:
            self.epochs.begin(self.leader_epoch, self.log_end_offset)
        relied_on = len(self.epochs.entries) > 1  # earlier ones were: not for a moment may an empty file have the name
        self.epochs.save(durable=relied_on)
        self.entries.epochs_written()
        self.core.set_leader_epoch(self.leader_epoch, True)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def set_epochs(self, entries: list[tuple[int, int]], leader_epoch: int) -> None:
        """The recorded epochs of a log being opened, and the one to write with."""
        self.epochs.load(entries)
        self.core.set_leader_epoch(leader_epoch, self.epochs.latest == leader_epoch)

    def note_walked(self, segment: Segment, position: int) -> None:
        """While it is opened: the batches of a segment were checked, from a position on. Replicas want to know."""

    def opened(self, high_watermark: int | None, recovery_point: int | None) -> None:
        """It has its segments, offsets and epochs; what checkpoints say of a replica's high watermark, and of where it
        was on the disk to."""

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= epoch, first offset after it); (-1, -1) for an epoch this log does not know."""
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        entries = self.epochs.entries
        if epoch > self.leader_epoch or not entries or epoch < entries[0][0]:
            return UNDEFINED, UNDEFINED
        return self.epochs.end_offset_for(min(epoch, entries[-1][0]), self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that the record at an offset carries, or would carry; the first known one before that."""
        entries = self.epochs.entries
        if not entries or offset >= self.log_end_offset:
            return self.leader_epoch
        return max(self.epochs.epoch_at(offset), entries[0][0])

    def forget_foreign_indexes(self, segment: Segment) -> None:
        """Kafka's own index files do not match a segment that grows or is cut; Kafka builds missing ones again. The
        next flush has them gone durably: after a clean stop Kafka believes what a power cut brought back."""
        for suffix in files.KAFKA_INDEX_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                file_ops.unlink(f"{segment.directory}/{segment.name}{suffix}")
                self.entries.name_changed()

    # --- producers and transactions -----------------------------------------------------------------------------------

    def load_producers_locked(self) -> bool:
        """Loads what the log knows of its producers; False where that failed."""
        try:
            table = self.producer_state.load_locked()
        except OSError as error:
            self.storage_failed(error, "the producer state could not be read")
        except KafkaError as error:  # the journal is full or broken: nothing is wrong with this log
            logger.warning(
                "could not record producer ids in the journal", extra=fields(log=self.name, reason=str(error))
            )
        else:
            self.core.set_producers(table)
            return True
        return False

    def ensure_producers(self) -> ProducerTable:
        """The state of the producers, without which there is no last stable offset; StorageError. May block."""
        table = self.producers
        if table is not None:
            return table
        with self.core.locked():
            if self.offline or self.deleted or (self.producers is None and not self.load_producers_locked()):
                raise StorageError(f"{self.name} is offline, or its producer state cannot be read")
            table = self.producers
        assert table is not None, "it was just loaded"
        self.core.wake_listeners()
        return table

    def producer_rows(self) -> list[ProducerRow]:
        """What is known of each producer, for DescribeProducers. May block."""
        self.ensure_producers()
        with self.core.locked():
            return [
                ProducerRow(
                    entry.producer_id,
                    entry.epoch,
                    entry.last_sequence,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_offset,
                )
                for entry in self.producers or ()
            ]

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        transaction_version: int = 1,
        in_epoch: int = ANY_EPOCH,
    ) -> int:
        """Ends the producer's transaction here, if it has one; the offset after the marker, not flushed yet.

        InvalidProducerEpoch for an older producer epoch (with transaction version 2, KIP-890, also for the epoch of
        the open transaction itself); TransactionCoordinatorFenced for an older coordinator epoch; StorageError;
        UnknownTopicOrPartition; KafkaError (NOT_LEADER_OR_FOLLOWER) in another leader epoch than `in_epoch`. May block.
        """
        batch = marker_batch(
            producer_id, producer_epoch, coordinator_epoch, self.services.clock.time_ms(), commit=commit
        )
        strict = transaction_version >= STRICT_EPOCHS_SINCE
        error, end_offset = append_marker_batch(self.core, batch, strict=strict, in_epoch=in_epoch)
        if error:
            raise error_for(error, f"{self.name} refused a marker of producer {producer_id}: {ErrorCode(error).name}")
        return end_offset

    # --- flush --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Puts everything appended before the call on the disk. StorageError: it is not there, partition offline."""
        with self.flush_lock:
            if self.offline:
                raise StorageError(f"{self.name} is offline")
            target, segments = self.core.begin_flush()
            try:
                for segment in reversed(segments):
                    if segment.flushed_size == segment.size:
                        if segment.sealed and segment.base_offset <= self.flushed_offset:
                            break  # above it, recovered segments may still wait after one that was sealed since
                    else:
                        self._sync_unless_deleted(segment)
                self.entries.sync()
            except OSError as error:
                if self.deleted:
                    raise UnknownTopicOrPartition(f"{self.name} was deleted") from error
                self.go_offline(f"a flush failed: {error}")
                raise StorageError(f"{self.name} could not be flushed: {error}") from error
            self.core.set_flushed(target)

    def _sync_unless_deleted(self, segment: Segment) -> None:
        """Syncs a segment; retention may take it away at the same moment, and then there is nothing to keep."""
        try:
            if not segment.deleted:
                segment.sync()
        except FileNotFoundError:
            if not segment.deleted:
                raise

    def begin_bulk_flush(self) -> BulkFlush:
        """The first half of a flush whose sync covers many logs at once (see flush_together)."""
        cut_count = self.core.cut_count  # first: what is looked at after a cut is of another log
        target, segments = self.core.begin_flush()
        sizes = [(segment, segment.size) for segment in segments if segment.flushed_size < segment.size]
        return BulkFlush(self, target, sizes, cut_count, self.entries.mark())

    def end_bulk_flush(self, state: BulkFlush, *, synced: bool) -> None:
        """The second half: takes in that the sync succeeded, or flushes this log alone. KafkaError."""
        with self.flush_lock:
            if self.offline:
                raise StorageError(f"{self.name} is offline")
            if synced and state.cut_count == self.core.cut_count:  # else what was to be synced is not what is there
                for segment, size in state.sizes:
                    segment.set_flushed(max(size, segment.flushed_size))
                self.entries.synced(state.entries_mark)
                self.core.set_flushed(state.target)
                return
        self.flush()

    def flush_due(self, end_offset: int) -> None:
        """flush.messages asks for a flush; whoever acknowledges waits for it by itself."""
        self.services.request_flush(self, end_offset, _nobody_waits)

    def flush_async(self, end_offset: int, callback: Callable[[int], object]) -> None:
        """Calls back with an error code once everything below end_offset is on the disk; at once if it is."""
        if end_offset <= self.flushed_offset:
            callback(0)
        else:
            self.services.request_flush(self, end_offset, callback)

    def checkpoint(self) -> None:
        """Flushes, and saves the active segment's index and the producers when enough has been added for that."""
        with self.core.locked():
            segment = self.active
            state = self.indexes.state_of(segment)
            due = self.producer_state.is_due_locked(stopping=False)
            captured = self.producer_state.capture_locked() if due else None
        self.flush()
        if captured is not None:
            self.producer_state.save_or_warn(captured)
        if state is not None and segment.size - segment.indexed_size > max(INDEX_SAVE_GROWTH_MIN, segment.size // 4):
            self.indexes.save_state(segment, state)

    def close(self) -> None:
        """Clean stop: everything on the disk, blocks given back, index and producers saved. Appends must have ended."""
        if self.offline or self.deleted:
            return
        if self.flushed_offset < self.log_end_offset or self.entries.dirty:
            self.flush()
        segment = self.active
        try:
            if segment.has_file:
                segment.trim()
            state = self.indexes.state_of(segment)
            if state is not None and segment.indexed_size != segment.size:
                self.indexes.save_state(segment, state)
            if self.producer_state.is_due_locked(stopping=True):
                self.producer_state.save(self.producer_state.capture_locked())
        except OSError as error:
            logger.warning("could not close a log cleanly", extra=fields(log=self.name, reason=str(error)))
        for each in self.segments:
            each.close()

    # --- failures -----------------------------------------------------------------------------------------------------

    def go_offline(self, reason: str) -> None:
        """Stops serving the partition until the broker is started again."""
        if not self.core.set_offline():
            return
        logger.error("partition is offline until the broker restarts", extra=fields(log=self.name, reason=reason))
        self.services.went_offline(self, reason)
        self.core.wake_listeners()

    def storage_failed(self, error: OSError, what: str) -> None:
        """An error of a system call: a full disk or a lack of descriptors passes, anything else does not."""
        if error.errno in FULL_DISK_ERRORS:
            self._report_full(error)
        elif error.errno in PASSING_ERRORS:
            repeats.error(
                "the storage failed temporarily; the partition stays online",
                extra=fields(log=self.name, what=what, reason=str(error)),
            )
        elif self.core.set_offline():
            logger.error(
                "partition is offline until the broker restarts", extra=fields(log=self.name, reason=f"{what}: {error}")
            )
            self.services.went_offline(self, str(error))

    def read_failed(self, segment: Segment, error: int) -> None:
        """A file that is shorter than it was, or that the disk cannot give. From any thread, maybe a network worker."""
        if not self.deleted:
            reason = (
                "the file was truncated by another process or is unreadable"
                if error == errno.EIO
                else os.strerror(error)
            )
            self.storage_failed(SegmentUnreadable(errno.EIO, reason, segment.path), "a segment could not be read")

    def unreadable(self, error: SegmentUnreadable) -> StorageError:
        """What to raise when a reader met a file that failed: the partition is offline by then."""
        self.storage_failed(error, "a segment could not be read")
        return StorageError(f"{self.name} could not be read: {error}")

    def _report_full(self, error: OSError) -> None:
        if not self.core.storage_full:
            self.core.storage_full = True
            logger.error(
                "the disk is full; appends are refused and reads continue",
                extra=fields(log=self.name, reason=error.strerror),
            )
            self.services.fitness_changed(self)

    def write_failed_locked(self, error: int) -> None:
        """A write failed with this errno and was cut back."""
        self.storage_failed(OSError(error, os.strerror(error), self.active.path), "a write failed")

    def storage_recovered_locked(self) -> None:
        """A write succeeded again after a full disk."""
        self.core.storage_full = False
        logger.info("appends work again", extra=fields(log=self.name))
        self.services.fitness_changed(self)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_blocking(
        self, offset: int, size_max: int, *, whole_first_batch: bool = True
    ) -> tuple[int, LogSlice | None]:
        """(error code, what read_slice gives), after doing what it could not do without blocking. The caller releases
        the slice."""
        for _ in range(READ_ATTEMPTS_MAX):
            outcome, error, found = self.core.slice_at(offset, size_max, whole_first_batch=whole_first_batch)
            if outcome != READ_DEFER:
                return error, found
            if not self.prepare_read(offset, size_max):
                break
        return ErrorCode.KAFKA_STORAGE_ERROR, None

    def read(self, offset: int, size_max: int, *, whole_first_batch: bool = True) -> bytes:
        """A copy of whole batches from the one that holds `offset` on; KafkaError."""
        error, found = self.read_blocking(offset, size_max, whole_first_batch=whole_first_batch)
        if error:
            raise error_for(error, f"{self.name} could not be read at offset {offset}: {ErrorCode(error).name}")
        if found is None:
            return b""
        try:
            return found.tobytes()
        except SegmentUnreadable as failure:
            raise self.unreadable(failure) from failure
        finally:
            found.release()

    def prepare_read(self, offset: int, size_max: int) -> bool:
        """Opens, indexes and checks what a read at `offset` needs, so that read_slice can. False: it failed."""
        segments = self.segments
        try:
            for i, segment in enumerate(segments):
                behind = segments[i + 1].base_offset if i + 1 < len(segments) else self.log_end_offset
                if behind <= offset or segment.size == 0:
                    continue
                self.indexes.checked(segment, offset, size_max, behind)
                if segment.damage is not None:
                    self.note_damage()
                if segment.size > 0 and _holds_from(segment, offset):
                    break
        except OSError as error:
            if self.deleted or offset < self.log_start_offset or segments is not self.segments:
                return True
            if self.indexes.forget_failed(segments):
                return True
            self.storage_failed(error, "a segment could not be opened")
            return False
        self.indexes.forget_failed(segments)
        return True

    def note_damage(self) -> None:
        """There is damage in a segment. Replicas want to know. Any thread."""

    def verify_blocking(self, offset: int, size: int) -> None:
        """Checks `size` bytes from the batch with `offset` on, quarantines what is damaged, loads the producers."""
        self.ensure_producers()
        self.prepare_read(offset, size)

    # --- look-ups by time ---------------------------------------------------------------------------------------------

    def find_timestamp(self, timestamp: int, upper_offset: int | None = None) -> OffsetAndTimestamp | None:
        """The first record, in offset order, with a timestamp (ms) >= `timestamp`, below upper_offset. May block."""
        return self._look_up(lambda log: find_timestamp(log, timestamp, upper_offset))

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """The record with the largest timestamp; None in an empty log. May block."""
        return self._look_up(find_newest)

    def _look_up(self, look: Callable[[SearchedLog], OffsetAndTimestamp | None]) -> OffsetAndTimestamp | None:
        """What `look` finds; once more where compaction or retention replaced the segments that it was looking at, or
        where the file of an index failed. StorageError where that of a segment did."""
        searched = SearchedLog(self.core, self.indexes, self.services.decompressed_size_max)
        while True:
            segments = self.segments
            try:
                found = look(searched)
            except FileNotFoundError:
                if segments is self.segments:
                    raise
            except SegmentUnreadable as error:
                raise self.unreadable(error) from error
            else:
                if any(segment.damage is not None for segment in segments):
                    self.note_damage()
                if not self.indexes.forget_failed(segments):
                    return found

    def mark_deleted(self) -> None:
        """The topic is gone: appends and reads answer UNKNOWN_TOPIC_OR_PARTITION, who waits is told."""
        with self.core.locked():
            self.core.set_deleted()
        for segment in self.segments:
            segment.mark_deleted()
        self.core.wake_listeners()


def _holds_from(segment: Segment, offset: int) -> bool:
    """Whether the segment has a batch at or after `offset` (a segment may end in a gap)."""
    last = header_at(segment, segment.last_position)
    return last is None or last["next_offset"] > offset


def _nobody_waits(_code: int) -> None:
    """The callback of a flush that only flush.messages asked for."""
