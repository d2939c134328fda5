"""Repair the problems that kafkalite.broker.log.checking finds, and keep all damaged bytes under another name.

    derived file     renamed to NAME.damaged; index and partition.metadata are written here, others by the next start
    unflushed tail   copied to NNN.log.damaged-FIRST-NEXT, then truncated
    damaged range    copied to NNN.log.damaged-FIRST-NEXT; files with positions in the segment are deleted; the segment
                     is replaced by a copy without the range, and NNN.klindex is rebuilt

The damaged bytes are durable under their new name before anything else changes. After a crash, run the repair again.

Everything here blocks. Meanwhile, no broker may use the directory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.index import SegmentIndex
from kafkalite._native.log.scan import SegmentScan
from kafkalite._native.log.segment import FileCache, Segment
from kafkalite.broker.log import checkpoints, disk, files, index_file
from kafkalite.broker.log.checking import MAP_SIZE_MIN, Finding, Partition, Remedy, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

COPY_SIZE: Final = 1 << 20
INDEX_INTERVAL: Final = 4096
DAMAGED_SUFFIX: Final = ".damaged"


def repair_findings(partition: Partition | None, findings: Sequence[Finding]) -> list[tuple[Finding, str]]:
    """Repair the findings of one partition, or of the directory's root (None). Return each finding with the action
    taken. OSError.
    """
    done = [(finding, _repair_file(partition, finding)) for finding in findings if finding.position < 0]
    by_segment: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.position >= 0 and finding.remedy in {Remedy.CUT, Remedy.TAKE_OUT}:
            by_segment.setdefault(finding.path, []).append(finding)
        elif finding.position >= 0:
            done.append((finding, ""))
    for path, ranges in by_segment.items():
        assert partition is not None, "segments belong to partitions"
        done += _repair_segment(partition, path, ranges)
    return done


def _repair_file(partition: Partition | None, finding: Finding) -> str:
    """Repair a file that is not a segment. Return the action taken; an empty string if the finding has no remedy."""
    if finding.remedy is Remedy.REWRITE:
        assert partition is not None, "only partitions have a topic id"
        assert partition.topic_id is not None, "the journal knows it"
        if disk.exists(finding.path):
            _put_aside(finding.path)
        checkpoints.write_partition_topic_id(partition.directory, partition.topic_id, durable=True)
        return "written again"
    if finding.remedy is not Remedy.REBUILD:
        return ""
    kept = _put_aside(finding.path)
    if partition is not None and finding.path.endswith(files.INDEX_SUFFIX):
        _rebuild_index(partition, finding.path.removesuffix(files.INDEX_SUFFIX))
    return f"rebuilt; the old file is {os.path.basename(kept)}"


def _put_aside(path: str) -> str:
    """Rename a damaged file, durably, so that it is kept; return its new path."""
    target = _free_name(path + DAMAGED_SUFFIX)
    file_ops.rename(path, target)
    file_ops.sync_directory(os.path.dirname(path))
    return target


def _free_name(path: str) -> str:
    """Return the path if it is free, else the path with a number appended."""
    number, target = 1, path
    while disk.lexists(target):
        number += 1
        target = f"{path}.{number}"
    return target


def _open_segment(partition: Partition, base: int) -> Segment:
    assert partition.format is not None, "there are segments"
    path = f"{partition.directory}/{files.stem(base)}{partition.format.suffix}"
    size = disk.stat(path).st_size
    return Segment(
        FileCache(1), partition.format, partition.directory, base, map_reserve=max(size, MAP_SIZE_MIN), size=size
    )


def _rebuild_index(partition: Partition, stem_path: str) -> None:
    """Rebuild the saved index of an intact segment. If the topic id is unknown, leave this to the next start."""
    topic_id = partition.topic_id or topic_id_of(partition.directory)
    segment = _open_segment(partition, int(os.path.basename(stem_path)))
    scan = SegmentScan(segment, next_offset=segment.base_offset, index=SegmentIndex(), index_interval=INDEX_INTERVAL)
    whole = scan.run(segment.size, verify=True)
    if topic_id is not None and whole and segment.size > 0:
        assert scan.index is not None, "the scan was made with an index"
        index_file.save(
            segment,
            scan.index.columns(),
            topic_id=topic_id,
            partition=partition.number,
            covered_size=segment.size,
            end_offset=scan.next_offset,
            interval=INDEX_INTERVAL,
            bytes_since_entry=scan.bytes_since_entry,
            max_timestamp=scan.max_timestamp,
            max_timestamp_offset=scan.max_timestamp_offset,
            last_position=scan.last_position,
        )
    segment.close()


def _repair_segment(partition: Partition, path: str, ranges: Sequence[Finding]) -> list[tuple[Finding, str]]:
    ranges = sorted(ranges, key=lambda finding: finding.position)
    done = []
    for finding in ranges:
        kept = _copy_aside(path, finding)
        verb = "cut off" if finding.remedy is Remedy.CUT else "taken out"
        done.append((finding, f"{verb}; the bytes are in {os.path.basename(kept)}"))
    if len(ranges) == 1 and ranges[0].remedy is Remedy.CUT:
        fd = file_ops.open_file(path, os.O_RDWR)
        try:
            file_ops.truncate_file(fd, ranges[0].position)
            file_ops.sync_file(fd)
        finally:
            disk.close(fd)
        return done
    temporary = path + files.TEMPORARY_SUFFIX
    _write_without(path, temporary, ranges)
    _put_in_place(partition, path, temporary)
    return done


def _copy_aside(path: str, finding: Finding) -> str:
    """Copy the bytes of a range to a new file, durably; return its path."""
    target = _free_name(f"{path}{DAMAGED_SUFFIX}-{finding.first}-{finding.next_offset}")
    with disk.reading(path) as source:
        fd = file_ops.open_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            _copy(source, finding.position, finding.end, fd, 0)
            file_ops.sync_file(fd)
        finally:
            disk.close(fd)
    file_ops.sync_directory(os.path.dirname(path))
    return target


def _copy(source: int, position: int, end: int, target: int, at: int) -> int:
    """Copy bytes [position, end) of the source to the target, at position `at`; return the target's position after
    them.
    """
    while position < end:
        data = disk.read_at(source, min(COPY_SIZE, end - position), position)
        if not data:
            break
        file_ops.write_all(target, data, at)
        position += len(data)
        at += len(data)
    return at


def _write_without(path: str, target: str, ranges: Sequence[Finding]) -> None:
    """Write a segment without the given ranges to `target`, durably."""
    with disk.reading(path) as source:
        fd = file_ops.open_file(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            at = position = 0
            for finding in ranges:
                at = _copy(source, position, finding.position, fd, at)
                position = finding.end
            _copy(source, position, disk.stat(path).st_size, fd, at)
            file_ops.sync_file(fd)
        finally:
            disk.close(fd)
    found = disk.stat(path)
    disk.set_times(target, found.st_atime_ns, found.st_mtime_ns)  # time-based retention uses them


def _put_in_place(partition: Partition, path: str, temporary: str) -> None:
    """Replace the segment by its repaired copy.

    The files that contain positions in the old segment are removed first. The file of aborted transactions stays, since
    it contains only offsets.

    The copy has a gap in its offsets, as after compaction. Readers skip the gap, but the active segment must have none.
    So an empty segment is added after a repaired last segment.
    """
    assert partition.format is not None, "there are segments"
    base = int(os.path.basename(path).partition(".")[0])
    stem = f"{partition.directory}/{files.stem(base)}"
    for suffix in (files.INDEX_SUFFIX, files.QUARANTINE_SUFFIX, *files.KAFKA_INDEX_SUFFIXES):
        file_ops.unlink(stem + suffix, missing_ok=True)
    later = [
        name
        for name in disk.list_names(partition.directory)
        if name.endswith(partition.format.suffix) and name > os.path.basename(path)
    ]
    if not later:
        end = max(partition.end_offset, partition.flushed_offset, base + 1)
        empty = f"{partition.directory}/{files.stem(end)}{partition.format.suffix}"
        disk.close(file_ops.open_file(empty, os.O_WRONLY | os.O_CREAT))
        file_ops.sync_directory(partition.directory)
    file_ops.rename(temporary, path)
    file_ops.sync_directory(partition.directory)
    _rebuild_index(partition, stem)  # it also marks where the segment ends, so that a start misses nothing after it
