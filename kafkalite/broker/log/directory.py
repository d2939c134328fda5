"""Manage the root of a data directory: its lock, its identity, and whether the last stop was clean.

The file `.lock` keeps out every other broker: in this process, in another process, and Apache Kafka.

The file `meta.properties` is Kafka's (version, cluster.id, node.id, directory.id) with two additional lines:

    kafkalite.format     kafkalite has used the directory. The broker does not start if the journal is missing
    kafkalite.cluster    the broker belongs to a cluster whose controllers own the topics. A standalone broker refuses
                         to start on the directory

In a cluster, kafkalite and a Java broker can use a directory in turn.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from typing import Final

from kafkalite._native.base import file_ops
from kafkalite.base.dataclass import dataclass
from kafkalite.base.logging import fields
from kafkalite.broker.log import checkpoints, disk, files
from kafkalite.errors import StartupError
from kafkalite.model import new_uuid, uuid_bytes, uuid_text

logger = logging.getLogger(__name__)

FORMAT_KEY: Final = "kafkalite.format"
FORMAT_VERSION: Final = 1
KAFKA_VERSION: Final = "1"
CLUSTER_KEY: Final = "kafkalite.cluster"
CLUSTER_KIND: Final = "kraft"
NO_BROKER_EPOCH: Final = -1
"""The broker epoch of a standalone broker, and of a cluster's broker after an unclean stop."""


class DirectoryLock:
    """The lock on a data directory, from construction to release(). It also ends with the process, even by kill -9."""

    def __init__(self, directory: str) -> None:
        path = f"{directory}/{files.LOCK_NAME}"
        try:
            self._fd = disk.hold(path)
        except disk.FileHeld as holder:
            who = f" (process {holder})" if str(holder).isdigit() else ""
            raise StartupError(
                f"{directory} is in use by another broker{who}; stop that broker or choose another log.dirs"
            ) from None

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            disk.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True)
class Identity:
    """The contents of meta.properties. `ours`: whether kafkalite wrote the file, so that a journal must exist."""

    cluster_id: str
    node_id: int
    ours: bool
    in_cluster: bool
    """Whether the controllers of a cluster own the directory's topics."""
    zookeeper: bool = False
    """Whether the directory belongs to a Java broker of a ZooKeeper cluster."""


def prepare(directory: str) -> None:
    """Create the directory durably if it does not exist; StartupError if the directory cannot be used.

    Only the owner may access a new directory, because it will contain records, settings and credentials.
    """
    try:
        _make(os.path.abspath(directory))
        disk.check_usable(directory)
    except OSError as error:
        raise StartupError(f"log.dirs: {directory} cannot be used: {error.strerror}") from None
    mode = stat.S_IMODE(disk.stat(directory).st_mode)
    if mode & ~file_ops.DIRECTORY_MODE:
        # The mode may be intended (a group that makes backups), so warn and leave it.
        logger.warning(
            "other users of this machine can access the data directory; run chmod %o on it",
            file_ops.DIRECTORY_MODE,
            extra=fields(path=directory, mode=f"{mode:04o}"),
        )


def _make(path: str) -> None:
    """Create a directory and its missing parents, and make their names durable.

    An existing directory that was never used is synced, too: the process that created it may have ended before a sync.
    """
    unsynced = []
    above = path
    while not disk.is_directory(above) and above != os.path.dirname(above):
        unsynced.append(above)
        above = os.path.dirname(above)
    disk.make_directories(path, file_ops.DIRECTORY_MODE)
    if not unsynced and not disk.exists(f"{path}/{files.META_PROPERTIES_NAME}"):
        unsynced.append(path)
    for made in unsynced:
        with contextlib.suppress(PermissionError):  # the directory existed, and its parent is not readable
            file_ops.sync_directory(os.path.dirname(made))


def read_identity(directory: str, node_id: int) -> Identity | None:
    """Return the identity in meta.properties; None for a fresh directory. StartupError if this broker cannot use the
    directory.
    """
    path = f"{directory}/{files.META_PROPERTIES_NAME}"
    values = checkpoints.read_properties(path)
    if values is None:
        return None
    version = values.get("version", "")
    ours = values.get(FORMAT_KEY)
    if version not in {"0", KAFKA_VERSION} or "cluster.id" not in values:
        raise StartupError(f"{path} is damaged or has an unknown version; restore it, or move it away to start empty")
    if ours is not None and ours != str(FORMAT_VERSION):
        raise StartupError(f"{directory} has data format {ours}, but this release supports only {FORMAT_VERSION}")
    stored = values.get("node.id", values.get("broker.id", ""))
    if stored.removeprefix("-").isdecimal() and int(stored) != node_id:
        raise StartupError(f"node.id: {directory} belongs to node {stored}, but the configuration says {node_id}")
    return Identity(values["cluster.id"], node_id, ours is not None, CLUSTER_KEY in values, version != KAFKA_VERSION)


