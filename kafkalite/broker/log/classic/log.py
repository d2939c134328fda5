"""The log of a classic topic's partition: what differs from v2, on top of everything a PartitionLog does.

    append set ─▶ log end rises ─▶ flush (log.flush.interval messages, or its time) ─▶ visible: high watermark = flushed

A message has no time and no producer. A segment is as old as its file; what a roll closes is on the disk before the
next segment takes messages, so that a recovery need look at the last one only. Checksums are the reader's business, as
in 0.7: bytes are served as they are, and a range may begin and end anywhere.

Thread rule: PartitionLog's.
"""

from __future__ import annotations

import errno
import itertools
import logging
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kafkalite._native.classic import classic_log as native
from kafkalite._native.classic.message_set import MessageSetError
from kafkalite._native.log.producers import ProducerTable
from kafkalite._native.log.segment import Segment, SegmentUnreadable
from kafkalite._native.log.segment_read import READ_DEFER
from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.broker.log import files
from kafkalite.broker.log.classic.view import UNPACKING, BatchView, segment_at
from kafkalite.broker.log.partition_log import BulkFlush, LogServices, PartitionLog
from kafkalite.broker.log.producer_state import CapturedProducers, ProducerState
from kafkalite.errors import ErrorCode, error_for
from kafkalite.model import OffsetAndTimestamp
from kafkalite.wire.record.message_set import check_deep, fit_wrappers

if TYPE_CHECKING:
    from kafkalite._native.log.log_slice import LogSlice
    from kafkalite._native.log.record_format import RecordFormat
    from kafkalite.settings.topic_setting_lookup import TopicConfig

logger = RepeatLogger(logging.getLogger(__name__))

OFFSETS_LATEST: Final = -1
OFFSETS_EARLIEST: Final = -2


class SetInfo(NamedTuple):
    """Where an append went; both offsets are -1 for an empty set."""

    base_offset: int
    end_offset: int


class NoProducers(ProducerState):
    """Messages of 0.7 have no producer ids: nothing is read, nothing written."""

    __slots__ = ()

    def load_locked(self) -> ProducerTable:
        """An empty table."""
        return ProducerTable(1)

    def is_due_locked(self, *, stopping: bool) -> bool:  # noqa: ARG002 - the base's
        """Never."""
        return False

    def save(self, captured: CapturedProducers, *, durable: bool = False) -> None:
        """There is nothing."""


