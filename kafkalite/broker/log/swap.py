"""Replace segments by their compacted version, so that a crash leaves either the old segments or the new one.

    1  write and sync NNN.log.cleaned
    2  sync the directory, rename NNN.log.cleaned to NNN.log.swap, sync the directory
    3  rename the old files to .deleted, sync the directory
    4  rename NNN.log.swap to NNN.log

After a crash before the rename of step 2, a start removes NNN.log.cleaned, and the old segments stay. After a later
crash, a start completes the swap. The file names are Apache Kafka's, so either broker can complete the other's swap.

Thread rule: one swap of a log at a time, by a cleaner. Steps 3 and 4 rename under the log's lock, and sync without it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.log.scan import SegmentScan
from kafkalite._native.log.segment import FileCache, Segment
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite._native.log.record_format import RecordFormat
    from kafkalite.broker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

MAP_SIZE_MIN: Final = 4096


class SwapAbandoned(Exception):
    """The log changed during a compaction, for example by retention. Old segments that still exist stay."""


def replace(log: PartitionLog, old: Sequence[Segment], new: Segment) -> None:
    """Replace `old`, adjacent segments of the log, by the segment `new`, whose file is synced and ends in `.cleaned`.

    After SwapAbandoned or OSError, nothing has changed. If the log is offline after an OSError, the next start
    completes the swap instead.
    """
    with contextlib.ExitStack() as pins:
        for segment in (*old, new):
            pins.enter_context(segment)
        _announce(log, new)
        paths = _put_in_place(log, old, new)
    for segment in old:
        segment.close()
    log.services.remove_later(paths, log.config.file_delete_delay_ms)
    log.indexes.save(new)
    log.core.wake_listeners()


def _announce(log: PartitionLog, new: Segment) -> None:
    """Do step 2 of the module's list: give the compacted segment the name by which a start recognizes it and completes
    the swap.

    The first sync makes the names of later segments durable. A compacted segment must never become a log's last one:
    the log would end at the first offset that compaction removed.
    """
    file_ops.sync_directory(log.directory)
    cleaned = new.path
    announced = cleaned.removesuffix(files.CLEANED_SUFFIX) + files.SWAP_SUFFIX
    file_ops.rename(cleaned, announced)
    new.path_suffix = files.SWAP_SUFFIX
    try:
        file_ops.sync_directory(log.directory)
    except OSError:
        _withdraw(log, new)
        raise


def _withdraw(log: PartitionLog, new: Segment) -> None:
    """Undo step 2. If this fails, take the log offline: a later start would complete the swap over newer segments."""
    try:
        file_ops.unlink(new.path, missing_ok=True)
        file_ops.sync_directory(log.directory)
    except OSError as error:
        if not log.deleted:
            log.go_offline(f"a swap of compacted segments could not be rolled back: {error}")


def _put_in_place(log: PartitionLog, old: Sequence[Segment], new: Segment) -> list[str]:
    """Do steps 3 and 4 of the module's list; return the paths to remove later.

    The old segments stay open and pinned until the new list of segments is published. After that they cannot be opened
    any more, so no reader opens the new file with an old segment's index.
    """
    try:
        paths = _publish(log, old, new)
        if paths is not None:
            file_ops.sync_directory(log.directory)
            _give_final_name(log, new)
            file_ops.sync_directory(log.directory)
            return paths
    except OSError as error:
        if log.deleted:
            raise SwapAbandoned(log.name) from error
        log.go_offline(f"a swap of compacted segments could not be completed: {error}")
        raise
    _withdraw(log, new)
    raise SwapAbandoned(log.name)


def _publish(log: PartitionLog, old: Sequence[Segment], new: Segment) -> list[str] | None:
    """Rename the old files and publish the new segment. If the log has changed meanwhile, do nothing and return
    None.
    """
    paths: list[str] = []
    with log.core.locked():
        around = _around(log, old)
        if around is None:
            return None
        for segment in old:
            paths += _rename_away(segment, log.format)
        log.core.set_segments((*around[0], new, *around[1]))
        for segment in old:
            segment.mark_deleted()
    return paths


def _around(log: PartitionLog, old: Sequence[Segment]) -> tuple[tuple[Segment, ...], tuple[Segment, ...]] | None:
    """Return (segments before the old ones, segments after them); None if the old ones are no longer adjacent in the
    log.
    """
    segments = log.segments
    if log.offline or log.deleted or old[0] not in segments:
        return None
    start = segments.index(old[0])
    if segments[start : start + len(old)] != tuple(old):
        return None
    return segments[:start], segments[start + len(old) :]


def _rename_away(segment: Segment, record_format: RecordFormat) -> list[str]:
    paths = []
    for suffix in (record_format.suffix, *files.COMPANION_SUFFIXES):
        path = f"{segment.directory}/{segment.name}{suffix}"
        with contextlib.suppress(FileNotFoundError):
            file_ops.rename(path, path + files.DELETED_SUFFIX)
            paths.append(path + files.DELETED_SUFFIX)
    return paths


def _give_final_name(log: PartitionLog, new: Segment) -> None:
    """Do step 4 of the module's list, unless retention has removed the new segment since it was published."""
    with log.core.locked():
        announced = new.path
        if new in log.segments and not log.deleted:
            file_ops.rename(announced, announced.removesuffix(files.SWAP_SUFFIX))
            new.path_suffix = ""
        else:
            file_ops.unlink(announced, missing_ok=True)


