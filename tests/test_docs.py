"""Generated documentation is fresh, what the prose names exists, and ARCHITECTURE.md has each package once."""

import ast
import re
from pathlib import Path

import pytest

from tests.kit.sources import name_of, tracked, tree_of
from tools import measured_table
from tools.generate_config_docs import TARGET, document

ROOT = Path(__file__).resolve().parent.parent
PROSE = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


def test_configuration_reference_is_fresh() -> None:
    assert TARGET.read_text(encoding="utf-8") == document(), "run `make docs`"


def test_measured_table_is_fresh() -> None:
    assert measured_table.main(["--check"]) == 0, "run `make docs`"


@pytest.mark.parametrize("name", PROSE)
def test_relative_links_lead_somewhere(name: str) -> None:
    path = ROOT / name
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_paths_named_in_prose_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`((?:kafkalite|ext|tests|tools|benchmarks|docs|examples|packaging)/[\w./-]*)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_index_of_documents_leads_to_each_of_them() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_each_reliability_scenario_has_tests_and_each_mark_a_row() -> None:
    room = ROOT / "tests" / "reliability"
    rows = re.findall(r"^\| ([A-Z]\d?|\d\.\d) \|", (room / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    marks = [re.findall(r'scenario\("([^"]+)"\)', path.read_text(encoding="utf-8")) for path in room.glob("test_*.py")]
    assert {*rows} == {mark for found in marks for mark in found}


def test_make_targets_named_in_prose_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {
        target for name in PROSE for target in re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8"))
    }
    assert named <= targets


# --- ARCHITECTURE.md --------------------------------------------------------------------------------------------------

LINES_MAX = 250
"""Lines of ARCHITECTURE.md: further detail belongs in the docstring of a package or module."""

LISTED_BY_MODULE = {
    "kafkalite/settings",
    "kafkalite/base",
    "kafkalite/broker/cluster",
    *(f"kafkalite/_native/{room}" for room in ("base", "tls", "wire", "avro", "log", "serve", "classic")),
}
"""Packages whose docstrings name each module."""


def architecture() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def rows_of(text: str) -> list[str]:
    """The folders that rows of its tables begin with, in order."""
    return re.findall(r"^\| `([\w/]+/)` \|", text[text.index("## Packages") : text.index("## A produce")], re.MULTILINE)


def packages() -> set[str]:
    """Folders of kafkalite with an `__init__.py`, each with a slash at its end."""
    names = (name_of(path) for path in tracked() if path.name == "__init__.py")
    return {name.removesuffix("__init__.py") for name in names if name.startswith("kafkalite/")}


def folders() -> set[str]:
    """Folders at the top, but for hidden ones."""
    names = {name_of(path).partition("/")[0] + "/" for path in tracked() if "/" in name_of(path)}
    return {name for name in names if not name.startswith(".")}


def words_of_docstring(package: str) -> set[str]:
    """Words in the docstring of a package."""
    return set(re.findall(r"\w+", ast.get_docstring(tree_of(ROOT / package / "__init__.py")) or ""))


def test_architecture_is_short() -> None:
    assert architecture().count("\n") <= LINES_MAX


def test_each_package_and_folder_has_one_row_of_architecture() -> None:
    assert sorted(rows_of(architecture())) == sorted(packages() | folders())


def test_files_that_architecture_names_exist() -> None:
    files = {f"/{name_of(path)}" for path in tracked()}
    named = set(re.findall(r"`([\w/]+\.(?:py|pyx|pxd|c|h|md|toml))`", architecture()))
    assert {"kafkalite/broker/handlers/table.py", "errors.py"} <= named
    assert {name for name in named if not any(file.endswith(f"/{name}") for file in files)} == set()


@pytest.mark.parametrize("package", sorted(LISTED_BY_MODULE))
def test_the_docstring_of_a_package_names_its_modules(package: str) -> None:
    source = package.replace("kafkalite/_native", "ext/kafkalite/_native")
    modules = {
        path.stem
        for path in tracked()
        if name_of(path.parent) == source and path.suffix in {".py", ".pyx", ".pxd"} and path.stem != "__init__"
    }
    assert modules
    assert modules - words_of_docstring(package) == set()


def test_the_docstring_of_the_tests_names_their_folders() -> None:
    there = {
        name.split("/")[1] for path in tracked() if (name := name_of(path)).startswith("tests/") and name.count("/") > 1
    }
    assert there - words_of_docstring("tests") == set()


def test_a_package_without_a_row_and_one_with_two_are_found() -> None:
    text = architecture()
    row = next(line for line in text.split("\n") if line.startswith("| `kafkalite/broker/net/` |"))
    assert sorted(rows_of(text.replace(row + "\n", ""))) != sorted(packages() | folders())
    assert sorted(rows_of(text.replace(row, f"{row}\n{row}"))) != sorted(packages() | folders())
