"""Access the file system through functions that tests can replace by a simulated disk (`Disk`).

    names, sizes and times    the functions of this module; a Disk has methods of the same names
    changes of files          kafkalite._native.base.file_ops; a Disk handles the calls by path, and is notified before
                              each call by descriptor
    bytes of files            the descriptors that this module or file_ops opens, and maps of them

The packages `kafkalite/broker/log` and `kafkalite/broker/coordinator` access files only through this module and
file_ops. tests/test_seams.py checks that.

Everything here may block. OSError reaches the caller.
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
"""Returns the os.stat_result of the file that a path leads to."""
exists = os.path.exists
lexists = os.path.lexists
is_directory = os.path.isdir
is_link = os.path.islink
list_names = os.listdir
remove_directory = os.rmdir
close = os.close
"""Closes any descriptor."""
read_at = os.pread
"""(descriptor, size, position) → bytes."""


class FileHeld(Exception):
    """Another process or thread has locked the file. The exception's text is the content of the file."""


class Entry(Protocol):
    """A directory entry, with those members of os.DirEntry that this project uses."""

    @property
    def name(self) -> str:
        """The name without its directory."""

    @property
    def path(self) -> str:
        """The path with its directory."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the entry is a directory."""

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the entry is a plain file."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the entry's size and times."""


class Disk(Protocol):
    """A simulated file system. Its methods fail as the operating system's do: with an OSError that has an errno.

    After `write`, `sync`, `truncate` and `allocate` return, the operating system acts on the real descriptor.
    """

    def open(self, path: str, flags: int) -> int:
        """Return a real descriptor, for example of a memfd. Native code writes, maps and closes it as such."""

    def write(self, fd: int, position: int, data: bytes) -> None:
        """Note a write that is about to happen."""

    def sync(self, fd: int) -> None:
        """Note that a file, or the names in a directory, become durable."""

    def truncate(self, fd: int, size: int) -> None:
        """Note a truncation that is about to happen."""

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Note that blocks are about to be reserved, which does not change the file's size."""

    def rename(self, source: str, target: str) -> None:
        """Do what os.replace does."""

    def unlink(self, path: str) -> None:
        """Do what os.unlink does."""

    def make_directory(self, path: str) -> None:
        """Do what os.mkdir does."""

    def sync_file_system(self, path: str) -> None:
        """Note that everything on the file system of a directory becomes durable."""

    def stat(self, path: str) -> os.stat_result:
        """Return what os.stat returns."""

    def exists(self, path: str) -> bool:
        """Return what os.path.exists returns."""

    def lexists(self, path: str) -> bool:
        """Return what os.path.lexists returns."""

    def is_directory(self, path: str) -> bool:
        """Return what os.path.isdir returns."""

    def is_link(self, path: str) -> bool:
        """Return what os.path.islink returns."""

    def list_names(self, path: str) -> list[str]:
        """Return what os.listdir returns."""

    def entries(self, path: str) -> list[Entry]:
        """Return the entries of a directory."""

    def open_to_read(self, path: str) -> int:
        """Return a descriptor for reading a file."""

    def make_directories(self, path: str, mode: int) -> None:
        """Do what os.makedirs does with exist_ok=True."""

    def remove_directory(self, path: str) -> None:
        """Do what os.rmdir does."""

    def set_times(self, path: str, read_ns: int, written_ns: int) -> None:
        """Set the times of a file's last read and write, in ns since 1970."""

    def check_usable(self, path: str) -> None:
        """Raise OSError, with the reason, unless files can be created and listed in a directory."""

    def hold(self, path: str) -> int:
        """Lock a file until the returned descriptor is closed, and write the process id into the file. FileHeld."""


def entries(path: str) -> list[Entry]:
    """Return the entries of a directory."""
    with os.scandir(path) as found:
        return list(found)


def open_to_read(path: str) -> int:
    """Return a descriptor for reading a file. A test's plan of simulated faults does not count this call."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def make_directories(path: str, mode: int) -> None:
    """Create a directory and its missing parents; do nothing if the directory exists."""
    os.makedirs(path, mode=mode, exist_ok=True)


def set_times(path: str, read_ns: int, written_ns: int) -> None:
    """Set the times of a file's last read and write, in ns since 1970."""
    os.utime(path, ns=(read_ns, written_ns))


def give(fd: int, like: os.stat_result) -> None:
    """Set an open file's owner and mode to those in `like`, another file's os.stat_result; OSError."""
    if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(fd, like.st_uid, like.st_gid)
    os.fchmod(fd, like.st_mode & 0o7777)


def check_usable(path: str) -> None:
    """Raise OSError, with the reason, unless files can be created and listed in a directory."""
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        code = errno.EROFS if read_only else errno.EACCES
        raise OSError(code, os.strerror(code))


def hold(path: str) -> int:
    """Lock a file until the returned descriptor is closed, and write the process id into the file. FileHeld.

    Two kernel locks are taken: only a `flock` keeps out another caller in this process, and only a POSIX lock keeps out
    Apache Kafka. Both locks end with the process.
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
    """Give a file a second name (a hard link). Only backups use it, and no simulation makes backups, so a Disk does not
    replace it.
    """
    os.link(source, target, follow_symlinks=True)


def is_held(path: str) -> bool:
    """Return whether some process holds a `flock` on the file; FileNotFoundError. A Disk does not replace this
    function.
    """
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
    """Yield a descriptor for reading a file, and close it after the block."""
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
    """Replace the machine's disk by `disk` in the whole process until the block ends.

    If a bug in `disk` raises an error other than OSError, callers see EIO, and the block ends with that error.
    """
    file_ops.use_disk(disk)
    globals().update({name: getattr(disk, name) for name in _SYSTEM})
    try:
        yield
    finally:
        globals().update(_SYSTEM)
        file_ops.use_disk(None)
