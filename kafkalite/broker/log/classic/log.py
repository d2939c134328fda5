"""Store one partition of a topic in Kafka 0.7's format (`ClassicLog`).

    1  an append adds a message set to the end of the log
    2  a flush makes the messages durable (after log.flush.interval messages, or by time)
    3  the flushed messages become visible: the high watermark is the flushed offset

As in 0.7, consumers verify the checksums. The log returns stored bytes unchanged, and the requested range may begin and
end anywhere.

Thread rule: the rule of PartitionLog applies.
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
    """The offsets of an append; both are -1 for an empty set."""

    base_offset: int
    end_offset: int


class NoProducers(ProducerState):
    """Empty producer state: messages of 0.7 have no producer ids."""

    __slots__ = ()

    def load_locked(self) -> ProducerTable:
        """Return an empty table."""
        return ProducerTable(1)

    def is_due_locked(self, *, stopping: bool) -> bool:  # noqa: ARG002 - the base class's signature
        """Return False: there is nothing to save."""
        return False

    def save(self, captured: CapturedProducers, *, durable: bool = False) -> None:
        """Do nothing."""


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
        """Apply the topic's settings; settings that concern records have no effect on messages of 0.7."""
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
        """Whether nothing was ever appended. For such a partition, Kafka 0.7 has neither a file nor a log."""
        return not self.active.has_file and self.log_end_offset == 0

    # --- append -------------------------------------------------------------------------------------------------------

    def append_set(self, data: bytes) -> SetInfo:
        """Append a message set; may block. KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE or a storage error."""
        _, error, base_offset, end_offset, flush_due = native.append(self.core, data)
        if error:
            raise error_for(error, f"{self.name} refused a message set: {ErrorCode(error).name}")
        if flush_due:
            self.flush()
        return SetInfo(base_offset, end_offset)

    def check_wrappers(self, data: bytes) -> tuple[int, int, bytes | None]:
        """Check a message set that contains wrapper messages (messages that contain compressed ones).

        Return (error code, number of messages, replacement). The replacement is the set with some wrappers split, so
        that each has at least one byte per message; None if no wrapper had to be split. An inner message set that ends
        within a message is refused, because its end could never be read.
        """
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
        """Make the closed segment and its file name durable, and then roll, as 0.7 does. So recovery checks only the
        last segment.

        The name has to be durable, because a log with a missing segment cannot be opened. The segment's messages become
        visible with the flush that is requested here. In 0.7.2 they become visible with the roll.
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
        """Flush like a PartitionLog. Then wake the listeners, because the flushed bytes are visible now."""
        seen = self.flushed_offset
        super().flush()
        if self.flushed_offset > seen:
            self.core.wake_listeners()

    def end_bulk_flush(self, state: BulkFlush, *, synced: bool) -> None:
        """End a bulk flush like a PartitionLog. Then wake the listeners, because the flushed bytes are visible now."""
        seen = self.flushed_offset
        super().end_bulk_flush(state, synced=synced)
        if self.flushed_offset > seen:
            self.core.wake_listeners()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_range(self, offset: int, size_max: int) -> bytes:
        """Return a copy of visible bytes from `offset`, at most size_max and in one segment; KafkaError. May block."""
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
        """Return (error code, slice of the log) for a read at `offset`, opening the segment if needed. The caller
        releases the slice. Until then it is readable, even if its segment is deleted.
        """
        for _ in range(3):
            outcome, error, found = native.read(self.core, offset, size_max)
            if outcome != READ_DEFER:
                return error, found
            try:
                with segment_at(self, offset):
                    outcome, error, found = native.read(self.core, offset, size_max)
            except FileNotFoundError:
                continue  # retention deleted the segment; the next look returns the error for the offset
            except OSError as failure:
                self.storage_failed(failure, "a segment could not be opened")
                break
            if outcome != READ_DEFER:
                return error, found
        return ErrorCode.KAFKA_STORAGE_ERROR, None

    def as_batches(self, offset: int, size_max: int) -> tuple[int, bytes]:
        """Return (error code, one record batch or nothing) with the messages from `offset` on, for a current client.
        May block.
        """
        return BatchView(self, offset, size_max).read()

    def offsets_before(self, time_ms: int, count_max: int) -> list[int]:
        """Return the base offsets of segments last written at or before `time_ms`, newest first, for 0.7's OFFSETS
        request.

        Time -1 returns the log end and then all base offsets; -2 returns the log start only. May block.
        """
        if self.empty_forever:
            return [0] if time_ms in {OFFSETS_LATEST, OFFSETS_EARLIEST} else []
        flushed = self.flushed_offset
        entries = [
            (segment.base_offset, self._modified_ms(segment))
            for segment in self.segments
            if segment.base_offset <= flushed  # a rolled segment becomes visible with the flush that follows
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
        """Return the start of the first segment whose file was written at `timestamp` (ms) or later, and this file
        time.

        Messages have no times, so file times are used. Return None if every file is older. May block.
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
        """Return when a segment's file was last written, in ms; 0 if the file is deleted. StorageError if the file was
        truncated by another program.
        """
        try:
            return segment.modified_ms()
        except SegmentUnreadable as error:
            raise self.unreadable(error) from error

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return None: messages have no times."""
        return None


def check_contiguous(directory: str, sizes: dict[int, int]) -> None:
    """Raise OSError if there is a gap between two segments. Offsets of 0.7 are byte positions, so all offsets after the
    gap would be wrong.
    """
    bases = sorted(sizes)
    for base, following in itertools.pairwise(bases):
        if base + sizes[base] != following:
            raise OSError(
                errno.EIO,
                f"segment {files.stem(base)} ends at {base + sizes[base]}, but the next one begins at {following}",
                directory,
            )


def make_visible(segments: tuple[Segment, ...]) -> None:
    """Make recovered bytes durable and therefore visible. OSError."""
    for segment in segments:
        if segment.flushed_size < segment.size:
            segment.sync()
        segment.set_verified_from(0)
