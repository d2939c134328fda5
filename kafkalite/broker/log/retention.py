"""Which segments of a log may be deleted: by age, by size, and by a policy of one's own.

    class KeepTen:
        def deletable_count(self, segments, now_ms):
            return max(0, len(segments) - 10) if segments[0].topic == "clicks" else 0

    Broker(retention_policies=[KeepTen()])        log.retention.policies=my_module:KeepTen

A policy sees the segments from the oldest on and says how many of them, counted from the front, may go. Policies are
asked in turn and the largest answer wins. One's own are asked, on the housekeeper's thread every
log.retention.check.interval.ms, for the logs whose cleanup.policy says delete; one that fails deletes nothing. A policy
must not keep references to what it is shown.

How old a segment is: as old as its newest record, unless no record has a time, or one claims to come from the future;
then as old as its file. The active segment is never older than its last append, whatever its records say: a record with
timestamp 0 must not take the segment with it that is being written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalite.base import plugins
from kafkalite.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

logger = logging.getLogger(__name__)


class SegmentAge(NamedTuple):
    """What a policy is told of a segment."""

    base_offset: int
    end_offset: int  # first offset after it
    size: int  # bytes
    max_timestamp: int  # ms, of its records; -1 none
    modified_ms: int  # when its file was last written
    active: bool
    topic: str
    partition: int


class RetentionPolicy(Protocol):
    """Decides what a log may forget."""

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
        """How many segments from the front may be deleted; at least one segment is shown."""


def named_policies(texts: Iterable[str]) -> tuple[RetentionPolicy, ...]:
    """The policies that log.retention.policies names; ConfigError for one that is not there."""
    try:
        return tuple(plugins.make(text, methods=["deletable_count"]) for text in texts)
    except ValueError as error:
        raise ConfigError("log.retention.policies", str(error)) from error


def ask(policy: RetentionPolicy, segments: Sequence[SegmentAge], now_ms: int) -> int:
    """What a policy of an application's answers, within bounds; 0, and a line in the log, when it fails."""
    try:
        count = int(policy.deletable_count(segments, now_ms))
    except Exception:  # whatever a policy does, the other logs have their turn
        name = f"{segments[0].topic}-{segments[0].partition}"
        logger.exception("retention policy %s failed for %s; it deletes no segments there", type(policy).__name__, name)
        return 0
    return min(max(count, 0), len(segments))


def time_of(segment: SegmentAge, now_ms: int) -> int:
    """The moment, in ms, from which a segment's age counts."""
    newest = segment.max_timestamp if 0 <= segment.max_timestamp <= now_ms else segment.modified_ms
    return max(newest, segment.modified_ms) if segment.active else newest


class TimeRetention:
    """Segments older than `retention_ms`; -1 keeps all."""

    __slots__ = ("retention_ms",)

    def __init__(self, retention_ms: int) -> None:
        self.retention_ms = retention_ms

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
        """Counts from the front up to the first one that is young enough."""
        if self.retention_ms < 0:
            return 0
        count = 0
        for segment in segments:
            empty = segment.size == 0  # of a sealed one compaction has left nothing: it may always go
            if (empty and segment.active) or (not empty and now_ms - time_of(segment, now_ms) <= self.retention_ms):
                break
            count += 1
        return count


class SizeRetention:
    """The oldest segments of a log that has at least `retention_bytes` without them; -1 keeps all."""

    __slots__ = ("retention_bytes",)

    def __init__(self, retention_bytes: int) -> None:
        self.retention_bytes = retention_bytes

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:  # noqa: ARG002 - the protocol's
        """Counts while what is left is at least the limit."""
        if self.retention_bytes < 0:
            return 0
        excess = sum(segment.size for segment in segments) - self.retention_bytes
        count = 0
        for segment in segments:
            if (segment.active and segment.size == 0) or excess < segment.size:
                break
            excess -= segment.size
            count += 1
        return count


class StartRetention:
    """Segments that lie wholly below the log start offset (DeleteRecords)."""

    __slots__ = ("log_start_offset",)

    def __init__(self, log_start_offset: int) -> None:
        self.log_start_offset = log_start_offset

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:  # noqa: ARG002 - the protocol's
        """Counts sealed segments whose end is at or below the start."""
        count = 0
        for segment in segments:
            if segment.active or segment.end_offset > self.log_start_offset:
                break
            count += 1
        return count
