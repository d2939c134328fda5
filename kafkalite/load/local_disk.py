"""Store loaded files in a local directory, or in a network file system with atomic rename and flock.

Thread rule: one thread at a time, as in kafkalite.load.storage.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOCK_POLL_S: Final = 0.05


class LocalDisk:
    """A Storage in a local directory."""

    keeps_turns = True

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
                        raise LoadError(
                            f"another load has locked {self.location}; stop it or wait until it ends"
                        ) from None
                    time.sleep(LOCK_POLL_S)
                else:
                    break
            yield

    def place(self, name: str) -> str:
        return str(self._path / name)

    def filesystem(self) -> None:
        return None


def sync_folder(folder: Path) -> None:
    """Sync a directory to disk, so that new names in it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
