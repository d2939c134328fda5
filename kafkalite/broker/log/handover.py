"""The migration of a standalone broker's data directory into a cluster.

    migration.json            how far it is; gone when it is done
    metadata.journal.alone    the journal as it was, which holds passwords as SCRAM keeps them: kept, for who looks back

PLANNED: topics are being made in the cluster, and nothing is changed here: the broker may still be started alone.
MOVING: the cluster has all that the journal had, and the directory becomes the cluster's: no broker starts on it until
it is whole. Each step of `finish` may be repeated, even after a crash in the one before. Records are neither copied nor
touched.

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
    """What migration.json says."""

    phase: str
    cluster_id: str
    node_id: int
    topics: list[str]
    """Those that this migration makes in the cluster: none of them was there before."""
    producer_ids_before: int
    """The cluster's next producer id before this migration asked for any."""
    producer_ids_clear: int = 0
    """Up to here no producer of the cluster has an id of a producer here."""
    rules: list[list[str]] = field(default_factory=list)
    """Those that this migration gives the cluster, as `Acl.texts` has them."""
    quotas: list[list[Any]] = field(default_factory=list)
    """The same: [[[kind, name], …], key]."""
    settings: list[list[Any]] = field(default_factory=list)
    """The same: [kind of resource, name, key]. Those of topics go with their topics."""
    ids: dict[str, str] = field(default_factory=dict)
    """Topic → its id in the cluster, once it is MOVING."""
    broker_epoch: int = directory.NO_BROKER_EPOCH
    """That of the last registration, which ended cleanly."""
    report: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


def read(root: str) -> Handover | None:
    """The migration that is under way; StartupError for one that this release cannot read."""
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
    """Replaces it, durably."""
    data = json.dumps(asdict(handover), indent=1).encode() + b"\n"
    files.write_atomically(f"{root}/{files.MIGRATION_NAME}", data, durable=True)


def begin_moving(root: str, handover: Handover) -> None:
    """From now on no broker starts here alone. StartupError, and it stays PLANNED, where one has done so meanwhile."""
    lock = directory.DirectoryLock(root)
    try:
        if not disk.exists(f"{root}/{files.CLEAN_SHUTDOWN_NAME}"):
            raise StartupError(f"another broker used {root} meanwhile; run this again")
        handover.phase = MOVING
        write(root, handover)
    finally:
        lock.release()


def check_whole(root: str) -> None:
    """StartupError for a directory that is half way into a cluster."""
    handover = read(root)
    if handover is not None and handover.phase == MOVING:
        raise StartupError(
            f"{root} is partly migrated into the cluster {handover.cluster_id}; run kafkalite cluster migrate again"
        )


def finish(root: str, handover: Handover) -> None:
    """Turn the directory into a cluster member's; the caller holds it exclusively. StartupError, OSError."""
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
    """What it had is the controllers' now; what belongs to this directory alone stays."""
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
