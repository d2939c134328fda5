"""Operate the log of one partition (`PartitionLog`): append, roll, flush, close, and handle storage failures.

    append    the native LogCore writes to the active segment
    roll      a new active segment is created, and the old one is queued for the sealer
    seal      the sealer trims and syncs the old segment, and saves its index and a producer snapshot

The native LogCore appends and reads. For an operation that may block, LogCore calls PartitionLog.

Thread rule: any thread may call anything. Methods named `..._locked` need the log's lock. The `flush_lock` may be taken
under the log's lock, but not the other way round. Only rare operations, such as a roll or a truncation, work on the
disk under the log's lock.
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
"""Means the current leader epoch."""
STRICT_EPOCHS_SINCE: Final = 2
"""First transaction.version in which a marker's producer epoch is above the producer epoch of its transaction
(KIP-890)."""
READ_ATTEMPTS_MAX: Final = 100
"""Rounds of opening and checking segments before a blocking read fails; each round makes progress."""
INDEX_SAVE_GROWTH_MIN: Final = 1024 * 1024
"""Minimum growth in bytes after which a checkpoint saves the active segment's index again. The growth must also exceed
a quarter of the segment's size."""
FULL_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PASSING_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
CODECS: Final = {"producer": -1, "uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec}}


@dataclass(slots=True, kw_only=True)
class LogServices:
    """The dependencies that all logs of a data directory share; the manager owns them."""

    cache: FileCache
    clock: Clock
    dirty_logs: set[PartitionLog]
    seal: Callable[[PartitionLog, Segment, CapturedProducers], None]
    remove_later: Callable[[list[str], int], None]  # paths, delay in ms
    request_flush: Callable[[PartitionLog, int, Callable[[int], object]], None]
    log_start_moved: Callable[[PartitionLog], None]  # checkpoints it, durably
    went_offline: Callable[[PartitionLog, str], None]
    producer_id_seen: Callable[[int], None]
    sync_root: Callable[[], None]  # makes new partition directories durable
    end_lowered: Callable[[PartitionLog, int], None] = lambda _log, _offset: None  # lowers checkpoints before a cut
    front_goes: Callable[[PartitionLog], bool] = lambda _log: False
    """Checkpoints the log start, durably, before segments below it are removed; returns False if the write failed."""
    leading: Leading | None = None  # in a cluster: tracks followers
    fitness_changed: Callable[[PartitionLog], None] = lambda _log: None  # for a replica: any thread, never blocks
    producer_count_max: int = 50_000
    decompressed_size_max: int = 256 * 1024 * 1024
    nesting_max: int = 4  # nested wrappers of classic messages
    policies: Sequence[RetentionPolicy] = ()


class AppendInfo(NamedTuple):
    """The offsets of an append. `append_time_ms` is -1 unless the topic uses log append time."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    end_offset: int


class ProducerRow(NamedTuple):
    """The state of one producer in a log, for DescribeProducers; an unknown value is -1."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int  # ms
    coordinator_epoch: int
    transaction_offset: int


class BulkFlush(NamedTuple):
    """The state of a log at the start of a bulk flush. The flush makes this state durable."""

    log: PartitionLog
    target: int
    sizes: list[tuple[Segment, int]]
    cut_count: int
    entries_mark: int


class PartitionLog(LogState):
    """The log of one partition. The module `loading` opens it, and the manager closes it.

    A PartitionLog owns a LogCore, `core`, and does the operations that the core requests from it. Network workers use
    the core directly. A worker never waits for a roll or truncation: its append is deferred to a thread that may block.

    Offsets, segments and state are in the core. `flush_lock` lets one sync run at a time, so that a later success never
    hides a failed sync.
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
    """Whether the high watermark can differ from the log end offset."""
    PRODUCER_STATE: ClassVar[type[ProducerState]] = ProducerState
    """The class that loads and saves the log's producer state."""

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
        """Whether Kafka wrote this log last, no other broker has the log, and no recovery point covers all of it."""
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
        """Apply the topic's settings. They take effect at the next append, roll or retention check."""
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
        """Append one batch; may block. KafkaError with the code for the producer.

        The code is NOT_LEADER_OR_FOLLOWER if `in_epoch` is given and is not the current leader epoch.
        """
        return self._append(batch, FROM_CLIENT, in_epoch)

    def append_internal(self, batch: bytes | bytearray | memoryview, *, in_epoch: int = ANY_EPOCH) -> AppendInfo:
        """Append a coordinator's batch, as append() does.

        A transactional batch (from TxnOffsetCommit) has no sequence numbers, and its transaction is not checked.
        """
        return self._append(batch, FROM_COORDINATOR, in_epoch)

    def _append(self, batch: bytes | bytearray | memoryview, origin: int, in_epoch: int) -> AppendInfo:
        outcome, error, base_offset, append_time_ms, log_start, end_offset, bad_index = append_batch(
            self.core, batch, origin=origin, in_epoch=in_epoch
        )
        if outcome == APPEND_ASK:
            error = ErrorCode.INVALID_TXN_STATE  # only a coordinator admits a transaction's first batch
        if error:
            where = f", record {bad_index}" if bad_index >= 0 else ""
            raise error_for(error, f"{self.name} refused a batch: {ErrorCode(error).name}{where}")
        return AppendInfo(base_offset, append_time_ms, log_start, end_offset)

    def check_compressed(
        self, batch: bytes, key_required: bool, timestamp_min: int, timestamp_max: int
    ) -> tuple[int, int, int]:
        """Return (error code, index of the bad record or -1, largest timestamp in ms) for a compressed batch."""
        return record_checks.check_compressed(
            batch,
            key_required=key_required,
            timestamp_min=timestamp_min,
            timestamp_max=timestamp_max,
            size_max=self.services.decompressed_size_max,
        )

    def faults_of(self, batch: bytes, timestamp_min: int, timestamp_max: int) -> RecordFaults:
        """Return the bad records of a batch that was refused; `timestamp_min` and `timestamp_max` are in ms."""
        return record_checks.faults_of(
            batch,
            key_required=self.core.compacted,
            timestamp_min=timestamp_min,
            timestamp_max=timestamp_max,
            size_max=self.services.decompressed_size_max,
        )

    def recode(self, batch: bytes, codec: int) -> bytearray:
        """Return the batch with its records compressed by another codec."""
        from kafkalite.broker.log.recode import recode

        return recode(batch, codec, self.config, self.services.decompressed_size_max)

    # --- making the active segment writable ---------------------------------------------------------------------------

    def prepare_segment_locked(self, roll: bool) -> Segment | None:
        """Make the active segment writable and return it; None if the storage failed.

        The steps, where needed, are: roll, or create the segment's file, or load its index; then write the leader
        epoch.
        """
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
        """Create the partition's directory with partition.metadata, unless it exists. OSError."""
        if not disk.exists(f"{self.directory}/{files.PARTITION_METADATA_NAME}"):
            if not disk.is_directory(self.directory):
                file_ops.make_directory(self.directory)
            checkpoints.write_partition_topic_id(self.directory, self.topic_id)
            self.entries.directory_made()

    def make_segment_locked(self, segment: Segment) -> None:
        """Create the file of a new segment. OSError."""
        self.make_directory_locked()
        segment.create_file(self.services.clock.time_ms())
        self.entries.name_changed()
        if self.producers is None and self.log_end_offset == self.segments[0].base_offset:
            self.core.set_producers(ProducerTable(self.services.producer_count_max, replicated=self.core.replicated))

    def roll_locked(self) -> None:
        """Begin a new active segment at the log end; the sealer gets the old one. OSError."""
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
        """Return the base offset of the next segment."""
        return self.log_end_offset

    def roll(self) -> None:
        """Roll to a new segment now, unless the active one is empty. StorageError."""
        with self.core.locked():
            try:
                if self.active.size > 0 and not self.offline and not self.deleted:
                    self.roll_locked()
            except OSError as error:
                self.storage_failed(error, "the next segment could not be created")
                raise StorageError(f"{self.name} could not roll to a new segment: {error}") from error

    def _record_epoch_locked(self) -> None:
        """Write the start offset of the current leader epoch."""
        if self.epochs.latest < self.leader_epoch:
            self.epochs.begin(self.leader_epoch, self.log_end_offset)
        relied_on = len(self.epochs.entries) > 1  # with earlier epochs, an empty file must not get the name
        self.epochs.save(durable=relied_on)
        self.entries.epochs_written()
        self.core.set_leader_epoch(self.leader_epoch, True)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def set_epochs(self, entries: list[tuple[int, int]], leader_epoch: int) -> None:
        """Set the recorded epochs of a log that is being opened, and the epoch for new batches."""
        self.epochs.load(entries)
        self.core.set_leader_epoch(leader_epoch, self.epochs.latest == leader_epoch)

    def note_walked(self, segment: Segment, position: int) -> None:
        """Note, while the log is being opened, that a segment's batches were checked from `position` on. Only replicas
        use this.
        """

    def opened(self, high_watermark: int | None, recovery_point: int | None) -> None:
        """Finish opening, after segments, offsets and epochs were set.

        The arguments are the checkpointed values; only replicas use them.
        """

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch up to `epoch`, its end offset); (-1, -1) if this log does not know the epoch."""
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        entries = self.epochs.entries
        if epoch > self.leader_epoch or not entries or epoch < entries[0][0]:
            return UNDEFINED, UNDEFINED
        return self.epochs.end_offset_for(min(epoch, entries[-1][0]), self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at an offset. At the log end, return the epoch of the next record.

        For a record older than all known epochs, return the first known epoch.
        """
        entries = self.epochs.entries
        if not entries or offset >= self.log_end_offset:
            return self.leader_epoch
        return max(self.epochs.epoch_at(offset), entries[0][0])

    def forget_foreign_indexes(self, segment: Segment) -> None:
        """Remove Kafka's index files of a segment that grows or is truncated. Kafka rebuilds missing index files.

        The next flush makes the removal durable. Otherwise a power cut could restore the files, and Kafka would trust
        them after a clean stop.
        """
        for suffix in files.KAFKA_INDEX_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                file_ops.unlink(f"{segment.directory}/{segment.name}{suffix}")
                self.entries.name_changed()

    # --- producers and transactions -----------------------------------------------------------------------------------

    def load_producers_locked(self) -> bool:
        """Load the producer state; return False if the load failed."""
        try:
            table = self.producer_state.load_locked()
        except OSError as error:
            self.storage_failed(error, "the producer state could not be read")
        except KafkaError as error:  # the journal cannot be written; this log is intact
            logger.warning(
                "could not record producer ids in the journal", extra=fields(log=self.name, reason=str(error))
            )
        else:
            self.core.set_producers(table)
            return True
        return False

    def ensure_producers(self) -> ProducerTable:
        """Return the producer state, loading it if needed. Only then does the log have a last stable offset.
        StorageError. May block.
        """
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
        """Return the state of each producer, for DescribeProducers. May block."""
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
        """Append a marker that ends the producer's open transaction in this log, if it has one.

        Return the offset after the marker, which is not flushed yet. May block. Errors:

            InvalidProducerEpoch           the producer epoch is older; with transaction version 2 (KIP-890), also if it
                                           is the epoch of the open transaction
            TransactionCoordinatorFenced   the coordinator epoch is older
            KafkaError                     NOT_LEADER_OR_FOLLOWER: `in_epoch` is not the leader epoch
            StorageError, UnknownTopicOrPartition
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
        """Make everything durable that was appended before the call. StorageError if this fails; the partition is then
        offline.
        """
        with self.flush_lock:
            if self.offline:
                raise StorageError(f"{self.name} is offline")
            target, segments = self.core.begin_flush()
            try:
                for segment in reversed(segments):
                    if segment.flushed_size == segment.size:
                        if segment.sealed and segment.base_offset <= self.flushed_offset:
                            break  # above the flushed offset, recovered segments may need a sync before a sealed one
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
        """Sync a segment, unless retention deletes it meanwhile."""
        try:
            if not segment.deleted:
                segment.sync()
        except FileNotFoundError:
            if not segment.deleted:
                raise

    def begin_bulk_flush(self) -> BulkFlush:
        """Begin a flush whose sync covers many logs (see flush_together). Return the log's state, for
        end_bulk_flush.
        """
        cut_count = self.core.cut_count  # first, so that a truncation from here on is noticed
        target, segments = self.core.begin_flush()
        sizes = [(segment, segment.size) for segment in segments if segment.flushed_size < segment.size]
        return BulkFlush(self, target, sizes, cut_count, self.entries.mark())

    def end_bulk_flush(self, state: BulkFlush, *, synced: bool) -> None:
        """End a bulk flush: note that this log is flushed. KafkaError.

        If the sync failed or the log was truncated since, flush this log alone.
        """
        with self.flush_lock:
            if self.offline:
                raise StorageError(f"{self.name} is offline")
            if synced and state.cut_count == self.core.cut_count:  # else the log was truncated since
                for segment, size in state.sizes:
                    segment.set_flushed(max(size, segment.flushed_size))
                self.entries.synced(state.entries_mark)
                self.core.set_flushed(state.target)
                return
        self.flush()

    def flush_due(self, end_offset: int) -> None:
        """Request a flush because flush.messages records are unflushed. Responses to acks=all request their own
        flush.
        """
        self.services.request_flush(self, end_offset, _nobody_waits)

    def flush_async(self, end_offset: int, callback: Callable[[int], object]) -> None:
        """Call `callback` with 0 when everything below `end_offset` is durable, or with an error code.

        If it is durable already, call back at once.
        """
        if end_offset <= self.flushed_offset:
            callback(0)
        else:
            self.services.request_flush(self, end_offset, callback)

    def checkpoint(self) -> None:
        """Flush; save the active segment's index and the producer state if they have grown enough. KafkaError."""
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
        """Close cleanly: make everything durable, trim, save index and producer state. Appends must have ended."""
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
        """Take the partition offline until the broker restarts."""
        if not self.core.set_offline():
            return
        logger.error("partition is offline until the broker restarts", extra=fields(log=self.name, reason=reason))
        self.services.went_offline(self, reason)
        self.core.wake_listeners()

    def storage_failed(self, error: OSError, what: str) -> None:
        """Handle an error of a system call.

        full disk                    appends are refused until a write succeeds again
        no descriptors or memory     only the operation fails
        any other error              the partition is offline until the broker restarts
        """
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
        """Handle a truncated or unreadable segment file. Any thread, also a network worker."""
        if not self.deleted:
            reason = (
                "the file was truncated by another process or is unreadable"
                if error == errno.EIO
                else os.strerror(error)
            )
            self.storage_failed(SegmentUnreadable(errno.EIO, reason, segment.path), "a segment could not be read")

    def unreadable(self, error: SegmentUnreadable) -> StorageError:
        """Take the partition offline because a segment file could not be read; return the error to raise."""
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
        """Handle a failed write, by its errno, after its bytes were truncated."""
        self.storage_failed(OSError(error, os.strerror(error), self.active.path), "a write failed")

    def storage_recovered_locked(self) -> None:
        """Note that a write succeeded after the disk was full."""
        self.core.storage_full = False
        logger.info("appends work again", extra=fields(log=self.name))
        self.services.fitness_changed(self)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_blocking(
        self, offset: int, size_max: int, *, whole_first_batch: bool = True
    ) -> tuple[int, LogSlice | None]:
        """Return (error code, slice of the log) like the core's slice_at(), after opening and checking segments if
        needed.

        The caller releases the slice.
        """
        for _ in range(READ_ATTEMPTS_MAX):
            outcome, error, found = self.core.slice_at(offset, size_max, whole_first_batch=whole_first_batch)
            if outcome != READ_DEFER:
                return error, found
            if not self.prepare_read(offset, size_max):
                break
        return ErrorCode.KAFKA_STORAGE_ERROR, None

    def read(self, offset: int, size_max: int, *, whole_first_batch: bool = True) -> bytes:
        """Return a copy of whole batches, from the batch that contains `offset` on; KafkaError. May block."""
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
        """Open, index and check the segment that a read at `offset` needs; return False if a step failed."""
        segments = self.segments
        try:
            for i, segment in enumerate(segments):
                next_offset = segments[i + 1].base_offset if i + 1 < len(segments) else self.log_end_offset
                if next_offset <= offset or segment.size == 0:
                    continue
                self.indexes.checked(segment, offset, size_max, next_offset)
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
        """Note that a segment is damaged; only replicas use this. Any thread."""

    def verify_blocking(self, offset: int, size: int) -> None:
        """Check `size` bytes beginning with the batch at `offset`; quarantine damage. Also load the producer state."""
        self.ensure_producers()
        self.prepare_read(offset, size)

    # --- look-ups by time ---------------------------------------------------------------------------------------------

    def find_timestamp(self, timestamp: int, upper_offset: int | None = None) -> OffsetAndTimestamp | None:
        """Return the first record, in offset order, whose timestamp (ms) is at least `timestamp`. May block.

        Only records below `upper_offset` count. None if no record matches.
        """
        return self._look_up(lambda log: find_timestamp(log, timestamp, upper_offset))

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the record with the largest timestamp; None in an empty log. May block."""
        return self._look_up(find_newest)

    def _look_up(self, look: Callable[[SearchedLog], OffsetAndTimestamp | None]) -> OffsetAndTimestamp | None:
        """Return the result of `look`, a look-up by time.

        The look-up is repeated if compaction or retention replaced segments meanwhile, or if an index file failed.
        StorageError if a segment's file failed.
        """
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
        """Mark the topic as deleted. Appends and reads then return UNKNOWN_TOPIC_OR_PARTITION, and waiting requests
        wake up.
        """
        with self.core.locked():
            self.core.set_deleted()
        for segment in self.segments:
            segment.mark_deleted()
        self.core.wake_listeners()


def _holds_from(segment: Segment, offset: int) -> bool:
    """Return whether the segment has a batch at or after `offset`.

    It may have none, because offsets may be missing at the end of a segment.
    """
    last = header_at(segment, segment.last_position)
    return last is None or last["next_offset"] > offset


def _nobody_waits(_code: int) -> None:
    """Do nothing: only flush.messages requested the flush, so no request waits for its result."""