class ClassicLog(PartitionLog):
    """The log of one partition of a classic topic."""

    __slots__ = ()

    PRODUCER_STATE: ClassVar[type[ProducerState]] = NoProducers

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
        self.core.set_producers(ProducerTable(1))

    def configure(self, config: TopicConfig) -> None:
        """Takes over the topic's settings; those of records mean nothing to messages."""
        super().configure(config)
        self.core.configure(
            segment_size_max=config.segment_bytes,
            segment_ms=config.segment_ms,
            roll_jitter_ms=self.core.roll_jitter_ms,
            index_interval=config.index_interval_bytes,
            index_count_max=(1 << 31) - 1,
            message_size_max=config.max_message_bytes,
            log_append_time=False,
            timestamp_before_max_ms=(1 << 63) - 1,
            timestamp_after_max_ms=(1 << 63) - 1,
            compacted=False,
            validate_records=False,
            flush_messages=config.flush_messages,
            preallocate=config.preallocate,
        )

    @property
    def empty_forever(self) -> bool:
        """Whether nothing was ever written: then there is no file, and 0.7 knows no log."""
        return not self.active.has_file and self.log_end_offset == 0

    # --- append -------------------------------------------------------------------------------------------------------

    def append_set(self, data: bytes) -> SetInfo:
        """Appends a message set, blocking where need be; KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, storage."""
        _, error, base_offset, end_offset, flush_due = native.append(self.core, data)
        if error:
            raise error_for(error, f"{self.name} refused a message set: {ErrorCode(error).name}")
        if flush_due:
            self.flush()
        return SetInfo(base_offset, end_offset)

    def check_wrappers(self, data: bytes) -> tuple[int, int, bytes | None]:
        """(error code, messages in all, the set in another form or None) of a set that holds wrappers."""
        with UNPACKING:
            return self._check_wrappers(data)

    def _check_wrappers(self, data: bytes) -> tuple[int, int, bytes | None]:
        try:
            summary = check_deep(
                data, size_max=self.services.decompressed_size_max, depth_max=self.services.nesting_max
            )
        except MessageSetError as error:
            logger.warning("refused a message set", extra=fields(log=self.name, reason=str(error)))
            return ErrorCode.CORRUPT_MESSAGE, 0, None
        if summary.outer_count == 1 and summary.message_count <= summary.valid_size:
            return 0, summary.message_count, None
        return (
            0,
            summary.message_count,
            fit_wrappers(data, size_max=self.services.decompressed_size_max, depth_max=self.services.nesting_max),
        )

    def roll_locked(self) -> None:
        """As in 0.7, what is closed is on the disk first; it becomes visible with the flush that is asked for here.

        Its name, too: a log in which a segment is missing could not be opened.
        """
        with self.flush_lock:
            try:
                self.active.sync()
                self.entries.sync()
            except OSError as error:
                self.go_offline(f"a segment could not be synced: {error}")
                raise OSError(errno.EIO, "the segment could not be synced", self.directory) from error
        super().roll_locked()
        self.flush_due(self.log_end_offset)

    # --- flush --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """As of a PartitionLog; what is on the disk then can be seen, and who waits for it is told."""
        seen = self.flushed_offset
        super().flush()
        if self.flushed_offset > seen:
            self.core.wake_listeners()

    def end_bulk_flush(self, state: BulkFlush, *, synced: bool) -> None:
        """As of a PartitionLog, with the same consequence."""
        seen = self.flushed_offset
        super().end_bulk_flush(state, synced=synced)
        if self.flushed_offset > seen:
            self.core.wake_listeners()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_range(self, offset: int, size_max: int) -> bytes:
        """A copy of the visible bytes from `offset` on, up to size_max of one segment; KafkaError. May block."""
        error, found = self.range_blocking(offset, size_max)
        if error:
            raise error_for(error, f"{self.name} cannot be read at offset {offset}: {ErrorCode(error).name}")
        if found is None:
            return b""
        try:
            return found.tobytes()
        except SegmentUnreadable as failure:
            raise self.unreadable(failure) from failure
        finally:
            found.release()

    def range_blocking(self, offset: int, size_max: int) -> tuple[int, LogSlice | None]:
        """(error code, what a read on a worker gives), after opening the segment; the caller releases the slice."""
        for _ in range(3):
            outcome, error, found = native.read(self.core, offset, size_max)
            if outcome != READ_DEFER:
                return error, found
            try:
                with segment_at(self, offset):
                    outcome, error, found = native.read(self.core, offset, size_max)
            except FileNotFoundError:
                continue  # retention was faster: the next look says that the offset is gone
            except OSError as failure:
                self.storage_failed(failure, "a segment could not be opened")
                break
            if outcome != READ_DEFER:
                return error, found
        return ErrorCode.KAFKA_STORAGE_ERROR, None

    def as_batches(self, offset: int, size_max: int) -> tuple[int, bytes]:
        """(error code, record batch) for a client of today: messages from an offset on, or nothing yet. May block."""
        return BatchView(self, offset, size_max).read()

    def offsets_before(self, time_ms: int, count_max: int) -> list[int]:
        """What 0.7's OFFSETS answers: starts of segments whose files are not younger than a time, newest first.

        -1 asks from the end of the log on, -2 for its start alone. Blocks: it asks the file system.
        """
        if self.empty_forever:
            return [0] if time_ms in {OFFSETS_LATEST, OFFSETS_EARLIEST} else []
        flushed = self.flushed_offset
        entries = [
            (segment.base_offset, self._modified_ms(segment))
            for segment in self.segments
            if segment.base_offset <= flushed  # a roll comes before the flush that makes what it closed visible
        ]
        if flushed > entries[-1][0]:
            entries.append((flushed, self.services.clock.time_ms()))
        if time_ms == OFFSETS_LATEST:
            last = len(entries) - 1
        elif time_ms == OFFSETS_EARLIEST:
            last = 0
        else:
            last = max((i for i, entry in enumerate(entries) if entry[1] <= time_ms), default=-1)
        return [offset for offset, _ in reversed(entries[: last + 1])][:count_max]

    def find_timestamp(self, timestamp: int, upper_offset: int | None = None) -> OffsetAndTimestamp | None:
        """Where messages written at `timestamp` (ms) or later may begin: the start of the first segment so young.

        Messages have no times, so the answer's is the segment's. None when every file is older. May block.
        """
        upper = self.high_watermark if upper_offset is None else min(upper_offset, self.high_watermark)
        for segment in self.segments:
            if segment.base_offset >= upper or segment.size == 0:
                continue
            time_ms = self._modified_ms(segment)
            if time_ms >= timestamp:
                start = max(segment.base_offset, self.log_start_offset)
                return OffsetAndTimestamp(start, time_ms, self.epoch_at(start))
        return None

    def _modified_ms(self, segment: Segment) -> int:
        """When a segment's file was last written, ms; 0 once it is gone. StorageError: it was cut."""
        try:
            return segment.modified_ms()
        except SegmentUnreadable as error:
            raise self.unreadable(error) from error

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """No message has a time."""
        return None


def check_contiguous(directory: str, sizes: dict[int, int]) -> None:
    """OSError when segments do not follow each other without a gap, as 0.7 demands: offsets would lie."""
    bases = sorted(sizes)
    for base, following in itertools.pairwise(bases):
        if base + sizes[base] != following:
            raise OSError(
                errno.EIO,
                f"segment {files.stem(base)} ends at {base + sizes[base]}, but the next one begins at {following}",
                directory,
            )


def make_visible(segments: tuple[Segment, ...]) -> None:
    """Puts recovered bytes on the disk, so that they can be seen. OSError."""
    for segment in segments:
        if segment.flushed_size < segment.size:
            segment.sync()
        segment.set_verified_from(0)
