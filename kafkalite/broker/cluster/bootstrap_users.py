"""Write users with their SCRAM credentials into the files of controllers that have not been started yet.

The command `kafka-storage format` writes the file bootstrap.checkpoint: a snapshot with a header, batches of records
and a footer. This module inserts the users as one batch before the footer. An AlterUserScramCredentials request
cannot do this: it needs the salted password, and the credentials contain only keys.

Source: BootstrapDirectory and BatchFileWriter of Kafka 4.1. Blocks; the directory must not be in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite._native.wire.batch import BatchError
from kafkalite.broker.cluster.foreign_users import MECHANISMS, SEGMENT, of_snapshot
from kafkalite.broker.cluster.metadata_types import UserScramCredentialRecord
from kafkalite.broker.cluster.records import encode_value
from kafkalite.broker.log import disk, files
from kafkalite.broker.log.adoption import KAFKA_METADATA_TOPIC
from kafkalite.errors import StartupError
from kafkalite.wire.record.batches import encode_batch, whole_batches
from kafkalite.wire.record.columns import Record, RecordColumns

if TYPE_CHECKING:
    from kafkalite.broker.cluster.foreign_users import Credentials

BOOTSTRAP: Final = "bootstrap.checkpoint"
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
BASE_OFFSET_SIZE: Final = 8
EPOCH_AT: Final = 12
EPOCH_SIZE: Final = 4


def add_users(directory: str, credentials: Credentials, now_ms: int) -> Credentials:
    """Add the users that the controller does not have; return the added users. Raises StartupError or OSError.

    Call it for every controller: the one that first leads the quorum applies its file.
    """
    path = f"{directory}/{BOOTSTRAP}"
    data = files.read_bytes(path)
    if data is None:
        raise StartupError(
            f"{directory} has no {BOOTSTRAP}; give the metadata.log.dir of a controller that kafka-storage format "
            "has formatted"
        )
    _check_unused(directory)
    there = of_snapshot(path)
    added = {key: kept for key, kept in sorted(credentials.items()) if key not in there and key[0] in NUMBERS}
    if added:
        # The file keeps its mode and its owner, as whom the controller runs.
        files.write_atomically(path, _with_users(path, data, added, now_ms), durable=True, owned_as=disk.stat(path))
    return added


def _check_unused(directory: str) -> None:
    log = f"{directory}/{KAFKA_METADATA_TOPIC}-0"
    names = disk.list_names(log) if disk.is_directory(log) else []
    if any(name.endswith(SEGMENT) and disk.stat(f"{log}/{name}").st_size for name in names):
        raise StartupError(
            f"the controller of {directory} has been started before; controllers read users from files only at "
            "their first start"
        )


def _with_users(path: str, data: bytes, added: Credentials, now_ms: int) -> bytes:
    """Return the snapshot with one more batch before the footer.

    The footer's base offset changes; no CRC of a batch covers it.
    """
    try:
        batches = list(whole_batches(data))
    except BatchError as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    if not batches or not batches[-1][1].is_control:
        raise StartupError(f"{path} has no snapshot footer; format the controller again")
    position, footer = batches[-1]
    rows = [
        Record(
            -1,
            now_ms,
            None,
            encode_value(
                UserScramCredentialRecord(
                    name=user,
                    mechanism=NUMBERS[mechanism],
                    salt=kept.salt,
                    stored_key=kept.stored_key,
                    server_key=kept.server_key,
                    iterations=kept.iterations,
                ),
                0,
            ),
        )
        for (mechanism, user), kept in added.items()
    ]
    batch, count = encode_batch(RecordColumns.from_records(rows), base_offset=footer.base_offset)
    if count < len(rows):
        raise StartupError(f"{len(rows)} users do not fit into one batch of a snapshot")
    batch[EPOCH_AT : EPOCH_AT + EPOCH_SIZE] = footer.leader_epoch.to_bytes(EPOCH_SIZE, "big", signed=True)
    moved = (footer.base_offset + count).to_bytes(BASE_OFFSET_SIZE, "big")
    return data[:position] + bytes(batch) + moved + data[position + BASE_OFFSET_SIZE :]
