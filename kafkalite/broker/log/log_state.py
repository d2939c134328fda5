"""What there is to see of a log: names, offsets, segments and state, which are its core's.

Thread rule: any thread, without the lock. What is read at two moments need not fit together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite._native.log.log_core import LogCore
    from kafkalite._native.log.producers import ProducerTable
    from kafkalite._native.log.record_format import RecordFormat
    from kafkalite._native.log.segment import Segment


class LogState:
    """The state of one partition's log, read only. PartitionLog gives it its core."""

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
        """`topic-partition`."""
        return self.core.name

    @property
    def format(self) -> RecordFormat:
        """What its segments hold."""
        return self.core.format

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.core.log_start_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below it is on the disk."""
        return self.core.flushed_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read."""
        return self.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers may read; the log start while `producers` is not loaded."""
        return self.core.last_stable_offset

    @property
    def leader_epoch(self) -> int:
        """What batches carry that are appended now."""
        return self.core.leader_epoch

    @property
    def offline(self) -> bool:
        """Whether the storage failed: appends and reads answer KAFKA_STORAGE_ERROR."""
        return self.core.offline

    @property
    def deleted(self) -> bool:
        """Whether the topic is gone: appends and reads answer UNKNOWN_TOPIC_OR_PARTITION."""
        return self.core.deleted

    @property
    def led(self) -> bool:
        """Whether this broker leads the partition; else appends and reads answer NOT_LEADER_OR_FOLLOWER."""
        return self.core.led

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Rising and never empty; replaced, never changed."""
        return self.core.segments

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def still_has(self, segments: tuple[Segment, ...]) -> bool:
        """Whether these, its segments a moment ago, are its segments now: none was deleted or replaced since."""
        return not self.deleted and self.segments is segments

    @property
    def active(self) -> Segment:
        """The last segment, to which appends go."""
        return self.core.active

    @property
    def producers(self) -> ProducerTable | None:
        """None until the first append or fetch."""
        return self.core.producers
