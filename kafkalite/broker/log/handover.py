"""Turn the data directory of a standalone broker into that of a cluster member, and store the progress.

    migration.json            the progress; removed at the end
    metadata.journal.alone    a copy of the old journal for reference; it contains SCRAM credentials

The migration has two phases:

    PLANNED    the topics are created in the cluster. The directory can still be used by the standalone broker
    MOVING     the cluster has everything that the journal had. `finish` changes the directory. Until it is complete,
               no broker starts on the directory

After a crash, `finish` is run again: each of its steps may be repeated.

Everything here may block.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Any, Final

from kafkalite._native.base import file_ops
from kafkalite.base.dataclass import dataclass
from kafkalite.broker.log import checkpoints, directory, disk, files
from kafkalite.broker.log.journal import Journal, MetadataState
from kafkalite.errors import StartupError
from kafkalite.model import uuid_bytes

VERSION: Final = 1
PLANNED: Final = "planned"
MOVING: Final = "moving"


@dataclass(slots=True, kw_only=True)
class Handover:
    """The contents of migration.json."""

    phase: str
    cluster_id: str
    node_id: int
    topics: list[str]
    """Topics that this migration creates; no topic with one of these names existed in the cluster before."""
    producer_ids_before: int
    """The cluster's next producer id before this migration allocated any."""
    producer_ids_clear: int = 0
    """Producers of the cluster with ids below this one were checked: their ids differ from those of all producers
    here."""
    rules: list[list[str]] = field(default_factory=list)
    """ACLs that this migration adds to the cluster, in the form of `Acl.texts`."""
    quotas: list[list[Any]] = field(default_factory=list)
    """Quotas that this migration adds: [[[entity type, name], …], key]."""
    settings: list[list[Any]] = field(default_factory=list)
    """Settings that this migration adds: [resource type, name, key]. Settings of topics are created with their
    topics."""
    ids: dict[str, str] = field(default_factory=dict)
    """Topic name → topic id in the cluster, set in phase MOVING."""
    broker_epoch: int = directory.NO_BROKER_EPOCH
    """The broker epoch of the last registration, which ended cleanly."""
    report: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


def read(root: str) -> Handover | None:
    """Return the current migration, or None; StartupError if this release cannot read it."""
    path = f"{root}/{files.MIGRATION_NAME}"
    data = files.read_bytes(path)
    if data is None:
        return None
    try:
        values = json.loads(data)
        if values["version"] != VERSION:
            raise StartupError(f"{path} has format {values['version']}, but this release supports only {VERSION}")
        return Handover(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise StartupError(f"{path} is malformed: {error}") from None


def write(root: str, handover: Handover) -> None:
    """Replace migration.json, durably."""
    data = json.dumps(asdict(handover), indent=1).encode() + b"\n"
    files.write_atomically(f"{root}/{files.MIGRATION_NAME}", data, durable=True)


def begin_moving(root: str, handover: Handover) -> None:
    """Enter phase MOVING, in which no standalone broker starts on the directory.

    If a broker was started on it since the migration was planned, raise StartupError and stay in phase PLANNED.
    """
    lock = directory.DirectoryLock(root)
    try:
        if not disk.exists(f"{root}/{files.CLEAN_SHUTDOWN_NAME}"):
            raise StartupError(f"another broker used {root} in the meantime; run the command again")
        handover.phase = MOVING
        write(root, handover)
    finally:
        lock.release()


def check_whole(root: str) -> None:
    """Raise StartupError if the directory's migration is in phase MOVING."""
    handover = read(root)
    if handover is not None and handover.phase == MOVING:
        raise StartupError(
            f"{root} is partly migrated into the cluster {handover.cluster_id}; run kafkalite cluster migrate again"
        )


def finish(root: str, handover: Handover) -> None:
    """Turn the directory into a cluster member's, under the directory's lock. StartupError; OSError."""
    lock = directory.DirectoryLock(root)
    try:
        _give_topic_ids(root, {name: uuid_bytes(text) for name, text in handover.ids.items()})
        _empty_journal(root, handover.cluster_id)
        _give_identity(root, handover)
        file_ops.unlink(f"{root}/{files.MIGRATION_NAME}", missing_ok=True)
        file_ops.sync_directory(root)
    finally:
        lock.release()


def _give_topic_ids(root: str, ids: dict[str, bytes]) -> None:
    present, _ = directory.partition_directories(root)
    for (topic, _), path in sorted(present.items()):
        if topic in ids and _id_in(path) != ids[topic]:
            checkpoints.write_partition_topic_id(path, ids[topic], durable=True)


def _id_in(path: str) -> bytes | None:
    try:
        return checkpoints.read_partition_topic_id(path)
    except checkpoints.MetadataDamaged:
        return None


def _empty_journal(root: str, cluster_id: str) -> None:
    """Empty the journal except for the count of unclean starts and the secret: the controllers own the metadata now."""
    journal = Journal.open(root)
    if journal is None:
        raise StartupError(f"{root} has no {files.JOURNAL_NAME}; restore it from a copy")
    try:
        state = journal.state
        if state.cluster_id == cluster_id and not state.topics:
            return
        kept = f"{root}/{files.JOURNAL_ALONE_NAME}"
        files.write_atomically(kept, files.read_bytes(journal.path) or b"", durable=True)
        journal.state = MetadataState(cluster_id, unclean_count=state.unclean_count, secret=state.secret)
        journal.rewrite()
    finally:
        journal.close()


def _give_identity(root: str, handover: Handover) -> None:
    directory.write_identity(root, handover.cluster_id, handover.node_id, in_cluster=True)
    directory.leave_clean_marker(root, handover.broker_epoch)
