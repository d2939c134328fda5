"""Documentation that is generated is fresh, and what the prose names exists."""

import re
from pathlib import Path

import pytest

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
