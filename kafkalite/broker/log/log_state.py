"""Provide read access to the state of a log: names, offsets, segments and flags.

The native core of the log (`LogCore`) has this state.

Thread rule: any thread, without the lock. If two values are read one after the other, the state may have changed
between the reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite._native.log.log_core import LogCore
    from kafkalite._native.log.producers import ProducerTable
    from kafkalite._native.log.record_format import RecordFormat
    from kafkalite._native.log.segment import Segment


class LogState:
    """The read-only state of one partition's log. PartitionLog sets `core`."""

    __slots__ = ("core",)

    core: LogCore

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.core.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.core.partition

    @property
    def name(self) -> str:
        """The log's name: `topic-partition`."""
        return self.core.name

    @property
    def format(self) -> RecordFormat:
        """The record format of the log's segments."""
        return self.core.format

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.core.log_start_offset

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is durable."""
        return self.core.flushed_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which consumers may read."""
        return self.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which read_committed consumers may read. Before `producers` is loaded, it is the log
        start.
        """
        return self.core.last_stable_offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of batches that are appended now."""
        return self.core.leader_epoch

    @property
    def offline(self) -> bool:
        """Whether the log's storage failed; appends and reads then return KAFKA_STORAGE_ERROR."""
        return self.core.offline

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted; appends and reads then return UNKNOWN_TOPIC_OR_PARTITION."""
        return self.core.deleted

    @property
    def led(self) -> bool:
        """Whether this broker leads the partition; if not, appends and reads return NOT_LEADER_OR_FOLLOWER."""
        return self.core.led

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in the order of their offsets, at least one. A change replaces the tuple."""
        return self.core.segments

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.size for segment in self.segments)

    def still_has(self, segments: tuple[Segment, ...]) -> bool:
        """Return whether `segments` is the log's present tuple of segments.

        If so, no segment was added, deleted or replaced since the tuple was read.
        """
        return not self.deleted and self.segments is segments

    @property
    def active(self) -> Segment:
        """The active segment, the last one."""
        return self.core.active

    @property
    def producers(self) -> ProducerTable | None:
        """The producer state; None until the first append or fetch loads it."""
        return self.core.producers
