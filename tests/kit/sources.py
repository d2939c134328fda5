"""The repository's files, and what Python's parser makes of them: read and parsed once in a process.

The checks of the repository by itself (tests/test_tidy*.py and others in tests/) take both from here.
"""

from __future__ import annotations

import ast
import functools
import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY_SUFFIXES = frozenset({".png", ".gz", ".xz", ".bin", ".log", ".zst", ".ico"})
GENERATED = ("kafkalite/wire/protocol/messages/", "benchmarks/results/")
"""Written by a tool, so no check makes them better."""


@functools.cache
def tracked() -> tuple[Path, ...]:
    """The files of the repository; where it is no repository (an sdist), every file that is not built."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0:
        return tuple(path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file())
    skipped = {"build", "dist", ".venv", "__pycache__"}
    return tuple(path for path in ROOT.rglob("*") if path.is_file() and not skipped & {*path.relative_to(ROOT).parts})


@functools.cache
def name_of(path: Path) -> str:
    """A file's path from the repository's root on."""
    return path.relative_to(ROOT).as_posix()


def is_generated(path: Path) -> bool:
    return name_of(path).startswith(GENERATED)


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def text_files() -> Iterator[tuple[Path, str]]:
    """Path and text of each file of the repository that is text."""
    for path in tracked():
        if path.suffix not in BINARY_SUFFIXES:
            yield path, text_of(path)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """A Python file's syntax tree. It is shared, so it stays as it is.

    The garbage collector leaves it out: a collection that visits all trees takes seconds.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


@functools.cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes of a tree, in the order of `ast.walk`. To walk a tree again takes longer than to parse it."""
    return tuple(ast.walk(tree))


def python_files(under: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """Path and syntax tree of each Python file whose name begins so, but the generated ones."""
    for path in tracked():
        if path.suffix == ".py" and name_of(path).startswith(under) and not is_generated(path):
            yield path, tree_of(path)
