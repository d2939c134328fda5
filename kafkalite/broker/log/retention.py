"""Select the segments that retention deletes from a log: by age, size and log start, and by the application's policies.

    class KeepTen:
        def deletable_count(self, segments, now_ms):
            return max(0, len(segments) - 10) if segments[0].topic == "clicks" else 0

    Broker(retention_policies=[KeepTen()])        log.retention.policies=my_module:KeepTen

A policy gets the segments, oldest first, and returns how many of them may be deleted from the front. The largest number
of all policies applies.

The housekeeper's thread calls the application's policies every log.retention.check.interval.ms, for logs whose
cleanup.policy includes delete.
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
    """The facts about a segment that a policy gets."""

    base_offset: int
    end_offset: int  # first offset after it
    size: int  # bytes
    max_timestamp: int  # ms, of its newest record; -1: none
    modified_ms: int  # when its file was last written
    active: bool
    topic: str
    partition: int


class RetentionPolicy(Protocol):
    """Decides which segments to delete."""

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
        """Return how many of the first segments may be deleted. `segments` has at least one segment."""


def named_policies(texts: Iterable[str]) -> tuple[RetentionPolicy, ...]:
    """Return the policies that log.retention.policies names; ConfigError for a policy that does not exist."""
    try:
        return tuple(plugins.make(text, methods=["deletable_count"]) for text in texts)
    except ValueError as error:
        raise ConfigError("log.retention.policies", str(error)) from error


def ask(policy: RetentionPolicy, segments: Sequence[SegmentAge], now_ms: int) -> int:
    """Return the result of an application's policy, within bounds. If the policy fails, log the error and return 0."""
    try:
        count = int(policy.deletable_count(segments, now_ms))
    except Exception:  # a failing policy must not stop retention of the other logs
        name = f"{segments[0].topic}-{segments[0].partition}"
        logger.exception("retention policy %s failed for %s; it deletes no segments there", type(policy).__name__, name)
        return 0
    return min(max(count, 0), len(segments))


def time_of(segment: SegmentAge, now_ms: int) -> int:
    """Return the time in ms since 1970 from which a segment's age is counted.

    That is the time of its newest record. If no record has a timestamp, or the newest one is in the future, it is the
    time of the segment's file. The active segment counts at most as old as its last append: otherwise, a record with
    timestamp 0 would delete the segment that is being written.
    """
    newest = segment.max_timestamp if 0 <= segment.max_timestamp <= now_ms else segment.modified_ms
    return max(newest, segment.modified_ms) if segment.active else newest


class TimeRetention:
    """Deletes segments older than `retention_ms`; -1 keeps all segments."""

    __slots__ = ("retention_ms",)

    def __init__(self, retention_ms: int) -> None:
        self.retention_ms = retention_ms

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:
        """Return the number of segments before the first segment that is young enough to keep."""
        if self.retention_ms < 0:
            return 0
        count = 0
        for segment in segments:
            empty = segment.size == 0  # compaction left nothing in a sealed one, which may always be deleted
            if (empty and segment.active) or (not empty and now_ms - time_of(segment, now_ms) <= self.retention_ms):
                break
            count += 1
        return count


class SizeRetention:
    """Deletes the oldest segments as long as the remaining ones have at least `retention_bytes`; -1 keeps all
    segments.
    """

    __slots__ = ("retention_bytes",)

    def __init__(self, retention_bytes: int) -> None:
        self.retention_bytes = retention_bytes

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:  # noqa: ARG002 - the protocol's
        """Return the number of oldest segments whose deletion leaves at least `retention_bytes`."""
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
    """Deletes segments that lie entirely below the log start offset (DeleteRecords)."""

    __slots__ = ("log_start_offset",)

    def __init__(self, log_start_offset: int) -> None:
        self.log_start_offset = log_start_offset

    def deletable_count(self, segments: Sequence[SegmentAge], now_ms: int) -> int:  # noqa: ARG002 - the protocol's
        """Return the number of sealed segments that end at or below the log start."""
        count = 0
        for segment in segments:
            if segment.active or segment.end_offset > self.log_start_offset:
                break
            count += 1
        return count
