"""Name the files in a data directory, and write small files so that a crash leaves the old or the new content.

    <data directory>/                       a partition directory <topic>-<partition>/
      meta.properties  .kafka_cleanshutdown   00000000000000000000.log        the log, named by its base offset
      metadata.journal (ours)  .lock          00000000000000000000.klindex    sparse index (ours)
      recovery-point-offset-checkpoint        00000000000000000042.snapshot   last batch of each producer at offset 42
      log-start-offset-checkpoint             00000000000000000042.producers  last five batches of each (ours)
      replication-offset-checkpoint           00000000000000000000.txnindex   aborted transactions
      cleaner-offset-checkpoint               00000000000000000000.quarantine damaged ranges (ours)
      expiry-time-checkpoint (ours)           leader-epoch-checkpoint  partition.metadata

A file marked "(ours)" exists only in kafkalite. The other files have Apache Kafka's formats.

Suffixes:

    .tmp              a small file that is being written
    .deleted, -delete a file or partition directory that will be removed later, or at the next start
    -stray            a partition directory that belongs to no known partition and may have records; it is kept
    .cleaned, .swap   files of a compaction (kafkalite.broker.log.swap)

Everything here may block. OSError reaches the caller.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import file_ops
from kafkalite.base import randomness
from kafkalite.broker.log import disk

if TYPE_CHECKING:
    from os import stat_result

INDEX_SUFFIX: Final = ".klindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
PRODUCERS_SUFFIX: Final = ".producers"
QUARANTINE_SUFFIX: Final = ".quarantine"
DELETED_SUFFIX: Final = ".deleted"
TEMPORARY_SUFFIX: Final = ".tmp"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DIRECTORY_DELETED_SUFFIX: Final = "-delete"
DIRECTORY_STRAY_SUFFIX: Final = "-stray"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
KAFKA_INDEX_SUFFIXES: Final = (".index", ".timeindex")
COMPANION_SUFFIXES: Final = (INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, QUARANTINE_SUFFIX, *KAFKA_INDEX_SUFFIXES)
"""Files that are removed with their segment."""

EPOCHS_NAME: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME: Final = "partition.metadata"
RECOVERY_POINTS_NAME: Final = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS_NAME: Final = "cleaner-offset-checkpoint"
EXPIRY_TIME_NAME: Final = "expiry-time-checkpoint"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"
META_PROPERTIES_NAME: Final = "meta.properties"
JOURNAL_NAME: Final = "metadata.journal"
LOCK_NAME: Final = ".lock"
JOURNAL_ALONE_NAME: Final = "metadata.journal.alone"
MIGRATION_NAME: Final = "migration.json"
"""This file and JOURNAL_ALONE_NAME belong to a migration into a cluster (kafkalite.broker.log.handover)."""
BACKUP_REQUEST_NAME: Final = "backup.request"
"""Locked by a backup of a running broker (kafkalite.broker.log.backup_cut)."""
BACKUP_LINKS_NAME: Final = ".backup"
"""The directory of links that the broker makes for a backup."""
BACKUP_UNFINISHED_NAME: Final = "backup.unfinished"
"""Marks a backup that is incomplete; no broker starts on a directory with this file."""

DIRECTORY_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})")
DELETED_DIRECTORY_NAME: Final = re.compile(r".+-\d{1,10}\.[0-9a-f]{32}-delete")
SEGMENT_STEM: Final = re.compile(r"\d{20}")


READ_SIZE: Final = 1024 * 1024


def stem(offset: int) -> str:
    """Return the file name without suffix for an offset, as Kafka does: 20 digits."""
    return f"{offset:020d}"


def directory_name(topic: str, partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{topic}-{partition}"


def deleted_directory_name(topic: str, partition: int) -> str:
    """Return the name for a deleted partition directory: unique and at most 255 characters long, in Kafka's form."""
    return _renamed_directory(topic, partition, DIRECTORY_DELETED_SUFFIX)


def stray_directory_name(topic: str, partition: int) -> str:
    """Return the name for a partition directory that belongs to no known partition, in Kafka's form."""
    return _renamed_directory(topic, partition, DIRECTORY_STRAY_SUFFIX)


def _renamed_directory(topic: str, partition: int, suffix: str) -> str:
    suffix = f"-{partition}.{randomness.random_bytes(16).hex()}{suffix}"
    return topic[: 255 - len(suffix)] + suffix


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition directory's name; None for any other name."""
    match = DIRECTORY_NAME.fullmatch(name)
    if match is None or name.endswith(DIRECTORY_DELETED_SUFFIX):
        return None
    return match["topic"], int(match["partition"])


def write_atomically(path: str, data: bytes, *, durable: bool, owned_as: stat_result | None = None) -> None:
    """Replace a file as a whole. With `durable`, its content and name are durable on return.

    `owned_as` is another file's os.stat_result. The new file gets its owner and mode before anything is written to the
    new file; until then only this process's user can open it. If the owner cannot be set, OSError is raised and the old
    file stays.
    """
    temporary = path + TEMPORARY_SUFFIX
    if owned_as is None:
        fd = file_ops.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    else:
        file_ops.unlink(temporary, missing_ok=True)  # another process may have a leftover file open
        fd = file_ops.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        if owned_as is not None:
            try:
                disk.give(fd, owned_as)
            except OSError:
                file_ops.unlink(temporary)
                raise
        file_ops.write_all(fd, data, 0)
        if durable:
            file_ops.sync_file(fd)
    finally:
        disk.close(fd)
    file_ops.rename(temporary, path)
    if durable:
        file_ops.sync_directory(os.path.dirname(path) or ".")


def sync_path(path: str) -> None:
    """Sync a file that was written without a sync; do nothing if the file does not exist."""
    try:
        fd = file_ops.open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        file_ops.sync_file(fd)
    finally:
        disk.close(fd)


def read_bytes(path: str) -> bytes | None:
    """Return the contents of a small file; None if the file does not exist."""
    try:
        with disk.reading(path) as fd:
            return read_from(fd, 0)
    except FileNotFoundError:
        return None


def read_from(fd: int, position: int, size_max: int | None = None) -> bytes:
    """Return the bytes of a file from a position, at most `size_max`."""
    pieces = []
    while size_max is None or size_max > 0:
        piece = disk.read_at(fd, READ_SIZE if size_max is None else min(size_max, READ_SIZE), position)
        if not piece:
            break
        pieces.append(piece)
        position += len(piece)
        if size_max is not None:
            size_max -= len(piece)
    return b"".join(pieces)


def remove_tree(path: str) -> None:
    """Remove a directory and everything in it; do nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        for entry in disk.entries(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                file_ops.unlink(entry.path, missing_ok=True)
        disk.remove_directory(path)
