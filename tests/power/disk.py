"""A disk that a trace is played onto: its visible content, and the part of it that is durable.

    Disk.play(record)       takes one record in; `read_tree` is what the broker sees then
    an Inode of a file      `base`, which a sync made durable, and `pending`, the changes since
    an Inode of a directory `base` (POSIX: what its own sync made durable) and `pending`
    Disk.journal            the changes of names in one order, for a file system that commits them in order

A sync covers the changes recorded before it began, and counts once it has ended. What may be left of the rest is
`states`' matter.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.power import trace
from tests.power.trace import Record, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP_SIZE, PUNCH_HOLE = 1, 2
EXCHANGE = 2
CREATE, TRUNCATE_FLAG = os.O_CREAT, os.O_TRUNC


class Change(NamedTuple):
    """A change of a file: bytes at a position, or (data None) a new size."""

    place: int
    position: int
    data: bytes | None


class NameChange(NamedTuple):
    """Names set (or, None, taken away) in directories by one call, which file systems do as a whole."""

    place: int
    settings: tuple[tuple[Inode, str, Inode | None], ...]


@dataclass(eq=False, slots=True)
class Inode:
    """A file, directory or symbolic link."""

    kind: str  # file, directory, link
    created: int
    content: bytearray = field(default_factory=bytearray)
    base: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    target: str = ""
    path: str = ""  # as it was last named
    parent: Inode | None = None
    name: str = ""
    names: dict[str, Inode] = field(default_factory=dict)
    durable_names: dict[str, Inode] = field(default_factory=dict)
    committed_names: dict[str, Inode] = field(default_factory=dict)
    name_changes: list[NameChange] = field(default_factory=list)
    synced: int = 0
    """Everything of it that was recorded before this place is durable."""
    settled: int = 0
    """Where a rename over another file made the file system write this one's content with the rename (ext4)."""
    allocated: int = 0
    """Where its size or its blocks were last changed: what makes an fdatasync commit the journal."""


def apply(content: bytearray, change: Change) -> None:
    """Makes one change of a file."""
    if change.data is None:
        if change.position < len(content):
            del content[change.position :]
        else:
            content.extend(bytes(change.position - len(content)))
        return
    end = change.position + len(change.data)
    if change.position > len(content):
        content.extend(bytes(change.position - len(content)))
    content[change.position : end] = change.data


