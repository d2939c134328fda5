"""Define the interface to the storage of loaded files.

    local_disk.LocalDisk    a local directory, or one on NFS 4 and similar file systems: rename and flock
    webhdfs.WebHdfs         a directory of HDFS
    places.storage_of       selects one of them for a path

Changes are published by an atomic rename. Object stores do not have it, so they are not supported.

A name is a path relative to the target directory, with "/" between folders. Methods also accept the full path or URL
that `place` returns.

Thread rule: an object belongs to one thread at a time. It can be pickled.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager


class LoadError(RuntimeError):
    """A load that cannot continue. The message is one sentence with the reason."""


class Storage(Protocol):
    """The storage of a load's target directory. FileNotFoundError for missing files; OSError, PermissionError."""

    location: str
    """The target as it is shown to users."""
    keeps_turns: bool
    """Whether a writer keeps the lock as long as it lives."""

    def exists(self, name: str) -> bool:
        """Return whether a file or folder with this name exists."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; [] if the folder does not exist."""

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading with random access."""

    def create(self, name: str) -> IO[bytes]:
        """Create a file for sequential writing."""

    def finish(self, file: IO[bytes]) -> None:
        """Close a file that `create` returned, and make its content durable."""

    def put(self, name: str, data: bytes) -> None:
        """Write a small file atomically and durably."""

    def move(self, old: str, new: str) -> None:
        """Rename a file atomically."""

    def make_folder(self, folder: str) -> set[str]:
        """Create a folder. Return the folders to pass to `sync`, so that files in the new folder become durable."""

    def sync(self, folders: Iterable[str]) -> None:
        """Make the names in these folders durable."""

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""

    def remove_folder(self, folder: str) -> None:
        """Delete a folder and its content, as far as possible."""

    def turn(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """Return a context that holds the write lock: a lock file with this name.

        LoadError if another writer keeps the lock for `timeout_s` seconds.
        """

    def place(self, name: str) -> str:
        """Return the full path or URL of a file, for Spark and for `filesystem`."""

    def filesystem(self) -> Any:
        """Return the file system for pyarrow; None for local files."""
