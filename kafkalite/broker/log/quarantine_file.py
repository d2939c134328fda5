"""`NNN.quarantine`: which bytes of a segment are damaged, so that a restart knows without reading them again.

    one line   crc32c-hex JSON
               {"version": 1, "ranges": [[position, end, offset, next offset, CRC-32C of the bytes], ...]}

A range says that the bytes [position, end) are no batches, and that the offsets [offset, next offset) were there; an
empty one stands for offsets that were lost from the end of the segment. The CRC is of the first SAMPLE_SIZE bytes and
tells whether the bytes are still those: who put a good copy of the segment in place gets its records, not the memory of
the damage. A file that is missing or damaged means that nothing is remembered; the bytes are checked before they are
served, as ever. Another version is not read. Kafka does not look at the file.

It lives and goes with its segment. Everything here may block.
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
"""Bytes of a range from which it is known again."""
TOLD_MAX: Final = 10
"""Ranges named in the line at the start; the others are counted."""

Range = tuple[int, int, int, int]
"""Position, end, offset, next offset; as in `Segment.damage`."""

_writing = threading.Lock()  # a leaf: under it one file is written


def path_of(directory: str, base_offset: int) -> str:
    """Where a segment's ranges stand."""
    return f"{directory}/{files.stem(base_offset)}{files.QUARANTINE_SUFFIX}"


def read(path: str) -> list[tuple[Range, int]]:
    """The ranges of a file, each with its CRC; none when it is missing, damaged or of another version."""
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
    return [((position, end, offset, behind), crc) for position, end, offset, behind, crc in values["ranges"]]


def write(path: str, ranges: Iterable[tuple[Range, int]]) -> None:
    """Replaces a file, on the disk when this returns; without ranges there is none. OSError."""
    rows = [[*each, crc] for each, crc in ranges]
    if not rows:
        file_ops.unlink(path, missing_ok=True)
        return
    text = json.dumps({"version": VERSION, "ranges": rows}, separators=(",", ":")).encode()
    files.write_atomically(path, b"%08x %s\n" % (crc32c(text), text), durable=True)


def sample_crc(path: str, position: int, end: int) -> int | None:
    """The CRC of the bytes of a range; None when they cannot be read."""
    try:
        with disk.reading(path) as fd:
            return crc32c(files.read_from(fd, position, min(end - position, SAMPLE_SIZE)))
    except OSError:
        return None


def save(segment: Segment) -> None:
    """Writes down what a segment has under quarantine. A failure is only logged: the damage is found again."""
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
    """Puts under quarantine again what was there when the broker stopped, and says so once."""
    known: list[Range] = []
    for segment in segments:
        path = path_of(segment.directory, segment.base_offset)
        if not disk.exists(path):
            continue
        rows = read(path)
        for (position, end, offset, behind), crc in rows:
            if _stands(segment, position, end, crc):
                segment.add_damage(position, end, offset, behind)
                known.append((position, end, offset, behind))
        if len(segment.damage or ()) < len(rows):
            logger.info("quarantined bytes have changed and are checked again", extra=fields(path=segment.path))
            save(segment)
    if known:
        told = ", ".join(f"{offset}-{behind - 1}" for _, _, offset, behind in known[:TOLD_MAX])
        logger.error(
            "offsets are still quarantined since an earlier run; reading them fails, and all other offsets are served",
            extra=fields(log=log_name, ranges=len(known), offsets=told),
        )


def taken_out(directory: str, base_offset: int) -> list[tuple[int, int]]:
    """(first, next) of the offsets that `log repair` took out of a segment, by the files it left beside it."""
    pattern = re.compile(rf"{files.stem(base_offset)}\.\w+\.damaged-(\d+)-(\d+)(\.\d+)?")
    found = map(pattern.fullmatch, disk.list_names(directory))
    return [(int(match[1]), int(match[2])) for match in found if match is not None]


def _stands(segment: Segment, position: int, end: int, crc: int) -> bool:
    """Whether the bytes are those that were found to be damaged; what cannot be read is not better than it was."""
    if not 0 <= position <= end <= segment.size or (position == end and position != segment.size):
        return False
    found = sample_crc(segment.path, position, end)
    return found is None or found == crc
