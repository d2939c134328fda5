"""Disks in memory, which replace the machine's for a simulated broker (kafkalite.broker.log.disk.Disk).

    a path                the disk whose mount it is below; a path below none is a mistake, and raises
    names and contents    tests.power.disk, which keeps what is durable apart from what is only there
    a descriptor          a memfd's: native code writes it and maps it as it does with any file
    power_off, crash      one state that a power cut may leave, by tests.power.states

A disk without power answers EIO: what a process still does before it is taken away changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite.broker.log.disk import FileHeld
from tests.power import trace
from tests.power.disk import KEEP_SIZE, Disk, Inode
from tests.power.states import MODELS, Tree

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kafkalite.base.clock import Clock
    from kafkalite.broker.log.disk import Entry

MS = 1_000_000  # ns


def durable(disk: Disk, draw: random.Random) -> Tree:
    """The state in which nothing is left but what was synced."""
    tree: Tree = {}

    def walk(directory: Inode, prefix: str) -> None:
        for name in sorted(directory.durable_names):
            node = directory.durable_names[name]
            tree[prefix + name] = None if node.kind == "directory" else bytes(node.base)
            if node.kind == "directory":
                walk(node, f"{prefix}{name}/")

    walk(disk.root, "")
    return tree


LEFT: dict[str, Callable[[Disk, random.Random], Tree]] = {**MODELS, "durable": durable}
"""A model's name → the function that draws one of the states a crash may leave."""


@dataclass(frozen=True)
class Listed:
    """A name in a directory."""

    name: str
    path: str
    disk: SimulatedDisk

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self.disk.is_directory(self.path)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self.disk.is_directory(self.path)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self.disk.stat(self.path)


