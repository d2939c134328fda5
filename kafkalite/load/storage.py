"""Where a target is: a seam of few operations, with rename as the one that publishes.

    local_disk.LocalDisk    a directory of this machine, or of NFS 4 and the like: rename and flock
    webhdfs.WebHdfs         a directory of HDFS
    places.storage_of       which of them a path means

Names are relative to the target, with "/" between folders; `place` says what others call one, and is a name as well.
A move to a new name is seen whole or not at all, and so is what `put` writes.

Thread rule: an object belongs to one thread at a time; it can be pickled.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager


class LoadError(RuntimeError):
    """A load cannot go on; the message is one sentence that says why, and what can be done."""


class Storage(Protocol):
    """See the module. FileNotFoundError for what is not there; OSError, PermissionError as files have them."""

    location: str
    """Of the target, as it is shown."""
    keeps_turns: bool
    """Whether a turn cannot be lost while its holder lives."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; nothing where there is none."""

    def read(self, name: str) -> bytes:
        """A file that is small."""

    def open(self, name: str) -> IO[bytes]:
        """A file to be read at any place."""

    def create(self, name: str) -> IO[bytes]:
        """A new file to be written from its start on."""

    def finish(self, file: IO[bytes]) -> None:
        """Closes a file that was created; what it holds lasts."""

    def put(self, name: str, data: bytes) -> None:
        """A file that is there whole and lasting, or not at all, whatever happens."""

    def move(self, old: str, new: str) -> None:
        """Gives a file a new name, at once."""

    def make_folder(self, folder: str) -> set[str]:
        """Makes a folder; those whose entries have to be synced for what is put into it to last."""

    def sync(self, folders: Iterable[str]) -> None:
        """The names in these folders last."""

    def remove(self, name: str) -> None:
        """A file, if it is there."""

    def remove_folder(self, folder: str) -> None:
        """A folder and all in it, as far as that can be done."""

    def turn(self, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """The turn to write, by a file of this name. LoadError when another writer does not end."""

    def place(self, name: str) -> str:
        """What Spark and `filesystem` call a file."""

    def filesystem(self) -> Any:
        """For pyarrow: None for this machine's files."""
