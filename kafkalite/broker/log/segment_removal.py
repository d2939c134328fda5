"""Remove the first segments of a log, by retention or DeleteRecords.

    get the age of every segment ▸ publish the rest ▸ checkpoint the log start ▸ rename the files ▸ remove them later

Thread rule: the rule of PartitionLog applies. Everything here may block.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite._native.log.segment import SegmentUnreadable
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.log import files
from kafkalite.broker.log.retention import (
    RetentionPolicy,
    SegmentAge,
    SizeRetention,
    StartRetention,
    TimeRetention,
    ask,
)
from kafkalite.errors import ErrorCode, OffsetOutOfRange, UnknownTopicOrPartition, error_for

if TYPE_CHECKING:
    from kafkalite._native.log.segment import Segment
    from kafkalite.broker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)


def delete_records(log: PartitionLog, offset: int) -> int:
    """Raise the log start to `offset` (-1: the high watermark), durably; return the new log start. May block.

    UnknownTopicOrPartition; OffsetOutOfRange; KafkaError (NOT_LEADER_OR_FOLLOWER) if this broker does not lead.
    """
    with log.core.locked():
        target = log.high_watermark if offset == -1 else offset
        if log.deleted:
            raise UnknownTopicOrPartition(f"{log.name} was deleted")
        if not log.led:
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log.name} is not led by this broker")
        if target < 0 or target > log.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete records of {log.name} up to offset {target}: its high watermark is {log.high_watermark}"
            )
        if target > log.log_start_offset:
            log.core.set_log_start(target)
    log.services.log_start_moved(log)
    try:
        segments, ages = _judged(log)
    except SegmentUnreadable as error:
        raise log.unreadable(error) from error
    remove_front(log, segments, StartRetention(log.log_start_offset).deletable_count(ages, 0))
    log.core.wake_listeners()
    return log.log_start_offset


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Delete the segments that the topic's policies select; return their number. May block."""
    if log.offline or log.deleted:
        return 0
    policies: list[RetentionPolicy] = [StartRetention(log.log_start_offset)]
    if "delete" in log.config.cleanup_policy:
        policies += [TimeRetention(log.config.retention_ms), SizeRetention(log.config.retention_bytes)]
        policies += log.services.policies
    try:
        segments, ages = _judged(log)
    except UnknownTopicOrPartition:
        return 0
    except SegmentUnreadable as error:
        log.storage_failed(error, "a segment could not be read")
        return 0
    count = max(ask(policy, ages, now_ms) for policy in policies)
    if log.core.replicated:
        count = min(count, sum(age.end_offset <= log.high_watermark for age in ages))
    if count == 0:
        return 0
    if count >= len(ages):
        log.roll()
    removed = remove_front(log, segments, count)
    log.core.wake_listeners()
    return removed


def _judged(log: PartitionLog) -> tuple[tuple[Segment, ...], list[SegmentAge]]:
    """Return the log's segments, and for each of them the facts that retention policies need. OSError;
    UnknownTopicOrPartition.

    Start again if a segment is removed meanwhile.
    """
    while True:
        segments = log.segments
        try:
            return segments, _ages(log, segments)
        except FileNotFoundError as error:
            if log.deleted:
                raise UnknownTopicOrPartition(f"{log.name} was deleted") from error
            if segments is log.segments:
                raise


def _ages(log: PartitionLog, segments: tuple[Segment, ...]) -> list[SegmentAge]:
    ages = []
    for i, segment in enumerate(segments):
        log.indexes.ensure_summary(segment)
        active = i + 1 == len(segments)
        next_offset = log.log_end_offset if active else segments[i + 1].base_offset
        ages.append(
            SegmentAge(
                segment.base_offset,
                next_offset,
                segment.size,
                segment.max_timestamp,
                segment.modified_ms(),
                active,
                log.topic,
                log.partition,
            )
        )
    return ages


def remove_front(log: PartitionLog, judged: tuple[Segment, ...], count: int) -> int:
    """Remove the first `count` segments of `judged` from the log; return how many were removed.

    A segment that was replaced since, for example by compaction, stays with all later segments. The files are removed
    after file.delete.delay.ms.

    The new log start is checkpointed before the files are renamed: the renames may become durable in any order, and a
    start removes all segments that end below the log start. If the checkpoint cannot be written, each rename is made
    durable before the next one.
    """
    if count <= 0:
        return 0
    with log.core.locked():
        present = zip(log.segments[:-1], judged[:count], strict=False)
        removed = tuple(now for now, _ in itertools.takewhile(lambda pair: pair[0] is pair[1], present))
        count = len(removed)
        if not removed:
            return 0
        kept = log.segments[count:]
        if kept[0].base_offset > log.log_start_offset:
            log.core.set_log_start(kept[0].base_offset)
        log.core.set_segments(kept)
        log.entries.removal_began()
    written = log.services.front_goes(log)
    for segment in removed:
        if not written:
            _sync_names(log)
        remove_files(log, segment)
    with log.core.locked():
        log.entries.removal_ended()
    repeats.info(
        "segments deleted", extra=fields(log=log.name, count=len(removed), log_start_offset=log.log_start_offset)
    )
    return count


def _sync_names(log: PartitionLog) -> None:
    """Make the renames in the log's directory durable. An error is only logged."""
    try:
        file_ops.sync_directory(log.directory)
    except OSError as error:
        logger.warning("could not sync the directory of a log", extra=fields(log=log.name, reason=str(error)))


def remove_files(log: PartitionLog, segment: Segment) -> None:
    """Rename a segment's files, so that they are removed later. Readers that have the segment open can continue."""
    segment.mark_deleted()
    paths = []
    for suffix in (log.format.suffix, *files.COMPANION_SUFFIXES):
        path = f"{segment.directory}/{segment.name}{suffix}"
        try:
            file_ops.rename(path, path + files.DELETED_SUFFIX)
            paths.append(path + files.DELETED_SUFFIX)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("could not rename a deleted segment", extra=fields(path=path, reason=str(error)))
    log.services.remove_later(paths, log.config.file_delete_delay_ms)