class Mount:
    """One disk, below a path."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.powered = True
        self.model = Disk(root)


class SimulatedDisk:
    """All disks of a simulation. `note` is called before each change with mount, operation, path, and a size or -1.

    It may raise OSError, and then the change does not happen.
    """

    def __init__(self, clock: Clock, note: Callable[[str, str, str, int], object] = lambda *_: None) -> None:
        self._clock = clock
        self._note = note
        self._mounts: dict[str, Mount] = {}
        self._place = 0
        self._memory: dict[Inode, int] = {}  # its memfd
        self._files: dict[int, tuple[Mount, Disk, Inode]] = {}  # by the number of the memfd's inode
        self._written_ms: dict[Inode, int] = {}

    def mount(self, root: str) -> None:
        """A new disk, empty, at a path like `/one`."""
        self._mounts[root] = Mount(root)

    def close(self) -> None:
        """Gives all memory back."""
        for fd in self._memory.values():
            os.close(fd)
        self._memory.clear()

    # ---- power ------------------------------------------------------------------------------------------------------

    def power_off(self, root: str) -> None:
        """From now on nothing changes."""
        self._mounts[root].powered = False

    def power_on(self, root: str) -> None:
        """Nothing was lost: it was the process that ended, not the machine."""
        self._mounts[root].powered = True

    def crash(self, root: str, draw: random.Random, model: str = "durable") -> None:
        """Cut the power, if it is on, and restore it with one of the states that the cut may leave."""
        mount = self._mounts[root]
        tree = LEFT[model](mount.model, draw)
        mount.model = Disk(root)
        for path, content in tree.items():
            whole = f"{root}/{path}"
            if content is None:
                self._play(mount, trace.MKDIR, path=whole)
            else:
                assert isinstance(content, bytes), "nobody makes links here"
                self._play(mount, trace.OPEN, b=os.O_CREAT, path=whole)
                self._play(mount, trace.WRITE, data=content)
        self._sync(mount, trace.SYNC_ALL)
        mount.powered = True

    def tree(self, root: str) -> Tree:
        """Everything below a mount, by relative path."""
        return dict(self._mounts[root].model.read_tree())

    # ---- what changes it --------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        mount, node = self._find(path)
        if node is None:
            if not flags & os.O_CREAT:
                raise _failure(errno.ENOENT, path)
            self._parent_of(mount, path)
            self._changes(mount, "create", path)
            self._play(mount, trace.OPEN, b=flags, path=path)
            node = mount.model.find(path)
            assert node is not None, "it was just made"
            self._touch(node)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise _failure(errno.EEXIST, path)
        elif node.kind == "directory" and flags & os.O_ACCMODE != os.O_RDONLY:
            raise _failure(errno.EISDIR, path)
        elif flags & os.O_TRUNC:
            self._changes(mount, "empty", path)
            self._play(mount, trace.OPEN, b=flags, path=path)
            self._touch(node)
        memory = self._memory_of(mount, node, path)
        return os.open(f"/proc/self/fd/{memory}", flags & (os.O_ACCMODE | os.O_TRUNC) | os.O_CLOEXEC)

    def write(self, fd: int, position: int, data: bytes) -> None:
        mount, node, number = self._behind(fd)
        self._changes(mount, "write", _path(node), len(data))
        self._play(mount, trace.WRITE, a=number, b=position, data=data)
        self._touch(node)

    def truncate(self, fd: int, size: int) -> None:
        mount, node, number = self._behind(fd)
        self._changes(mount, "truncate", _path(node), size)
        self._play(mount, trace.TRUNCATE, a=number, b=size)
        self._touch(node)

    def allocate(self, fd: int, position: int, size: int) -> None:
        mount, node, number = self._behind(fd)
        self._changes(mount, "allocate", _path(node), size)
        self._play(mount, trace.ALLOCATE, flags=KEEP_SIZE, a=number, b=position, c=size)

    def sync(self, fd: int) -> None:
        mount, node, number = self._behind(fd)
        self._changes(mount, "sync", _path(node))
        self._sync(mount, trace.FSYNC if node.kind == "directory" else trace.FDATASYNC, number)

    def sync_file_system(self, path: str) -> None:
        mount, _ = self._find(path)
        self._changes(mount, "sync all", path)
        self._sync(mount, trace.SYNC_ALL)

    def rename(self, source: str, target: str) -> None:
        mount, node = self._found(source)
        other, replaced = self._find(target)
        assert other is mount, "no rename goes from one disk to another"
        self._parent_of(mount, target)
        if replaced is not None and replaced.kind == "directory":
            raise _failure(errno.EISDIR, target)
        self._changes(mount, "rename", f"{source} {target}")
        self._play(mount, trace.RENAME, path=source, data=target.encode())
        if replaced is not None and replaced is not node:
            self._forget(replaced)

    def unlink(self, path: str) -> None:
        mount, node = self._found(path)
        if node.kind == "directory":
            raise _failure(errno.EISDIR, path)
        self._changes(mount, "unlink", path)
        self._play(mount, trace.UNLINK, path=path)
        self._forget(node)

    def make_directory(self, path: str) -> None:
        mount, node = self._find(path)
        if node is not None:
            raise _failure(errno.EEXIST, path)
        self._parent_of(mount, path)
        self._changes(mount, "mkdir", path)
        self._play(mount, trace.MKDIR, path=path)

    def make_directories(self, path: str, mode: int) -> None:
        if not self.is_directory(path):
            self.make_directories(os.path.dirname(path), mode)
            self.make_directory(path)

    def remove_directory(self, path: str) -> None:
        mount, node = self._found(path)
        if node.names:
            raise _failure(errno.ENOTEMPTY, path)
        self._changes(mount, "rmdir", path)
        self._play(mount, trace.RMDIR, path=path)
        self._forget(node)

    def set_times(self, path: str, read_ns: int, written_ns: int) -> None:
        mount, node = self._found(path)
        self._changes(mount, "utime", path)
        self._written_ms[node] = written_ns // MS

    def hold(self, path: str) -> int:
        fd = self.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FileHeld("somebody") from None
        return fd

    # ---- what looks -------------------------------------------------------------------------------------------------

    def open_to_read(self, path: str) -> int:
        return self.open(path, os.O_RDONLY)

    def stat(self, path: str) -> os.stat_result:
        _, node = self._found(path)
        ms = self._written_ms.get(node, 0)
        kind = stat.S_IFDIR | 0o700 if node.kind == "directory" else stat.S_IFREG | 0o600
        seconds = (ms / 1000,) * 3
        return os.stat_result((kind, 0, 0, 1, 0, 0, len(node.content), *(ms // 1000,) * 3, *seconds, *(ms * MS,) * 3))

    def exists(self, path: str) -> bool:
        return self._is_above(path) or self._find(path)[1] is not None

    lexists = exists

    def is_directory(self, path: str) -> bool:
        if self._is_above(path):
            return True
        _, node = self._find(path)
        return node is not None and node.kind == "directory"

    def is_link(self, path: str) -> bool:
        return False

    def list_names(self, path: str) -> list[str]:
        _, node = self._found(path)
        if node.kind != "directory":
            raise _failure(errno.ENOTDIR, path)
        return list(node.names)

    def entries(self, path: str) -> list[Entry]:
        return [Listed(name, f"{path}/{name}", self) for name in self.list_names(path)]

    def check_usable(self, path: str) -> None:
        self._found(path)

    # ---- within -----------------------------------------------------------------------------------------------------

    def _is_above(self, path: str) -> bool:
        """Whether disks are mounted below a path."""
        return any(root.startswith(path.rstrip("/") + "/") for root in self._mounts)

    def _find(self, path: str) -> tuple[Mount, Inode | None]:
        for root, mount in self._mounts.items():
            if path == root or path.startswith(root + "/"):
                if not mount.powered:
                    raise _failure(errno.EIO, path)
                return mount, mount.model.find(path)
        raise AssertionError(f"{path} is on no simulated disk")

    def _found(self, path: str) -> tuple[Mount, Inode]:
        mount, node = self._find(path)
        if node is None:
            raise _failure(errno.ENOENT, path)
        return mount, node

    def _parent_of(self, mount: Mount, path: str) -> None:
        """ENOENT unless the directory of a path is there."""
        node = mount.model.find(os.path.dirname(path))
        if node is None or node.kind != "directory":
            raise _failure(errno.ENOENT, path)

    def _behind(self, fd: int) -> tuple[Mount, Inode, int]:
        """Mount, file and number of a descriptor. EIO: it is from before a crash."""
        number = os.fstat(fd).st_ino
        mount, model, node = self._files[number]
        if mount.model is not model or not mount.powered:
            raise _failure(errno.EIO, _path(node))
        return mount, node, number

    def _memory_of(self, mount: Mount, node: Inode, path: str) -> int:
        fd = self._memory.get(node)
        if fd is None:
            fd = self._memory[node] = os.memfd_create(node.name or "root", os.MFD_CLOEXEC)
            os.write(fd, node.content)
            number = os.fstat(fd).st_ino
            self._files[number] = (mount, mount.model, node)
            self._play(mount, trace.OPEN, a=number, path=path)
        return fd

    def _forget(self, node: Inode) -> None:
        """Drop a file without a name; open descriptors keep it."""
        fd = self._memory.pop(node, None)
        if fd is not None:
            os.close(fd)

    def _touch(self, node: Inode) -> None:
        self._written_ms[node] = self._clock.time_ms()

    def _changes(self, mount: Mount, what: str, path: str, size: int = -1) -> None:
        self._note(mount.root, what, path, size)
        if not mount.powered:  # it went at this very moment
            raise _failure(errno.EIO, path)

    def _play(
        self,
        mount: Mount,
        kind: int,
        *,
        flags: int = 0,
        a: int = 0,
        b: int = 0,
        c: int = 0,
        path: str = "",
        data: bytes = b"",
    ) -> int:
        self._place += 1
        mount.model.play(trace.Record(self._place, kind, flags, 0, a, b, c, path, data))
        return self._place

    def _sync(self, mount: Mount, what: int, number: int = 0) -> None:
        began = self._play(mount, trace.SYNC_BEGIN, a=number, b=what)
        self._play(mount, trace.SYNC_END, b=what, c=began)


def _path(node: Inode) -> str:
    return node.path or node.name


def _failure(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