def check_finished(directory: str) -> None:
    """Raise StartupError if the directory is a backup that was interrupted."""
    if disk.exists(f"{directory}/{files.BACKUP_UNFINISHED_NAME}"):
        raise StartupError(f"{directory} is an incomplete backup that was interrupted; remove it and make another")


def is_used(directory: str) -> bool:
    """Return whether a broker was ever started on this directory."""
    return disk.exists(f"{directory}/{files.META_PROPERTIES_NAME}")


def check_kind(directory: str, identity: Identity, *, in_cluster: bool) -> None:
    """Raise StartupError if the directory belongs to a cluster and the broker is standalone, or vice versa."""
    if identity.ours and identity.in_cluster != in_cluster:
        raise StartupError(
            f"process.roles: {directory} belongs to a broker "
            + (
                "in a cluster"
                if identity.in_cluster
                else "outside a cluster; to move it and its topics into a cluster, run kafkalite cluster migrate"
            )
        )
    if in_cluster and identity.zookeeper:
        raise StartupError(
            f"log.dirs: {directory} belongs to a broker of a ZooKeeper cluster; migrate the cluster to controllers "
            "with Apache Kafka 3.9 first"
        )


def directory_id(directory: str) -> bytes:
    """Return the directory id (KIP-858); StartupError if the directory has none."""
    path = f"{directory}/{files.META_PROPERTIES_NAME}"
    try:
        return uuid_bytes((checkpoints.read_properties(path) or {}).get("directory.id", ""))
    except ValueError:
        raise StartupError(f"{path} has no directory.id, which the controllers require") from None


def write_identity(directory: str, cluster_id: str, node_id: int, *, in_cluster: bool = False) -> None:
    """Write meta.properties; keep Kafka's lines that this release does not know."""
    path = f"{directory}/{files.META_PROPERTIES_NAME}"
    values = checkpoints.read_properties(path) or {}
    wanted = {
        **values,
        "directory.id": values.get("directory.id") or uuid_text(new_uuid()),
        "version": KAFKA_VERSION,
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        FORMAT_KEY: str(FORMAT_VERSION),
        **({CLUSTER_KEY: CLUSTER_KIND} if in_cluster else {}),
    }
    if wanted != values:
        checkpoints.write_properties(path, wanted)


def take_clean_marker(directory: str) -> bool:
    """Remove the clean-shutdown file, and return whether it existed: whether the last stop was clean.

    From now on, a crash counts as an unclean stop.
    """
    path = f"{directory}/{files.CLEAN_SHUTDOWN_NAME}"
    if not disk.exists(path):
        return False
    file_ops.unlink(path)
    file_ops.sync_directory(directory)
    return True


def clean_broker_epoch(directory: str) -> int:
    """Return the broker epoch of the last clean stop, or NO_BROKER_EPOCH if none is stored.

    Call this before `take_clean_marker`.
    """
    try:
        text = files.read_bytes(f"{directory}/{files.CLEAN_SHUTDOWN_NAME}")
        return NO_BROKER_EPOCH if text is None else int(json.loads(text)["brokerEpoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH


def leave_clean_marker(directory: str, broker_epoch: int = NO_BROKER_EPOCH) -> None:
    """Write the clean-shutdown file in Kafka 4's format; this is the last step of a clean stop."""
    content = b'{"version":0,"brokerEpoch":%d}' % broker_epoch
    files.write_atomically(f"{directory}/{files.CLEAN_SHUTDOWN_NAME}", content, durable=True)


def partition_directories(directory: str) -> tuple[dict[tuple[str, int], str], list[str]]:
    """Return ((topic, partition) → path, paths of deleted partitions that still have to be removed)."""
    found: dict[tuple[str, int], str] = {}
    deleted = []
    for entry in filter(_may_be_directory, disk.entries(directory)):
        if entry.name == files.BACKUP_LINKS_NAME:
            continue  # links of a current or interrupted backup
        if files.DELETED_DIRECTORY_NAME.fullmatch(entry.name):
            deleted.append(entry.path)
            continue
        parsed = files.parse_directory_name(entry.name)
        if parsed is None:
            logger.warning("ignored a directory that is not a partition's", extra=fields(path=entry.path))
        else:
            found[parsed] = entry.path
    return found, deleted


def _may_be_directory(entry: disk.Entry) -> bool:
    """Return whether an entry is a directory.

    If its type cannot be read, return True: its partition then goes offline instead of being overlooked.
    """
    try:
        return entry.is_dir(follow_symlinks=True)
    except OSError:
        return True
