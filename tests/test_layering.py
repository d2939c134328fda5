"""Who may import whom, where import-linter cannot look: native modules, what an import costs, what it needs.

The Python rooms' rules are contracts in pyproject.toml, run by `make lint` and by the first test here.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "ext" / "kafkalite" / "_native"

RANKS = [
    {"status", "error_codes", "cursor"},
    {"crc32", "crc32c", "file_ops"},
    {
        "message_set",
        "old_message",
        "growing",
        "batch",
        "codec",
        "index",
        "record_format",
        "columns",
        "lines",
        "key_map",
        "avro_decode",
        "avro_encode",
    },
    {"scan", "segment", "aborted", "producers", "compaction", "stream"},
    {"log_core", "classic_log"},
    {"topic_table"},
    {"transfer"},
    {"request_parts"},
    {"fetch_session"},
    {"produce", "fetch"},
    {"connection"},
    {"classic_connection"},
]
"""Native modules from the bottom up: each may cimport what stands lower, or beside it."""

CIMPORT = re.compile(r"^\s*from kafkalite\._native\.(\w+) cimport", re.MULTILINE)


def rank_of(name: str) -> int:
    return next((rank for rank, names in enumerate(RANKS) if name in names), -1)


def upward_cimports(name: str, text: str) -> list[str]:
    return [target for target in CIMPORT.findall(text) if rank_of(target) > rank_of(name)]


@pytest.mark.parametrize("path", sorted(NATIVE.glob("*.p[yx][xd]")), ids=lambda path: path.name)
def test_native_modules_look_down_only(path: Path) -> None:
    if path.stem == "__init__":
        return
    assert rank_of(path.stem) >= 0, f"give {path.stem} its place in RANKS"
    assert upward_cimports(path.stem, path.read_text(encoding="utf-8")) == []


def test_an_upward_cimport_is_found() -> None:
    assert upward_cimports("index", "from kafkalite._native.segment cimport Segment\n") == ["segment"]
    assert upward_cimports("segment", "from kafkalite._native.index cimport Index\n") == []


def test_rooms_keep_their_contracts() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        pytest.param("import kafkalite", ["numpy", "kafkalite.broker", "kafkalite.config"], id="the package alone"),
        pytest.param("import kafkalite.testing", ["numpy", "kafkalite.broker"], id="the pytest plugin, in every run"),
        pytest.param("import kafkalite.config", ["numpy", "kafkalite._native"], id="settings"),
    ],
)
def test_importing_costs_no_more_than_it_must(statement: str, absent: list[str]) -> None:
    script = f"{statement}\nimport sys\nprint(','.join(name for name in {absent!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


IMPORTED_AS = {"google-re2": "re2"}
"""Distributions whose package has another name."""
AT_IMPORT = {"spark/": {"pyspark"}, "testing.py": {"pytest"}}
"""Module or room → what it imports at once beside the core install, since nobody without it has a use for it."""


def packages_of(requirements: list[str]) -> set[str]:
    names = {re.split(r"[<>=\[]", text)[0] for text in requirements}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def imports(tree: ast.AST, *, in_function: bool = False) -> Iterator[tuple[str, bool]]:
    """(package, whether a function imports it), without those that only a type checker follows."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0], in_function
        yield from imports(node, in_function=in_function or isinstance(node, ast.FunctionDef))


def test_modules_import_only_what_an_install_brings() -> None:
    """A developer's tools bring packages that a user does not have, so a stray import would fail at the user's only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    core = packages_of(project["dependencies"]) | sys.stdlib_module_names | {"kafkalite"}
    optional = set().union(*(packages_of(extras[name]) for name in extras.keys() - {"dev", "test"}))
    strays = []
    for path in (ROOT / "kafkalite").rglob("*.py"):
        place = path.relative_to(ROOT / "kafkalite").as_posix()
        here = core.union(*(names for start, names in AT_IMPORT.items() if place.startswith(start)))
        found = set(imports(ast.parse(path.read_text(encoding="utf-8"))))
        strays += [f"{place} imports {name}" for name, late in found if name not in (here | optional if late else here)]
    assert strays == []


def test_a_stray_import_is_found() -> None:
    text = "import os\nif TYPE_CHECKING:\n    import a\ndef run():\n    from b.c import d\nif os:\n    import e"
    found = list(imports(ast.parse(text)))
    assert found == [("os", False), ("b", True), ("e", False)]
