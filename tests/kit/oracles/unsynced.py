"""The directory entries that a power cut may leave: those that a sync has put on the disk, and no others.

While a `NameRecorder` is installed each sync of a directory, or of the file system, records the names that exist;
`image` then builds the directory of the worst case, in which no other name survived. A file keeps its content unless
`forget_content` names it: then it is empty, as one is whose size was never written. With `forget_unsynced` so is each
small file (native code syncs segments, unseen) that no sync has put on the disk.

`ChangedNames` covers one directory, and builds other possible states: some of the names that no sync has covered.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from tests.kit.harness.own_process import assert_alone

SEGMENT_SUFFIXES = (".log", ".kafka")


class NameRecorder:
    """The names that are durable below `root`, which itself counts as durable."""

    def __init__(self, root: Path, kept: Path) -> None:
        self.root = root
        self.syncs: list[str] = []  # "" for one of the file system
        self.before_file_system_sync: Callable[[], None] = lambda: None
        self.after_file_system_sync: Callable[[], None] = lambda: None
        self._synced: set[int] = set()  # inodes of files whose content is durable
        self._kept = kept  # a link to each file that was ever durable, by inode
        kept.mkdir()
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # directory's inode → name → (inode, a directory too)
        self._note_all()
        self._note_contents()

    def _note_all(self) -> None:
        for path, _, _ in os.walk(self.root):
            self._note(path)

    def _note_contents(self) -> None:
        self._synced.update(inode for names in self._names.values() for inode, _ in names.values())

    def sync_file(self, fd: int) -> None:
        """Replaces file_ops.sync_file."""
        self._synced.add(os.fstat(fd).st_ino)

    def _note(self, path: str) -> None:
        found = {}
        for entry in os.scandir(path):
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_directory and not (self._kept / str(entry.inode())).exists():
                try:
                    os.link(entry.path, self._kept / str(entry.inode()))
                except FileNotFoundError:
                    continue  # another thread's temporary file, which has its own name by now
                except FileExistsError:
                    pass  # another thread notes at the same moment
            found[entry.name] = (entry.inode(), is_directory)
        self._names[os.stat(path).st_ino] = found

    def sync_directory(self, path: str) -> None:
        """Replaces file_ops.sync_directory."""
        self.syncs.append(str(path))
        if Path(path).is_relative_to(self.root):
            self._note(path)

    def sync_file_system(self, path: str) -> None:
        """Replaces file_ops.sync_file_system; it takes effect at one moment, between the two hooks."""
        self.syncs.append("")
        if not Path(path).is_relative_to(self.root):
            return  # of what an image was built of: another machine's
        self.before_file_system_sync()
        self._note_all()
        self._note_contents()
        self.after_file_system_sync()

    def image(self, target: Path, *, forget_content: tuple[str, ...] = (), forget_unsynced: bool = False) -> Path:
        """The directory as a power cut would leave it now."""

        def lost(name: str, inode: int) -> bool:
            unsynced = inode not in self._synced and not name.endswith(SEGMENT_SUFFIXES)
            return name in forget_content or (forget_unsynced and unsynced)

        self._build(os.stat(self.root).st_ino, target, lost)
        return target

    def _build(self, inode: int, target: Path, lost: Callable[[str, int], bool]) -> None:
        target.mkdir()
        for name, (child, is_directory) in self._names.get(inode, {}).items():
            if is_directory:
                self._build(child, target / name, lost)
            else:
                content = (self._kept / str(child)).read_bytes()
                (target / name).write_bytes(b"" if lost(name, child) else content)


@contextmanager
def recorded(root: Path, kept: Path) -> Iterator[NameRecorder]:
    """Notes syncs below `root`; `kept` is a directory beside it that does not exist yet."""
    assert_alone()
    recorder = NameRecorder(root, kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_ops, "sync_file", recorder.sync_file)
        patch.setattr(file_ops, "sync_directory", recorder.sync_directory)
        patch.setattr(file_ops, "sync_file_system", recorder.sync_file_system)
        yield recorder


Names = dict[str, int]
"""Name → inode of the file that has it."""


class ChangedNames:
    """The names of one flat directory: those that are durable, and what was changed since, change by change.

    POSIX lets any of these changes be there after a power cut, each for itself. `judge` is called with names that may
    be left, whenever there are more of them than before; it builds them by `build`.
    """

    def __init__(self, directory: Path, kept: Path, judge: Callable[[Names], None]) -> None:
        self.directory = directory
        self._kept = kept  # a link to each file, by inode, so that no inode is used again
        kept.mkdir()
        self._judge = judge
        self._judged: set[tuple[tuple[str, int], ...]] = set()
        self._durable = self._now = self._listing()
        self._changes: list[dict[str, int | None]] = []

    def _listing(self) -> Names:
        found = {}
        for entry in os.scandir(self.directory):
            found[entry.name] = entry.inode()
            if not (self._kept / str(entry.inode())).exists():
                os.link(entry.path, self._kept / str(entry.inode()))
        return found

    def note(self) -> None:
        """Takes in what has changed since the last call, as one change, and has what may be left judged."""
        now, before = self._listing(), self._now
        if now == before:
            return
        change: dict[str, int | None] = dict.fromkeys(before.keys() - now.keys())
        change.update({name: inode for name, inode in now.items() if before.get(name) != inode})
        self._changes.append(change)
        self._now = now
        every = range(len(self._changes))
        for left in [
            *(set(every[:n]) for n in every),
            set(every),
            *({n} for n in every),
            *(set(every) - {n} for n in every),
        ]:
            names = self._with(left)
            key = tuple(sorted(names.items()))
            if key not in self._judged:
                self._judged.add(key)
                self._judge(names)

    def _with(self, left: set[int]) -> Names:
        """The durable names and those changes, by number."""
        names = dict(self._durable)
        for i in sorted(left):
            for name, inode in self._changes[i].items():
                if inode is None:
                    names.pop(name, None)
                else:
                    names[name] = inode
        return names

    def synced(self) -> None:
        """The directory is being synced: what was changed is durable."""
        self.note()
        self._durable, self._changes = self._now, []

    def build(self, names: Names, target: Path) -> None:
        """Makes a directory with these names; each file has the content that it has now."""
        target.mkdir(parents=True)
        for name, inode in names.items():
            (target / name).write_bytes((self._kept / str(inode)).read_bytes())


@contextmanager
def watched(changes: ChangedNames) -> Iterator[None]:
    """Has every rename, removal and sync of the directory noted."""
    rename, unlink, sync = file_ops.rename, file_ops.unlink, file_ops.sync_directory
    directory = str(changes.directory)

    def noted(path: str, change: Callable[[], None]) -> None:
        if os.path.dirname(path) != directory:
            change()
            return
        changes.note()  # what was made meanwhile
        change()
        changes.note()

    def syncing(path: str) -> None:
        if path == directory:
            changes.synced()
        else:
            sync(path)

    assert_alone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_ops, "rename", lambda source, target: noted(source, lambda: rename(source, target)))
        patch.setattr(
            file_ops,
            "unlink",
            lambda path, *, missing_ok=False: noted(path, lambda: unlink(path, missing_ok=missing_ok)),
        )
        patch.setattr(file_ops, "sync_directory", syncing)
        yield
