"""Documentation that is generated is fresh, what the prose names exists, and the map of the tree has all of it."""

import re
from pathlib import Path

import pytest

from tests.kit.sources import name_of, tracked
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
    named = re.findall(r"`((?:kafkalite|ext|tests|tools|benchmarks|docs)/[\w./-]*)`", text)
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


# --- ARCHITECTURE.md, the map of the tree -----------------------------------------------------------------------------

PARTS_OF_ROOMS = ("tests", "benchmarks", "examples")
"""Folders that the row of their room names one by one."""

MODULE_BY_MODULE = ("kafkalite/settings", "kafkalite/base", "kafkalite/broker/cluster")
"""Rooms of which the map says what each module is for."""


def rows_of_rooms() -> dict[str, str]:
    """First cell → second one."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text[text.index("## Rooms") : text.index("Native rooms in")]
    return dict(re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE))


def rooms_and_modules(folder: str) -> set[str]:
    """What is in a folder: rooms with a slash behind them, and modules."""
    below = [name_of(path).removeprefix(f"{folder}/") for path in tracked() if name_of(path).startswith(f"{folder}/")]
    rooms = {name.split("/")[0] + "/" for name in below if "/" in name}
    return rooms | {name for name in below if name.endswith(".py") and "/" not in name}


@pytest.mark.parametrize("package", ["kafkalite", "kafkalite/wire", "kafkalite/broker"])
def test_each_room_and_module_of_the_package_has_one_row_of_the_map(package: str) -> None:
    named = [name for cell in rows_of_rooms() for name in re.findall(rf"`({package}/[\w.]+/?)`", cell)]
    there = {f"{package}/{name}" for name in rooms_and_modules(package)}
    assert sorted(named) == sorted(there - {f"{package}/__init__.py"} if package != "kafkalite" else there)


@pytest.mark.parametrize("room", PARTS_OF_ROOMS)
def test_the_row_of_a_room_names_its_folders(room: str) -> None:
    folders = {f"{room}/{name}" for name in rooms_and_modules(room) if name.endswith("/")}
    row = rows_of_rooms()[f"`{room}/`"]
    assert folders - set(re.findall(r"`([\w/]+)`", row)) == set()


@pytest.mark.parametrize("room", MODULE_BY_MODULE)
def test_the_row_of_a_room_names_its_modules(room: str) -> None:
    row = rows_of_rooms()[f"`{room}/`"]
    named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", row)}
    modules = {name for name in rooms_and_modules(room) if name.endswith(".py")}
    assert modules - named == {"__init__.py"}


def test_modules_that_the_map_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    files = {f"/{name_of(path)}" for path in tracked()}
    named = set(re.findall(r"`([\w/]+\.(?:py|pyx|pxd|c|h))`", text))
    assert len(named) > 150
    assert {name for name in named if not any(file.endswith(f"/{name}") for file in files)} == set()


def test_the_table_of_native_rooms_names_each_module_once() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)/` \| .* \| (.*) \|$", text[text.index("Native rooms in") :], re.MULTILINE))
    source = "ext/kafkalite/_native/"
    built = [name_of(path).removeprefix(source) for path in tracked() if name_of(path).startswith(source)]
    there = {name.rpartition(".")[0] for name in built if name.endswith((".pyx", ".pxd"))}
    named = [f"{room}/{module}" for room, modules in rows.items() for module in re.findall(r"\w+", modules)]
    assert sorted(named) == sorted(name for name in there if not name.endswith("__init__"))
