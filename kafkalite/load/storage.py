"""Where a target is: a seam of few operations, with rename as the one that publishes.

    LocalDisk    a directory of this machine, or of NFS 4 and the like: rename and flock

Names are relative to the target, with "/" between folders; `place` says what others call one, and is a name as well.
A move to a new name is seen whole or not at all, and so is what `put` writes.

Thread rule: an object belongs to one thread at a time; it can be pickled.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

LOCK_POLL_S: Final = 0.05
URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class LoadError(RuntimeError):
    """A load cannot go on; the message is one sentence that says why, and what can be done."""


class Storage(Protocol):
    """See the module. FileNotFoundError for what is not there; OSError, PermissionError as files have them."""

    location: str
    """Of the target, as it is shown."""

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

    def below(self, folder: str) -> Storage:
        """A folder of the target, as a target."""

    def place(self, name: str) -> str:
        """What Spark and `filesystem` call a file."""

    def filesystem(self) -> Any:
        """For pyarrow: None for this machine's files."""


def refuse_url(path: str | os.PathLike[str]) -> None:
    """LoadError for s3://bucket and the like, also where a `Path` has made one slash of two."""
    if URL.match(os.fspath(path)):
        raise LoadError(f"{os.fspath(path)} is a URL; a load needs a directory, on a file system with rename")


def storage_of(place: str | os.PathLike[str] | Storage) -> Storage:
    """What a path says. LoadError for one that nothing here can write to."""
    if not isinstance(place, str | os.PathLike):
        return place
    refuse_url(place)
    return LocalDisk(place)


class LocalDisk:
    """See the module."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()
        self.location = str(self._path)

    def exists(self, name: str) -> bool:
        return (self._path / name).exists()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def open(self, name: str) -> IO[bytes]:
        return (self._path / name).open("rb")

    def create(self, name: str) -> IO[bytes]:
        return (self._path / name).open("xb")

    def finish(self, file: IO[bytes]) -> None:
        with file:
            file.flush()
            os.fsync(file.fileno())

    def put(self, name: str, data: bytes) -> None:
        path = self._path / name
        temporary = path.with_name(f"{path.name}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        sync_folder(path.parent)

    def move(self, old: str, new: str) -> None:
        (self._path / old).rename(self._path / new)

    def make_folder(self, folder: str) -> set[str]:
        path = self._path / folder
        if path.is_dir():
            return {folder}
        found = {path}
        above = path
        while above != self._path and not above.is_dir():
            above = above.parent
            found.add(above)
        path.mkdir(parents=True, exist_ok=True)
        return {str(each.relative_to(self._path)) for each in found}

    def sync(self, folders: Iterable[str]) -> None:
        for folder in sorted(folders):
            sync_folder(self._path / folder)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self._path / folder, ignore_errors=True)

    @contextlib.contextmanager
    def turn(self, name: str, timeout_s: float) -> Iterator[None]:
        with (self._path / name).open("ab") as lock:
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise LoadError(f"another load works on {self.location} and does not end") from None
                    time.sleep(LOCK_POLL_S)
                else:
                    break
            yield

    def below(self, folder: str) -> LocalDisk:
        return LocalDisk(self._path / folder)

    def place(self, name: str) -> str:
        return str(self._path / name)

    def filesystem(self) -> None:
        return None


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
