"""Read and write Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, meta.properties.

    offset checkpoints   version 0 ⏎ count ⏎ then `topic partition offset` lines
    leader epochs        version 0 ⏎ count ⏎ then `epoch start-offset` lines, in ascending order
    partition.metadata   `version: 0` ⏎ `topic_id: <22 characters>`

A malformed checkpoint is logged and counts as missing. A malformed partition.metadata raises MetadataDamaged.

Writes replace the whole file. All functions may block.

Source: CheckpointFile of Kafka 4.1.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import fields
from kafkalite.broker.log import files
from kafkalite.model import uuid_bytes, uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger(__name__)

VERSION: Final = 0


class MetadataDamaged(Exception):
    """partition.metadata exists and has no readable topic id."""


def _read(path: str) -> bytes | None:
    """Return the contents of a file; None if the file is missing or unreadable."""
    try:
        return files.read_bytes(path)
    except OSError as error:
        logger.warning("ignored a file that cannot be read", extra=fields(path=path, reason=str(error)))
        return None


def _lines(path: str, width: int) -> list[list[str]] | None:
    """Return the rows of a checkpoint file, each of `width` words; None if the file is missing or damaged.

    An empty file has no rows: Java brokers create the files empty and fill them at their first write.
    """
    data = _read(path)
    if not data:
        return None if data is None else []
    try:
        lines = data.decode().splitlines()
        if int(lines[0]) != VERSION:
            raise ValueError(f"version {lines[0]}")  # noqa: TRY301 - one handler for every kind of damage
        rows = [line.split() for line in lines[2:]]
        if len(rows) != int(lines[1]) or any(len(row) != width for row in rows):
            raise ValueError("wrong number or format of lines")  # noqa: TRY301 - one handler for every kind of damage
    except (ValueError, IndexError) as error:
        logger.warning("ignored a damaged checkpoint file", extra=fields(path=path, reason=str(error)))
        return None
    return rows


def read_offsets(path: str) -> dict[tuple[str, int], int] | None:
    """Return the offsets in an offset checkpoint, by (topic, partition); None if the file is missing or damaged."""
    rows = _lines(path, 3)
    if rows is None:
        return None
    try:
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        logger.warning("ignored a damaged checkpoint file", extra=fields(path=path, reason="not a number"))
        return None
    return {key: offset for key, offset in offsets.items() if offset >= 0}


def write_offsets(path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace an offset checkpoint, durably."""
    lines = [str(VERSION), str(len(offsets)), *(f"{topic} {number} {at}" for (topic, number), at in offsets.items())]
    files.write_atomically(path, "\n".join([*lines, ""]).encode(), durable=True)


def read_epochs(path: str) -> list[tuple[int, int]]:
    """Return (epoch, start offset) entries in order; an empty list if the file is missing or damaged."""
    return find_epochs(path) or []


def find_epochs(path: str) -> list[tuple[int, int]] | None:
    """Return (epoch, start offset) entries in order; None if the file is missing or damaged."""
    rows = _lines(path, 2)
    if rows is None:
        return None
    try:
        entries = [(int(epoch), int(offset)) for epoch, offset in rows]
    except ValueError:
        logger.warning("ignored a damaged checkpoint file", extra=fields(path=path, reason="not a number"))
        return None
    if any(after[0] <= before[0] or after[1] < before[1] for before, after in itertools.pairwise(entries)):
        logger.warning("ignored leader epochs that are out of order", extra=fields(path=path))
        return None
    return entries


def write_epochs(path: str, entries: Iterable[tuple[int, int]], *, durable: bool = False) -> None:
    """Replace a leader-epoch-checkpoint.

    Unless `durable`, the log's next flush syncs the file. `durable` may be False only for a log's first file. A later
    file must be durable before its rename, so that a power cut leaves the old or the new file.
    """
    rows = [f"{epoch} {offset}" for epoch, offset in entries]
    files.write_atomically(path, "\n".join([str(VERSION), str(len(rows)), *rows, ""]).encode(), durable=durable)


def read_partition_topic_id(directory: str) -> bytes | None:
    """Return the topic id in a directory's partition.metadata; None without the file or with Kafka's zero id.

    Raises MetadataDamaged if the file exists and cannot be read or parsed.
    """
    path = f"{directory}/{files.PARTITION_METADATA_NAME}"
    try:
        data = files.read_bytes(path)
        if data is None:
            return None
        values = dict(line.split(": ", 1) for line in data.decode().splitlines() if line)
        if values["version"] != str(VERSION):
            raise MetadataDamaged(path)
        topic_id = uuid_bytes(values["topic_id"])
    except (OSError, ValueError, KeyError) as error:
        raise MetadataDamaged(path) from error
    return topic_id if any(topic_id) else None  # zero is Kafka's "no id": clients cannot fetch by it


def write_partition_topic_id(directory: str, topic_id: bytes, *, durable: bool = False) -> None:
    """Write partition.metadata. Unless `durable`, the log's next flush syncs the file
    (kafkalite.broker.log.entries).
    """
    text = f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}"
    files.write_atomically(f"{directory}/{files.PARTITION_METADATA_NAME}", text.encode(), durable=durable)


def read_properties(path: str) -> dict[str, str] | None:
    """Return the pairs in a file of `key=value` lines; None if the file does not exist. OSError."""
    data = files.read_bytes(path)
    if data is None:
        return None
    lines = (line.strip() for line in data.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(path: str, values: Mapping[str, str]) -> None:
    """Replace a properties file, durably."""
    files.write_atomically(
        path, "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode(), durable=True
    )
