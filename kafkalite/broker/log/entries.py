"""Track which names and small files of a partition directory are not durable yet, so that the next flush syncs them.

    a change of a name or small file ──▶ `_made` counts it ──▶ a flush makes it durable ──▶ `_synced` = `_made`

The name of a new segment is counted before records are appended to the segment. So a flush of these records also makes
the name durable.

Thread rule: methods that count need the log's lock; `sync` and `synced` need its flush lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite.broker.log import files

if TYPE_CHECKING:
    from collections.abc import Callable


class DirectoryEntries:
    """Counts the changes in one partition directory that a power cut could undo."""

    __slots__ = (
        "_directory",
        "_directory_at",
        "_epochs_at",
        "_identity_at",
        "_made",
        "_removals",
        "_sync_root",
        "_synced",
    )

    def __init__(self, directory: str, sync_root: Callable[[], None]) -> None:
        self._directory = directory
        self._sync_root = sync_root
        self._made = 0  # number of changes
        self._synced = 0  # number of durable changes
        self._removals = 0  # removals in progress
        self._directory_at = 0  # the change that created the directory itself
        self._identity_at = 0  # the change that wrote partition.metadata
        self._epochs_at = 0  # the latest change of leader-epoch-checkpoint

    @property
    def dirty(self) -> bool:
        """Whether there are changes that could be lost in a power cut."""
        return self._synced < self._made or self._removals > 0

    def name_changed(self) -> None:
        """Count a created, removed or renamed file."""
        self._made += 1

    def removal_began(self) -> None:
        """Note that a removal of files begins. Until the removal is durable, a power cut may restore the files."""
        self._removals += 1

    def removal_ended(self) -> None:
        """Count a completed removal."""
        self._removals -= 1
        self._made += 1

    def directory_made(self) -> None:
        """Count a new partition directory with its partition.metadata."""
        self._directory_at = self._identity_at = self._made + 1
        self._made += 1

    def epochs_written(self) -> None:
        """Count a leader-epoch-checkpoint that was replaced without a sync."""
        self._epochs_at = self._made + 1
        self._made += 1

    def doubted(self) -> None:
        """Count everything in the directory as not durable, after an unclean stop or because the directory was copied
        here.

        The manager syncs the directory's own name, once for all directories.
        """
        self._identity_at = self._epochs_at = self._made + 1
        self._made += 1

    def mark(self) -> int:
        """Return the number of changes so far.

        Call `mark` before a sync of the file system, and pass its result to `synced` after the sync. A flush reads the
        log end first, so the mark covers every name that its records need.
        """
        return self._made

    def synced(self, mark: int) -> None:
        """Note that the first `mark` changes are durable."""
        self._synced = max(self._synced, mark)

    def sync(self) -> None:
        """Make all counted changes durable; do nothing if there are none. After an OSError, some changes could be
        lost.
        """
        made, before = self._made, self._synced
        if before >= made:
            return
        if before < self._identity_at:
            files.sync_path(f"{self._directory}/{files.PARTITION_METADATA_NAME}")
        if before < self._epochs_at:
            files.sync_path(f"{self._directory}/{files.EPOCHS_NAME}")
        file_ops.sync_directory(self._directory)
        if before < self._directory_at:
            self._sync_root()
        self._synced = made
