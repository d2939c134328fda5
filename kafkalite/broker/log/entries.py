"""What of a partition directory the next flush has to put on the disk besides records: its name, and the names in it.

    made under the log's lock ──▶ `_made` rises ──▶ sync(), or a sync of the whole file system ──▶ `_synced` follows

A name is made before it is counted, and counted before a record after it is published: so a flush that takes the log's
end first and `mark()` after it knows every name that its records need. What is counted while a sync runs waits for the
next one.

Thread rule: what counts needs the log's lock; `sync` and `synced` need its flush lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite.broker.log import files

if TYPE_CHECKING:
    from collections.abc import Callable


class DirectoryEntries:
    """The names and small files of one partition directory, as far as they may be missing after a power cut."""

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
        self._made = 0  # changes so far
        self._synced = 0  # of them on the disk
        self._removals = 0  # under way
        self._directory_at = 0  # the change that made the directory itself,
        self._identity_at = 0  # the one that wrote partition.metadata
        self._epochs_at = 0  # and the latest one of leader-epoch-checkpoint

    @property
    def dirty(self) -> bool:
        """Whether anything may be missing."""
        return self._synced < self._made or self._removals > 0

    def name_changed(self) -> None:
        """A file of the directory has come, gone, or got another name."""
        self._made += 1

    def removal_began(self) -> None:
        """Files are about to go; until that is on the disk they may come back."""
        self._removals += 1

    def removal_ended(self) -> None:
        """They have gone."""
        self._removals -= 1
        self._made += 1

    def directory_made(self) -> None:
        """The directory is new, and partition.metadata was written into it."""
        self._directory_at = self._identity_at = self._made + 1
        self._made += 1

    def epochs_written(self) -> None:
        """leader-epoch-checkpoint was replaced without a sync."""
        self._epochs_at = self._made + 1
        self._made += 1

    def doubted(self) -> None:
        """Nobody knows what of the directory's content is on the disk: the last process died, or it was copied here.

        The directory's own name is the manager's business then, once for all of them.
        """
        self._identity_at = self._epochs_at = self._made + 1
        self._made += 1

    def mark(self) -> int:
        """To be taken before a sync of the whole file system, and given to `synced` after it."""
        return self._made

    def synced(self, mark: int) -> None:
        """Everything up to a mark is on the disk."""
        self._synced = max(self._synced, mark)

    def sync(self) -> None:
        """Puts what is missing on the disk, which costs nothing when nothing is. OSError: it may not be there."""
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
