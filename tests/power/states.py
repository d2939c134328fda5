"""The states that a power cut may leave on a disk, by two models of file systems, one of them also aimed.

posix   A name is durable once its directory was synced, a file's bytes and size once the file was; of the rest any part
        may be there: each change of names or not, each write or not, sizes without contents, pages torn at 512 bytes.
        A rename inside a directory is there as a whole or not at all.
series  posix, aimed at one directory from which several names were taken away since its last sync: some of these
        changes are there, in any order, and mostly all else is.
ext4    Names, and files made shorter, come in one order: the journal holds a prefix of them, which reaches at least to
        the last sync that committed. Bytes in blocks that are on the disk may be old or new, page by page; what makes a
        file longer comes late (delayed allocation): the file is as short as it was, or has a part of it from the front
        on, or has zeros behind the old end in the block that it ended in. A rename over another file takes the bytes
        of the file it renames.

A state is drawn with a random.Random: the same one gives the same state.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.power.disk import Change, Disk, Inode, NameChange, apply

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

PAGE, SECTOR = 4096, 512

Tree = dict[str, bytes | str | None]
"""Relative path → content; None for a directory; str: where a symbolic link leads."""


def posix(disk: Disk, draw: random.Random) -> Tree:
    """One state that POSIX allows."""
    keep = _keeper(draw)
    content = _posix_content(draw)
    return _with_names(disk, content, lambda directory: [change for change in directory.name_changes if keep()])


def series(disk: Disk, draw: random.Random) -> Tree:
    """One state that POSIX allows, in which a series of renames or unlinks in one directory is there in part."""
    found = disk.series()
    if not found:
        return posix(disk, draw)
    aim = found[-1] if draw.random() < 0.75 else draw.choice(found)
    kept = _part_of(aim.name_changes, draw)
    keep = _keeper(draw) if draw.random() < 0.25 else lambda: True
    content = _posix_content(draw) if draw.random() < 0.25 else lambda node: bytes(node.content)

    def chosen(directory: Inode) -> list[NameChange]:
        return kept if directory is aim else [change for change in directory.name_changes if keep()]

    return _with_names(disk, content, chosen)


def _part_of(changes: list[NameChange], draw: random.Random) -> list[NameChange]:
    """Some of a series: all but one, one alone, the later ones, every second one, or any."""
    how = draw.choice(("but one", "one", "late", "second", "any"))
    at = draw.randrange(len(changes))
    if how == "but one":
        return changes[:at] + changes[at + 1 :]
    if how == "one":
        return [changes[at]]
    if how == "late":
        return changes[at:]
    return changes[at % 2 :: 2] if how == "second" else [change for change in changes if draw.random() < 0.5]


def _with_names(disk: Disk, content: Callable[[Inode], bytes], chosen: Callable[[Inode], Iterable[NameChange]]) -> Tree:
    """The disk with the names that are durable and, of those changed since, the `chosen` ones of each directory."""
    tree: Tree = {}

    def walk(directory: Inode, prefix: str) -> None:
        names = directory.durable_names
        if directory.name_changes:
            names = dict(names)
            for change in chosen(directory):
                for changed, name, node in change.settings:
                    if changed is directory and node is None:
                        names.pop(name, None)
                    elif changed is directory and node is not None:
                        names[name] = node
        _fill(tree, names, prefix, content, walk)

    walk(disk.root, "")
    return tree


def ext4(disk: Disk, draw: random.Random) -> Tree:
    """One state that ext4 with ordered data and delayed allocation may leave."""
    commit = _commit_point(disk, draw)
    names = {id(directory): dict(directory.committed_names) for directory in _directories(disk)}
    for change in disk.journal:
        if change.place >= commit:
            break
        for directory, name, node in change.settings:
            own = names.setdefault(id(directory), dict(directory.committed_names))
            if node is None:
                own.pop(name, None)
            else:
                own[name] = node
    mood = draw.choice(("none", "all", "mixed", "mixed"))
    tree: Tree = {}

    def content(node: Inode) -> bytes:
        return _ext4_content(node, commit, draw.choice(("none", "all", "part")) if mood == "mixed" else mood, draw)

    def walk(directory: Inode, prefix: str) -> None:
        _fill(tree, names.get(id(directory), directory.committed_names), prefix, content, walk)

    walk(disk.root, "")
    return tree


MODELS: dict[str, Callable[[Disk, random.Random], Tree]] = {"posix": posix, "ext4": ext4, "series": series}


def write(tree: Tree, root: Path) -> int:
    """Makes a state below `root`, which is empty; the bytes of its files."""
    size = 0
    base = os.fspath(root)
    for path, content in tree.items():
        whole = f"{base}/{path}"
        if content is None:
            os.mkdir(whole)
        elif isinstance(content, str):
            os.symlink(content, whole)
        else:
            fd = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, content)
            os.close(fd)
            size += len(content)
    return size


def _fill(
    tree: Tree,
    names: dict[str, Inode],
    prefix: str,
    content: Callable[[Inode], bytes],
    walk: Callable[[Inode, str], None],
) -> None:
    for name in sorted(names):
        node = names[name]
        if node.kind == "directory":
            tree[prefix + name] = None
            walk(node, f"{prefix}{name}/")
        else:
            tree[prefix + name] = node.target if node.kind == "link" else content(node)


def _keeper(draw: random.Random) -> Callable[[], bool]:
    """Decides for each change of names; all, none, most, few or half of them are kept."""
    chance = draw.choice((0.0, 0.05, 0.5, 0.95, 1.0))
    return lambda: draw.random() < chance


# ---- POSIX -----------------------------------------------------------------------------------------------------------


def _posix_content(draw: random.Random) -> Callable[[Inode], bytes]:
    moods = ("none", "all", "prefix", "some", "sizes", "pages")
    mood = draw.choice((*moods, "mixed", "mixed", "mixed"))

    def content(node: Inode) -> bytes:
        if not node.pending:
            return bytes(node.base)
        return _posix_version(node, draw.choice(moods) if mood == "mixed" else mood, draw)

    return content


def _posix_version(node: Inode, mood: str, draw: random.Random) -> bytes:
    if mood == "none":
        return bytes(node.base)
    if mood == "all":
        return bytes(node.content)
    made = bytearray(node.base)
    if mood in {"prefix", "some"}:
        count = draw.randint(0, len(node.pending))
        chosen = node.pending[:count] if mood == "prefix" else [c for c in node.pending if draw.random() < 0.5]
        for change in chosen:
            apply(made, change)
        return bytes(made)
    if mood == "sizes":
        made.extend(bytes(max(0, len(node.content) - len(made))))
        return bytes(made[: len(node.content)])
    size = draw.choice((len(node.base), len(node.content), max(len(node.base), len(node.content))))
    return _mixed_pages(node.base, node.content, size, 0, draw)


def _mixed_pages(old: bytearray, new: bytearray, size: int, start: int, draw: random.Random) -> bytes:
    """Old or new, page by page from `start` on, one page in eight that differs torn at 512 bytes; zeros where neither
    reaches."""
    was, now = bytes(old).ljust(size, b"\0")[:size], bytes(new).ljust(size, b"\0")[:size]
    made = bytearray(now[:start])
    chance = draw.choice((0.1, 0.5, 0.9))
    for position in range(start, size, PAGE):
        end = min(position + PAGE, size)
        if was[position:end] == now[position:end]:
            made += now[position:end]
        elif draw.random() < 0.125:
            for at in range(position, end, SECTOR):
                made += (now if draw.random() < 0.5 else was)[at : min(at + SECTOR, end)]
        else:
            made += (now if draw.random() < chance else was)[position:end]
    return bytes(made)


# ---- ext4 ------------------------------------------------------------------------------------------------------------


def _commit_point(disk: Disk, draw: random.Random) -> int:
    """Up to where the journal is on the disk: at least to the last commit, at most to the moment."""
    places = [disk.committed, *(change.place + 1 for change in disk.journal)]
    return draw.choice((places[0], places[-1], draw.choice(places), draw.choice(places)))


def _directories(disk: Disk) -> Iterator[Inode]:
    """Every directory that a name leads or led to."""
    seen = {disk.root}
    waiting = [disk.root]
    while waiting:
        directory = waiting.pop()
        yield directory
        for node in (*directory.names.values(), *directory.committed_names.values()):
            if node.kind == "directory" and node not in seen:
                seen.add(node)
                waiting.append(node)


def _ext4_content(node: Inode, commit: int, mood: str, draw: random.Random) -> bytes:
    if not node.pending:
        return bytes(node.base)
    settled = node.settled if node.settled and node.settled < commit else 0
    base = bytearray(node.base)
    rest: list[Change] = []
    later = False  # a file made shorter in a commit that is not there: nothing behind it can be there either
    for change in node.pending:
        shorter = change.data is None and change.place >= commit
        later = later or shorter
        if change.place < settled:
            apply(base, change)
        elif not later:
            rest.append(change)
    cuts = [i for i, change in enumerate(rest) if change.data is None]
    last_cut = cuts[-1] + 1 if cuts else 0
    new = bytearray(base)
    for i, change in enumerate(rest):
        apply(new, change)
        if i + 1 == last_cut:  # a truncation in the journal holds; data written before it past the new end is gone
            base = base[: len(new)] + new[len(base) :] if len(new) > len(base) else base[: len(new)]
    if mood == "none":
        return bytes(base)
    if mood == "all":
        return bytes(new)
    return _late_growth(base, new, draw)


def _late_growth(old: bytearray, new: bytearray, draw: random.Random) -> bytes:
    if len(new) <= len(old):
        return _mixed_pages(old, new, len(new), 0, draw)
    block_end = min(-(-len(old) // PAGE) * PAGE, len(new))
    pages = list(range(block_end, len(new), PAGE))
    size = draw.choice((len(old), block_end, len(new), draw.choice(pages) if pages else len(new)))
    made = bytearray(_mixed_pages(old, new, min(len(old), size), 0, draw))
    made += new[len(made) : size]
    if size > len(old) and draw.random() < 0.3:
        made[len(old) : block_end] = bytes(min(block_end, size) - len(old))
    return bytes(made[:size])
