"""The one way from here to the file system, so that a simulation can put another in its place.

    names, sizes, times   the functions of this module        what a Disk has of the same name
    changes               kafkalite._native.base.file_ops     told to the Disk, or done by it
    bytes                 descriptors, maps                   of the system, which the Disk opened

Nobody else in `kafkalite/broker/log` and `kafkalite/broker/coordinator` asks the system for a file, which
tests/test_seams.py checks. Native code writes and syncs by file_ops, too (segments, compaction), so the seam is the
same there; what it reads, it reads from maps of descriptors that were opened through it. A Disk therefore gives real
descriptors (a memfd will do).

The functions are the system's own until `use` replaces them: without a simulation there is no call more than before.

Everything here may block. OSError goes to the caller.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final, Protocol

from kafkalite._native.base import file_ops

if TYPE_CHECKING:
    from collections.abc import Iterator

stat = file_ops.stat_file
"""os.stat_result of what a path leads to."""
exists = os.path.exists
lexists = os.path.lexists
is_directory = os.path.isdir
is_link = os.path.islink
list_names = os.listdir
remove_directory = os.rmdir
close = os.close
"""Closes a descriptor, whoever opened it."""
read_at = os.pread
"""(descriptor, size, position) → bytes."""


class FileHeld(Exception):
    """Somebody holds a file; the text is what he has written into it."""


class Entry(Protocol):
    """A name in a directory: what is used of os.DirEntry."""

    @property
    def name(self) -> str:
        """Without its directory."""

    @property
    def path(self) -> str:
        """With it."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a plain file."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its size and times."""


class Disk(Protocol):
    """A file system in the machine's place. It fails as the system does: by OSError with an errno.

    What is done to a descriptor (`write` to `allocate`) the system does when the method has returned.
    """

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the system's, which is written, mapped and closed as such."""

    def write(self, fd: int, position: int, data: bytes) -> None:
        """These bytes are about to be written."""

    def sync(self, fd: int) -> None:
        """What was done to a file, or to the names in a directory, is durable."""

    def truncate(self, fd: int, size: int) -> None:
        """A file is about to become so long."""

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Blocks are about to be reserved; the size of the file stays."""

    def rename(self, source: str, target: str) -> None:
        """As os.replace."""

    def unlink(self, path: str) -> None:
        """As os.unlink."""

    def make_directory(self, path: str) -> None:
        """As os.mkdir."""

    def sync_file_system(self, path: str) -> None:
        """Everything on the file system of a directory is durable."""

    def stat(self, path: str) -> os.stat_result:
        """As os.stat."""

    def exists(self, path: str) -> bool:
        """As os.path.exists."""

    def lexists(self, path: str) -> bool:
        """As os.path.lexists."""

    def is_directory(self, path: str) -> bool:
        """As os.path.isdir."""

    def is_link(self, path: str) -> bool:
        """As os.path.islink."""

    def list_names(self, path: str) -> list[str]:
        """As os.listdir."""

    def entries(self, path: str) -> list[Entry]:
        """As the function below."""

    def open_to_read(self, path: str) -> int:
        """As the function below."""

    def make_directories(self, path: str, mode: int) -> None:
        """As os.makedirs with exist_ok."""

    def remove_directory(self, path: str) -> None:
        """As os.rmdir."""

    def set_times(self, path: str, read_ns: int, written_ns: int) -> None:
        """As the function below."""

    def check_usable(self, path: str) -> None:
        """As the function below."""

    def hold(self, path: str) -> int:
        """As the function below."""


def entries(path: str) -> list[Entry]:
    """What is in a directory."""
    with os.scandir(path) as found:
        return list(found)


def open_to_read(path: str) -> int:
    """A descriptor for `reading`, which no fault plan counts."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def make_directories(path: str, mode: int) -> None:
    """A directory, and those above it that are missing; one that is there is left as it is."""
    os.makedirs(path, mode=mode, exist_ok=True)


def set_times(path: str, read_ns: int, written_ns: int) -> None:
    """When a file was last read and written, in ns since 1970."""
    os.utime(path, ns=(read_ns, written_ns))


def give(fd: int, like: os.stat_result) -> None:
    """Gives an open file that owner and mode; OSError."""
    if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(fd, like.st_uid, like.st_gid)
    os.fchmod(fd, like.st_mode & 0o7777)


def check_usable(path: str) -> None:
    """OSError with the reason unless files can be made and found in a directory."""
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        code = errno.EROFS if read_only else errno.EACCES
        raise OSError(code, os.strerror(code))


def hold(path: str) -> int:
    """Makes a file this caller's own, with the number of the process in it, until the descriptor is closed; FileHeld.

    By two kernel locks, since either alone leaves a gap: `flock` also keeps out somebody else inside this process, the
    POSIX lock also keeps out Apache Kafka. Both vanish with the process.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_ops.FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(fd, 32).decode(errors="replace").strip()
        os.close(fd)
        raise FileHeld(holder) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def link(source: str, target: str) -> None:
    """A second name for a file. For backups, which no simulation makes: the system's, whatever disk stands in."""
    os.link(source, target, follow_symlinks=True)


def is_held(path: str) -> bool:
    """Whether somebody holds a `flock` on a file; FileNotFoundError. The system's, as `link` is."""
    fd = open_to_read(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def reading(path: str) -> Iterator[int]:
    """A descriptor to read a file by, closed after the block."""
    fd = open_to_read(path)
    try:
        yield fd
    finally:
        close(fd)


_SYSTEM: Final = {
    name: globals()[name]
    for name in (
        "exists",
        "lexists",
        "is_directory",
        "is_link",
        "list_names",
        "entries",
        "open_to_read",
        "make_directories",
        "remove_directory",
        "set_times",
        "check_usable",
        "hold",
    )
}


@contextlib.contextmanager
def instead(disk: Disk) -> Iterator[None]:
    """Puts a disk in the place of the machine's, for the whole process and as long as the block runs.

    What the disk raised that is no OSError, a mistake of its own, is raised at the end: who asked it was told EIO.
    """
    file_ops.use_disk(disk)
    globals().update({name: getattr(disk, name) for name in _SYSTEM})
    try:
        yield
    finally:
        globals().update(_SYSTEM)
        file_ops.use_disk(None)