class Disk:
    """The state of a disk at a moment of a trace."""

    def __init__(self, root: str) -> None:
        self.root_path = root.rstrip("/")
        self.root = Inode("directory", 0)
        self.journal: list[NameChange] = []
        self.committed = 0
        """A journal in order holds at least what was recorded before this place."""
        self.moment = 0
        self._files: set[Inode] = set()  # with changes that no sync has covered
        self._directories: set[Inode] = set()
        self._descriptors: dict[tuple[int, int], Inode] = {}
        self._covered: dict[int, tuple[int, Inode | None]] = {}

    # ---- playing ----------------------------------------------------------------------------------------------------

    def play(self, record: Record) -> None:
        """Takes one record in; TraceError for what the model does not know."""
        self.moment = record.place
        method = _METHODS.get(record.kind)
        if method is not None:
            method(self, record)
        elif record.kind not in _IGNORED:
            raise TraceError(f"the recording holds what cannot be replayed: {record}")

    def find(self, path: str) -> Inode | None:
        """Return the inode that the broker sees at a path."""
        node: Inode | None = self.root
        for name in self._parts(path):
            if node is None:
                return None
            node = node.names.get(name)
        return node

    def opened(self, record: Record) -> Inode:
        """Return the file of a record's descriptor."""
        return self._node(record)

    def read_tree(self) -> Iterator[tuple[str, bytes | str | None]]:
        """(relative path, content; None: a directory; str: a link's target) of all that the broker sees."""
        yield from _walk(self.root, "")

    def is_named(self, node: Inode) -> bool:
        """Whether the broker still sees it under its name."""
        while node.parent is not None:
            if node.parent.names.get(node.name) is not node:
                return False
            node = node.parent
        return node is self.root

    def is_durably_named(self, node: Inode) -> bool:
        """Whether a sync of each directory on the way to it covers a name of it."""
        while node.parent is not None:
            names = node.parent.durable_names
            if names.get(node.name) is not node and all(other is not node for other in names.values()):
                return False
            node = node.parent
        return node is self.root

    def series(self) -> list[Inode]:
        """The directories from which several durable names were taken away, which no sync has covered. The one that was
        changed last comes last."""
        found = [directory for directory in self._directories if _taken(directory) > 1]
        return sorted(found, key=lambda directory: directory.name_changes[-1].place)

    def _parts(self, path: str) -> list[str]:
        if path != self.root_path and not path.startswith(self.root_path + "/"):
            raise TraceError(f"{path} is not below {self.root_path}")
        return [part for part in path[len(self.root_path) :].split("/") if part]

    def _parent(self, path: str) -> tuple[Inode, str]:
        parts = self._parts(path)
        parent = self.find("/".join([self.root_path, *parts[:-1]]))
        if parent is None:
            raise TraceError(f"the directory of {path} was never made")
        return parent, parts[-1]

    def _set_names(self, place: int, *settings: tuple[Inode, str, Inode | None]) -> None:
        change = NameChange(place, settings)
        for directory, name, node in settings:
            _set(directory.names, name, node)
            if node is not None:
                node.parent, node.name = directory, name
            if not directory.name_changes or directory.name_changes[-1] is not change:
                directory.name_changes.append(change)
                self._directories.add(directory)
        self.journal.append(change)

    def _change(self, node: Inode, change: Change) -> None:
        before = len(node.content)
        apply(node.content, change)
        node.pending.append(change)
        self._files.add(node)
        if len(node.content) != before:
            node.allocated = change.place

    def _open(self, record: Record) -> None:
        node = self.find(record.path)
        if node is None:
            if not record.b & CREATE:
                raise TraceError(f"{record.path} was opened, but the replayed disk has none")
            parent, name = self._parent(record.path)
            node = Inode("file", record.place, allocated=record.place, path=record.path)
            self._set_names(record.place, (parent, name, node))
        elif record.b & TRUNCATE_FLAG and node.content:
            self._change(node, Change(record.place, 0, None))
        self._descriptors[record.pid, record.a] = node

    def _node(self, record: Record) -> Inode:
        node = self._descriptors.get((record.pid, record.a))
        if node is None:
            raise TraceError(f"descriptor {record.a} is not known: {record}")
        return node

    def _close(self, record: Record) -> None:
        self._descriptors.pop((record.pid, record.a), None)

    def _duplicate(self, record: Record) -> None:
        self._descriptors[record.pid, record.b] = self._node(record)

    def _write(self, record: Record) -> None:
        data = bytes(record.c) if record.flags & trace.FLAG_ZEROS else record.data
        self._change(self._node(record), Change(record.place, record.b, data))

    def _truncate(self, record: Record) -> None:
        node = self._node(record)
        if record.b != len(node.content):
            self._change(node, Change(record.place, record.b, None))

    def _truncate_path(self, record: Record) -> None:
        node = self.find(record.path)
        if node is None:
            raise TraceError(f"{record.path} was cut, but the replayed disk has none")
        self._change(node, Change(record.place, record.b, None))

    def _allocate(self, record: Record) -> None:
        node = self._node(record)
        node.allocated = record.place
        if record.flags & PUNCH_HOLE:
            size = max(0, min(record.c, len(node.content) - record.b))
            self._change(node, Change(record.place, record.b, bytes(size)))
        elif not record.flags & KEEP_SIZE and record.b + record.c > len(node.content):
            self._change(node, Change(record.place, record.b + record.c, None))

    def _rename(self, record: Record) -> None:
        if record.a & EXCHANGE:
            raise TraceError("an exchange of names is not modelled")
        target = record.data.decode(errors="surrogateescape")
        from_parent, from_name = self._parent(record.path)
        to_parent, to_name = self._parent(target)
        node = from_parent.names.get(from_name)
        if node is None:
            raise TraceError(f"{record.path} was renamed, but the replayed disk has none")
        if to_name in to_parent.names and node.kind == "file":
            node.settled = record.place
        node.path = target
        self._set_names(record.place, (from_parent, from_name, None), (to_parent, to_name, node))

    def _remove(self, record: Record) -> None:
        parent, name = self._parent(record.path)
        self._set_names(record.place, (parent, name, None))

    def _make_directory(self, record: Record) -> None:
        parent, name = self._parent(record.path)
        self._set_names(record.place, (parent, name, Inode("directory", record.place)))

    def _link(self, record: Record) -> None:
        parent, name = self._parent(record.data.decode(errors="surrogateescape"))
        self._set_names(record.place, (parent, name, self.find(record.path)))

    def _symlink(self, record: Record) -> None:
        parent, name = self._parent(record.path)
        target = record.data.decode(errors="surrogateescape")
        self._set_names(record.place, (parent, name, Inode("link", record.place, target=target)))

    def _process(self, record: Record) -> None:
        self._descriptors = {key: node for key, node in self._descriptors.items() if key[0] == record.pid}

    # ---- syncs ------------------------------------------------------------------------------------------------------

    def _sync_begins(self, record: Record) -> None:
        """A descriptor may be closed, and its number given away, before its sync has ended."""
        if record.b == trace.SYNC_RANGE:
            return
        node = None if record.b == trace.SYNC_ALL else self._node(record)
        self._covered[record.place] = (record.b, node)

    def _sync_ends(self, record: Record) -> None:
        what, node = self._covered.pop(record.c)
        if record.flags & trace.FLAG_FAILED:
            return
        began = record.c
        if node is None or what == trace.SYNCFS:
            for file in self._files:
                _make_durable(file, began)
            self._files = {file for file in self._files if file.pending}
            for directory in self._directories:
                _make_names_durable(directory, began)
            self._directories = {directory for directory in self._directories if directory.name_changes}
            self._commit(began)
            return
        if node.kind == "directory":
            _make_names_durable(node, began)
            self._commit(began)
            return
        dirty = bool(node.pending)
        _make_durable(node, began)
        if not node.pending:
            self._files.discard(node)
        if node.allocated >= self.committed or (what == trace.FSYNC and dirty):
            self._commit(began)

    def _commit(self, began: int) -> None:
        if began <= self.committed:
            return
        self.committed = began
        kept = 0
        for change in self.journal:
            if change.place >= began:
                break
            kept += 1
            for directory, name, node in change.settings:
                _set(directory.committed_names, name, node)
        del self.journal[:kept]


