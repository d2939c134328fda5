"""Files, time, threads and randomness under `log` and `coordinator` go through their seams, so that a simulation can
replace all four; and tests that replace one run in a separate process.

The seams: `kafkalite/broker/log/disk.py` and `kafkalite/_native/base/file_ops` (files), `kafkalite/base/clock.py`
(time), `kafkalite/base/executors.py` (threads and waits), `kafkalite/base/randomness.py`. Locks need no seam: no code
waits while it holds one, so a single thread never finds one taken.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.sources import ROOT, name_of, text_of, tree_of

NATIVE = ROOT / "ext" / "kafkalite" / "_native"
ROOMS = ("broker/log", "broker/coordinator")
SEAMS = {"kafkalite/broker/log/disk.py"}

MODULES = frozenset(
    {
        *("fcntl", "glob", "io", "mmap", "pathlib", "shutil", "tempfile"),
        *("datetime", "sched", "signal", "time"),
        *("asyncio", "concurrent", "multiprocessing", "queue", "select", "selectors", "socket", "subprocess"),
        *("random", "secrets", "uuid"),
    }
)
"""Modules that are files, time, threads and waiting, chance."""
ALLOWED = {
    "os": re.compile(r"O_[A-Z]+|strerror|path|path\.(basename|dirname|splitext|abspath)"),
    "threading": re.compile(r"R?Lock"),
}
"""Module → what of it neither touches a file nor waits."""


def bypasses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of everything in a module that goes round the seams. What only a type checker reads may."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield from _in_node(node)
        yield from bypasses(node)


def _in_node(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import():
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] in MODULES)
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in {*MODULES, *ALLOWED}:
            yield node.lineno, module
        case ast.Call(func=ast.Name(id="open")):
            yield node.lineno, "open"
        case ast.Attribute():
            name = ast.unparse(node)
            allowed = ALLOWED.get(name.partition(".")[0])
            if allowed and re.fullmatch(r"\w+(\.\w+)+", name) and not allowed.fullmatch(name.partition(".")[2]):
                yield node.lineno, name


def room_files() -> list[Path]:
    found = [path for room in ROOMS for path in sorted((ROOT / "kafkalite" / room).rglob("*.py"))]
    return [path for path in found if path.relative_to(ROOT).as_posix() not in SEAMS]


def test_rooms_go_through_the_seams() -> None:
    files = room_files()
    assert files
    assert [f"{name_of(path)}:{line}: {what}" for path in files for line, what in bypasses(tree_of(path))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os\nos.rename(a, b)", "os.rename"),
        ("def f():\n    with open(path) as file:\n        pass", "open"),
        ("def f():\n    import time\n    return time.monotonic()", "time"),
        ("from os import path", "os"),
        ("from os.path import exists", "os.path"),
        ("found = os.path.exists(p)", "os.path.exists"),
        ("from pathlib import Path", "pathlib"),
        ("found = list(map(os.stat, paths))", "os.stat"),
        ("thread = threading.Thread(target=f)", "threading.Thread"),
        ("self.ready = threading.Condition()", "threading.Condition"),
        ("from concurrent.futures import ThreadPoolExecutor", "concurrent.futures"),
        ("from threading import Event", "threading"),
        ("import uuid", "uuid"),
    ],
)
def test_what_goes_round_a_seam_is_found(text: str, found: str) -> None:
    assert [what for _, what in bypasses(ast.parse(text))] == [found]


@pytest.mark.parametrize(
    "text",
    [
        "os.path.basename(p) + os.strerror(5)",
        "file_ops.open_file(p, os.O_RDWR | os.O_CREAT)",
        "if TYPE_CHECKING:\n    from pathlib import Path",
        "found = disk.exists(p)\nlog.open()",
        "self.lock = threading.Lock()",
    ],
)
def test_what_touches_no_file_may_be_used(text: str) -> None:
    assert list(bypasses(ast.parse(text))) == []


SYSTEM_CALLS = re.compile(
    r"\b(?:pwritev?|fsync|fdatasync|syncfs|sync|f?truncate|fallocate|posix_fallocate|unlink(?:at)?|rename(?:at2?)?"
    r"|mkdir(?:at)?|rmdir|open(?:at)?|creat|f?utimens?|copy_file_range|msync)"
    r'(?=\(\s*(?:int \w+|const char\*|void\* \w+)[^"\n]*\)\s*$|"\s*\()'
)
"""Declarations, in `cdef extern`, of what changes a file or opens one."""


def declared_calls(text: str) -> list[str]:
    """System calls on files that native code declares for itself."""
    declarations = re.findall(r"^cdef extern from .*?\n((?:[ \t]+.*\n|\n)+)", text, re.MULTILINE)
    return [match.group() for block in declarations for match in re.finditer(SYSTEM_CALLS, re.sub(r" +$", "", block))]


def test_native_code_changes_files_in_one_place() -> None:
    found = {name_of(path): calls for path in NATIVE.rglob("*.pyx") if (calls := declared_calls(text_of(path)))}
    assert [*found] == [name_of(NATIVE / "base" / "file_ops.pyx")], found


def test_a_system_call_of_native_code_is_found() -> None:
    text = (
        'cdef extern from "<unistd.h>" nogil:\n    int c_unlink "unlink"(const char* path)\n    int close(int fd)\n\n'
    )
    assert declared_calls(text) == ["unlink"]
    assert declared_calls('cdef extern from "<unistd.h>":\n    int fsync(int fd)\n') == ["fsync"]
    assert declared_calls('cdef extern from "<unistd.h>":\n    int pread(int fd, void* to, size_t size)\n') == []


KIT = ROOT / "tests" / "kit"
SWAPS = re.compile(r"\bfile_ops\.(?:arm|use_disk)\(|\bdisk\.instead\(|\bchance\.drawn_from\(")
"""Calls that replace a seam for a whole process; tests/kit/harness/seams.py checks that no broker runs in it."""
PATCHES = re.compile(r"\bsetattr\(\s*(?:file_ops|disk|randomness)\b")
ALONE = re.compile(r"\bmark\.own_process\b|\bassert_alone\(")


def swaps_unseen(text: str) -> list[str]:
    """Return the replacements in a test's file without the mark of a separate process."""
    return SWAPS.findall(text) + ([] if ALONE.search(text) else PATCHES.findall(text))


def test_seams_are_swapped_in_processes_of_their_own() -> None:
    exempt = {KIT / "harness" / "seams.py", Path(__file__).resolve()}
    files = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path not in exempt]
    assert {name_of(path): found for path in files if (found := swaps_unseen(text_of(path)))} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    with disk.instead(simulated):", True),
        ("    file_ops.arm(kinds, after=0, error=5)", True),
        ('    patch.setattr(file_ops, "rename", renaming)', True),
        ('@pytest.mark.own_process\ndef test_it():\n    patch.setattr(file_ops, "rename", renaming)', False),
        ("    seams.arm(kinds, after=0, error=5)", False),
    ],
)
def test_a_swap_in_a_process_that_tests_share_is_found(text: str, found: bool) -> None:
    assert bool(swaps_unseen(text)) == found
