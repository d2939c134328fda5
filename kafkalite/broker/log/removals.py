"""Partition directories that are in the way or no longer used: renamed first, durably, and removed later.

    <topic>-<partition> ─▶ …-delete    of a deleted topic      its name is synced ▸ file.delete.delay.ms ▸ removed
                        ─▶ …-stray     that may have records   kept for the operator

Only what is renamed durably is removed: after a power cut a directory may come back under its old name, and half of one
could not tell whose it was. Until then the journal keeps the ids of deleted topics (`settled`).

Thread rule: the lock is the manager's, which serializes changes of topics. All of it blocks.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite.base.logging import fields
from kafkalite.broker.log import adoption, disk, files
from kafkalite.broker.log.formats import FORMATS
from kafkalite.errors import StorageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Container, Iterable

logger = logging.getLogger(__name__)


class Removals:
    """Renames and removes partition directories of one data directory."""

    def __init__(
        self,
        directory: str,
        lock: threading.RLock,
        *,
        sync_root: Callable[[], None],
        remove_later: Callable[[list[str], int], None],
        deleted_ids: Callable[[], Container[bytes]],
    ) -> None:
        """`sync_root` makes names in the directory durable; `deleted_ids` gives the ids of topics that the journal
        deleted."""
        self._directory = directory
        self._lock = lock
        self.sync_root = sync_root
        self._remove_later = remove_later
        self._deleted_ids = deleted_ids
        self._to_remove: list[tuple[str, int]] = []  # directories renamed, not synced; delays in ms; guarded by _lock
        self._renames_unsynced = self._names_kept = False  # of partition directories; guarded by _lock, as the next
        self._renames_failed: str | None = None

    @property
    def settled(self) -> bool:
        """Whether no deleted topic's directory has its own name, or may come back under it; under the lock."""
        return not (self._renames_unsynced or self._renames_failed is not None or self._names_kept)

    def keep_strays(self, strays: Iterable[str]) -> None:
        """Gives directories that may be a deleted topic's, and cannot tell, names that no start takes for a topic's."""
        for path in strays:
            logger.warning(
                "renamed a directory that has the name of a deleted topic but no valid topic id",
                extra=fields(path=self.rename_partition(path, files.stray_directory_name)),
            )

    def remove_leftovers(self, deleted: Iterable[str], leftovers: Iterable[str]) -> None:
        """Removes directories of deleted topics: those that were renamed, and those that still have their own name.

        What goes first is that name, durably: half of a directory that came back under it could not say whose it was.
        """
        doomed = [*deleted, *(self.rename_partition(path, files.deleted_directory_name) for path in leftovers)]
        if doomed:
            self.sync_root()
        for path in doomed:
            files.remove_tree(path)

    def rename_partition(self, path: str, new_name: Callable[[str, int], str]) -> str:
        """Renames a partition directory to what `new_name` makes of its topic and number; the new path."""
        name = files.parse_directory_name(os.path.basename(path))
        assert name is not None, "it was listed as a partition directory"
        target = f"{self._directory}/{new_name(*name)}"
        file_ops.rename(path, target)
        return target

    def clear_directories(self, name: str, partitions: Iterable[int]) -> None:
        """Moves directories that stand in new partitions' way out of it, durably: records in them, if any, are not
        theirs. What belongs to no topic is kept under another name."""
        for partition in partitions:
            path = f"{self._directory}/{files.directory_name(name, partition)}"
            if not disk.lexists(path):
                continue
            ours = adoption.identity_of(path)[0] in self._deleted_ids()
            if ours or not any(adoption.has_segments(path, each.suffix) for each in FORMATS.values()):
                target = f"{self._directory}/{files.deleted_directory_name(name, partition)}"
                self._to_remove.append((self._rename_out_of_the_way(path, target), 0))
            else:
                target = f"{self._directory}/{files.stray_directory_name(name, partition)}"
                self._rename_out_of_the_way(path, target)
                logger.warning(
                    "renamed a directory that does not belong to the new topic of its name", extra=fields(path=target)
                )
        self.sync_renames()

    def remove_directory(self, path: str, topic: str, partition: int, delay_ms: int) -> None:
        """Of a deleted partition. One that cannot be renamed stays until the next start, which knows the topic's id."""
        target = f"{self._directory}/{files.deleted_directory_name(topic, partition)}"
        try:
            file_ops.rename(path, target)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("could not rename a partition directory", extra=fields(path=path, reason=str(error)))
            self._names_kept = True
            return
        self._renames_unsynced = True
        self._to_remove.append((target, delay_ms))

    def sync_renames(self) -> None:
        """Returns when no directory that was renamed can come back under its old name. StorageError: it may.

        After a sync that failed no other one tells whether the names are there: that stays so until the next start.
        """
        with self._lock:
            if not self._renames_unsynced:
                return
            if self._renames_failed is None:
                try:
                    self.sync_root()
                except OSError as error:
                    self._renames_failed = str(error)
            if self._renames_failed is not None:
                raise StorageError(f"the data directory could not be synced: {self._renames_failed}")
            self._renames_unsynced = False
            removals, self._to_remove = self._to_remove, []
        # Not before: a directory that comes back under its old name must still say whose it was.
        for path, delay_ms in removals:
            self._remove_later([path], delay_ms)

    def _rename_out_of_the_way(self, path: str, target: str) -> str:
        try:
            file_ops.rename(path, target)
        except OSError as error:
            raise StorageError(f"{path} is in the way and could not be renamed: {error}") from error
        self._renames_unsynced = True
        return target