def _taken(directory: Inode) -> int:
    """How many changes of its names take away one that is durable: not a temporary file's."""
    return sum(
        any(
            changed is directory and node is None and name in directory.durable_names
            for changed, name, node in change.settings
        )
        for change in directory.name_changes
    )


def _set(names: dict[str, Inode], name: str, node: Inode | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _make_durable(node: Inode, began: int) -> None:
    node.synced = max(node.synced, began)
    count = 0
    for change in node.pending:
        if change.place >= began:
            break
        count += 1
    if count == len(node.pending):
        node.base[:] = node.content
    else:
        for change in node.pending[:count]:
            apply(node.base, change)
    del node.pending[:count]


def _make_names_durable(directory: Inode, began: int) -> None:
    directory.synced = max(directory.synced, began)
    count = 0
    for change in directory.name_changes:
        if change.place >= began:
            break
        count += 1
        for changed, name, node in change.settings:
            if changed is directory:
                _set(directory.durable_names, name, node)
    del directory.name_changes[:count]


def _walk(directory: Inode, prefix: str) -> Iterator[tuple[str, bytes | str | None]]:
    for name in sorted(directory.names):
        node = directory.names[name]
        if node.kind == "directory":
            yield prefix + name, None
            yield from _walk(node, f"{prefix}{name}/")
        else:
            yield prefix + name, node.target if node.kind == "link" else bytes(node.content)


_METHODS = {
    trace.OPEN: Disk._open,
    trace.CLOSE: Disk._close,
    trace.DUP: Disk._duplicate,
    trace.WRITE: Disk._write,
    trace.TRUNCATE: Disk._truncate,
    trace.TRUNCATE_PATH: Disk._truncate_path,
    trace.ALLOCATE: Disk._allocate,
    trace.RENAME: Disk._rename,
    trace.UNLINK: Disk._remove,
    trace.RMDIR: Disk._remove,
    trace.MKDIR: Disk._make_directory,
    trace.LINK: Disk._link,
    trace.SYMLINK: Disk._symlink,
    trace.PROCESS: Disk._process,
    trace.SYNC_BEGIN: Disk._sync_begins,
    trace.SYNC_END: Disk._sync_ends,
}
_IGNORED = {trace.SEND, trace.MARK}
