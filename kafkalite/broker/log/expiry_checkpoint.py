"""expiry-time-checkpoint: the trusted time (`kafkalite.base.clock.ExpiryTime`) of a data directory, between two runs.

    version: 1
    time_ms: 1764316800000        the trusted time
    ahead_ms: 691200000           by how much the wall clock was ahead and not followed, 0: it was followed
    held_ms: 1200000              running time for which it had been ahead by that

It is replaced as a whole, as often as the recovery points, every STORE_INTERVAL_MAX at least, and at a stop. It is
synced before it has its name: where it is empty, the next start takes the newest time of the other checkpoint files,
which the wall clock has stamped that is not to be trusted. A file of another version, and one that cannot be read,
counts as absent, with one log line. Releases before this file, and Apache Kafka, ignore it.

Blocks.
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
"""Seconds between two writes: less than a minute, so that after kill -9 a quick restart is no jump."""
FALLBACK_NAMES: Final = (
    files.RECOVERY_POINTS_NAME,
    files.LOG_STARTS_NAME,
    files.HIGH_WATERMARKS_NAME,
    files.CLEANER_OFFSETS_NAME,
)


def read(directory: str) -> StoredTime | None:
    """What is stored; None where nothing is, or nothing that can be read."""
    path = f"{directory}/{files.EXPIRY_TIME_NAME}"
    try:
        data = files.read_bytes(path)
        if data is None:
            return None
        values = dict(line.split(": ", 1) for line in data.decode().splitlines())
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}")  # noqa: TRY301 - one handler for all that is wrong with it
        found = StoredTime(int(values["time_ms"]), int(values["ahead_ms"]), int(values["held_ms"]))
        if min(found) < 0:
            raise ValueError("a negative time")  # noqa: TRY301
    except (OSError, ValueError, KeyError) as error:
        logger.warning("ignored an unusable stored expiry time", extra=fields(path=path, reason=str(error)))
        return None
    return found


def newest_checkpoint(directory: str) -> StoredTime | None:
    """The newest modification time of the other checkpoint files, for a directory without a stored time; None where
    there are none."""
    found = []
    for name in FALLBACK_NAMES:
        try:
            found.append(disk.stat(f"{directory}/{name}").st_mtime_ns // 1_000_000)
        except OSError:
            continue
    return StoredTime(max(0, *found)) if found else None


def write(directory: str, stored: StoredTime) -> None:
    """Replaces the stored time, durably. OSError."""
    rows = {"version": VERSION, **stored._asdict()}
    text = "".join(f"{name}: {value}\n" for name, value in rows.items())
    files.write_atomically(f"{directory}/{files.EXPIRY_TIME_NAME}", text.encode(), durable=True)


class ExpiryCheckpoint:
    """The stored trusted time of one data directory."""

    _failed = False
    """Whether the last try to store it failed."""

    def __init__(self, directory: str, expiry_time: ExpiryTime) -> None:
        self._directory = directory
        self._expiry_time = expiry_time

    def resume(self) -> None:
        """Begins with the stored trusted time, else with the newest time of the checkpoint files. What those say is
        stored before any of them is written again, with a wall clock that may be wrong."""
        stored = read(self._directory)
        if stored is not None:
            self._expiry_time.resume(stored)
            return
        found = newest_checkpoint(self._directory)
        if found is not None:
            self._expiry_time.resume(found)
            self.store()

    def store(self) -> None:
        """Stores the trusted time, durably. A start without it begins with an older one, and keeps things longer."""
        try:
            write(self._directory, self._expiry_time.to_store())
        except OSError as error:
            if not self._failed:
                logger.warning("could not store the expiry time", extra=fields(reason=str(error)))
            self._failed = True
        else:
            self._failed = False