# --- at a start -------------------------------------------------------------------------------------------------------


def finish(directory: str, record_format: RecordFormat, cache: FileCache) -> None:
    """Complete or undo the swaps of an earlier process. OSError.

    A swap is undone if it belongs to an unfinished swap of several segments, or if its file is damaged and the old
    segments still exist.
    """
    try:
        names = disk.list_names(directory)
    except FileNotFoundError:
        return
    cleaned = [name for name in names if name.endswith(files.CLEANED_SUFFIX)]
    announced = [name for name in names if name.endswith(files.SWAP_SUFFIX)]
    if not cleaned and not announced:
        return
    # The outputs of one pass are announced from the last to the first, so none after an unannounced one is complete.
    unannounced = min((base for name in cleaned if (base := _base_of(name)) is not None), default=None)
    whole = []
    uncounted = []
    for name in announced:
        base = _base_of(name)
        is_segment = base is not None and name == f"{files.stem(base)}{record_format.suffix}{files.SWAP_SUFFIX}"
        if base is not None and is_segment and (unannounced is None or base < unannounced):
            whole.append(base)
        else:
            uncounted.append(name)  # Kafka's indexes among them will be rebuilt
    for name in uncounted:
        file_ops.unlink(f"{directory}/{name}", missing_ok=True)
    if uncounted and cleaned:
        file_ops.sync_directory(directory)  # a power cut must not restore a `.swap` without its `.cleaned` files
    for name in cleaned:
        file_ops.unlink(f"{directory}/{name}", missing_ok=True)
    for base in sorted(whole):
        _finish_one(directory, base, record_format, cache)
    file_ops.sync_directory(directory)


def _base_of(name: str) -> int | None:
    stem = name.partition(".")[0]
    return int(stem) if files.SEGMENT_STEM.fullmatch(stem) else None


def _finish_one(directory: str, base: int, record_format: RecordFormat, cache: FileCache) -> None:
    """Complete the swap of one `.swap` file.

    It replaces the old segments that begin between its base offset and the end of its last batch. An old segment that
    begins after that end has no record in the new one; it is read uncompacted, which is correct.
    """
    path = f"{directory}/{files.stem(base)}{record_format.suffix}"
    announced = path + files.SWAP_SUFFIX
    end, intact = _end_of(directory, base, record_format, cache)
    if not intact and disk.exists(path):
        # Old files are renamed in order, so while the first one exists all of them do.
        logger.error(
            "a compacted segment is damaged; keeping the segments that it was made from", extra=fields(path=path)
        )
        file_ops.rename(announced, announced + files.DELETED_SUFFIX)
        return
    for name in disk.list_names(directory):
        stem, suffix = os.path.splitext(name)
        if suffix not in (record_format.suffix, *files.COMPANION_SUFFIXES):
            continue
        if files.SEGMENT_STEM.fullmatch(stem) and (int(stem) == base or base <= int(stem) < end):
            file_ops.unlink(f"{directory}/{name}", missing_ok=True)
    file_ops.sync_directory(directory)
    file_ops.rename(announced, path)
    logger.info("completed a swap of compacted segments", extra=fields(path=path, end_offset=end))


def _end_of(directory: str, base: int, record_format: RecordFormat, cache: FileCache) -> tuple[int, bool]:
    """Read a `.swap` segment; return (offset after its last batch, whether all of its batches are intact)."""
    size = disk.stat(f"{directory}/{files.stem(base)}{record_format.suffix}{files.SWAP_SUFFIX}").st_size
    segment = Segment(
        cache,
        record_format,
        directory,
        base,
        map_reserve=max(size, MAP_SIZE_MIN),
        size=size,
        path_suffix=files.SWAP_SUFFIX,
    )
    scan = SegmentScan(segment, next_offset=base)
    intact = True
    try:
        while not scan.run(size, verify=True):
            intact = False
            following = scan.resync(size)
            if following is None:
                break
            scan.skip_to(*following)
    finally:
        segment.close()
    return max(scan.next_offset, base), intact
