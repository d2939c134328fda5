"""Puts compacted segments in the place of those they were made from, so that a crash leaves the old or the new.

    1  NNN.log.cleaned written, synced                 crash: removed at start, the old segments stand
    2  directory synced, NNN.log.cleaned renamed to    crash from here on: the start finishes the swap
       NNN.log.swap, directory synced
    3  old files renamed to .deleted, directory synced
    4  NNN.log.swap renamed to NNN.log                 crash: done, or done again

The first sync of step 2 is for the segments after: a compacted one must never be the last of a log, whose end is where
offsets are missing.

The names and what a start makes of them are Apache Kafka's, so a directory may also change hands in the middle. The new
segment has the base offset of the first old one. At a start a `.swap` stands for the offsets from its base to the end
of its last batch: old segments that begin in there go. One that begins after that end had nothing left to keep; if it
is still there it is read as it was, which is right too, only not compact.

Readers: the old segments stay open and pinned from before step 3 until the new list of segments is published, then they
can no longer be opened, so that nobody opens a new file with an old segment's index. Who still holds one reads on.

Thread rule: one swap of a log at a time, by the cleaner; renaming is done under the log's lock, syncing is not.
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
    """The log changed meanwhile (retention, deletion): the old segments, as far as they are there, stand."""


def replace(log: PartitionLog, old: Sequence[Segment], new: Segment) -> None:
    """Swaps `new`, whose file is synced and ends in `.cleaned`, for `old`, which stand side by side in the log.

    SwapAbandoned, or OSError: nothing has changed, unless the log is offline; then the next start finishes the swap.
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
    """Step 2."""
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
    """Takes an announced swap back. Where that fails a later start would carry it out, over what came after it."""
    try:
        file_ops.unlink(new.path, missing_ok=True)
        file_ops.sync_directory(log.directory)
    except OSError as error:
        if not log.deleted:
            log.go_offline(f"a swap of compacted segments could not be rolled back: {error}")


def _put_in_place(log: PartitionLog, old: Sequence[Segment], new: Segment) -> list[str]:
    """Steps 3 and 4; the paths to remove later."""
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
    """Takes the old files away and the new segment in; None, and nothing done, when the log has changed meanwhile."""
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
    """The segments before and after the old ones; None when they no longer stand in the log as they did."""
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
    """Step 4, unless retention has taken the segment since it was published."""
    with log.core.locked():
        announced = new.path
        if new in log.segments and not log.deleted:
            file_ops.rename(announced, announced.removesuffix(files.SWAP_SUFFIX))
            new.path_suffix = ""
        else:
            file_ops.unlink(announced, missing_ok=True)


# --- at a start -------------------------------------------------------------------------------------------------------


def finish(directory: str, record_format: RecordFormat, cache: FileCache) -> None:
    """Removes what was never announced and finishes what was. OSError."""
    try:
        names = disk.list_names(directory)
    except FileNotFoundError:
        return
    cleaned = [name for name in names if name.endswith(files.CLEANED_SUFFIX)]
    announced = [name for name in names if name.endswith(files.SWAP_SUFFIX)]
    if not cleaned and not announced:
        return
    # Several outputs of one pass are announced from the last to the first: after one that is not, none counts.
    unannounced = min((base for name in cleaned if (base := _base_of(name)) is not None), default=None)
    whole = []
    uncounted = []
    for name in announced:
        base = _base_of(name)
        is_segment = base is not None and name == f"{files.stem(base)}{record_format.suffix}{files.SWAP_SUFFIX}"
        if base is not None and is_segment and (unannounced is None or base < unannounced):
            whole.append(base)
        else:
            uncounted.append(name)  # Kafka's indexes among them are built again
    for name in uncounted:
        file_ops.unlink(f"{directory}/{name}", missing_ok=True)
    if uncounted and cleaned:
        file_ops.sync_directory(directory)  # one that came back without what was not announced would count
    for name in cleaned:
        file_ops.unlink(f"{directory}/{name}", missing_ok=True)
    for base in sorted(whole):
        _finish_one(directory, base, record_format, cache)
    file_ops.sync_directory(directory)


def _base_of(name: str) -> int | None:
    stem = name.partition(".")[0]
    return int(stem) if files.SEGMENT_STEM.fullmatch(stem) else None


def _finish_one(directory: str, base: int, record_format: RecordFormat, cache: FileCache) -> None:
    path = f"{directory}/{files.stem(base)}{record_format.suffix}"
    announced = path + files.SWAP_SUFFIX
    end, intact = _end_of(directory, base, record_format, cache)
    if not intact and disk.exists(path):
        # Old files are renamed from the first on: as long as that one is there all of them are.
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
    """(first offset after the last batch of an announced segment, whether every batch of it is intact)."""
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
