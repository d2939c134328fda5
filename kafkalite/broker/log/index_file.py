"""Save and load `NNN.klindex`, the sparse index of a segment, so that opening a log does not read the segment.

    0   magic "KLINDEX1"             56  index interval, bytes          104 CRC-32C of the entries
    8   version u32 = 1, flags u32   64  max timestamp, ms              108 CRC-32C of bytes 0-107
    16  topic id, 16 bytes           72  max timestamp: batch offset    112 offsets i64 × count
    32  partition u32                80  last batch: position              positions i64 × count
    36  entry count u32              88  last batch: CRC u32               timestamps i64 × count
    40  base offset                  92  bytes since the last entry
    48  covered size, bytes          96  end offset                     little-endian throughout

An index *covers* the first `covered size` bytes of the segment. These bytes were durable before the index was written.
If the index is missing or damaged, or the segment has other bytes now, the index is rebuilt from the segment.

Reading and writing may block. Nothing here is shared between threads.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.base.mapped_faults import MappedFile
from kafkalite._native.log.index import SegmentIndex
from kafkalite._native.log.scan import SegmentScan, header_at
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kafkalite._native.log.segment import Segment

logger = logging.getLogger(__name__)

MAGIC: Final = b"KLINDEX1"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sII16sIIqqqqqqIIqI")
HEADER_SIZE: Final = HEADER.size + 4
MAPPED_SIZE_MIN: Final = 64 * 1024
"""Size in bytes from which a file's entries are mapped instead of read."""


class IndexSummary(NamedTuple):
    """The header of an index file."""

    topic_id: bytes
    partition: int
    entry_count: int
    base_offset: int
    covered_size: int
    interval: int
    max_timestamp: int
    max_timestamp_offset: int
    last_position: int
    last_crc: int
    bytes_since_entry: int
    end_offset: int
    entries_crc: int


def path_of(segment: Segment) -> str:
    """Return the path of a segment's saved index."""
    return f"{segment.directory}/{segment.name}{files.INDEX_SUFFIX}"


def unpack_header(data: bytes) -> IndexSummary | None:
    """Return the header at the start of an index file; None if the header is damaged or of another version."""
    if len(data) < HEADER_SIZE:
        return None
    values = HEADER.unpack_from(data)
    if values[0] != MAGIC or values[1] != VERSION or crc32c(data[: HEADER.size]) != _header_crc(data):
        return None
    return IndexSummary(*values[3:])


def _header_crc(data: bytes) -> int:
    crc: int = struct.unpack_from("<I", data, HEADER.size)[0]
    return crc


def read_summary(path: str) -> IndexSummary | None:
    """Return the header of an index file; None if the file is missing or the header cannot be read."""
    try:
        with disk.reading(path) as fd:
            data = disk.read_at(fd, HEADER_SIZE, 0)
    except FileNotFoundError:
        return None
    except OSError as error:
        _report(path, str(error))
        return None
    summary = unpack_header(data)
    if summary is None:
        _report(path, "its header is invalid")
    return summary


def _report(path: str, reason: str) -> None:
    logger.warning("a saved index is unusable; rebuilding it from the log", extra=fields(path=path, reason=reason))


def topic_id_in(directory: str) -> bytes | None:
    """Return the topic id in the saved indexes of a partition directory. None if there are no indexes, or if they have
    different ids.
    """
    try:
        paths = [f"{directory}/{name}" for name in disk.list_names(directory) if name.endswith(files.INDEX_SUFFIX)]
    except OSError:
        return None
    ids = {summary.topic_id for path in paths if (summary := read_summary(path)) is not None}
    return ids.pop() if len(ids) == 1 else None


def describes(summary: IndexSummary, segment: Segment, topic_id: bytes, partition: int) -> bool:
    """Return whether the index was made from the bytes that the segment has now. The function opens the segment.

    The CRC of the last covered batch identifies the bytes.
    """
    if (
        summary.topic_id != topic_id
        or summary.partition != partition
        or summary.base_offset != segment.base_offset
        or not 0 <= summary.covered_size <= segment.size
    ):
        return False
    if summary.covered_size == 0:
        return summary.end_offset == segment.base_offset and summary.entry_count == 0
    last = header_at(segment, summary.last_position)
    return (
        last is not None
        and last["crc"] == summary.last_crc
        and last["position"] + last["size"] == summary.covered_size
        and last["next_offset"] == summary.end_offset
    )


