"""Save the damaged ranges of a segment in the file `NNN.quarantine`, so that they are known after a restart.

    one line   crc32c-hex JSON
               {"version": 1, "ranges": [[position, end, offset, next offset, CRC-32C of the bytes], ...]}

In a damaged range, the bytes [position, end) are not readable as batches. They contained the offsets [offset, next
offset). A range without bytes means that these offsets are missing at the end of the segment.

The CRC covers the first SAMPLE_SIZE bytes of the range. The file is removed with its segment. Kafka ignores it.

Everything here may block.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite._native.base.crc32c import crc32c
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite._native.log.segment import Segment

logger = logging.getLogger(__name__)

VERSION: Final = 1
SAMPLE_SIZE: Final = 64 * 1024
"""Number of bytes of a range that identify it."""
TOLD_MAX: Final = 10
"""Maximum number of ranges that the log line at a start names; its count includes all ranges."""

Range = tuple[int, int, int, int]
"""Position, end, offset, next offset; as in `Segment.damage`."""

_writing = threading.Lock()  # a leaf: one file is written under it


def path_of(directory: str, base_offset: int) -> str:
    """Return the path of a segment's quarantine file."""
    return f"{directory}/{files.stem(base_offset)}{files.QUARANTINE_SUFFIX}"


def read(path: str) -> list[tuple[Range, int]]:
    """Return the ranges in a file, each with its CRC. An empty list if the file is missing, damaged or of another
    version. The bytes of the segment are then checked again before they are served.
    """
    try:
        data = files.read_bytes(path)
        return [] if data is None else _parse(data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("could not read the list of quarantined bytes", extra=fields(path=path, reason=str(error)))
        return []


def _parse(data: bytes) -> list[tuple[Range, int]]:
    if data[:9] != b"%08x " % crc32c(data[9:-1]):
        raise ValueError("its checksum is wrong")
    values = json.loads(data[9:])
    if values["version"] != VERSION:
        raise ValueError(f"unsupported version {values['version']}")
    return [((position, end, offset, next_offset), crc) for position, end, offset, next_offset, crc in values["ranges"]]


def write(path: str, ranges: Iterable[tuple[Range, int]]) -> None:
    """Replace a file by one with these ranges, durably; without ranges, remove it. OSError."""
    rows = [[*each, crc] for each, crc in ranges]
    if not rows:
        file_ops.unlink(path, missing_ok=True)
        return
    text = json.dumps({"version": VERSION, "ranges": rows}, separators=(",", ":")).encode()
    files.write_atomically(path, b"%08x %s\n" % (crc32c(text), text), durable=True)


def sample_crc(path: str, position: int, end: int) -> int | None:
    """Return the CRC of the first bytes of a range; None if the bytes cannot be read."""
    try:
        with disk.reading(path) as fd:
            return crc32c(files.read_from(fd, position, min(end - position, SAMPLE_SIZE)))
    except OSError:
        return None


def save(segment: Segment) -> None:
    """Write the file with a segment's quarantined ranges. A failure is only logged: a later check finds the damage
    again.
    """
    if segment.deleted or segment.path_suffix:
        return
    with _writing:
        rows = [(each, sample_crc(segment.path, each[0], each[1]) or 0) for each in segment.damage or ()]
        try:
            write(path_of(segment.directory, segment.base_offset), rows)
        except OSError as error:
            logger.warning(
                "could not write the list of quarantined bytes", extra=fields(path=segment.path, reason=str(error))
            )


def restore(segments: Iterable[Segment], log_name: str) -> None:
    """Quarantine the ranges of the previous run that are still damaged; log them in one line.

    If a range's CRC no longer matches, its bytes have changed. They are checked again before they are served.
    """
    known: list[Range] = []
    for segment in segments:
        path = path_of(segment.directory, segment.base_offset)
        if not disk.exists(path):
            continue
        rows = read(path)
        for (position, end, offset, next_offset), crc in rows:
            if _stands(segment, position, end, crc):
                segment.add_damage(position, end, offset, next_offset)
                known.append((position, end, offset, next_offset))
        if len(segment.damage or ()) < len(rows):
            logger.info("quarantined bytes have changed and are checked again", extra=fields(path=segment.path))
            save(segment)
    if known:
        ranges = ", ".join(f"{offset}-{next_offset - 1}" for _, _, offset, next_offset in known[:TOLD_MAX])
        logger.error(
            "offsets are still quarantined since an earlier run; reading them fails, and all other offsets are served",
            extra=fields(log=log_name, ranges=len(known), offsets=ranges),
        )


def taken_out(directory: str, base_offset: int) -> list[tuple[int, int]]:
    """Return the (first, next) offsets of the ranges that `log repair` removed from a segment.

    They are in the names of the files with the removed bytes.
    """
    pattern = re.compile(rf"{files.stem(base_offset)}\.\w+\.damaged-(\d+)-(\d+)(\.\d+)?")
    found = map(pattern.fullmatch, disk.list_names(directory))
    return [(int(match[1]), int(match[2])) for match in found if match is not None]


def _stands(segment: Segment, position: int, end: int, crc: int) -> bool:
    """Return whether a range still has its damaged bytes, by their CRC; True if the bytes cannot be read."""
    if not 0 <= position <= end <= segment.size or (position == end and position != segment.size):
        return False
    found = sample_crc(segment.path, position, end)
    return found is None or found == crc
