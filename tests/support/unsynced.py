"""What a power cut may leave of the names below a directory: those that a sync has put on the disk, and no others.

While a `NameRecorder` is installed each sync of a directory, or of the file system, notes which names are there;
`image` then builds the directory of the worst case, in which nothing else survived. A file keeps its content, whatever
happened to it, unless `forget_content` names it: then it is empty, as one is whose size was never written.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite._native import file_ops


class NameRecorder:
    """The names that are durable below `root`, which itself counts as durable."""

    def __init__(self, root: Path, kept: Path) -> None:
        self.root = root
        self.syncs: list[str] = []  # "" for one of the file system
        self.before_file_system_sync: Callable[[], None] = lambda: None
        self.after_file_system_sync: Callable[[], None] = lambda: None
        self._kept = kept  # a link to each file that was ever durable, by inode
        kept.mkdir()
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # directory's inode → name → (inode, a directory too)
        self._note_all()

    def _note_all(self) -> None:
        for path, _, _ in os.walk(self.root):
            self._note(path)

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
        """Stands for file_ops.sync_directory."""
        self.syncs.append(str(path))
        if Path(path).is_relative_to(self.root):
            self._note(path)

    def sync_file_system(self, path: str) -> None:
        """Stands for file_ops.sync_file_system; it takes effect at one moment, between what the two hooks do."""
        assert Path(path).is_relative_to(self.root)
        self.syncs.append("")
        self.before_file_system_sync()
        self._note_all()
        self.after_file_system_sync()

    def image(self, target: Path, *, forget_content: tuple[str, ...] = ()) -> Path:
        """The directory as a power cut would leave it now."""
        self._build(os.stat(self.root).st_ino, target, forget_content)
        return target

    def _build(self, inode: int, target: Path, forget_content: tuple[str, ...]) -> None:
        target.mkdir()
        for name, (child, is_directory) in self._names.get(inode, {}).items():
            if is_directory:
                self._build(child, target / name, forget_content)
            else:
                content = (self._kept / str(child)).read_bytes()
                (target / name).write_bytes(b"" if name in forget_content else content)


@contextmanager
def recorded(root: Path, kept: Path) -> Iterator[NameRecorder]:
    """Notes syncs below `root`; `kept` is a directory beside it that does not exist yet."""
    recorder = NameRecorder(root, kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_ops, "sync_directory", recorder.sync_directory)
        patch.setattr(file_ops, "sync_file_system", recorder.sync_file_system)
        yield recorder
