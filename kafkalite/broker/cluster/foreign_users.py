"""Read users and their SCRAM credentials from another broker's directory, without changing it.

    kafkalite's       metadata.journal, also of a backup
    Apache Kafka's    __cluster_metadata-0 of a controller or a combined node: its newest snapshot (*.checkpoint), then
                      the log after it

Both brokers store the same SCRAM keys, so passwords stay valid. No request returns these keys, so they must be read
from the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite._native.wire.batch import BatchError
from kafkalite.broker.cluster.metadata_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kafkalite.broker.cluster.records import RECORD_TYPES, MetadataFault, decode_value
from kafkalite.broker.log import disk, files
from kafkalite.broker.log.adoption import KAFKA_METADATA_TOPIC
from kafkalite.broker.log.journal import replay
from kafkalite.errors import StartupError
from kafkalite.model import ScramCredential
from kafkalite.wire.record.batches import decode
from kafkalite.wire.record.compression import CompressionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Credentials = dict[tuple[str, str], ScramCredential]
"""By mechanism and user."""

READ: Final = frozenset(
    key
    for key, (cls, *_) in RECORD_TYPES.items()
    if cls
    in {
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
    }
)
"""Keys of records about users, and about the transactions (KIP-868) that can contain records about users."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
SNAPSHOT: Final = ".checkpoint"
SEGMENT: Final = ".log"


def credentials_of(directory: str) -> Credentials:
    """Return the credentials in a data directory or backup. Raises StartupError if the directory is neither, or is
    unreadable.
    """
    journal = files.read_bytes(f"{directory}/{files.JOURNAL_NAME}")
    if journal is not None:
        return dict(replay(f"{directory}/{files.JOURNAL_NAME}", journal)[0].credentials)
    for path in (f"{directory}/{KAFKA_METADATA_TOPIC}-0", directory):
        if disk.is_directory(path):
            found = [name for name in disk.list_names(path) if name.endswith((SNAPSHOT, SEGMENT))]
            if any(name[:-4].isdigit() for name in found):
                return _of_kafka(path, found)
    raise StartupError(
        f"{directory} has neither {files.JOURNAL_NAME} (kafkalite) nor {KAFKA_METADATA_TOPIC}-0 (Apache Kafka "
        "controller)"
    )


def of_snapshot(path: str) -> Credentials:
    """Return the credentials in one of Kafka's metadata snapshots. Raises StartupError if it cannot be read."""
    found: Credentials = {}
    try:
        _apply(found, _values(path, 0))
    except MetadataFault as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    return found


def _of_kafka(path: str, names: list[str]) -> Credentials:
    """Return the credentials in the newest snapshot and the log after it.

    Only records about users are decoded, so the log may be from a newer Kafka than this release supports.
    """
    found: Credentials = {}
    first = 0
    snapshots = sorted(name for name in names if name.endswith(SNAPSHOT) and name[:20].isdigit())
    logs = sorted(name for name in names if name.endswith(SEGMENT))
    if snapshots:
        first = int(snapshots[-1][:20])
        logs = [snapshots[-1], *logs]
    read = ""

    def values() -> Iterator[bytes]:
        nonlocal read
        for name in logs:
            read = f"{path}/{name}"
            yield from _values(read, 0 if name.endswith(SNAPSHOT) else first)

    try:
        _apply(found, values())
    except MetadataFault as error:
        raise StartupError(f"{read} cannot be read: {error}") from error
    return found


def _values(path: str, first: int) -> Iterator[bytes]:
    """Yield the values of a file's records from an offset on. Control records are left out."""
    data = files.read_bytes(path) or b""
    try:
        columns = decode(data, first) if data else None
    except (BatchError, CompressionError) as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    for value in () if columns is None else columns.values:
        if value is not None:
            yield value


def _apply(found: Credentials, values: Iterable[bytes]) -> None:
    """Apply records to the credentials. A transaction takes effect at its end, which may be in a later segment."""
    pending: Credentials | None = None
    for value in values:
        if value[1:2] and value[1] not in READ:
            continue  # this includes two-byte keys of a newer Kafka
        match decode_value(value):
            case BeginTransactionRecord():
                pending = dict(found)
            case EndTransactionRecord() if pending is not None:
                found.clear()
                found.update(pending)
                pending = None
            case AbortTransactionRecord():
                pending = None
            case UserScramCredentialRecord() as user:
                kept = ScramCredential(user.salt, user.stored_key, user.server_key, user.iterations)
                (found if pending is None else pending)[_key(user)] = kept
            case RemoveUserScramCredentialRecord() as user:
                (found if pending is None else pending).pop(_key(user), None)


def _key(user: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> tuple[str, str]:
    return MECHANISMS.get(user.mechanism, f"mechanism {user.mechanism}"), user.name
