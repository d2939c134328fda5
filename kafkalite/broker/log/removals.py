"""Rename partition directories of deleted topics, durably, and remove them later.

    topic deleted                             <topic>-<partition> is renamed to …-delete, and removed after
                                              file.delete.delay.ms
    of no known partition, may have records   <topic>-<partition> is renamed to …-stray, and kept for the operator

A directory is removed only after its rename is durable. Otherwise a power cut could leave an incomplete directory with
the old name and without a topic id.

Thread rule: callers hold the manager's lock, which serializes changes of topics, except for `sync_renames` and at a
start. Everything here blocks.
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
        """Begin without renames. `sync_root` makes names in the data directory durable.

        `deleted_ids` returns the ids of topics that the journal knows as deleted.
        """
        self._directory = directory
        self._lock = lock
        self.sync_root = sync_root
        self._remove_later = remove_later
        self._deleted_ids = deleted_ids
        self._to_remove: list[tuple[str, int]] = []  # (directory, delay in ms), not synced yet; guarded by _lock
        self._renames_unsynced = self._names_kept = False  # guarded by _lock, as is the next
        self._renames_failed: str | None = None

    @property
    def settled(self) -> bool:
        """Whether the directories of all deleted topics are renamed, durably. Until then, the journal keeps the ids of
        deleted topics. Read this under the lock.
        """
        return not (self._renames_unsynced or self._renames_failed is not None or self._names_kept)

    def keep_strays(self, strays: Iterable[str]) -> None:
        """Rename directories that have the name of a deleted topic and no topic id, so that no start adopts them."""
        for path in strays:
            logger.warning(
                "renamed a directory that has the name of a deleted topic but no valid topic id",
                extra=fields(path=self.rename_partition(path, files.stray_directory_name)),
            )

    def remove_leftovers(self, deleted: Iterable[str], leftovers: Iterable[str]) -> None:
        """Remove directories of deleted topics that an earlier run left.

        `deleted` have been renamed; `leftovers` have their original names. The latter are renamed first, durably, so
        that an incomplete removal leaves no directory with a topic's name.
        """
        doomed = [*deleted, *(self.rename_partition(path, files.deleted_directory_name) for path in leftovers)]
        if doomed:
            self.sync_root()
        for path in doomed:
            files.remove_tree(path)

    def rename_partition(self, path: str, new_name: Callable[[str, int], str]) -> str:
        """Rename a partition directory to the name that `new_name` returns for its topic and partition; return the new
        path.
        """
        name = files.parse_directory_name(os.path.basename(path))
        assert name is not None, "it was listed as a partition directory"
        target = f"{self._directory}/{new_name(*name)}"
        file_ops.rename(path, target)
        return target

    def clear_directories(self, name: str, partitions: Iterable[int]) -> None:
        """Rename old directories with the names of new partitions, durably, so that the new partitions get no old
        records.

        Directories of deleted topics, or without segments, will be removed. All others are kept under another name.
        """
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
        """Rename a deleted partition's directory, so that it is removed later. If this fails, the next start removes
        it.
        """
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
        """Make all renames durable, then schedule the removals. After a StorageError, a power cut may undo the renames.

        A success after a failed sync does not prove that these names are durable. So every later call fails, too, until
        the next start.
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
        # Only now, because a directory that comes back under its old name must still show its topic id.
        for path, delay_ms in removals:
            self._remove_later([path], delay_ms)

    def _rename_out_of_the_way(self, path: str, target: str) -> str:
        try:
            file_ops.rename(path, target)
        except OSError as error:
            raise StorageError(f"{path} is in the way and could not be renamed: {error}") from error
        self._renames_unsynced = True
        return target