def read_entries(path: str, summary: IndexSummary, *, mapped: bool = True) -> SegmentIndex | None:
    """Return the entries of an index file; None if they are damaged or unreadable.

    With `mapped`, a large index is mapped into memory instead of copied. The active segment's index is always copied,
    since it grows.
    """
    import numpy as np

    size = summary.entry_count * 24
    columns: npt.NDArray[np.int64]
    source: MappedFile | None = None
    try:
        with disk.reading(path) as fd:
            if mapped and size >= MAPPED_SIZE_MIN:
                source = MappedFile(fd)
                view = memoryview(source)[HEADER_SIZE : HEADER_SIZE + size]
            else:
                view = memoryview(files.read_from(fd, HEADER_SIZE, size))
    except (OSError, ValueError) as error:
        _report(path, str(error))
        return None
    if len(view) == size and crc32c(view) == summary.entries_crc:
        columns = np.frombuffer(view, dtype="<i8").reshape(3, summary.entry_count)
        sound = not summary.entry_count or _plausible(columns, summary)
        if sound and (source is None or not source.failed):
            return SegmentIndex.from_columns(columns, writable=False, source=source)
    _report(path, "its entries are damaged or truncated")
    return None


def scan_after(
    segment: Segment, summary: IndexSummary | None, *, index_interval: int, mapped: bool = True
) -> SegmentScan:
    """Return a scan that builds a segment's index.

    The scan begins after the bytes that the saved index (`summary`) covers, since the segment may have grown after the
    save. Without a usable saved index it begins at the segment's start.
    """
    index = None if summary is None else read_entries(path_of(segment), summary, mapped=mapped)
    if summary is None or index is None:
        return SegmentScan(
            segment, next_offset=segment.base_offset, index=SegmentIndex(), index_interval=index_interval
        )
    segment.indexed_size = summary.covered_size
    return SegmentScan(
        segment,
        position=summary.covered_size,
        next_offset=summary.end_offset,
        index=index,
        index_interval=index_interval,
        bytes_since_entry=summary.bytes_since_entry,
        max_timestamp=summary.max_timestamp,
        max_timestamp_offset=summary.max_timestamp_offset,
        last_position=summary.last_position,
    )


def summary_of(segment: Segment, topic_id: bytes, partition: int) -> IndexSummary | None:
    """Return the header of a segment's saved index; None unless the index is intact and matches the segment's bytes."""
    summary = read_summary(path_of(segment))
    return summary if summary is not None and describes(summary, segment, topic_id, partition) else None


def _plausible(columns: npt.NDArray[np.int64], summary: IndexSummary) -> bool:
    import numpy as np

    offsets, positions, _ = columns
    return bool(
        np.all(np.diff(offsets) > 0)
        and np.all(np.diff(positions) > 0)
        and offsets[0] > summary.base_offset
        and offsets[-1] < summary.end_offset
        and positions[0] > 0
        and positions[-1] < summary.covered_size
    )


def save(
    segment: Segment,
    columns: npt.NDArray[np.int64],
    *,
    topic_id: bytes,
    partition: int,
    covered_size: int,
    end_offset: int,
    interval: int,
    bytes_since_entry: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    last_position: int,
) -> None:
    """Write the index of a segment's first `covered_size` bytes, which must be durable. `columns` are
    SegmentIndex.columns.

    The file is not synced, because it can be rebuilt from the log.
    """
    import numpy as np

    entries = np.ascontiguousarray(columns).astype("<i8", copy=False).tobytes()
    last = header_at(segment, last_position) if covered_size else None
    header = HEADER.pack(
        MAGIC,
        VERSION,
        0,
        topic_id,
        partition,
        columns.shape[1],
        segment.base_offset,
        covered_size,
        interval,
        max_timestamp,
        max_timestamp_offset,
        last_position,
        last["crc"] if last else 0,
        bytes_since_entry,
        end_offset,
        crc32c(entries),
    )
    data = header + struct.pack("<I", crc32c(header)) + entries
    files.write_atomically(path_of(segment), data, durable=False)
