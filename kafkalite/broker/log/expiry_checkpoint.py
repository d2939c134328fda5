"""Store the trusted time of a data directory in the file expiry-time-checkpoint.

The *trusted time* decides which records expire. If the wall clock jumps ahead, the trusted time does not follow at once
(`kafkalite.base.clock.ExpiryTime`).

    version: 1
    time_ms: 1764316800000        the trusted time
    ahead_ms: 691200000           by how much the wall clock jumped ahead; 0 without a jump
    held_ms: 1200000              how long the broker has run since this jump, in all its runs

The file is written as often as the recovery points, at least every STORE_INTERVAL_MAX, and at a stop. Apache Kafka
ignores it.

Everything here blocks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.clock import StoredTime
from kafkalite.base.logging import fields
from kafkalite.broker.log import disk, files

if TYPE_CHECKING:
    from kafkalite.base.clock import ExpiryTime

logger = logging.getLogger(__name__)

VERSION: Final = "1"
STORE_INTERVAL_MAX: Final = 30.0
"""Maximum time between two writes in seconds: below a minute, so a quick restart after kill -9 does not look like a
jump."""
FALLBACK_NAMES: Final = (
    files.RECOVERY_POINTS_NAME,
    files.LOG_STARTS_NAME,
    files.HIGH_WATERMARKS_NAME,
    files.CLEANER_OFFSETS_NAME,
)


def read(directory: str) -> StoredTime | None:
    """Return the stored time; None if the file is missing or cannot be read."""
    path = f"{directory}/{files.EXPIRY_TIME_NAME}"
    try:
        data = files.read_bytes(path)
        if data is None:
            return None
        values = dict(line.split(": ", 1) for line in data.decode().splitlines())
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}")  # noqa: TRY301 - one handler for every kind of damage
        found = StoredTime(int(values["time_ms"]), int(values["ahead_ms"]), int(values["held_ms"]))
        if min(found) < 0:
            raise ValueError("a negative time")  # noqa: TRY301
    except (OSError, ValueError, KeyError) as error:
        logger.warning("ignored an unusable stored expiry time", extra=fields(path=path, reason=str(error)))
        return None
    return found


def newest_checkpoint(directory: str) -> StoredTime | None:
    """Return the time to use if a directory has no stored time: the newest modification time of its other checkpoint
    files.

    None if it has no such file.
    """
    found = []
    for name in FALLBACK_NAMES:
        try:
            found.append(disk.stat(f"{directory}/{name}").st_mtime_ns // 1_000_000)
        except OSError:
            continue
    return StoredTime(max(0, *found)) if found else None


def write(directory: str, stored: StoredTime) -> None:
    """Replace the stored time, durably. OSError."""
    rows = {"version": VERSION, **stored._asdict()}
    text = "".join(f"{name}: {value}\n" for name, value in rows.items())
    files.write_atomically(f"{directory}/{files.EXPIRY_TIME_NAME}", text.encode(), durable=True)


class ExpiryCheckpoint:
    """The stored trusted time of one data directory."""

    _failed = False
    """Whether the last call of `store` failed."""

    def __init__(self, directory: str, expiry_time: ExpiryTime) -> None:
        self._directory = directory
        self._expiry_time = expiry_time

    def resume(self) -> None:
        """Set the trusted time to the stored time, or without one to the newest modification time of the checkpoint
        files.

        The modification time is stored at once: the checkpoint files soon get new times from the wall clock, which
        could be wrong.
        """
        stored = read(self._directory)
        if stored is not None:
            self._expiry_time.resume(stored)
            return
        found = newest_checkpoint(self._directory)
        if found is not None:
            self._expiry_time.resume(found)
            self.store()

    def store(self) -> None:
        """Store the trusted time, durably. After a failed write, the next start uses an older time and keeps records
        longer.
        """
        try:
            write(self._directory, self._expiry_time.to_store())
        except OSError as error:
            if not self._failed:
                logger.warning("could not store the expiry time", extra=fields(reason=str(error)))
            self._failed = True
        else:
            self._failed = False
